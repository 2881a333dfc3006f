//! The exploration against all joint answers, on random small programs.

use std::sync::{Mutex, OnceLock};

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::*;
use crate::engine::cpu::CpuEngine;
use crate::kernel::Registry;
use crate::numerics::Dtype;
use crate::plan::{Arithmetic, Combine, Plan, local};
use crate::world::{
    CollectiveShape, Communicator, Family, GroupId, PlanSource, Rank, RankError, RunOptions,
    RunRecord, StreamId, Tensor, Unobserved, World,
};

const PROGRAMS: u64 = 300;
const RANKS: u32 = 4;
const LEN: u32 = 4;
const GROUPS: [[u32; 2]; 3] = [[0, 1], [2, 3], [1, 2]];
/// More than any of these programs has.
const RUNS_MAX: usize = 4096;

#[derive(Clone, Copy, Debug)]
enum Verb {
    /// The rank asks whether work of its own is over.
    Ask,
    /// It asks only if its last answer was *not ready*.
    AskAgain,
    /// It writes only if as many answers as that were *not ready*.
    SetIf { denials: u32, value: u32 },
    /// It writes only if its cell holds more than that, and then asks.
    AskIfAbove { value: u32 },
}

#[derive(Clone, Copy, Debug)]
enum Line {
    Alone(u32, Verb),
    Reduce(usize),
    Pass(u32),
}

#[derive(Clone, Debug)]
struct Program(Vec<Line>);

impl Program {
    fn drawn(seed: u64) -> Program {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut draw = |count: u32| random.next_u32() % count;
        // Some worlds are in one part, most in two.
        let groups = 2 + u32::from(draw(4) == 0);
        let mut asks = 0;
        let count = 6 + draw(6);
        let line = |_| match draw(8) {
            0 => Line::Reduce(draw(groups) as usize),
            1 if groups == 3 => Line::Pass(draw(RANKS - 1)),
            _ => {
                let verb = match draw(6) {
                    0..=2 if asks < 6 => Verb::Ask,
                    3 if asks < 6 => Verb::AskAgain,
                    4 if asks < 6 => Verb::AskIfAbove { value: draw(40) },
                    _ => Verb::SetIf {
                        denials: draw(3),
                        value: 1 + draw(30),
                    },
                };
                asks += u32::from(!matches!(verb, Verb::SetIf { .. }));
                Line::Alone(draw(RANKS), verb)
            }
        };
        Program((0..count).map(line).collect())
    }

    fn run(&self, rank: &mut Rank) -> Result<Vec<u32>, RankError> {
        let cell = rank.alloc("cell", Dtype::F32, LEN);
        rank.upload_f32("load", cell, &[rank.id as f32; LEN as usize]);
        let work = rank.alloc("work", Dtype::F32, LEN);
        rank.end_setup()?;
        rank.set_step(1);
        let mut running = Running {
            cell,
            work,
            denials: 0,
            was_denied: false,
        };
        for (number, line) in self.0.iter().enumerate() {
            running.line(rank, number, *line)?;
        }
        rank.synchronize_device()?;
        let words = rank.read("look", cell)?;
        rank.end_step()?;
        Ok(words)
    }
}

struct Running {
    cell: Tensor,
    work: Tensor,
    denials: u32,
    was_denied: bool,
}

impl Running {
    fn line(&mut self, rank: &mut Rank, number: usize, line: Line) -> Result<(), RankError> {
        let op = format!("line {number}");
        match line {
            Line::Alone(who, verb) if who == rank.id => self.verb(rank, &op, verb)?,
            Line::Reduce(group) if GROUPS[group].contains(&rank.id) => {
                let (family, group) = (Family::DpGradients, GroupId(group as u32));
                let handle = rank.all_reduce(&op, family, group, self.cell, Combine::Sum);
                rank.wait(handle);
            }
            Line::Pass(from) if from == rank.id => {
                let handle = rank.send(&op, from + 1, self.cell);
                rank.wait(handle);
            }
            Line::Pass(from) if from + 1 == rank.id => {
                let handle = rank.recv(&op, from, self.cell);
                rank.wait(handle);
            }
            _ => {}
        }
        Ok(())
    }

