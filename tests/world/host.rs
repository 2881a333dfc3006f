//! What hosts do themselves: they wait, ask, and touch pinned memory; and how far a step's end is
//! from a barrier.

use bitproof::numerics::Dtype;
use bitproof::plan::Combine;
use bitproof::world::{
    COMPUTE_STREAM, EventId, Family, Handle, Hazard, HazardKind, QueryId, Rank, RankError, StreamId,
};

use crate::cluster::{ALL, Cluster, Outcome, Seen, ramp, show, step_in_place, tensor};

const FAMILY: Family = Family::DpGradients;
const SIDE: StreamId = StreamId(1);

fn run(program: fn(&mut Rank, &Seen) -> Result<(), RankError>) -> Outcome {
    Cluster::new(2).watched().run(program)
}

fn kinds(outcome: &Outcome) -> Vec<HazardKind> {
    let hazards = &outcome.record().hazards;
    hazards.iter().map(|hazard| hazard.kind).collect()
}

fn only(outcome: &Outcome) -> &Hazard {
    let hazards = &outcome.record().hazards;
    assert_eq!(hazards.len(), 1, "{hazards:#?}");
    &hazards[0]
}

/// Reduces in step 1 and uses the result in step 2; `wait` comes between.
fn across_steps(
    rank: &mut Rank,
    seen: &Seen,
    wait: fn(&mut Rank, Handle) -> Result<(), RankError>,
) -> Result<(), RankError> {
    let x = tensor(rank, "x", &[1.0; 4]);
    rank.end_setup()?;
    rank.set_step(1);
    let handle = rank.edge("param_gather.bucket0", |rank| {
        rank.all_reduce("reduce", FAMILY, ALL, x, Combine::Sum)
    });
    rank.end_step()?;
    rank.set_step(2);
    wait(rank, handle)?;
    step_in_place(rank, "use x", x, 2.0);
    show(rank, seen, "x", x)?;
    rank.end_step()
}

/// A step's end is a read of the loss: other streams go on, and what they do must be waited for.
#[test]
fn a_step_ends_without_waiting_for_other_streams() {
    let early = run(|rank, seen| across_steps(rank, seen, |_, _| Ok(())));
    let found = &early.record().hazards[0];
    assert_eq!(found.kind, HazardKind::ReadBeforeComplete);
    assert_eq!((found.first.site.step, found.second.site.step), (1, 2));
    assert_eq!(found.edge.as_deref(), Some("param_gather.bucket0"));
    let waited = run(|rank, seen| {
        across_steps(rank, seen, |rank, handle| {
            rank.wait(handle);
            Ok(())
        })
    });
    assert_eq!(kinds(&waited), []);
    assert_eq!(waited.values(0, "x"), [5.0; 4]);
    for wait in [
        |rank: &mut Rank, handle| rank.wait_host(handle),
        |rank: &mut Rank, _| rank.synchronize_device(),
    ] {
        let outcome = Cluster::new(2)
            .watched()
            .run(move |rank, seen| across_steps(rank, seen, wait));
        assert_eq!(kinds(&outcome), []);
    }
}

#[test]
fn the_loss_is_read_behind_the_compute_stream_alone() {
    let outcome = run(|rank, _| {
        let loss = tensor(rank, "loss", &[1.0]);
        rank.end_setup()?;
        rank.set_step(1);
        let handle = rank.all_reduce("mean", FAMILY, ALL, loss, Combine::Sum);
        rank.metric("lm loss", loss);
        rank.end_step()?;
        rank.wait(handle);
        rank.set_step(2);
        rank.end_step()
    });
    let found = only(&outcome);
    assert_eq!(found.kind, HazardKind::ReadBeforeComplete);
    assert_eq!(&*found.second.site.op, "metric lm loss");
}

#[test]
fn a_stream_that_was_synchronised_is_known_and_no_other() {
    fn program(rank: &mut Rank, synchronised: StreamId) -> Result<(), RankError> {
        let x = rank.alloc("x", Dtype::F32, 4);
        rank.end_setup()?;
        rank.set_step(1);
        rank.on_stream(SIDE, |rank| ramp(rank, "make x", x, 1.0, 1.0));
        rank.synchronize_stream(synchronised)?;
        step_in_place(rank, "use x", x, 2.0);
        rank.end_step()
    }
    assert_eq!(kinds(&run(|rank, _| program(rank, SIDE))), []);
    let other = run(|rank, _| program(rank, COMPUTE_STREAM));
    assert!(kinds(&other).contains(&HazardKind::ReadBeforeComplete));
}

