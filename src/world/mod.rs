//! The virtual cluster: ranks as threads, one coordinator, streams, memory, folds, orders.

pub mod rank;
pub mod site;

pub use rank::{
    Component, EventId, GroupId, Handle, LocalOrder, Rank, RankError, Segments, SlotFold, StreamId,
    Tensor,
};
pub use site::{Family, Phase, Site};
