//! The plans that a sum may have had: of every library, algorithm, protocol and number of channels
//! that a builder knows.

use std::collections::BTreeMap;

use crate::numerics::Dtype;
use crate::plan::open_mpi::{AllReduce, Reduce, ReduceScatter, ReduceScatterBlock};
use crate::plan::{
    Arithmetic, Backend, Collective, Digest, Environment, Piece, Plan, Reduction, Request,
    Selector, local, open_mpi,
};
use crate::recipe::nccl::Protocol;
use crate::topology::{Allocation, Topology};

/// NCCL's `MAXCHANNELS`.
const CHANNELS_MAX: u32 = 64;

/// What was done. Sizes are of the whole reduced buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    AllReduce,
    ReduceScatter,
    /// The root by rank of the group.
    Reduce {
        root: u32,
    },
}

impl Operation {
    pub const fn name(self) -> &'static str {
        match self {
            Operation::AllReduce => "all-reduce",
            Operation::ReduceScatter => "reduce-scatter",
            Operation::Reduce { .. } => "reduce",
        }
    }

    /// What a plan is asked for.
    pub const fn collective(self) -> Collective {
        match self {
            Operation::AllReduce => Collective::AllReduce,
            Operation::ReduceScatter => Collective::ReduceScatter,
            Operation::Reduce { root } => Collective::Reduce { root },
        }
    }
}

/// A plan, and everything that has it.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub plan: Plan,
    pub names: Vec<String>,
}

/// The different plans that a sum of `dtype` over `members` may have had, on an allocation, or
/// where none is known on one host with one ring in the order of the ranks.
pub fn candidates(
    operation: Operation,
    dtype: Dtype,
    elements: u64,
    members: &[u32],
    allocation: Option<&Allocation>,
) -> Vec<Candidate> {
    let one_host = || {
        let ranks = members.iter().max().map_or(1, |rank| rank + 1);
        let host = Topology::switched("one host", 1, ranks);
        host.block(ranks).expect("as many GPUs as ranks")
    };
    let allocation = allocation.cloned().unwrap_or_else(one_host);
    let mut found = Found {
        operation,
        dtype,
        elements,
        members,
        different: BTreeMap::new(),
        order: Vec::new(),
    };
    found.nccl(&allocation);
    found.by_rank(&allocation);
    if dtype == Dtype::F32 {
        found.open_mpi();
    }
    found.finish()
}

/// Candidates while they are collected.
struct Found<'a> {
    operation: Operation,
    dtype: Dtype,
    elements: u64,
    members: &'a [u32],
    different: BTreeMap<Digest, (Plan, Names)>,
    order: Vec<Digest>,
}

/// Names, those with channels once, with all of theirs.
type Names = Vec<(String, Vec<u32>)>;

