//! Joint answers of programs that ask, in the place of a training program.

use super::*;
use crate::diagnostic::Source;
use crate::numerics::Dtype;
use crate::prove::CheckOptions;
use crate::prove::queries;
use crate::prove::{Silent, session::StandIn};
use crate::scenario::{Overrides, Scenario};
use crate::world::{Handle, HazardKind, Rank, RankError, RunOptions, StreamId, Tensor};

fn sampled(tasks: u64, events: u64) -> Sampled {
    Sampled {
        runs: SAMPLES,
        tasks,
        events,
    }
}

#[test]
fn the_bound_is_that_of_priority_schedules() {
    assert_eq!(sampled(2, 1).of_one_run(), 0.5);
    assert_eq!(sampled(4, 10).of_one_run(), 1.0 / 400.0);
    let all = sampled(4, 10).of_all_runs();
    assert!(all > 0.07 && all < 32.0 / 400.0, "{all}");
}

const LEN: u32 = 4;

/// A session of two ranks that run `program` for one step.
fn session(program: fn(&mut Asker<'_>) -> Result<(), RankError>) -> Session {
    let text = "steps = 1\n[recipe]\nworld_size = 2\nnum_layers = 1\nhidden_size = 16\n\
                ffn_hidden_size = 16\nnum_attention_heads = 4\nseq_length = 8\n\
                micro_batch_size = 1\nglobal_batch_size = 2\ntrain_iters = 2\nlr = 5e-3\n";
    let source = Source::new("scenario.toml", text);
    let path = std::path::Path::new("scenario.toml");
    let loaded = Scenario::from_source(&source, path, &Overrides::default());
    let scenario = loaded.expect("a sound scenario").scenario;
    let mut session = Session::new(scenario, &CheckOptions::default()).expect("it can be run");
    let stand_in: StandIn = Box::new(move |rank: &mut Rank| {
        let cell = rank.alloc("cell", Dtype::F32, LEN);
        rank.upload_f32("load", cell, &[1.0; LEN as usize]);
        let work = rank.alloc("work", Dtype::F32, LEN);
        rank.end_setup()?;
        rank.set_step(1);
        if rank.id == 0 {
            rank.metric("cell", cell);
        }
        program(&mut Asker { rank, cell, work })?;
        rank.synchronize_device()?;
        rank.end_step()
    });
    session.stand_in = Some(stand_in);
    session
}

/// A rank that asks whether work of its own is over.
struct Asker<'a> {
    rank: &'a mut Rank,
    cell: Tensor,
    work: Tensor,
}

impl Asker<'_> {
    fn work(&mut self) -> Handle {
        let work = self.work;
        self.rank.on_stream(StreamId(1), |rank| {
            rank.upload_f32("work", work, &[2.0; LEN as usize]);
            rank.record_handle()
        })
    }

    fn is_ready(&mut self, op: &str) -> Result<bool, RankError> {
        let handle = self.work();
        self.rank.query(op, handle)
    }

    fn write(&mut self, value: f32) {
        self.rank
            .upload_f32("write", self.cell, &[value; LEN as usize]);
    }
}

fn denied(session: &mut Session) -> queries::Queries {
    let watched = RunOptions {
        hazard_steps_max: u32::MAX,
        ..RunOptions::default()
    };
    let steps = session.steps();
    let reference = session.plain_run(&watched, steps).expect("it runs");
    assert_eq!(reference.hazards, []);
    let known = Known::default();
    let asked = (&reference.queries[..], &known);
    queries::deny(session, Course::Straight, asked, &Silent).expect("it can be explored")
}

/// Neither answer does anything alone; both together do.
fn both(asker: &mut Asker<'_>) -> Result<(), RankError> {
    let first = asker.is_ready("first")?;
    let second = asker.is_ready("second")?;
    if asker.rank.id == 0 && !first && !second {
        asker.write(3.0);
    }
    Ok(())
}

#[test]
fn what_two_answers_do_together_is_found_and_found_again() {
    let mut session = session(both);
    let found = denied(&mut session);
    assert_eq!((found.open, found.tried()), (4, 4));
    assert!(found.alone().is_none(), "{found:?}");
    assert!(found.explored.is_complete && found.is_dynamic);
    // The ranks never meet: three sets of answers of each, and none.
    assert_eq!(found.explored.runs, 1 + 3 + 3);
    let worst = found.together.as_ref().expect("both together");
    assert_eq!(worst.denied.len(), 2);
    assert_eq!(found.grade(), Grade::Divergent);
    let said = found.consequence().expect("a sentence");
    assert!(said.contains("first") && said.contains(" and "), "{said}");

    let all = (&Known::default(), Some(worst.number));
    let again = explore(&mut session, Course::Straight, all, &Silent).expect("it runs");
    let again = again.together.expect("the same");
    assert_eq!(
        (again.number, again.sentence()),
        (worst.number, worst.sentence())
    );
}