    fn verb(&mut self, rank: &mut Rank, op: &str, verb: Verb) -> Result<(), RankError> {
        match verb {
            Verb::Ask => self.ask(rank, op),
            Verb::AskAgain if self.was_denied => self.ask(rank, op),
            Verb::SetIf { denials, value } if self.denials == denials => {
                rank.upload_f32(op, self.cell, &[value as f32; LEN as usize]);
                Ok(())
            }
            Verb::AskIfAbove { value } => {
                let words = rank.read(&format!("{op} look"), self.cell)?;
                match f32::from_bits(words[0]) > value as f32 {
                    true => self.ask(rank, op),
                    false => Ok(()),
                }
            }
            Verb::AskAgain | Verb::SetIf { .. } => Ok(()),
        }
    }

    fn ask(&mut self, rank: &mut Rank, op: &str) -> Result<(), RankError> {
        let work = self.work;
        let handle = rank.on_stream(StreamId(1), |rank| {
            rank.upload_f32(op, work, &[1.0; LEN as usize]);
            rank.record_handle()
        });
        self.was_denied = !rank.query(op, handle)?;
        self.denials += u32::from(self.was_denied);
        Ok(())
    }
}

struct Sums;

impl PlanSource for Sums {
    fn plans(&self, shape: CollectiveShape) -> Result<Arc<[Arc<Plan>]>, String> {
        let sum = Arithmetic::sum(Dtype::F32, Dtype::F32, Dtype::F32);
        Ok(Arc::new([Arc::new(local::ascending(
            2,
            shape.elements,
            sum,
        ))]))
    }
}

struct Lab {
    world: World,
    engine: CpuEngine,
}

impl Lab {
    fn new() -> Lab {
        static REGISTRY: OnceLock<Arc<Registry>> = OnceLock::new();
        let registry =
            REGISTRY.get_or_init(|| Arc::new(Registry::new().expect("the kernels are sound")));
        let named = |ranks: &[u32; 2]| Communicator {
            name: format!("{ranks:?}"),
            ranks: Arc::new(*ranks),
        };
        Lab {
            world: World {
                ranks: RANKS,
                communicators: GROUPS.iter().map(named).collect(),
                registry: registry.clone(),
                plans: Arc::new(Sums),
            },
            engine: CpuEngine::new(1).expect("this machine has an engine"),
        }
    }

    /// What each rank is left with, and what the run showed. Every answer is to a query of it.
    fn run(&mut self, program: &Program, answers: &Answers) -> (Vec<Vec<u32>>, Ran) {
        self.tried(program, answers)
            .unwrap_or_else(|| panic!("{answers:?} of {program:#?}"))
    }

    /// The same; `None` where not all of these queries are asked together.
    fn tried(&mut self, program: &Program, answers: &Answers) -> Option<(Vec<Vec<u32>>, Ran)> {
        let mut options = RunOptions {
            hazard_steps_max: u32::MAX,
            ..RunOptions::default()
        };
        options.schedule.not_ready = answers.clone();
        let (left, record) = self.run_with(program, &options);
        let ran = Ran::of(&record, |group| Arc::new(GROUPS[group.0 as usize]));
        let denied = record.queries.iter().filter(|query| query.denied);
        let denied: Answers = denied.map(|query| query.id).collect();
        (denied == *answers).then_some((left, ran))
    }

    fn run_with(&mut self, program: &Program, options: &RunOptions) -> (Vec<Vec<u32>>, RunRecord) {
        let left = Mutex::new(vec![Vec::new(); RANKS as usize]);
        let body = |rank: &mut Rank| {
            let words = program.run(rank)?;
            left.lock().expect("no rank dies")[rank.id as usize] = words;
            Ok(())
        };
        let ran = self
            .world
            .run(&mut self.engine, options, &body, &mut Unobserved);
        let record = ran.unwrap_or_else(|error| panic!("{error}\n{program:#?}"));
        (left.into_inner().expect("no rank dies"), record)
    }

    /// Every set of answers that is reached, by adding one after the other in every order.
    fn all(&mut self, program: &Program) -> BTreeMap<Answers, (Vec<Vec<u32>>, Ran)> {
        let (mut all, mut known) = (BTreeMap::new(), BTreeSet::new());
        let mut waiting = vec![Answers::new()];
        while let Some(answers) = waiting.pop() {
            if !known.insert(answers.clone()) {
                continue;
            }
            // One of these answers may keep another query from being asked.
            let Some((left, ran)) = self.tried(program, &answers) else {
                continue;
            };
            for query in &ran.open {
                let mut more = answers.clone();
                more.insert(*query);
                waiting.push(more);
            }
            all.insert(answers, (left, ran));
        }
        all
    }
}

/// What each part of the world is left with, over all runs.
type Results = BTreeSet<(u32, Vec<(u32, Vec<u32>)>)>;

