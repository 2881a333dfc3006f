//! What a plan is asked for, and why there may be none.

use crate::numerics::Dtype;
use crate::plan::Combine;
use crate::recipe::nccl::EnvironmentError;

/// Pieces of the largest plan that is built: about 400 MB.
pub(super) const MAX_PIECES: u64 = 8 << 20;

/// Where plans of this selector come from, for certificates.
pub const PLAN_BASIS: &str = "\
    NCCL rules read in the 2.30.7 source (one operation a launch, protocol Simple unless \
    NCCL_PROTO says otherwise); in-node orders from the topology file, not from NCCL's search; \
    Gloo rules checked against torch.distributed 2.15.0";

/// Where plans of Open MPI come from.
pub const OPEN_MPI_BASIS: &str = "\
    Open MPI's coll/tuned by its own fixed rules, checked against 4.1.4 with 3, 4, 5 and 8 ranks";

/// A library that carries out collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Backend {
    Nccl,
    Gloo,
    /// Open MPI's `coll/tuned`, by its own rules.
    OpenMpi,
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
    #[error(
        "the topology has the rings of a communicator of {ranks} ranks as they were recorded, but \
         not its trees"
    )]
    NoTrees { ranks: u32 },
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
