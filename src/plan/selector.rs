//! From a communicator and an operation to its plan.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex};

use crate::numerics::Dtype;
use crate::plan::channels::{Channel, Communicator};
use crate::plan::environment::{Algorithm, Environment, EnvironmentError, Function};
use crate::plan::partition::{self, Operation, PartitionedBy, Protocol};
use crate::plan::{Arithmetic, Combine, Piece, Plan, Tree, all_to_all_sum, gloo, local, ring};
use crate::topology::Allocation;

/// Pieces of the largest plan that is built: about 400 MB.
const MAX_PIECES: u64 = 8 << 20;

/// Where plans of this selector come from, for certificates.
pub const PLAN_BASIS: &str = "NCCL rules read in the 2.30.7 source (one operation a launch, protocol Simple unless \
     NCCL_PROTO says otherwise); in-node orders from the topology file, not from NCCL's search; \
     Gloo rules checked against torch.distributed 2.15.0";

/// A library that carries out collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Backend {
    Nccl,
    Gloo,
}

/// What a collective does. Sizes are in elements of the whole reduced buffer: for reduce-scatter
/// that is a rank's input, n blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Collective {
    AllReduce,
    ReduceScatter,
    /// Megatron's `ddp_reduce_scatter_with_fp32_accumulation`.
    ReduceScatterFp32Accumulation,
    /// The root by group-local rank.
    Reduce {
        root: u32,
    },
    AllGather,
    Broadcast,
    AllToAll,
}

/// How values are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reduction {
    Sum,
    Max,
    /// NCCL: PreMulSum with 1/n in the element type. Gloo: the finished sum divided by n.
    Avg,
}

impl From<Combine> for Reduction {
    fn from(combine: Combine) -> Reduction {
        match combine {
            Combine::Sum => Reduction::Sum,
            Combine::Max => Reduction::Max,
        }
    }
}

/// One operation of one communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'a> {
    pub backend: Backend,
    /// Global ranks, by group-local rank.
    pub members: &'a [u32],
    pub collective: Collective,
    pub dtype: Dtype,
    pub elements: u64,
    pub reduction: Reduction,
}

/// Why an operation has no plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error("a communicator without ranks")]
    NoRanks,
    #[error("rank {rank} is not placed: the allocation `{allocation}` has {world} ranks")]
    NotPlaced {
        rank: u32,
        allocation: String,
        world: u32,
    },
    #[error("rank {rank} is twice in one communicator")]
    Twice { rank: u32 },
    #[error("{elements} elements do not divide into {ranks} blocks")]
    UnevenBlocks { elements: u64, ranks: u32 },
    #[error("root {root} of {ranks} ranks")]
    NoSuchRoot { root: u32, ranks: u32 },
    #[error("{reduction:?} of {dtype} by {collective:?} is not supported: {reason}")]
    Unsupported {
        collective: Collective,
        reduction: Reduction,
        dtype: Dtype,
        reason: &'static str,
    },
    #[error("{elements} elements would need {pieces} pieces, at most {MAX_PIECES} are supported")]
    TooLarge { elements: u64, pieces: u64 },
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    backend: Backend,
    /// The communicator's number in the order of first use; equal shapes share one.
    communicator: usize,
    collective: Collective,
    dtype: Dtype,
    elements: u64,
    reduction: Reduction,
}

#[derive(Default)]
struct Memory {
    communicators: Vec<Arc<Communicator>>,
    shapes: BTreeMap<Arc<Communicator>, usize>,
    members: BTreeMap<Vec<u32>, usize>,
    plans: BTreeMap<Key, Arc<Plan>>,
}

/// Chooses plans for one allocation and environment, and remembers them.
pub struct Selector {
    allocation: Allocation,
    environment: Environment,
    memory: Mutex<Memory>,
}

impl Selector {
    pub fn new(allocation: Allocation, environment: Environment) -> Selector {
        Selector {
            allocation,
            environment,
            memory: Mutex::default(),
        }
    }

    pub fn allocation(&self) -> &Allocation {
        &self.allocation
    }

    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// The plan of one operation. Addends are numbered by group-local rank. A collective that only
    /// copies has a plan with one addend.
    pub fn plan(&self, request: &Request<'_>) -> Result<Arc<Plan>, PlanError> {
        // A thread that panicked in here left at worst an entry out: the memory stays usable.
        let mut memory = self
            .memory
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let number = self.number_of(&mut memory, request.members)?;
        let key = Key {
            backend: request.backend,
            communicator: number,
            collective: request.collective,
            dtype: request.dtype,
            elements: request.elements,
            reduction: request.reduction,
        };
        if let Some(plan) = memory.plans.get(&key) {
            return Ok(plan.clone());
        }
        let communicator = memory.communicators[number].clone();
        let plan = Arc::new(build(&self.environment, &communicator, request)?);
        memory.plans.insert(key, plan.clone());
        Ok(plan)
    }