fn results<'a>(parts: &Parts, runs: impl Iterator<Item = &'a Vec<Vec<u32>>>) -> Results {
    let mut results = Results::new();
    for left in runs {
        let mut by_part: BTreeMap<u32, Vec<(u32, Vec<u32>)>> = BTreeMap::new();
        for (rank, words) in (0..).zip(left) {
            let of_part = by_part.entry(parts.part(rank)).or_default();
            of_part.push((rank, words.clone()));
        }
        results.extend(by_part);
    }
    results
}

#[derive(Debug, Default)]
struct Seen {
    joint: u32,
    dynamic: u32,
    pruned: u32,
    saved: u64,
}

/// Whether the exploration sees every result that some joint answer has, part by part.
fn agrees(lab: &mut Lab, independent: Independent, seed: u64, seen: &mut Seen) -> bool {
    let program = Program::drawn(seed);
    let all = lab.all(&program);
    let parts = Parts::of(RANKS, all.values().map(|(_, ran)| ran));
    let mut lefts = Vec::new();
    let explored = explore_with(independent, RANKS, RUNS_MAX, |answers| {
        let (left, ran) = lab.run(&program, answers);
        lefts.push(left);
        Ok::<Ran, ()>(ran)
    });
    let explored = explored.expect("nothing fails");
    assert!(explored.is_complete && explored.runs == lefts.len() as u64);
    let opened: BTreeSet<QueryId> = all.values().flat_map(|(_, ran)| ran.open.clone()).collect();
    let first = all[&Answers::new()].1.open.len();
    seen.joint += u32::from(first > 1);
    seen.dynamic += u32::from(opened.len() > first);
    seen.pruned += u32::from(explored.independent > 0);
    seen.saved += all.len() as u64 - explored.runs;
    results(&parts, all.values().map(|(left, _)| left)) == results(&parts, lefts.iter())
}

#[test]
fn what_is_left_out_has_no_result_of_its_own() {
    let (mut lab, mut seen) = (Lab::new(), Seen::default());
    for seed in 0..PROGRAMS {
        let agrees = agrees(&mut lab, Parts::are_apart, seed, &mut seen);
        assert!(agrees, "seed {seed}: {:#?}", Program::drawn(seed));
    }
    let Seen {
        joint,
        dynamic,
        pruned,
        saved,
    } = seen;
    assert!(
        joint > 50 && dynamic > 30 && pruned > 30 && saved > 100,
        "{seen:?}"
    );
}

/// Without independence every set is visited, and none twice.
#[test]
fn each_set_is_visited_once() {
    let mut lab = Lab::new();
    for seed in 0..PROGRAMS / 4 {
        let program = Program::drawn(seed);
        let all: Vec<Answers> = lab.all(&program).into_keys().collect();
        let mut visited = Vec::new();
        let explored = explore_with(
            |_, _, _| false,
            RANKS,
            RUNS_MAX,
            |answers| {
                visited.push(answers.clone());
                Ok::<Ran, ()>(lab.run(&program, answers).1)
            },
        );
        assert!(explored.is_ok_and(|explored| explored.independent == 0));
        visited.sort();
        assert_eq!(visited, all, "seed {seed}");
    }
}

/// The controls: queries of two ranks that meet, or of one rank, are not independent.
#[test]
fn an_exploration_that_leaves_out_too_much_is_noticed() {
    let careless: [(&str, Independent); 2] = [
        ("other ranks", |_, a, b| a.rank != b.rank),
        ("one rank", |parts, a, b| {
            a.rank == b.rank || parts.are_apart(a, b)
        }),
    ];
    for (what, independent) in careless {
        let (mut lab, mut seen) = (Lab::new(), Seen::default());
        let noticed = (0..PROGRAMS).any(|seed| !agrees(&mut lab, independent, seed, &mut seen));
        assert!(noticed, "{what}: {seen:?}");
    }
}

#[test]
fn a_bound_is_kept_and_said() {
    let id = |ordinal| QueryId {
        step: 1,
        rank: 0,
        ordinal,
    };
    let mut runs = Vec::new();
    let explored = explore(1, 6, |answers| {
        runs.push(answers.len());
        let (open, met) = ((0..4).map(id).collect(), Vec::new());
        Ok::<Ran, ()>(Ran { open, met })
    });
    let explored = explored.expect("nothing fails");
    assert_eq!(runs, [0, 1, 1, 1, 1, 2]);
    assert_eq!((explored.runs, explored.answers_max), (6, 1));
    assert!(!explored.is_complete);
}
