//! The world against brute force: small random programs of one rank, every order in which their
//! streams can run, and what clocks and hazards say of them.

mod interleavings;
mod program;

use std::sync::{Arc, Mutex};

use crate::engine::Engine;
use crate::engine::cpu::CpuEngine;
use crate::kernel::Registry;
use crate::plan::Plan;
use crate::world::memory::Mutation;
use crate::world::{
    CollectiveShape, Communicator, HazardKind, MemoryOptions, PlanSource, RunOptions, RunRecord,
    Unobserved, World,
};

use interleavings::Orders;
use program::{POISON, Program, Verb};

/// Programs that are tried, on the world and on each mutant of it.
const PROGRAMS: u64 = 1500;

struct NoPlans;

impl PlanSource for NoPlans {
    fn plans(&self, _: CollectiveShape) -> Result<Arc<[Arc<Plan>]>, String> {
        Err("one rank reduces nothing".to_string())
    }
}

struct Lab {
    world: World,
    engine: Box<dyn Engine>,
    mutation: Option<Mutation>,
}

impl Lab {
    fn new(mutation: Option<Mutation>) -> Lab {
        Lab {
            world: World {
                ranks: 1,
                communicators: Arc::new([Communicator {
                    name: "alone".to_string(),
                    ranks: Arc::new([0]),
                }]),
                registry: Arc::new(Registry::new().expect("the kernels are sound")),
                plans: Arc::new(NoPlans),
            },
            engine: Box::new(CpuEngine::new(1).expect("this machine has an engine")),
            mutation,
        }
    }

    /// Runs a program; what it leaves, and the record.
    fn run(&mut self, program: &Program, mut options: RunOptions) -> (Vec<u32>, RunRecord) {
        options.mutation = self.mutation;
        let left = Mutex::new(Vec::new());
        let body = |rank: &mut crate::world::Rank| {
            let words = program.run(rank)?;
            *left.lock().expect("one rank") = words;
            Ok(())
        };
        let engine = self.engine.as_mut();
        let ran = self.world.run(engine, &options, &body, &mut Unobserved);
        let record = ran.unwrap_or_else(|error| panic!("{error}\n{program:#?}"));
        (left.into_inner().expect("one rank"), record)
    }
}

/// What a program was.
#[derive(Debug, Default)]
struct Seen {
    clean: u32,
    clean_with_several_orders: u32,
    hazardous: u32,
    sensitive: u32,
}

/// Compares what the world says of a program with all its orders.
fn compare(lab: &mut Lab, program: &Program, seen: &mut Seen) -> Result<(), String> {
    let orders = Orders::of(program);
    let watched = RunOptions {
        hazard_steps_max: u32::MAX,
        ..poisoned(POISON)
    };
    let (left, record) = lab.run(program, watched);
    if !orders.results.contains(&left) {
        return Err(format!("{left:?} is no result of {:?}", orders.results));
    }
    for hazard in &record.hazards {
        unordered(program, &orders, hazard)?;
    }
    let open = record.queries.iter().filter(|query| query.open);
    // Two answers together may do what neither does: there the grade is bounded.
    let mut sensitive = open.clone().count() > 1;
    for query in open {
        let mut options = poisoned(POISON);
        options.schedule.not_ready.insert(query.id);
        let (other, _) = lab.run(program, options);
        sensitive |= other != left;
    }
    let is_clean = record.hazards.is_empty();
    seen.clean += u32::from(is_clean);
    seen.hazardous += u32::from(!is_clean);
    seen.sensitive += u32::from(sensitive);
    seen.clean_with_several_orders += u32::from(is_clean && orders.has_several);
    if !is_clean || sensitive {
        return Ok(());
    }
    if orders.results.len() > 1 {
        return Err(format!("no hazard, and the results {:?}", orders.results));
    }
    let (other, _) = lab.run(program, poisoned(POISON + 1));
    match other == left {
        true => Ok(()),
        false => Err(format!(
            "no hazard, and unwritten words in {left:?} or {other:?}"
        )),
    }
}

fn poisoned(word: u32) -> RunOptions {
    RunOptions {
        memory: MemoryOptions {
            base_words: 0,
            poison: Some(word),
        },
        ..RunOptions::default()
    }
}

/// The two accesses of a hazard happen in either order.
fn unordered(
    program: &Program,
    orders: &Orders,
    hazard: &crate::world::Hazard,
) -> Result<(), String> {
    if hazard.kind == HazardKind::UninitialisedRead {
        return Ok(());
    }
    let (first, second) = (&hazard.first.site.op, &hazard.second.site.op);
    let (Some(one), Some(two)) = (program.place(first), program.place(second)) else {
        // The test's own look at the end: whoever it meets was left without a join.
        return Err(format!("{hazard}"));
    };
    if program.is_guarded(one) || program.is_guarded(two) {
        return Ok(());
    }
    match orders.happens(one, two) && orders.happens(two, one) {
        true => Ok(()),
        false => Err(format!("{hazard}: always in one order")),
    }
}

#[test]
fn what_has_no_hazard_has_one_result_and_hazards_are_real() {
    let mut lab = Lab::new(None);
    let mut seen = Seen::default();
    for seed in 0..PROGRAMS {
        let program = Program::drawn(seed);
        let compared = compare(&mut lab, &program, &mut seen);
        compared.unwrap_or_else(|reason| panic!("seed {seed}: {reason}\n{program:#?}"));
    }
    assert!(seen.clean_with_several_orders > 300, "{seen:?}");
    assert!(seen.hazardous > 300 && seen.sensitive > 5, "{seen:?}");
}

/// Each verb is drawn: what is never tried is never wrong.
#[test]
fn programs_use_every_verb() {
    let programs: Vec<Program> = (0..PROGRAMS).map(Program::drawn).collect();
    let verbs = || programs.iter().flat_map(|program| &program.verbs);
    let count = |is: fn(&Verb) -> bool| verbs().filter(|verb| is(verb)).count();
    for (name, count) in [
        ("set", count(|verb| matches!(verb, Verb::Set { .. }))),
        ("copy", count(|verb| matches!(verb, Verb::Copy { .. }))),
        ("record", count(|verb| matches!(verb, Verb::Record { .. }))),
        ("wait", count(|verb| matches!(verb, Verb::Wait { .. }))),
        ("sync", count(|verb| matches!(verb, Verb::Sync { .. }))),
        (
            "host set",
            count(|verb| matches!(verb, Verb::HostSet { .. })),
        ),
        ("host get", count(|verb| matches!(verb, Verb::HostGet))),
        ("query", count(|verb| matches!(verb, Verb::Query { .. }))),
        ("alloc", count(|verb| matches!(verb, Verb::Alloc { .. }))),
        ("user", count(|verb| matches!(verb, Verb::User { .. }))),
        ("free", count(|verb| matches!(verb, Verb::Free))),
        ("end", count(|verb| matches!(verb, Verb::EndStep))),
    ] {
        assert!(count > 200, "{name}: {count}");
    }
}

/// A world with a mistake of its own does not pass.
#[test]
fn mistakes_of_the_world_are_noticed() {
    for mutation in Mutation::ALL {
        let mut lab = Lab::new(Some(mutation));
        let mut seen = Seen::default();
        let noticed =
            (0..PROGRAMS).any(|seed| compare(&mut lab, &Program::drawn(seed), &mut seen).is_err());
        assert!(noticed, "{mutation:?} is never noticed: {seen:?}");
    }
}
