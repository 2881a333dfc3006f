//! Random programs: a few folds in a row on two to four ranks, with arithmetic between them.

use std::sync::{Arc, OnceLock};

use bitproof::engine::cpu::CpuEngine;
use bitproof::kernel::Registry;
use bitproof::numerics::Dtype;
use bitproof::plan::{Combine, Init};
use bitproof::prove::sweep::Finding;
use bitproof::world::{
    Communicator, Component, Family, GroupId, LocalOrder, Observer, Rank, RankError, RunOptions,
    Schedule, Segments, SlotFold, State, Tensor, Unobserved, World,
};

use crate::brute::Digests;
use crate::values::{ANY, CALM, Kind, Random};

/// Elements of every tensor that goes from fold to fold: a multiple of 2, 3 and 4.
const LEN: u32 = 12;
/// Schedules of one program, at most.
const SCHEDULES_MAX: u64 = 36;
const STEP: u32 = 1;

/// How far one value of the plan variable reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    Run,
    Communicator,
    FirstUse,
    Call,
}

impl Scope {
    pub const ALL: [Scope; 4] = [
        Scope::Run,
        Scope::Communicator,
        Scope::FirstUse,
        Scope::Call,
    ];
}

/// `out[i] = x[i mod length] * factors[i / length] + terms[i]`, rounded.
const SPREAD: &str = "
// use: math/round
struct Params { count: u32, length: u32, round_code: u32 }
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> factors: array<f32>;
@group(0) @binding(2) var<storage, read_write> terms: array<f32>;
@group(0) @binding(3) var<storage, read_write> out: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    let i = gid.x;
    if (i >= params.count) { return; }
    let scaled = x[i % params.length] * factors[i / params.length];
    out[i] = round_to(scaled + terms[i], params.round_code);
}";

fn registry() -> Arc<Registry> {
    static REGISTRY: OnceLock<Arc<Registry>> = OnceLock::new();
    let sources = [
        ("spread", SPREAD),
        ("fold", include_str!("../../shaders/fold.wgsl")),
        (
            "fold_segments",
            include_str!("../../shaders/fold_segments.wgsl"),
        ),
        (
            "math/combine",
            include_str!("../../shaders/math/combine.wgsl"),
        ),
        ("math/round", include_str!("../../shaders/math/round.wgsl")),
    ];
    let made = || Arc::new(Registry::from_sources(&sources).expect("the kernels link"));
    REGISTRY.get_or_init(made).clone()
}

/// One fold, and the seed of the numbers that go into it.
#[derive(Clone, Debug)]
struct Statement {
    fold: Fold,
    kind: Kind,
    seed: u64,
}

#[derive(Clone, Debug)]
enum Fold {
    AllReduce {
        group: GroupId,
        combine: Combine,
    },
    ReduceScatter {
        group: GroupId,
    },
    /// In arrival order on one rank, if on any; or, of four and more, tuned on every rank.
    Slots {
        slots: u32,
        init: Init,
        arrival: Option<u32>,
        timed: bool,
    },
    Segments {
        rows: u32,
        segments: Segments,
        arrival: Option<u32>,
    },
}

/// A program and its world.
#[derive(Clone, Debug)]
pub struct Case {
    pub scope: Scope,
    /// Values of the plan variable.
    pub plan_count: u32,
    pub ranks: u32,
    pub dtype: Dtype,
    pub partial: Dtype,
    /// One plan rounds its partial sums to another type than the rest.
    pub mixed: bool,
    statements: Vec<Statement>,
    pub seed: u64,
}

impl Case {
    pub fn random(seed: u32) -> Case {
        let mut random = Random::new(u64::from(seed));
        let random = &mut random;
        let dtype = random.pick(&[Dtype::F32, Dtype::F32, Dtype::Bf16]);
        let calm = random.one_in(4);
        let mut case = Case {
            scope: random.pick(&Scope::ALL),
            plan_count: random.pick(&[1, 2, 2, 3, 3]),
            ranks: random.pick(&[2, 3, 3, 4, 4]),
            dtype,
            partial: random.pick(&[Dtype::F32, Dtype::F32, dtype]),
            mixed: random.one_in(12),
            statements: Vec::new(),
            seed: random.word(),
        };
        let mut schedules = u64::from(case.plan_count);
        for _ in 0..2 + random.below(5) {
            let fold = case.random_fold(random, &mut schedules);
            let kind = match calm {
                true => random.pick(&CALM),
                false => random.pick(&ANY),
            };
            let seed = random.word();
            case.statements.push(Statement { fold, kind, seed });
        }
        case
    }