/// Queries give no edge, whatever they answer.
#[test]
fn a_query_has_both_answers_and_orders_nothing() {
    fn program(rank: &mut Rank, seen: &Seen) -> Result<(), RankError> {
        let (x, y) = (tensor(rank, "x", &[1.0; 4]), tensor(rank, "y", &[0.0; 4]));
        rank.end_setup()?;
        rank.set_step(1);
        let handle = rank.all_reduce("reduce", FAMILY, ALL, x, Combine::Sum);
        if rank.query("poll", handle)? {
            step_in_place(rank, "ready", y, 1.0);
        }
        rank.wait_host(handle)?;
        assert!(rank.query("poll again", handle)?);
        step_in_place(rank, "use x", x, 1.0);
        show(rank, seen, "y", y)?;
        rank.end_step()
    }
    let ready = run(program);
    assert_eq!(kinds(&ready), []);
    assert_eq!(ready.values(0, "y"), [1.0; 4]);
    let points = &ready.record().queries;
    let of_rank_0 = points.iter().filter(|point| point.id.rank == 0);
    let open: Vec<bool> = of_rank_0.map(|point| point.open).collect();
    assert_eq!(open, [true, false], "the host knows of the second");
    let first = QueryId {
        step: 1,
        rank: 0,
        ordinal: 0,
    };
    let denied = Cluster::new(2).watched().options(|options| {
        options.schedule.not_ready.insert(first);
    });
    let denied = denied.run(program);
    assert_eq!(denied.values(0, "y"), [0.0; 4]);
    assert_eq!(denied.values(1, "y"), [1.0; 4]);
    let rash = run(|rank, _| {
        let x = tensor(rank, "x", &[1.0; 4]);
        rank.end_setup()?;
        rank.set_step(1);
        let handle = rank.all_reduce("reduce", FAMILY, ALL, x, Combine::Sum);
        while !rank.query("poll", handle)? {}
        step_in_place(rank, "use x", x, 1.0);
        rank.wait(handle);
        rank.end_step()
    });
    assert!(kinds(&rash).contains(&HazardKind::ReadBeforeComplete));
}

/// What cannot be over before the host has its answer is not ready.
#[test]
fn a_query_that_would_block_is_answered_no() {
    let outcome = run(|rank, seen| {
        let x = tensor(rank, "x", &[1.0; 4]);
        rank.end_setup()?;
        rank.set_step(1);
        // Each rank sends only after it has asked.
        let received = rank.recv("receive", 1 - rank.id, x);
        let ready = rank.query("poll", received)?;
        let y = tensor(rank, "y", &[f32::from(u8::from(ready)); 4]);
        let sent = rank.send("send", 1 - rank.id, y);
        rank.wait(received);
        rank.wait(sent);
        show(rank, seen, "x", x)?;
        rank.end_step()
    });
    assert_eq!(outcome.values(0, "x"), [0.0; 4]);
    assert!(outcome.record().queries.iter().all(|query| !query.open));
}

#[test]
fn pinned_memory_must_be_waited_for() {
    fn offload(rank: &mut Rank, seen: &Seen, waits: bool) -> Result<(), RankError> {
        let x = tensor(rank, "x", &[3.0; 4]);
        let pinned = rank.alloc_host("pinned", Dtype::F32, 4);
        rank.end_setup()?;
        rank.set_step(1);
        rank.on_stream(SIDE, |rank| rank.copy("offload", x, pinned));
        if waits {
            rank.synchronize_stream(SIDE)?;
        }
        let words = rank.host_read("look", pinned)?;
        let y = rank.alloc("y", Dtype::F32, 4);
        rank.upload("y", y, &words);
        show(rank, seen, "y", y)?;
        rank.end_step()
    }
    let sound = run(|rank, seen| offload(rank, seen, true));
    assert_eq!(kinds(&sound), []);
    assert_eq!(sound.values(0, "y"), [3.0; 4]);
    let rash = run(|rank, seen| offload(rank, seen, false));
    let found = only(&rash);
    assert_eq!(found.kind, HazardKind::UnorderedHostAccess);
    assert_eq!(found.second.stream, "the host");
}

