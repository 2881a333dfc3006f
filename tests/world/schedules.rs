//! Random programs of up to four ranks with collectives, messages and sums in arrival order:
//! without a hazard and without a sensitive choice, every schedule gives the same bits.
//! `BITPROOF_SCHEDULES=N` tries N random schedules in all.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use bitproof::engine::EngineError;
use bitproof::engine::cpu::CpuEngine;
use bitproof::plan::{Combine, Init};
use bitproof::prove::sweep::{FullSizeAddends, Sweep, SweepOptions};
use bitproof::world::fold::{FoldLab, FoldNode};
use bitproof::world::{
    Choice, EventId, Family, GroupId, Handle, LocalOrder, NodeId, Observer, Rank, RankError,
    SlotFold, StreamId, Tensor, Unobserved,
};

use crate::cluster::{ALL, Cluster, Outcome, Seen, rough, show, step_in_place, tensor};

/// Random schedules of all programs that should agree.
const SCHEDULES: u64 = 10_000;
/// Of one program that should agree, and of one that need not.
const OF_CLEAN: u64 = 50;
const OF_OTHERS: u64 = 4;
/// Programs, at most: clean ones are not that rare.
const PROGRAMS_MAX: u64 = 10_000;
const THREADS: u64 = 2;
const PATIENCE: Duration = Duration::from_secs(60);
const CELLS: usize = 3;
/// Addends of a sum in arrival order.
const SLOTS: u32 = 3;
const LEN: u32 = 4;

/// What every rank does, one after the other.
#[derive(Clone, Copy, Debug)]
enum Verb {
    Step {
        stream: u32,
        cell: usize,
    },
    Reduce {
        stream: u32,
        cell: usize,
    },
    Pass {
        from: usize,
        to: usize,
    },
    /// A stream waits for all handles so far.
    Wait {
        stream: u32,
    },
    Record {
        stream: u32,
    },
    WaitEvent {
        stream: u32,
    },
    /// A sum of the slots into a cell, in the order in which they land.
    Sum {
        stream: u32,
        cell: usize,
    },
}

#[derive(Clone, Debug)]
struct Program {
    ranks: u32,
    /// The slots hold values whose sum depends on its order.
    is_rough: bool,
    verbs: Vec<Verb>,
}

impl Program {
    fn drawn(seed: u64) -> Program {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut draw = |count: u32| random.next_u32() % count;
        let (ranks, is_rough) = (2 + draw(3), draw(4) == 0);
        let count = 5 + draw(5);
        let verbs = (0..count).map(|_| {
            let (stream, cell) = (draw(2), draw(CELLS as u32) as usize);
            match draw(9) {
                0 | 1 => Verb::Step { stream, cell },
                2 | 3 => Verb::Reduce { stream, cell },
                4 => Verb::Pass {
                    from: cell,
                    to: (cell + 1) % CELLS,
                },
                5 => Verb::Wait { stream },
                6 => Verb::Record { stream },
                7 => Verb::Sum { stream, cell },
                _ => Verb::WaitEvent { stream },
            }
        });
        let verbs = verbs.collect();
        Program {
            ranks,
            is_rough,
            verbs,
        }
    }

    fn run(&self, rank: &mut Rank, seen: &Seen) -> Result<(), RankError> {
        let cells: Vec<Tensor> = (0..CELLS)
            .map(|cell| {
                tensor(
                    rank,
                    &format!("cell{cell}"),
                    &[(rank.id + 1) as f32; LEN as usize],
                )
            })
            .collect();
        let slots = match self.is_rough {
            true => rough(rank.id, 1, SLOTS * LEN),
            false => (0..SLOTS * LEN).map(|place| place as f32).collect(),
        };
        let slots = tensor(rank, "slots", &slots);
        rank.end_setup()?;
        rank.set_step(1);
        let mut handles = Vec::new();
        for (number, verb) in self.verbs.iter().enumerate() {
            self.verb(rank, (&cells, slots), &mut handles, (number, *verb));
        }
        handles.into_iter().for_each(|handle| rank.wait(handle));
        rank.synchronize_device()?;
        for (number, cell) in cells.iter().enumerate() {
            show(rank, seen, &format!("cell{number}"), *cell)?;
        }
        rank.end_step()
    }