/// A host that asks again and again: every *not ready* shows another query.
fn patient(asker: &mut Asker<'_>) -> Result<(), RankError> {
    let handle = asker.work();
    for turn in 0..200 {
        if asker.rank.query(&format!("turn {turn}"), handle)? {
            break;
        }
    }
    Ok(())
}

#[test]
fn past_the_bound_priorities_are_drawn_and_the_bound_is_said() {
    let mut session = session(patient);
    let found = denied(&mut session);
    assert!(!found.explored.is_complete);
    let sampled = found.sampled.expect("it went on");
    // A host and its work, on each of two ranks.
    assert_eq!((sampled.runs, sampled.tasks), (SAMPLES, 4));
    assert_eq!(found.grade(), Grade::Bounded, "{found:?}");
    let notes = found.notes().join("\n");
    assert!(
        notes.contains("random priority schedules (PCT) of 4 tasks"),
        "{notes}"
    );
}

/// The control: answers that nothing follows from are proved, all of them.
fn idle(asker: &mut Asker<'_>) -> Result<(), RankError> {
    asker.is_ready("first")?;
    asker.is_ready("second").map(|_| ())
}

#[test]
fn answers_that_do_nothing_are_proved() {
    let found = denied(&mut session(idle));
    assert_eq!((found.open, found.tried()), (4, 4));
    assert!(found.explored.is_complete && found.explored.independent > 0);
    assert_eq!(found.grade(), Grade::Proved, "{found:?}");
}

/// Memory that the work still writes is read where it is not ready.
fn careless(asker: &mut Asker<'_>) -> Result<(), RankError> {
    let handle = asker.work();
    let ready = asker.rank.query("ask", handle)?;
    if ready {
        asker.rank.wait(handle);
    } else {
        asker.rank.copy("early", asker.work, asker.cell);
    }
    Ok(())
}

#[test]
fn a_hazard_of_another_answer_is_one() {
    let found = denied(&mut session(careless));
    let alone = found.alone().expect("it is one");
    let hazard = alone.hazard.as_ref().expect("a hazard");
    // It was run the other way round: the copy is early no more, and the cell is another.
    assert!(
        matches!(hazard.consequence, Consequence::Differs(_)),
        "{hazard:?}"
    );
    assert_eq!(found.grade(), Grade::Divergent);
}

/// What rank 1 orders where the work is not ready: nothing on rank 0 knows that it does.
fn answered_by_another(asker: &mut Asker<'_>) -> Result<(), RankError> {
    let [x, y, a, b] = ["x", "y", "a", "b"].map(|name| {
        let tensor = asker.rank.alloc(name, Dtype::F32, LEN);
        asker.rank.upload_f32("clear", tensor, &[0.0; LEN as usize]);
        tensor
    });
    asker.rank.synchronize_device()?;
    if asker.rank.id == 1 {
        let asked = asker.rank.recv("asked", 0, a);
        asker.rank.wait(asked);
        let sent = asker.rank.send("reply", 0, b);
        asker.rank.wait(sent);
        return Ok(());
    }
    let ready = asker.is_ready("first")?;
    if !ready {
        asker.rank.upload_f32("make", x, &[3.0; LEN as usize]);
    }
    let sent = asker.rank.send("ask", 1, a);
    asker.rank.on_stream(StreamId(2), |rank| {
        let answer = rank.recv("answer", 1, b);
        rank.wait(answer);
        if !ready {
            rank.copy("use", x, y);
        }
    });
    asker.rank.synchronize_stream(StreamId(2))?;
    asker.rank.wait(sent);
    Ok(())
}

#[test]
fn a_pair_of_another_answer_that_other_ranks_order_is_no_hazard() {
    let found = denied(&mut session(answered_by_another));
    assert_eq!((found.open, found.tried()), (1, 1));
    assert_eq!(found.singles[0].hazard, None, "{found:?}");
    assert_eq!(found.grade(), Grade::Bounded, "other nodes run: {found:?}");
}

/// A pair that rank 1 orders, by an answer that is waited for in time only where the work is ready.
fn answered_too_late(asker: &mut Asker<'_>) -> Result<(), RankError> {
    let [x, y, a, b] = ["x", "y", "a", "b"].map(|name| {
        let tensor = asker.rank.alloc(name, Dtype::F32, LEN);
        asker.rank.upload_f32("clear", tensor, &[0.0; LEN as usize]);
        tensor
    });
    asker.rank.synchronize_device()?;
    if asker.rank.id == 1 {
        let asked = asker.rank.recv("asked", 0, a);
        asker.rank.wait(asked);
        let sent = asker.rank.send("reply", 0, b);
        asker.rank.wait(sent);
        return Ok(());
    }
    let ready = asker.is_ready("first")?;
    asker.rank.upload_f32("make", x, &[3.0; LEN as usize]);
    let sent = asker.rank.send("ask", 1, a);
    asker.rank.on_stream(StreamId(2), |rank| {
        let answer = rank.recv("answer", 1, b);
        if ready {
            rank.wait(answer);
        }
        rank.copy("use", x, y);
        rank.wait(answer);
    });
    asker.rank.synchronize_stream(StreamId(2))?;
    asker.rank.wait(sent);
    Ok(())
}