    /// A fold with which the program has at most so many schedules.
    fn random_fold(&self, random: &mut Random, schedules: &mut u64) -> Fold {
        let group = GroupId(random.below(2));
        let own_value = self.scope != Scope::Run;
        let factor = if own_value { self.plan_count.into() } else { 1 };
        let which = random.below(4);
        if which < 2 && *schedules * factor <= SCHEDULES_MAX {
            *schedules *= factor;
            let combine = match random.one_in(8) {
                true => Combine::Max,
                false => Combine::Sum,
            };
            return match which {
                0 => Fold::AllReduce { group, combine },
                _ => Fold::ReduceScatter { group },
            };
        }
        let writers = 2 + random.below(3);
        let orders = (1..=u64::from(writers)).product::<u64>();
        let varies = random.below(3) > 0 && *schedules * orders <= SCHEDULES_MAX;
        let arrival = varies.then(|| random.below(self.ranks));
        *schedules *= if varies { orders } else { 1 };
        if which == 3 {
            let (rows, segments) = (writers, random_segments(random, writers));
            return Fold::Segments {
                rows,
                segments,
                arrival,
            };
        }
        let init = random.pick(&[Init::First, Init::Zero, Init::Accumulator]);
        // Each rank has two configurations of a shape, whichever statements have it.
        let tunings = 1 << self.ranks;
        let timed = random.one_in(3) && *schedules * tunings <= SCHEDULES_MAX;
        if timed && arrival.is_none() {
            *schedules *= tunings;
            return Fold::Slots {
                slots: random.pick(&[4, 5]),
                init: Init::First,
                arrival,
                timed,
            };
        }
        Fold::Slots {
            slots: writers,
            init,
            arrival,
            timed: false,
        }
    }

    fn world(&self) -> World {
        let forward: Vec<u32> = (0..self.ranks).collect();
        let backward: Vec<u32> = forward.iter().rev().copied().collect();
        let communicator = |(number, ranks): (usize, Vec<u32>)| Communicator {
            name: format!("group {number}"),
            ranks: ranks.into(),
        };
        let groups = [forward, backward].into_iter().enumerate();
        World {
            ranks: self.ranks,
            communicators: groups.map(communicator).collect(),
            registry: registry(),
            plans: Arc::new(self.clone()),
        }
    }

    /// What every node writes under `schedule`.
    pub fn run(
        &self,
        engine: &mut CpuEngine,
        schedule: Schedule,
        observer: &mut dyn Observer,
    ) -> Digests {
        let options = RunOptions {
            schedule,
            record_nodes: true,
            ..RunOptions::default()
        };
        let program = |rank: &mut Rank| self.program(rank);
        let record = self.world().run(engine, &options, &program, observer);
        record.expect("a program of this kind runs").records
    }

    /// Words of the finding's element after a run under `schedule`, on every rank that gets it.
    pub fn outcome_of(
        &self,
        engine: &mut CpuEngine,
        schedule: Schedule,
        finding: &Finding,
    ) -> Vec<u32> {
        let options = RunOptions {
            schedule,
            checkpoint_after: [STEP].into(),
            ..RunOptions::default()
        };
        let program = |rank: &mut Rank| self.program(rank);
        let record = self
            .world()
            .run(engine, &options, &program, &mut Unobserved);
        let record = record.expect("a program of this kind runs");
        let state: &State = &record.checkpoints[&STEP];
        let element = finding.element as usize;
        let words = finding
            .ranks
            .iter()
            .enumerate()
            .filter_map(|(place, rank)| {
                let key = (*rank, Component::Model, finding.site.op.to_string());
                let words = &state[&key].words;
                let block = words.len();
                // Of a reduce-scatter, a rank holds its own block only.
                match block as u64 == finding.elements {
                    true => Some(words[element]),
                    false => (element / block == place).then(|| words[element % block]),
                }
            });
        let words: Vec<u32> = words.collect();
        assert!(!words.is_empty(), "some rank holds the element");
        words
    }

    fn program(&self, rank: &mut Rank) -> Result<(), RankError> {
        rank.set_step(STEP);
        let mut random = Random::new(self.seed ^ u64::from(rank.id));
        let values = Kind::Integers.values(&mut random, self.dtype, LEN);
        let mut x = self.tensor(rank, "x", &values);
        for (number, statement) in self.statements.iter().enumerate() {
            let mut random = Random::new(statement.seed ^ u64::from(rank.id));
            let result = self.fold(rank, number, statement, x, &mut random);
            // What comes next depends on what was, and on numbers of this rank's own.
            x = self.spread(
                rank,
                &format!("after {number}"),
                result,
                1,
                Kind::Zeros,
                &mut random,
            );
        }
        rank.end_step()
    }

