//! The virtual cluster: ranks as threads, one coordinator, streams, memory, folds, orders.

mod beside;
pub mod command;
pub mod error;
pub mod exec;
pub mod fold;
pub mod memory;
pub mod observer;
pub mod order;
pub mod rank;
pub mod site;

pub use beside::Beside;
pub use error::{Side, WorldError};
pub(crate) use exec::STACK_BYTES;
pub use exec::{
    Drift, FaultHost, NodeRecord, PlantedFault, Program, QueryPoint, RANKS_MAX, Reversal,
    RunOptions, RunRecord, SavedFile, State, StateTensor, Turned, World,
};
pub use memory::{Access, Hazard, HazardKind};
pub use observer::{
    CopyNode, ExchangeNode, LaunchNode, Member, Observer, ShownMetric, Unobserved, UploadNode, Way,
};
pub use order::{
    Choice, CollectiveShape, NodeId, Owner, PlanSource, Priorities, QueryId, Schedule, TuneKey,
};
pub use rank::{
    CHECKPOINT_COPY_STREAM, CHECKPOINT_WRITER_STREAM, COMPUTE_STREAM, Communicator, Component,
    EventId, GRAD_HOOK_STREAM, GroupId, Handle, Lane, LocalOrder, MemoryOptions, OFFLOAD_STREAM,
    Rank, RankError, Segments, SlotFold, StreamId, Tensor,
};
pub use site::{Family, Name, Phase, Site};

#[cfg(test)]
mod tests;