impl Found<'_> {
    fn ranks(&self) -> u32 {
        self.members.len() as u32
    }

    fn add(&mut self, plan: Plan, name: &str, channels: Option<u32>) {
        let hash = plan.hash();
        if !self.different.contains_key(&hash) {
            self.order.push(hash);
        }
        let (_, names) = self
            .different
            .entry(hash)
            .or_insert_with(|| (plan, Names::new()));
        match names.iter_mut().find(|(known, _)| known == name) {
            Some((_, list)) => list.extend(channels),
            None => names.push((name.to_string(), channels.into_iter().collect())),
        }
    }

    fn request(&self, backend: Backend, collective: Collective) -> Request<'_> {
        Request {
            backend,
            members: self.members,
            collective,
            dtype: self.dtype,
            elements: self.elements,
            reduction: Reduction::Sum,
        }
    }

    fn nccl(&mut self, allocation: &Allocation) {
        let algorithms: &[&str] = match self.operation {
            Operation::AllReduce => &["Ring", "Tree"],
            Operation::ReduceScatter | Operation::Reduce { .. } => &["Ring"],
        };
        for algorithm in algorithms {
            for protocol in Protocol::ALL {
                for channels in 1..=CHANNELS_MAX {
                    let count = channels.to_string();
                    let environment = Environment::parse([
                        ("NCCL_ALGO", *algorithm),
                        ("NCCL_PROTO", protocol.name()),
                        ("NCCL_MIN_NCHANNELS", count.as_str()),
                        ("NCCL_MAX_NCHANNELS", count.as_str()),
                    ]);
                    let environment = environment.expect("written as NCCL reads it");
                    let selector = Selector::new(allocation.clone(), environment);
                    let request = self.request(Backend::Nccl, self.operation.collective());
                    // What is too large for one of them, or has no trees, has no such plan.
                    if let Ok(plan) = selector.plan(&request) {
                        let name = format!("NCCL {algorithm}, {}", protocol.name());
                        self.add((*plan).clone(), &name, Some(channels));
                    }
                }
            }
        }
    }

    /// Libraries and kernels that go by the numbers of the ranks.
    fn by_rank(&mut self, allocation: &Allocation) {
        let selector = Selector::new(allocation.clone(), Environment::default());
        let request = self.request(Backend::Gloo, self.operation.collective());
        if let Ok(plan) = selector.plan(&request) {
            self.add((*plan).clone(), "Gloo, ring", None);
        }
        let (ranks, elements, dtype) = (self.ranks(), self.elements, self.dtype);
        let own = Arithmetic::sum(dtype, dtype, dtype);
        let wide = Arithmetic::sum(dtype, Dtype::F32, dtype);
        self.add(
            local::ascending(ranks, elements, own),
            "in the order of the ranks",
            None,
        );
        if dtype != Dtype::F32 {
            let name = "in the order of the ranks, in f32, rounded once (all-to-all and fp32 sum)";
            self.add(local::ascending(ranks, elements, wide), name, None);
        }
    }

    fn open_mpi(&mut self) {
        let (ranks, elements) = (self.ranks(), self.elements);
        let bytes = self.dtype.wire_bytes();
        match self.operation {
            Operation::AllReduce => {
                for (name, algorithm) in ALL_REDUCES {
                    let pieces = open_mpi::all_reduce(ranks, elements, bytes, algorithm);
                    self.add_pieces(pieces, &format!("allreduce {name}"));
                }
            }
            Operation::ReduceScatter => {
                let count = elements / u64::from(ranks);
                for (name, algorithm) in BLOCKS {
                    let pieces = open_mpi::reduce_scatter_block(ranks, count, bytes, algorithm);
                    self.add_pieces(pieces, &format!("reduce_scatter_block {name}"));
                }
                let counts = vec![count; ranks as usize];
                for (name, algorithm) in SCATTERS {
                    let pieces = open_mpi::reduce_scatter(&counts, bytes, algorithm);
                    self.add_pieces(pieces, &format!("reduce_scatter {name}"));
                }
            }
            Operation::Reduce { root } => {
                for (name, algorithm) in REDUCES {
                    let pieces = open_mpi::reduce(ranks, root, elements, bytes, algorithm);
                    self.add_pieces(pieces, &format!("reduce {name}"));
                }
            }
        }
    }

    fn add_pieces(&mut self, pieces: Vec<Piece>, algorithm: &str) {
        let plan = Plan {
            addend_count: self.ranks(),
            element_count: self.elements,
            arithmetic: Arithmetic::sum(self.dtype, self.dtype, self.dtype),
            pieces,
        };
        self.add(plan.merged(), &format!("Open MPI, {algorithm}"), None);
    }

    fn finish(mut self) -> Vec<Candidate> {
        let order = std::mem::take(&mut self.order);
        let candidate = |hash: &Digest| {
            let (plan, names) = self.different.remove(hash).expect("found before");
            let names = names
                .into_iter()
                .map(|(name, channels)| match &channels[..] {
                    [] => name,
                    list => format!("{name}, channels {}", in_ranges(list)),
                });
            Candidate {
                plan,
                names: names.collect(),
            }
        };
        order.iter().map(candidate).collect()
    }
}

const ALL_REDUCES: [(&str, AllReduce); 5] = [
    ("basic_linear", AllReduce::BasicLinear),
    ("nonoverlapping", AllReduce::NonOverlapping),
    ("recursive_doubling", AllReduce::RecursiveDoubling),
    ("ring or segmented_ring", AllReduce::Ring),
    ("rabenseifner", AllReduce::Rabenseifner),
];

const BLOCKS: [(&str, ReduceScatterBlock); 4] = [
    ("basic_linear", ReduceScatterBlock::BasicLinear),
    ("recursive_doubling", ReduceScatterBlock::RecursiveDoubling),
    ("recursive_halving", ReduceScatterBlock::RecursiveHalving),
    ("butterfly", ReduceScatterBlock::Butterfly),
];

const SCATTERS: [(&str, ReduceScatter); 4] = [
    ("non_overlapping", ReduceScatter::NonOverlapping),
    ("recursive_halving", ReduceScatter::RecursiveHalving),
    ("ring", ReduceScatter::Ring),
    ("butterfly", ReduceScatter::Butterfly),
];

const REDUCES: [(&str, Reduce); 7] = [
    ("linear", Reduce::Linear),
    ("chain", Reduce::Chain { fanout: 4 }),
    ("pipeline", Reduce::Pipeline),
    ("binary", Reduce::Binary),
    ("binomial", Reduce::Binomial),
    ("in_order_binary", Reduce::InOrderBinary),
    ("rabenseifner", Reduce::Rabenseifner),
];

/// `1-4 8` for an ascending list.
fn in_ranges(list: &[u32]) -> String {
    let runs = list.chunk_by(|a, b| a + 1 == *b);
    let runs = runs.map(|run| match run {
        [one] => one.to_string(),
        _ => format!("{}-{}", run[0], run[run.len() - 1]),
    });
    runs.collect::<Vec<_>>().join(" ")
}
