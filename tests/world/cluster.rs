//! A small cluster to run programs on, with a watchdog: a test that hangs fails.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use bitproof::engine::cpu::CpuEngine;
use bitproof::numerics::Dtype;
use bitproof::plan::{Arithmetic, Combine, Op, Piece, Plan, Tree};
use bitproof::world::{
    CollectiveShape, Communicator, GroupId, Observer, PlanSource, Rank, RankError, RunOptions,
    RunRecord, Tensor, Unobserved, World, WorldError,
};

use crate::kernels::registry;

/// Far more than any of these runs takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// The group of all ranks.
pub const ALL: GroupId = GroupId(0);

/// What ranks saw, by (rank, name).
pub type Seen = Arc<Mutex<BTreeMap<(u32, String), Vec<u32>>>>;

/// The order in which a test's collectives reduce.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Block b of the elements starts at place b + 1 and goes round, as NCCL's ring does.
    Ring,
    /// Neighbours meet first.
    Tree,
}

/// Plans of one shape and one arithmetic.
#[derive(Clone)]
pub struct Plans {
    pub sizes: Vec<u32>,
    pub shape: Shape,
    /// `None`: sums in f32, maxima in the tensor's type.
    pub arithmetic: Option<Arithmetic>,
}

impl Plans {
    pub fn plan(&self, shape: CollectiveShape) -> Plan {
        let n = self.sizes[shape.group.0 as usize];
        let dtype = shape.dtype;
        let arithmetic = match bitproof::world::order::combine_of(shape.kind) {
            Some(Combine::Max) => Arithmetic::max(dtype),
            _ => self
                .arithmetic
                .unwrap_or(Arithmetic::sum(dtype, Dtype::F32, dtype)),
        };
        Plan {
            addend_count: n,
            element_count: shape.elements,
            arithmetic,
            pieces: pieces(self.shape, n, shape.elements),
        }
    }
}

impl PlanSource for Plans {
    fn plans(&self, shape: CollectiveShape) -> Result<Arc<[Arc<Plan>]>, String> {
        Ok(Arc::new([Arc::new(self.plan(shape))]))
    }
}

pub fn pieces(shape: Shape, n: u32, elements: u64) -> Vec<Piece> {
    match shape {
        Shape::Ring => {
            let ring: Arc<[u32]> = (0..n).collect();
            let block = elements.div_ceil(u64::from(n));
            (0..u64::from(n))
                .map(|b| {
                    (
                        b,
                        (b * block).min(elements)..((b + 1) * block).min(elements),
                    )
                })
                .filter(|(_, range)| !range.is_empty())
                .map(|(b, range)| {
                    let (ring, start) = (ring.clone(), (b as u32 + 1) % n);
                    let tree = Tree::Chain { ring, start };
                    Piece { range, tree }
                })
                .collect()
        }
        Shape::Tree if elements == 0 => Vec::new(),
        Shape::Tree => {
            let mut ops = Vec::new();
            balanced(0, n, &mut ops);
            let tree = Tree::Ops(ops.into());
            vec![Piece {
                range: 0..elements,
                tree,
            }]
        }
    }
}

/// The larger half is pushed first, so that the stack stays shallow.
fn balanced(from: u32, to: u32, ops: &mut Vec<Op>) {
    if to - from == 1 {
        ops.push(Op::Push(from));
        return;
    }
    let middle = from + (to - from).div_ceil(2);
    balanced(from, middle, ops);
    balanced(middle, to, ops);
    ops.push(Op::Combine);
}

#[derive(Clone)]
pub struct Cluster {
    pub groups: Vec<Vec<u32>>,
    pub shape: Shape,
    pub arithmetic: Option<Arithmetic>,
    pub options: RunOptions,
    pub workers: usize,
}

/// How a run ended, and what ranks showed before.
pub struct Outcome {
    pub result: Result<RunRecord, WorldError>,
    seen: BTreeMap<(u32, String), Vec<u32>>,
}

impl Outcome {
    pub fn record(&self) -> &RunRecord {
        match &self.result {
            Ok(record) => record,
            Err(error) => panic!("the run failed: {error}"),
        }
    }

    pub fn error(&self) -> &WorldError {
        self.result.as_ref().expect_err("the run should fail")
    }

    pub fn words(&self, rank: u32, name: &str) -> Vec<u32> {
        self.record();
        let key = (rank, name.to_string());
        self.seen.get(&key).expect("the rank showed it").clone()
    }

    pub fn values(&self, rank: u32, name: &str) -> Vec<f32> {
        let words = self.words(rank, name);
        words.into_iter().map(f32::from_bits).collect()
    }
}

impl Cluster {
    /// Group 0 holds all ranks.
    pub fn new(ranks: u32) -> Self {
        Cluster {
            groups: vec![(0..ranks).collect()],
            shape: Shape::Ring,
            arithmetic: None,
            options: RunOptions::default(),
            workers: 1,
        }
    }

    pub fn group(mut self, ranks: &[u32]) -> Self {
        self.groups.push(ranks.to_vec());
        self
    }

