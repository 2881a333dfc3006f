//! Hosts, their GPUs and NVLink domains, the in-node orders of NCCL's channels, and which rank runs
//! on which GPU.

mod allocation;
mod file;
mod graph;
pub mod import;
pub mod machines;
pub mod presets;
mod recorded;
mod write;

pub use allocation::{Allocation, Placement, Slot, Topology};
pub use file::{TopologyError, TopologyErrorKind};
pub use graph::{ChannelGraph, MissingOrders, TreePattern};
pub use recorded::{MAX_CHANNELS, Recorded, RecordedChannel, RecordedChannels, not_a_tree};

/// Ranks of the largest job that is accepted.
pub const MAX_RANKS: u32 = 65_536;