/// What other ranks order under the canonical answers is held back under the others, too.
#[test]
fn a_pair_is_ordered_under_one_set_of_answers_alone() {
    let mut session = session(answered_too_late);
    let watched = RunOptions {
        hazard_steps_max: u32::MAX,
        ..RunOptions::default()
    };
    let steps = session.steps();
    let reference = session.plain_run(&watched, steps).expect("it runs");
    let mut hazards = reference.hazards.clone();
    assert_eq!(hazards.len(), 1, "{hazards:?}");
    let how = (Course::Straight, &Schedule::default());
    let turned = reversal::turn_round(&mut session, how, &mut hazards, &Silent);
    let turned = turned.expect("it can be held back");
    assert_eq!((hazards.len(), turned.ordered.len()), (0, 1));
    let known = Known {
        ordered: turned.ordered.iter().collect(),
        ..Known::default()
    };
    let asked = (&reference.queries[..], &known);
    let found = queries::deny(&mut session, Course::Straight, asked, &Silent);
    let found = found.expect("it can be explored");
    assert_eq!(found.late, []);
    let alone = found.alone().expect("the late answer");
    let hazard = &alone.hazard.as_ref().expect("a hazard").hazard;
    assert!(reversal::is_same(hazard, &turned.ordered[0]), "{hazard:?}");
    assert!(found.grade() >= Grade::Hazard, "{found:?}");
}

/// Memory that work still writes is read, whatever the answer.
fn racy(asker: &mut Asker<'_>) -> Result<(), RankError> {
    let handle = asker.work();
    asker.rank.query("ask", handle)?;
    asker.rank.copy("early", asker.work, asker.cell);
    Ok(())
}

/// A reference run that looks for no hazards, as in a late step: those of the run that the answers
/// are compared with are told all the same, each with what it does.
#[test]
fn hazards_of_steps_that_were_not_followed_are_told() {
    let mut session = session(racy);
    let steps = session.steps();
    let reference = session.plain_run(&RunOptions::default(), steps);
    let reference = reference.expect("it runs");
    assert_eq!(reference.hazards, []);
    let deny = |session: &mut Session, known: &Known<'_>| {
        let asked = (&reference.queries[..], known);
        let found = queries::deny(session, Course::Straight, asked, &Silent);
        found.expect("it can be explored")
    };
    let found = deny(&mut session, &Known::default());
    assert!(!found.late.is_empty());
    assert_eq!(found.late.len(), found.late_reversals.consequences.len());
    assert!(found.late_reversals.is_visible(), "{found:?}");
    let again = late_hazards(&mut session, &reference).expect("it runs");
    assert_eq!(again, found.late);
    // The control: what is known is not told again.
    let known = Known {
        told: found.late.iter().collect(),
        ..Known::default()
    };
    assert_eq!(deny(&mut session, &known).late, []);
}

/// A node more, and by it other bytes in one that always runs.
fn detour(asker: &mut Asker<'_>) -> Result<(), RankError> {
    let [x, y] = ["x", "y"].map(|name| {
        let tensor = asker.rank.alloc(name, Dtype::F32, LEN);
        asker.rank.upload_f32("clear", tensor, &[0.0; LEN as usize]);
        tensor
    });
    if !asker.is_ready("ask")? && asker.rank.id == 0 {
        asker.rank.upload_f32("detour", x, &[3.0; LEN as usize]);
    }
    asker.rank.copy("common", x, y);
    Ok(())
}

#[test]
fn other_bytes_beside_other_nodes_are_masked() {
    let found = denied(&mut session(detour));
    let worst = found.alone().expect("one alters a copy");
    let came = worst.came.as_ref().expect("it runs");
    assert!(came.other_nodes && came.metric.is_none(), "{came:?}");
    assert_eq!(worst.hazard, None);
    assert_eq!(found.grade(), Grade::Masked, "{found:?}");
}

/// A kernel that fills half of what it only writes, and a copy of all of it.
fn half(asker: &mut Asker<'_>) -> Result<(), RankError> {
    let [x, y] = ["x", "y"].map(|name| asker.rank.alloc(name, Dtype::F32, LEN));
    asker.is_ready("ask")?;
    let count = LEN / 2;
    asker
        .rank
        .launch("half", "fill", [count, 1, 1], &[x], &[count, 0]);
    asker.rank.copy("use", x, y);
    Ok(())
}

/// What was written is measured, as in the reference run.
#[test]
fn words_that_a_late_step_leaves_unwritten_are_found() {
    let mut session = session(half);
    let steps = session.steps();
    let reference = session.plain_run(&RunOptions::default(), steps);
    let reference = reference.expect("it runs");
    let late = late_hazards(&mut session, &reference).expect("it runs");
    let kinds: Vec<HazardKind> = late.iter().map(|hazard| hazard.kind).collect();
    assert_eq!(kinds, [HazardKind::UninitialisedRead], "{late:?}");
}