    fn tensor(&self, rank: &mut Rank, name: &str, values: &[f32]) -> Tensor {
        let tensor = rank.alloc(name, self.dtype, values.len() as u32);
        rank.upload_f32(&format!("load {name}"), tensor, values);
        tensor
    }

    /// `parts` tensors like `x`, one after the other, each scaled and with terms added.
    fn spread(
        &self,
        rank: &mut Rank,
        op: &str,
        x: Tensor,
        parts: u32,
        kind: Kind,
        random: &mut Random,
    ) -> Tensor {
        let factor = |_| random.pick(&[0.0, 1.0, 1.0, 2.0, -1.0]);
        let factors: Vec<f32> = (0..parts).map(factor).collect();
        let factors = self.tensor(rank, "factors", &factors);
        let terms = kind.values(random, self.dtype, parts * x.len);
        let terms = self.tensor(rank, "terms", &terms);
        let out = rank.alloc(op, self.dtype, parts * x.len);
        let params = [out.len, x.len, self.dtype.code()];
        let operands = [x, factors, terms, out];
        rank.launch(op, "spread", [out.len, 1, 1], &operands, &params);
        out
    }

    /// Runs one fold; its result has as many elements as `x` on every rank.
    fn fold(
        &self,
        rank: &mut Rank,
        number: usize,
        statement: &Statement,
        x: Tensor,
        random: &mut Random,
    ) -> Tensor {
        let kind = statement.kind;
        let family = Family::DpGradients;
        let mut spread = |rank: &mut Rank, parts| {
            self.spread(rank, &format!("addends {number}"), x, parts, kind, random)
        };
        match &statement.fold {
            Fold::AllReduce { group, combine } => {
                let op = format!("all_reduce {number}");
                let result = spread(rank, 1);
                let handle = rank.all_reduce(&op, family, *group, result, *combine);
                rank.wait(handle);
                rank.persist(Component::Model, &op, result);
                result
            }
            Fold::ReduceScatter { group } => {
                let op = format!("reduce_scatter {number}");
                let addends = spread(rank, 1);
                let part = rank.alloc("part", self.dtype, LEN / self.ranks);
                let handle = rank.reduce_scatter(&op, family, *group, addends, part);
                rank.wait(handle);
                rank.persist(Component::Model, &op, part);
                let whole = rank.alloc("whole", self.dtype, LEN);
                let handle = rank.all_gather("gather", *group, part, whole);
                rank.wait(handle);
                whole
            }
            Fold::Slots {
                slots,
                init,
                arrival,
                timed,
            } => {
                let op = format!("slots {number}");
                let addends = spread(rank, *slots);
                let held = kind.values(random, self.dtype, LEN);
                let out = self.tensor(rank, "out", &held);
                let fold = SlotFold {
                    family: Family::WgradSplitK,
                    addends,
                    slots: *slots,
                    out,
                    init: *init,
                    order: match timed {
                        true => LocalOrder::Timed,
                        false => order(rank, *arrival),
                    },
                };
                rank.fold(&op, fold);
                rank.persist(Component::Model, &op, out);
                out
            }
            Fold::Segments {
                rows,
                segments,
                arrival,
            } => {
                let op = format!("segments {number}");
                let addends = spread(rank, *rows);
                let (width, out_rows) = (LEN, segments.pointers.len() as u32 - 1);
                let out = rank.alloc("out", self.dtype, width * out_rows);
                let (family, order) = (Family::EmbeddingGrad, order(rank, *arrival));
                rank.fold_segments(&op, family, addends, width, segments, out, order);
                rank.persist(Component::Model, &op, out);
                out.slice(0, LEN)
            }
        }
    }
}

fn order(rank: &Rank, arrival: Option<u32>) -> LocalOrder {
    match arrival == Some(rank.id) {
        true => LocalOrder::Arrival,
        false => LocalOrder::Ordered,
    }
}

/// Two output rows: all rows in one order, and some of them.
fn random_segments(random: &mut Random, rows: u32) -> Segments {
    let some = (0..rows).filter(|_| !random.one_in(3));
    let indices: Vec<u32> = (0..rows).chain(some).collect();
    Segments {
        pointers: [0, rows, indices.len() as u32].into(),
        indices: indices.into(),
    }
}
