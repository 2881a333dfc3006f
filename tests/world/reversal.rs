//! A pair that nothing orders can be turned round; one that other ranks order cannot.

use bitproof::plan::Combine;
use bitproof::world::{Family, Hazard, HazardKind, Rank, RankError, Reversal, StreamId, Turned};

use crate::cluster::{ALL, Cluster, Outcome, Seen, ramp, scale_add, show, step_in_place, tensor};

const FAMILY: Family = Family::DpGradients;
const SIDE: StreamId = StreamId(1);

type Program = fn(&mut Rank, &Seen) -> Result<(), RankError>;

fn reversed(program: Program, hazard: &Hazard) -> Outcome {
    let (held, until) = hazard.ran.expect("both are commands");
    let reversal = Reversal {
        rank: hazard.rank,
        held,
        until,
    };
    let cluster = Cluster::new(2).options(|options| options.reverse = vec![reversal]);
    cluster.run(program)
}

fn hazards(program: Program) -> (Outcome, Vec<Hazard>) {
    let outcome = Cluster::new(2).watched().run(program);
    let hazards = outcome.record().hazards.clone();
    (outcome, hazards)
}

#[test]
fn a_missing_wait_shows_the_other_value() {
    fn program(rank: &mut Rank, seen: &Seen) -> Result<(), RankError> {
        let (x, zero) = (
            tensor(rank, "x", &[1.0; 4]),
            tensor(rank, "zero", &[0.0; 4]),
        );
        let out = tensor(rank, "out", &[0.0; 4]);
        rank.end_setup()?;
        rank.set_step(1);
        let handle = rank.all_reduce("reduce", FAMILY, ALL, x, Combine::Sum);
        scale_add(rank, "use", [x, zero, out], 1.0);
        rank.wait(handle);
        show(rank, seen, "out", out)?;
        rank.end_step()
    }
    let (canonical, found) = hazards(program);
    assert_eq!(found.len(), 1, "{found:#?}");
    let turned = reversed(program, &found[0]);
    assert_eq!(turned.record().turned, [Turned::Round]);
    let mut values = [canonical.values(0, "out")[0], turned.values(0, "out")[0]];
    values.sort_by(f32::total_cmp);
    assert_eq!(values, [1.0, 2.0], "before the sum and after it");
    // Only the rank of the pair is turned round.
    assert_eq!(turned.values(1, "out"), canonical.values(1, "out"));
}

/// Rank 1 answers rank 0, and only then does rank 0's side stream go on: the clocks of rank 0 do
/// not know, and a run does.
fn by_way_of_another_rank(rank: &mut Rank, seen: &Seen) -> Result<(), RankError> {
    let (x, y) = (tensor(rank, "x", &[0.0; 4]), tensor(rank, "y", &[0.0; 4]));
    let (a, b) = (tensor(rank, "a", &[0.0; 4]), tensor(rank, "b", &[0.0; 4]));
    rank.end_setup()?;
    rank.set_step(1);
    if rank.id == 0 {
        ramp(rank, "make x", x, 1.0, 1.0);
        let sent = rank.send("ask", 1, a);
        rank.on_stream(SIDE, |rank| {
            let answer = rank.recv("answer", 1, b);
            rank.wait(answer);
            rank.copy("use x", x, y);
        });
        rank.synchronize_stream(SIDE)?;
        rank.wait(sent);
    } else {
        let asked = rank.recv("asked", 0, a);
        rank.wait(asked);
        let sent = rank.send("reply", 0, b);
        rank.wait(sent);
    }
    show(rank, seen, "y", y)?;
    rank.end_step()
}

#[test]
fn a_pair_that_another_rank_orders_is_no_hazard() {
    let (canonical, found) = hazards(by_way_of_another_rank);
    assert_eq!(found.len(), 1, "{found:#?}");
    assert_eq!(found[0].kind, HazardKind::ReadBeforeComplete);
    let turned = reversed(by_way_of_another_rank, &found[0]);
    assert_eq!(turned.record().turned, [Turned::Ordered]);
    assert_eq!(turned.values(0, "y"), canonical.values(0, "y"));
}