    fn verb(
        &self,
        rank: &mut Rank,
        (cells, slots): (&[Tensor], Tensor),
        handles: &mut Vec<Handle>,
        (number, verb): (usize, Verb),
    ) {
        let op = format!("verb {number}");
        match verb {
            Verb::Step { stream, cell } => rank.on_stream(StreamId(stream), |rank| {
                step_in_place(rank, &op, cells[cell], 2.0);
            }),
            Verb::Reduce { stream, cell } => {
                handles.push(rank.on_stream(StreamId(stream), |rank| {
                    rank.all_reduce(&op, Family::DpGradients, ALL, cells[cell], Combine::Sum)
                }));
            }
            Verb::Pass { from, to } => {
                let next = (rank.id + 1) % self.ranks;
                let previous = (rank.id + self.ranks - 1) % self.ranks;
                handles.push(rank.send(&op, next, cells[from]));
                handles.push(rank.recv(&op, previous, cells[to]));
            }
            Verb::Wait { stream } => rank.on_stream(StreamId(stream), |rank| {
                handles.iter().for_each(|handle| rank.wait(*handle));
            }),
            Verb::Record { stream } => {
                rank.on_stream(StreamId(stream), |rank| rank.record(EventId(0)));
            }
            Verb::WaitEvent { stream } => {
                rank.on_stream(StreamId(stream), |rank| rank.wait_event(EventId(0)));
            }
            Verb::Sum { stream, cell } => rank.on_stream(StreamId(stream), |rank| {
                let fold = SlotFold {
                    family: Family::MicrobatchAccumulation,
                    addends: slots,
                    slots: SLOTS,
                    out: cells[cell],
                    init: Init::First,
                    order: LocalOrder::Arrival,
                };
                rank.fold(&op, fold);
            }),
        }
    }
}

fn words(program: &Program, outcome: &Outcome) -> Vec<Vec<u32>> {
    let cells = (0..CELLS).map(|cell| format!("cell{cell}"));
    let cells: Vec<String> = cells.collect();
    let of_rank = |rank| cells.iter().map(move |cell| (rank, cell));
    let places = (0..program.ranks).flat_map(of_rank);
    places
        .map(|(rank, cell)| outcome.words(rank, cell))
        .collect()
}

/// Sees which sums are sensitive to their order, and lists those that have a free one.
struct Watch {
    sweep: Sweep,
    arrivals: BTreeMap<NodeId, u32>,
}

impl Watch {
    fn new() -> Watch {
        let sweep = Sweep::new(SweepOptions {
            seed: 7,
            element_budget: 1 << 12,
            groups: Arc::new(["all".to_string()]),
            full_size: Arc::new(SameSize),
            plans: None,
            sums: None,
        });
        Watch {
            sweep,
            arrivals: BTreeMap::new(),
        }
    }
}

/// As many addends at full size as here.
struct SameSize;

impl FullSizeAddends for SameSize {
    fn addends(&self, _: Family, _: Option<GroupId>, here: u32) -> u32 {
        here
    }
}

impl Observer for Watch {
    fn on_fold(&mut self, node: &FoldNode, lab: &mut FoldLab<'_>) -> Result<(), EngineError> {
        if matches!(node.choice, Choice::Arrival) {
            self.arrivals.insert(node.id, node.addend_count());
        }
        self.sweep.on_fold(node, lab)
    }
}

/// One program's canonical run, and what it says of all others.
struct Trial {
    program: Program,
    watch: Watch,
    expected: Vec<Vec<u32>>,
    has_hazard: bool,
}

impl Trial {
    fn of(program: Program, engine: &mut CpuEngine) -> Trial {
        let mut watch = Watch::new();
        let body = program.clone();
        let cluster = Cluster::new(program.ranks).watched();
        let canonical = cluster.run_on(engine, &|rank, seen| body.run(rank, seen), &mut watch);
        Trial {
            expected: words(&program, &canonical),
            has_hazard: !canonical.record().hazards.is_empty(),
            program,
            watch,
        }
    }

    fn is_clean(&self) -> bool {
        !self.has_hazard && self.watch.sweep.first.is_empty()
    }