    /// The communicator of `members`, shared by all groups of its shape.
    pub fn communicator(&self, members: &[u32]) -> Result<Arc<Communicator>, PlanError> {
        let mut memory = self
            .memory
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let number = self.number_of(&mut memory, members)?;
        Ok(memory.communicators[number].clone())
    }

    fn number_of(&self, memory: &mut Memory, members: &[u32]) -> Result<usize, PlanError> {
        if let Some(number) = memory.members.get(members) {
            return Ok(*number);
        }
        self.check_members(members)?;
        let communicator = Arc::new(Communicator::new(&self.allocation, members));
        let number = match memory.shapes.get(&communicator) {
            Some(number) => *number,
            None => {
                memory.communicators.push(communicator.clone());
                let number = memory.communicators.len() - 1;
                memory.shapes.insert(communicator, number);
                number
            }
        };
        memory.members.insert(members.to_vec(), number);
        Ok(number)
    }

    fn check_members(&self, members: &[u32]) -> Result<(), PlanError> {
        if members.is_empty() {
            return Err(PlanError::NoRanks);
        }
        let world = self.allocation.placement.world();
        let mut seen = BTreeSet::new();
        for rank in members.iter().copied() {
            if rank >= world {
                let allocation = self.allocation.name.clone();
                return Err(PlanError::NotPlaced {
                    rank,
                    allocation,
                    world,
                });
            }
            if !seen.insert(rank) {
                return Err(PlanError::Twice { rank });
            }
        }
        Ok(())
    }
}

fn build(
    environment: &Environment,
    communicator: &Communicator,
    request: &Request<'_>,
) -> Result<Plan, PlanError> {
    let ranks = communicator.ranks();
    let blocks = match request.collective {
        Collective::ReduceScatter
        | Collective::ReduceScatterFp32Accumulation
        | Collective::AllGather
        | Collective::AllToAll => u64::from(ranks),
        _ => 1,
    };
    if !request.elements.is_multiple_of(blocks) {
        return Err(PlanError::UnevenBlocks {
            elements: request.elements,
            ranks,
        });
    }
    if let Collective::Reduce { root } = request.collective
        && root >= ranks
    {
        return Err(PlanError::NoSuchRoot { root, ranks });
    }
    let Request {
        elements, dtype, ..
    } = *request;
    let pieces = match request.collective {
        Collective::AllGather | Collective::Broadcast | Collective::AllToAll => {
            return Ok(local::ascending(
                1,
                elements,
                Arithmetic::sum(dtype, dtype, dtype),
            ));
        }
        Collective::ReduceScatterFp32Accumulation => {
            check_fp32_accumulation(request)?;
            return Ok(all_to_all_sum::reduce_scatter(ranks, elements, dtype));
        }
        collective => match request.backend {
            Backend::Gloo => match collective {
                Collective::Reduce { .. } => gloo::reduce(ranks, elements, dtype.wire_bytes()),
                _ => gloo::all_reduce(ranks, elements, dtype.wire_bytes()),
            },
            Backend::Nccl => nccl(environment, communicator, request)?,
        },
    };
    let arithmetic = arithmetic(request, ranks)?;
    let plan = Plan {
        addend_count: ranks,
        element_count: elements,
        arithmetic,
        pieces,
    };
    Ok(plan.merged())
}

fn check_fp32_accumulation(request: &Request<'_>) -> Result<(), PlanError> {
    if request.reduction == Reduction::Sum && request.dtype != Dtype::U32 {
        return Ok(());
    }
    Err(PlanError::Unsupported {
        collective: request.collective,
        reduction: request.reduction,
        dtype: request.dtype,
        reason: "only sums of floats are accumulated in fp32",
    })
}

fn arithmetic(request: &Request<'_>, ranks: u32) -> Result<Arithmetic, PlanError> {
    let dtype = request.dtype;
    let sum = Arithmetic::sum(dtype, dtype, dtype);
    match (request.reduction, request.backend) {
        (Reduction::Sum, _) => Ok(sum),
        (Reduction::Max, _) => Ok(Arithmetic::max(dtype)),
        (Reduction::Avg, _) if dtype == Dtype::U32 => Err(PlanError::Unsupported {
            collective: request.collective,
            reduction: request.reduction,
            dtype,
            reason: "averages are of floats",
        }),
        (Reduction::Avg, Backend::Nccl) => {
            let factor = dtype.round(1.0 / ranks as f32);
            let pre_multiply_bits = Some(factor.to_bits());
            Ok(Arithmetic {
                pre_multiply_bits,
                contraction_free: true,
                ..sum
            })
        }
        (Reduction::Avg, Backend::Gloo) => {
            let post_divide_bits = Some((ranks as f32).to_bits());
            Ok(Arithmetic {
                post_divide_bits,
                ..sum
            })
        }
    }
}