    pub fn shape(mut self, shape: Shape) -> Self {
        self.shape = shape;
        self
    }

    pub fn arithmetic(mut self, arithmetic: Arithmetic) -> Self {
        self.arithmetic = Some(arithmetic);
        self
    }

    pub fn options(mut self, change: impl FnOnce(&mut RunOptions)) -> Self {
        change(&mut self.options);
        self
    }

    /// Looks for hazards in every step of these short programs.
    pub fn watched(self) -> Self {
        self.options(|options| options.hazard_steps_max = u32::MAX)
    }

    pub fn plans(&self) -> Plans {
        Plans {
            sizes: self.groups.iter().map(|group| group.len() as u32).collect(),
            shape: self.shape,
            arithmetic: self.arithmetic,
        }
    }

    pub fn run<P>(&self, program: P) -> Outcome
    where
        P: Fn(&mut Rank, &Seen) -> Result<(), RankError> + Send + Sync + 'static,
    {
        self.run_observed(program, Unobserved)
    }

    /// Runs on a thread of its own, which has `PATIENCE` to end.
    pub fn run_observed<P, O>(&self, program: P, mut observer: O) -> Outcome
    where
        P: Fn(&mut Rank, &Seen) -> Result<(), RankError> + Send + Sync + 'static,
        O: Observer + Send + 'static,
    {
        let cluster = self.clone();
        let (done, outcome) = mpsc::channel();
        std::thread::spawn(move || {
            let mut engine = CpuEngine::new(cluster.workers).expect("this machine has an engine");
            let _ = done.send(cluster.run_on(&mut engine, &program, &mut observer));
        });
        outcome.recv_timeout(PATIENCE).expect("nothing hangs")
    }

    /// Runs here, on an engine that many runs share: whoever calls has a watchdog of its own.
    pub fn run_on(
        &self,
        engine: &mut CpuEngine,
        program: &(dyn Fn(&mut Rank, &Seen) -> Result<(), RankError> + Sync),
        observer: &mut dyn Observer,
    ) -> Outcome {
        let seen = Seen::default();
        let of_rank = |rank: &mut Rank| program(rank, &seen);
        let result = self.world().run(engine, &self.options, &of_rank, observer);
        let seen = seen.lock().expect("no rank dies holding it").clone();
        Outcome { result, seen }
    }

    fn world(&self) -> World {
        let communicators = self
            .groups
            .iter()
            .enumerate()
            .map(|(number, ranks)| Communicator {
                name: format!("group{number}"),
                ranks: ranks.as_slice().into(),
            });
        let ranks = self.groups[0].len() as u32;
        World {
            ranks,
            communicators: communicators.collect(),
            registry: registry(),
            plans: Arc::new(self.plans()),
        }
    }
}

/// Reads `tensor` and keeps its words for the test.
pub fn show(rank: &mut Rank, seen: &Seen, name: &str, tensor: Tensor) -> Result<(), RankError> {
    let words = rank.read(&format!("show {name}"), tensor)?;
    let mut seen = seen.lock().expect("no rank dies holding it");
    seen.insert((rank.id, name.to_string()), words);
    Ok(())
}

/// A tensor of f32 with these values.
pub fn tensor(rank: &mut Rank, name: &str, values: &[f32]) -> Tensor {
    typed(rank, name, Dtype::F32, values)
}

pub fn typed(rank: &mut Rank, name: &str, dtype: Dtype, values: &[f32]) -> Tensor {
    let tensor = rank.alloc(name, dtype, values.len() as u32);
    rank.upload_f32(&format!("load {name}"), tensor, values);
    tensor
}

/// Launches `scale_add`: `out = a * scale + b`.
pub fn scale_add(rank: &mut Rank, op: &str, [a, b, out]: [Tensor; 3], scale: f32) {
    let params = [out.len, scale.to_bits()];
    rank.launch(op, "scale_add", [out.len, 1, 1], &[a, b, out], &params);
}

/// Launches `ramp`: `out = i * scale + base`.
pub fn ramp(rank: &mut Rank, op: &str, out: Tensor, scale: f32, base: f32) {
    let params = [out.len, scale.to_bits(), base.to_bits()];
    rank.launch(op, "ramp", [out.len, 1, 1], &[out], &params);
}

/// Launches `step_in_place`: `x = x * scale + 1`.
pub fn step_in_place(rank: &mut Rank, op: &str, x: Tensor, scale: f32) {
    let params = [x.len, scale.to_bits()];
    rank.launch(op, "step_in_place", [x.len, 1, 1], &[x], &params);
}

/// Values whose sums depend on their order: magnitudes far apart, both signs.
pub fn rough(rank: u32, salt: u32, len: u32) -> Vec<f32> {
    let mut state = u64::from(rank) << 32 | u64::from(salt) << 8 | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u32
    };
    for _ in 0..8 {
        next();
    }
    (0..len)
        .map(|_| {
            let bits = next();
            let exponent = 120 + bits % 16;
            f32::from_bits(next() & 0x8000_0000 | exponent << 23 | next() & 0x007f_ffff)
        })
        .collect()
}