    /// Runs another schedule: what is ready in another order, and sums in another one. Whether its
    /// bits are those of the canonical run.
    fn agrees(&self, engine: &mut CpuEngine, seed: u64) -> bool {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut order = |count: &u32| {
            let mut order: Vec<u32> = (0..*count).collect();
            for place in (1..order.len()).rev() {
                order.swap(place, random.next_u32() as usize % (place + 1));
            }
            Arc::from(order)
        };
        let arrivals = self.watch.arrivals.iter();
        let arrivals = arrivals
            .map(|(node, count)| (*node, order(count)))
            .collect();
        // Hazards are looked for in the first few: they are what the canonical run found.
        let watched = seed < OF_OTHERS;
        let cluster = Cluster::new(self.program.ranks).options(|options| {
            options.shuffle = Some(seed);
            options.schedule.arrivals = arrivals;
            options.hazard_steps_max = if watched { u32::MAX } else { 0 };
        });
        let program = &self.program;
        let run = |rank: &mut Rank, seen: &Seen| program.run(rank, seen);
        let other = cluster.run_on(engine, &run, &mut Unobserved);
        let found = &other.record().hazards;
        assert!(
            !watched || found.is_empty() != self.has_hazard,
            "{seed}: {program:#?}\n{found:#?}"
        );
        words(program, &other) == self.expected
    }
}

/// What became of one program.
#[derive(Default)]
struct Tried {
    clean: u64,
    /// Runs that should agree.
    schedules: u64,
    /// Clean programs that had a free order in them.
    with_sums: u64,
    /// Runs that parted, of programs with a hazard and of those with a sensitive sum alone.
    parted_by_hazard: u64,
    parted_by_sum: u64,
}

fn tried(number: u64, engine: &mut CpuEngine) -> Tried {
    let trial = Trial::of(Program::drawn(number), engine);
    let is_clean = trial.is_clean();
    let schedules = if is_clean { OF_CLEAN } else { OF_OTHERS };
    let mut parted = 0;
    for seed in 0..schedules {
        let agrees = trial.agrees(engine, seed);
        assert!(
            agrees || !is_clean,
            "schedule {seed} of program {number}: {:#?}",
            trial.program
        );
        parted += u64::from(!agrees);
    }
    Tried {
        clean: u64::from(is_clean),
        schedules: if is_clean { schedules } else { 0 },
        with_sums: u64::from(is_clean && !trial.watch.arrivals.is_empty()),
        parted_by_hazard: if trial.has_hazard { parted } else { 0 },
        parted_by_sum: if trial.has_hazard { 0 } else { parted },
    }
}

#[test]
fn without_a_hazard_every_schedule_gives_the_same_bits() {
    let asked = std::env::var("BITPROOF_SCHEDULES").ok();
    let wanted = asked.map_or(SCHEDULES, |asked| asked.parse().expect("a number"));
    let next = Arc::new(AtomicU64::new(0));
    let (done, results) = mpsc::channel();
    for _ in 0..THREADS {
        let (next, done) = (next.clone(), done.clone());
        std::thread::spawn(move || {
            let mut engine = CpuEngine::new(1).expect("this machine has an engine");
            // Ends when nobody listens any more.
            while done
                .send(tried(next.fetch_add(1, Ordering::Relaxed), &mut engine))
                .is_ok()
            {}
        });
    }
    drop(done);
    let mut all = Tried::default();
    let mut programs = 0;
    while all.schedules < wanted {
        let one = results.recv_timeout(PATIENCE);
        let one = one.expect("every schedule of every program agrees, and none hangs");
        all.clean += one.clean;
        all.schedules += one.schedules;
        all.with_sums += one.with_sums;
        all.parted_by_hazard += one.parted_by_hazard;
        all.parted_by_sum += one.parted_by_sum;
        programs += 1;
        assert!(programs < PROGRAMS_MAX, "{} clean programs", all.clean);
    }
    let Tried {
        clean, schedules, ..
    } = all;
    println!("{schedules} schedules of {clean} programs, {programs} tried");
    // The control: schedules do differ, and programs with hazards or sensitive sums show it.
    assert!(
        all.with_sums >= 5 && all.parted_by_hazard >= 5 && all.parted_by_sum >= 5,
        "of {clean} {} with sums; parted by hazards {}, by sums {}",
        all.with_sums,
        all.parted_by_hazard,
        all.parted_by_sum
    );
}