fn nccl(
    environment: &Environment,
    communicator: &Communicator,
    request: &Request<'_>,
) -> Result<Vec<Piece>, PlanError> {
    let function = match request.collective {
        Collective::AllReduce => Function::AllReduce,
        Collective::ReduceScatter => Function::ReduceScatter,
        Collective::Reduce { .. } => Function::Reduce,
        other => unreachable!("{other:?} reduces nothing in NCCL"),
    };
    let algorithm = environment.algorithm(function)?;
    let protocol = environment.protocol(function)?;
    let ranks = u64::from(communicator.ranks());
    let (blocks, traffic) = match function {
        Function::AllReduce => (1, 2),
        Function::ReduceScatter => (ranks, ranks),
        _ => (1, 1),
    };
    let operation = Operation {
        count: request.elements / blocks,
        element_bytes: request.dtype.wire_bytes(),
        blocks,
        traffic,
    };
    let by = match algorithm {
        Algorithm::Tree => PartitionedBy::Tree,
        _ => PartitionedBy::Ring,
    };
    let channels = communicator.channels(environment.min_channels, environment.max_channels);
    let count = channels.len() as u64;
    let limit = partition::channel_limit(&operation, by, protocol, ranks, count);
    let ranges = partition::channel_ranges(&operation, protocol, limit, count);
    let parts: Vec<(Channel, Range<u64>)> = channels.into_iter().zip(ranges).collect();
    match (request.collective, algorithm) {
        (Collective::AllReduce, Algorithm::Tree) => Ok(tree_all_reduce(communicator, parts)),
        (Collective::AllReduce, _) => ring_all_reduce(
            communicator,
            parts,
            protocol,
            environment.buffer_bytes,
            &operation,
        ),
        (Collective::ReduceScatter, _) => ring_reduce_scatter(communicator, parts, &operation),
        (Collective::Reduce { root }, _) => {
            let piece = |(channel, range)| Piece {
                range,
                tree: ring::reduce_tree(communicator.ring(channel), root),
            };
            Ok(parts.into_iter().map(piece).collect())
        }
        (other, _) => unreachable!("{other:?} reduces nothing in NCCL"),
    }
}

fn tree_all_reduce(communicator: &Communicator, parts: Vec<(Channel, Range<u64>)>) -> Vec<Piece> {
    let mut known: BTreeMap<Channel, Tree> = BTreeMap::new();
    let piece = |(channel, range)| {
        let tree = known
            .entry(channel)
            .or_insert_with(|| communicator.tree(channel))
            .clone();
        Piece { range, tree }
    };
    parts.into_iter().map(piece).collect()
}

fn ring_all_reduce(
    communicator: &Communicator,
    parts: Vec<(Channel, Range<u64>)>,
    protocol: Protocol,
    buffer_bytes: u64,
    operation: &Operation,
) -> Result<Vec<Piece>, PlanError> {
    let chunk = (protocol.ring_chunk_bytes(buffer_bytes) / operation.element_bytes).max(1);
    let ranks = u64::from(communicator.ranks());
    let pieces = parts
        .iter()
        .map(|(_, range)| ring::all_reduce_pieces(range, ranks, chunk))
        .sum();
    check_pieces(operation.count, pieces)?;
    let piece = |(channel, range): (Channel, Range<u64>)| {
        ring::all_reduce(
            range,
            communicator.ring(channel),
            chunk,
            operation.element_bytes,
        )
    };
    Ok(parts.into_iter().flat_map(piece).collect())
}

/// Every block is split over the channels alike.
fn ring_reduce_scatter(
    communicator: &Communicator,
    parts: Vec<(Channel, Range<u64>)>,
    operation: &Operation,
) -> Result<Vec<Piece>, PlanError> {
    check_pieces(
        operation.count * operation.blocks,
        operation.blocks * parts.len() as u64,
    )?;
    let mut pieces = Vec::new();
    // Positions are looked up once a ring: a search a block would cost n^2.
    let rings: Vec<_> = parts
        .iter()
        .map(|(channel, _)| ring::Places::of(communicator.ring(*channel)))
        .collect();
    for block in 0..operation.blocks {
        let start = block * operation.count;
        for (places, (_, range)) in rings.iter().zip(&parts) {
            pieces.push(Piece {
                range: start + range.start..start + range.end,
                tree: places.reduce_scatter_tree(block as u32),
            });
        }
    }
    Ok(pieces)
}

fn check_pieces(elements: u64, pieces: u64) -> Result<(), PlanError> {
    if pieces > MAX_PIECES {
        return Err(PlanError::TooLarge { elements, pieces });
    }
    Ok(())
}