/// Rounds of `by_way_of_another_rank`, in the last of which nobody waits for the answer: the first
/// rounds say nothing of it, and one run decides them all.
#[test]
fn each_occurrence_is_tried_until_one_can_be_turned_round() {
    const ROUNDS: u32 = 3;
    fn program(rank: &mut Rank, seen: &Seen) -> Result<(), RankError> {
        let (x, y) = (tensor(rank, "x", &[0.0; 4]), tensor(rank, "y", &[0.0; 4]));
        let (a, b) = (tensor(rank, "a", &[0.0; 4]), tensor(rank, "b", &[0.0; 4]));
        rank.end_setup()?;
        rank.set_step(1);
        for round in 0..ROUNDS {
            if rank.id == 1 {
                let asked = rank.recv("asked", 0, a);
                rank.wait(asked);
                let sent = rank.send("reply", 0, b);
                rank.wait(sent);
                continue;
            }
            ramp(rank, "make x", x, 1.0 + round as f32, 1.0);
            let sent = rank.send("ask", 1, a);
            rank.on_stream(SIDE, |rank| {
                let answer = rank.recv("answer", 1, b);
                if round + 1 < ROUNDS {
                    rank.wait(answer);
                }
                rank.copy("use x", x, y);
            });
            rank.synchronize_stream(SIDE)?;
            rank.wait(sent);
        }
        show(rank, seen, "y", y)?;
        rank.end_step()
    }
    let (canonical, found) = hazards(program);
    let mut of_pair = found.iter().filter(|one| one.first.site.op == *"make x");
    let hazard = of_pair.next().unwrap_or_else(|| panic!("{found:#?}"));
    assert_eq!(
        (hazard.occurrences, hazard.keeps_all()),
        (u64::from(ROUNDS), true)
    );
    let pair = |one: &Hazard| {
        let (held, until) = one.ran.expect("both are commands");
        let rank = one.rank;
        Reversal { rank, held, until }
    };
    let pairs: Vec<Reversal> = hazard.each().map(pair).collect();
    let all = pairs.clone();
    let cluster = Cluster::new(2).options(|options| options.reverse = all);
    let outcome = cluster.run(program);
    assert_eq!(
        outcome.record().turned,
        [Turned::Ordered, Turned::Ordered, Turned::Round]
    );
    assert_ne!(outcome.values(0, "y"), canonical.values(0, "y"));
    // Those alone that are ordered leave everything as it is.
    let ordered = pairs[..2].to_vec();
    let cluster = Cluster::new(2).options(|options| options.reverse = ordered);
    let outcome = cluster.run(program);
    assert_eq!(outcome.record().turned, [Turned::Ordered; 2]);
    assert_eq!(outcome.values(0, "y"), canonical.values(0, "y"));
}

/// What is held back may be needed in a later step only: the step ends without it.
#[test]
fn a_pair_of_two_steps_is_turned_round() {
    fn program(rank: &mut Rank, seen: &Seen) -> Result<(), RankError> {
        let x = tensor(rank, "x", &[1.0; 4]);
        rank.end_setup()?;
        rank.set_step(1);
        let handle = rank.all_reduce("gather", FAMILY, ALL, x, Combine::Sum);
        rank.end_step()?;
        rank.set_step(2);
        step_in_place(rank, "use", x, 2.0);
        rank.wait(handle);
        show(rank, seen, "x", x)?;
        rank.end_step()
    }
    let (canonical, found) = hazards(program);
    assert_eq!(canonical.values(0, "x"), [5.0; 4]);
    let turned = reversed(program, &found[0]);
    assert_eq!(turned.record().turned, [Turned::Round]);
    // Rank 0 used its 1 before the sum, to which both ranks then give 3 and 1, or 3 and 3.
    assert_ne!(turned.values(0, "x"), [5.0; 4]);
    // A barrier in between orders them: nothing can be held back across it.
    fn synchronised(rank: &mut Rank, seen: &Seen) -> Result<(), RankError> {
        let x = tensor(rank, "x", &[1.0; 4]);
        rank.end_setup()?;
        rank.set_step(1);
        let handle = rank.all_reduce("gather", FAMILY, ALL, x, Combine::Sum);
        rank.wait(handle);
        rank.end_step()?;
        rank.set_step(2);
        step_in_place(rank, "use", x, 2.0);
        show(rank, seen, "x", x)?;
        rank.end_step()
    }
    let (held, until) = found[0].ran.expect("both are commands");
    let until = until + 1; // The wait comes first here.
    let rank = found[0].rank;
    let reversal = Reversal { rank, held, until };
    let cluster = Cluster::new(2).options(|options| options.reverse = vec![reversal]);
    let outcome = cluster.run(synchronised);
    assert_eq!(outcome.record().turned, [Turned::Ordered]);
    assert_eq!(outcome.values(0, "x"), [5.0; 4]);
}

#[test]
fn what_is_never_issued_is_not_met() {
    let reversal = Reversal {
        rank: 0,
        held: 1_000_000,
        until: 2_000_000,
    };
    let cluster = Cluster::new(2).options(|options| options.reverse = vec![reversal]);
    let outcome = cluster.run(by_way_of_another_rank);
    assert_eq!(outcome.record().turned, [Turned::Undecided]);
}