/// `NVIDIA/nvidia-resiliency-ext#376`: what is staged is overwritten before it has been copied.
#[test]
fn the_host_must_not_overwrite_what_is_being_copied() {
    fn reload(rank: &mut Rank, blocking: bool) -> Result<(), RankError> {
        let x = rank.alloc("x", Dtype::F32, 2);
        let pinned = rank.alloc_host("pinned", Dtype::F32, 2);
        rank.host_write("fill", pinned, &[1, 2])?;
        rank.end_setup()?;
        rank.set_step(1);
        match blocking {
            true => rank.copy_blocking("reload", pinned, x)?,
            false => rank.copy("reload", pinned, x),
        }
        rank.host_write("refill", pinned, &[3, 4])?;
        rank.end_step()
    }
    assert_eq!(kinds(&run(|rank, _| reload(rank, true))), []);
    let outcome = run(|rank, _| reload(rank, false));
    let found = only(&outcome);
    assert_eq!(found.kind, HazardKind::UnorderedHostAccess);
    assert_eq!(&*found.second.site.op, "refill");
}

#[test]
fn a_copy_is_torn_by_a_write_of_its_source() {
    let outcome = run(|rank, _| {
        let (x, y) = (tensor(rank, "x", &[1.0; 4]), tensor(rank, "y", &[0.0; 4]));
        rank.end_setup()?;
        rank.set_step(1);
        rank.on_stream(SIDE, |rank| {
            rank.copy("stage", x, y);
            rank.record(EventId(1));
        });
        step_in_place(rank, "update", x, 2.0);
        rank.wait_event(EventId(1));
        rank.end_step()
    });
    let found = only(&outcome);
    assert_eq!(found.kind, HazardKind::TornCopy);
    let expected = "the compute stream must wait for `event1` before `update`";
    assert_eq!(found.missing_edge, expected);
}

#[test]
fn a_handle_that_nobody_waits_for_is_a_missing_join() {
    fn program(rank: &mut Rank, waits: bool) -> Result<(), RankError> {
        let x = tensor(rank, "x", &[1.0; 4]);
        rank.end_setup()?;
        rank.set_step(1);
        let handle = rank.edge("grad_reduce.bucket0", |rank| {
            rank.all_reduce("reduce", FAMILY, ALL, x, Combine::Sum)
        });
        rank.end_step()?;
        if waits {
            rank.wait(handle);
        }
        rank.set_step(2);
        rank.end_step()
    }
    assert_eq!(kinds(&run(|rank, _| program(rank, true))), []);
    let outcome = run(|rank, _| program(rank, false));
    let found = only(&outcome);
    assert_eq!(found.kind, HazardKind::MissingJoin);
    assert_eq!(found.edge.as_deref(), Some("grad_reduce.bucket0"));
    assert_eq!(found.occurrences, 2, "both ranks");
}

/// `pytorch/pytorch#180665`: a block is used on another stream than its own, and freed.
#[test]
fn a_recorded_stream_is_waited_for_at_reuse() {
    fn program(rank: &mut Rank, records: bool) -> Result<(), RankError> {
        let out = rank.alloc("out", Dtype::F32, 4);
        rank.end_setup()?;
        rank.set_step(1);
        let x = tensor(rank, "x", &[1.0; 4]);
        rank.record(EventId(0));
        rank.on_stream(SIDE, |rank| {
            rank.wait_event(EventId(0));
            rank.copy("offload", x, out);
        });
        if records {
            rank.record_stream(x, SIDE);
        }
        rank.free(x);
        // Takes the block of x.
        let y = tensor(rank, "y", &[2.0; 4]);
        assert_eq!(y.start, x.start);
        rank.synchronize_stream(SIDE)?;
        rank.end_step()
    }
    assert_eq!(kinds(&run(|rank, _| program(rank, true))), []);
    let outcome = run(|rank, _| program(rank, false));
    let kinds = kinds(&outcome);
    assert!(
        !kinds.is_empty()
            && kinds
                .iter()
                .all(|kind| *kind == HazardKind::ReuseWhileInUse)
    );
    let peaks = &outcome.record().peak_bytes;
    assert_eq!(
        peaks[&0],
        2 * 512,
        "`out` and one of x and y, in blocks of 512 bytes"
    );
}
