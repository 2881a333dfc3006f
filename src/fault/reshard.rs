//! Faults of a resume on another layout: state that lands in the wrong place.

use serde::Serialize;

/// A way to put whole tensors wrongly onto the ranks of another layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReshardFault {
    /// Gate and up of a gated MLP change places: rows are cut as if they were one group.
    SwappedHalves,
    /// Each data-parallel shard of the optimizer state starts one word late.
    ShiftedShard,
    /// One parameter gets another one's first moment of the same size.
    OtherTensor,
}

impl ReshardFault {
    pub const ALL: [ReshardFault; 3] = [
        ReshardFault::SwappedHalves,
        ReshardFault::ShiftedShard,
        ReshardFault::OtherTensor,
    ];

    /// The name that reports use.
    pub const fn name(self) -> &'static str {
        match self {
            ReshardFault::SwappedHalves => "swapped-halves",
            ReshardFault::ShiftedShard => "shifted-shard",
            ReshardFault::OtherTensor => "other-tensor",
        }
    }
}
