//! Classes of faults, by where they come from: what a scenario may expect, and a check names.

use serde::{Deserialize, Serialize};

/// The class of a fault. The names are those that bug reports of training stacks are filed under.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum OriginClass {
    /// A sum whose addends land in another order on every run.
    AccumulationOrder,
    /// A kernel's configuration that each rank chooses by timing.
    AutotuneChoice,
    /// A collective whose algorithm follows from the allocation or from sizes.
    AlgorithmSelection,
    /// An access does not wait for another one of the same words.
    MissingWait,
    /// Memory is freed or handed out while it is in use.
    BufferLifetime,
    /// Words that nothing wrote are read.
    UninitialisedRead,
    /// A gradient lacks a contribution, has one twice, or one that is not its own.
    WrongContribution,
    /// The ranks compute other values than one rank would, wrong everywhere alike.
    WrongValue,
    /// Copies that must agree do not.
    ReplicaDivergence,
    /// Members of a communicator call other collectives, or the same ones in another order.
    CollectiveMismatch,
    /// No rank can go on: each waits for another one.
    Deadlock,
    /// What is computed again in the backward is not what the forward computed.
    RecomputeMismatch,
    /// A checkpoint's bytes are not those of the step that it was asked for.
    CheckpointSnapshot,
    /// A checkpoint lacks a component, or a resume does not restore it.
    LostState,
    /// A resumed run reads state that no checkpoint holds.
    HiddenState,
    /// A resumed run has other choices than the straight one.
    OtherAfterResume,
    /// State, data or random numbers depend on how many ranks there are, or on where they run.
    MeshDependence,
    /// The answer of a non-blocking query decides what is computed.
    QueryAnswer,
    /// Bits that changed by themselves, or by what the choices do not describe.
    Uncontrolled,
}

impl OriginClass {
    pub const ALL: [OriginClass; 19] = [
        OriginClass::AccumulationOrder,
        OriginClass::AutotuneChoice,
        OriginClass::AlgorithmSelection,
        OriginClass::MissingWait,
        OriginClass::BufferLifetime,
        OriginClass::UninitialisedRead,
        OriginClass::WrongContribution,
        OriginClass::WrongValue,
        OriginClass::ReplicaDivergence,
        OriginClass::CollectiveMismatch,
        OriginClass::Deadlock,
        OriginClass::RecomputeMismatch,
        OriginClass::CheckpointSnapshot,
        OriginClass::LostState,
        OriginClass::HiddenState,
        OriginClass::OtherAfterResume,
        OriginClass::MeshDependence,
        OriginClass::QueryAnswer,
        OriginClass::Uncontrolled,
    ];

    /// As scenarios and reports write it.
    pub const fn name(self) -> &'static str {
        match self {
            OriginClass::AccumulationOrder => "accumulation-order",
            OriginClass::AutotuneChoice => "autotune-choice",
            OriginClass::AlgorithmSelection => "algorithm-selection",
            OriginClass::MissingWait => "missing-wait",
            OriginClass::BufferLifetime => "buffer-lifetime",
            OriginClass::UninitialisedRead => "uninitialised-read",
            OriginClass::WrongContribution => "wrong-contribution",
            OriginClass::WrongValue => "wrong-value",
            OriginClass::ReplicaDivergence => "replica-divergence",
            OriginClass::CollectiveMismatch => "collective-mismatch",
            OriginClass::Deadlock => "deadlock",
            OriginClass::RecomputeMismatch => "recompute-mismatch",
            OriginClass::CheckpointSnapshot => "checkpoint-snapshot",
            OriginClass::LostState => "lost-state",
            OriginClass::HiddenState => "hidden-state",
            OriginClass::OtherAfterResume => "other-after-resume",
            OriginClass::MeshDependence => "mesh-dependence",
            OriginClass::QueryAnswer => "query-answer",
            OriginClass::Uncontrolled => "uncontrolled",
        }
    }
}

impl std::fmt::Display for OriginClass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_serialised_form() {
        for class in OriginClass::ALL {
            let json = serde_json::to_string(&class).unwrap();
            assert_eq!(json, format!("\"{class}\""));
        }
    }
}
