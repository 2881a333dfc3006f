//! Streams, events and host reads order work as they do on a GPU.

use bitproof::numerics::Dtype;
use bitproof::plan::Combine;
use bitproof::world::{EventId, Family, HazardKind, Rank, RankError, StreamId};

use crate::cluster::{ALL, Cluster, Outcome, Seen, ramp, scale_add, show, step_in_place, tensor};

const SIDE: StreamId = StreamId(1);
const EVENT: EventId = EventId(7);

fn kinds(outcome: &Outcome) -> Vec<HazardKind> {
    let hazards = &outcome.record().hazards;
    hazards.iter().map(|hazard| hazard.kind).collect()
}

/// Writes x on the compute stream and reads it on a side stream; `edge` comes between.
fn hand_over(edge: fn(&mut Rank)) -> Outcome {
    Cluster::new(1).watched().run(move |rank, seen| {
        let (x, y) = (rank.alloc("x", Dtype::F32, 8), tensor(rank, "y", &[0.0; 8]));
        let out = rank.alloc("out", Dtype::F32, 8);
        rank.end_setup()?;
        ramp(rank, "make x", x, 2.0, 1.0);
        edge(rank);
        rank.on_stream(SIDE, |rank| scale_add(rank, "use x", [x, y, out], 1.0));
        rank.set_step(0);
        rank.synchronize_stream(SIDE)?;
        rank.end_step()?;
        show(rank, seen, "out", out)
    })
}

#[test]
fn an_event_orders_two_streams() {
    let outcome = hand_over(|rank| {
        rank.record(EVENT);
        rank.on_stream(SIDE, |rank| rank.wait_event(EVENT));
    });
    assert_eq!(kinds(&outcome), []);
    let expected: Vec<f32> = (0..8).map(|i| i as f32 * 2.0 + 1.0).collect();
    assert_eq!(outcome.values(0, "out"), expected);
}

#[test]
fn without_an_event_the_same_program_is_a_hazard() {
    let outcome = hand_over(|_| {});
    assert_eq!(kinds(&outcome), [HazardKind::ReadBeforeComplete]);
    let hazard = &outcome.record().hazards[0];
    assert_eq!((hazard.rank, hazard.words), (0, (0, 8)));
    assert_eq!(hazard.buffer.as_deref(), Some("x"));
    assert_eq!(
        (&*hazard.first.site.op, &*hazard.second.site.op),
        ("make x", "use x")
    );
    assert!(hazard.first.write && !hazard.second.write);
    assert_eq!(
        hazard.missing_edge,
        "stream 1 must wait for `make x` on the compute stream before `use x`: record an event \
         behind `make x`"
    );
}

/// The wait binds to the latest record when it is called: a later one is not waited for.
#[test]
fn a_wait_binds_to_the_latest_record_so_far() {
    let outcome = hand_over(|rank| {
        rank.on_stream(SIDE, |rank| rank.wait_event(EVENT));
        rank.record(EVENT);
    });
    assert_eq!(kinds(&outcome), [HazardKind::ReadBeforeComplete]);
    let notes = &outcome.record().notes;
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(
        notes[0].contains("event 7, which was never recorded"),
        "{notes:?}"
    );
}

/// An event of an earlier step is over: waiting for it is no mistake, and nothing is waited for.
#[test]
fn an_event_of_an_earlier_step_is_over() {
    let outcome = Cluster::new(1).watched().run(|rank, seen| {
        let x = tensor(rank, "x", &[0.0; 4]);
        rank.record(EVENT);
        let reduced = rank.all_reduce("early", Family::LossMean, ALL, x, Combine::Sum);
        rank.end_setup()?;
        rank.end_step()?;
        rank.set_step(1);
        // Takes the ticket numbers that the old handles had.
        let late = rank.all_reduce("late", Family::LossMean, ALL, x, Combine::Sum);
        rank.on_stream(SIDE, |rank| {
            rank.wait_event(EVENT);
            rank.wait(reduced);
            step_in_place(rank, "too early", x, 1.0);
        });
        rank.wait(late);
        rank.end_step()?;
        show(rank, seen, "x", x)
    });
    assert_eq!(outcome.record().notes, Vec::<String>::new());
    assert!(
        !kinds(&outcome).is_empty(),
        "old handles must not order new work"
    );
}

#[test]
fn a_host_read_orders_what_is_issued_after_it_on_every_stream() {
    let program = |read: bool| {
        move |rank: &mut Rank, _: &Seen| -> Result<(), RankError> {
            let x = tensor(rank, "x", &[0.0; 8]);
            rank.end_setup()?;
            rank.on_stream(SIDE, |rank| step_in_place(rank, "side", x, 1.0));
            if read {
                rank.on_stream(SIDE, |rank| rank.read("look", x))?;
            }
            step_in_place(rank, "main", x, 1.0);
            rank.end_step()
        }
    };
    assert_eq!(kinds(&Cluster::new(1).watched().run(program(true))), []);
    assert_eq!(
        kinds(&Cluster::new(1).watched().run(program(false))),
        [HazardKind::WriteAfterRead, HazardKind::WriteAfterWrite]
    );
}

/// Without a wait the consumer runs before the collective here; with it, after.
#[test]
fn a_stream_waits_for_a_collective_only_if_told() {
    let program = |wait: bool| {
        move |rank: &mut Rank, seen: &Seen| -> Result<(), RankError> {
            let (x, zero) = (
                tensor(rank, "x", &[1.0; 4]),
                tensor(rank, "zero", &[0.0; 4]),
            );
            let out = rank.alloc("out", Dtype::F32, 4);
            rank.end_setup()?;
            let handle = rank.all_reduce("reduce", Family::DpGradients, ALL, x, Combine::Sum);
            if wait {
                rank.wait(handle);
            }
            scale_add(rank, "use", [x, zero, out], 1.0);
            rank.end_step()?;
            show(rank, seen, "out", out)
        }
    };
    let waited = Cluster::new(2).watched().run(program(true));
    assert_eq!(kinds(&waited), []);
    assert_eq!(waited.values(0, "out"), [2.0; 4]);
    let rash = Cluster::new(2).watched().run(program(false));
    assert_eq!(kinds(&rash), [HazardKind::ReadBeforeComplete]);
    assert_eq!(rash.values(0, "out"), [1.0; 4]);
    let hazard = &rash.record().hazards[0];
    assert_eq!(hazard.occurrences, 2, "both ranks");
    assert_eq!(
        hazard.missing_edge,
        "the compute stream must wait for `reduce` before `use`"
    );
}
