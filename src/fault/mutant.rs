//! Faults that a check plants into the scenario under check, to show that it would see them.
//!
//! Each kind is a class of real bug, found in issue trackers of training stacks. A mutant counts
//! as caught only when the finding names the node it was planted at; a kind that the scenario
//! cannot host (no fold with three addends, no replica) is reported as not planted, never as caught.

use serde::Serialize;

use super::Component;

/// A class of planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum MutantKind {
    /// One call of a collective takes its addends in reverse ring order.
    ReverseRing,
    /// One call of a collective starts its ring one place later.
    RotatedRing,
    /// A chain is summed as a balanced tree: another algorithm chosen on one call.
    TreeForChain,
    /// An ordered local fold lands in arrival order: an atomic where none was meant.
    ArrivalFold,
    /// Partial sums are rounded to bf16 at every add, not once.
    RoundEachAdd,
    /// One addend is left out of a fold.
    LostAddend,
    /// One addend is taken twice, in place of its neighbour.
    RepeatedAddend,
    /// A collective's consumer starts without waiting for it.
    MissingWait,
    /// A kernel reads memory that nothing has written.
    UninitialisedRead,
    /// A kernel writes one element past its operand.
    OffByOne,
    /// One bit of one element on one rank flips after a replicated result.
    ReplicaBitFlip,
    /// One rank joins a collective with another element count.
    MismatchedCollective,
    /// One rank never joins a collective.
    MissingCollective,
    /// A checkpoint lacks a component.
    LostComponent(Component),
}

/// The oracle that has to catch a mutant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Catcher {
    /// The sweep, or the second run: other bits at the node.
    R2R,
    /// The comparison of straight and resumed runs, or of live-in sets.
    RES,
    /// The comparison of replicas.
    XR,
    /// The memory model: an unordered or uninitialised access.
    Hazard,
    /// The engine's or the coordinator's own refusal.
    Error,
}

/// What a mutant of a kind is planted at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Target {
    /// A sum over ranks of at least three addends.
    Collective,
    /// A sum inside one rank of at least three addends.
    LocalFold,
    /// Any sum of at least three addends.
    AnyFold,
    /// A kernel launch.
    Launch,
    /// A tensor declared equal on several ranks.
    Replica,
    /// A checkpoint.
    Checkpoint,
}

impl MutantKind {
    /// Every kind, and the loss of every component.
    pub fn all() -> Vec<MutantKind> {
        let lost = Component::ALL.into_iter().map(MutantKind::LostComponent);
        MutantKind::WITHOUT_COMPONENT
            .into_iter()
            .chain(lost)
            .collect()
    }

    const WITHOUT_COMPONENT: [MutantKind; 13] = [
        MutantKind::ReverseRing,
        MutantKind::RotatedRing,
        MutantKind::TreeForChain,
        MutantKind::ArrivalFold,
        MutantKind::RoundEachAdd,
        MutantKind::LostAddend,
        MutantKind::RepeatedAddend,
        MutantKind::MissingWait,
        MutantKind::UninitialisedRead,
        MutantKind::OffByOne,
        MutantKind::ReplicaBitFlip,
        MutantKind::MismatchedCollective,
        MutantKind::MissingCollective,
    ];

    pub const fn catcher(self) -> Catcher {
        match self {
            MutantKind::ReverseRing
            | MutantKind::RotatedRing
            | MutantKind::TreeForChain
            | MutantKind::ArrivalFold
            | MutantKind::RoundEachAdd
            | MutantKind::LostAddend
            | MutantKind::RepeatedAddend => Catcher::R2R,
            MutantKind::MissingWait | MutantKind::UninitialisedRead => Catcher::Hazard,
            MutantKind::ReplicaBitFlip => Catcher::XR,
            MutantKind::OffByOne
            | MutantKind::MismatchedCollective
            | MutantKind::MissingCollective => Catcher::Error,
            MutantKind::LostComponent(_) => Catcher::RES,
        }
    }

    pub const fn target(self) -> Target {
        match self {
            MutantKind::ReverseRing
            | MutantKind::RotatedRing
            | MutantKind::TreeForChain
            | MutantKind::MissingWait
            | MutantKind::MismatchedCollective
            | MutantKind::MissingCollective => Target::Collective,
            MutantKind::ArrivalFold => Target::LocalFold,
            MutantKind::RoundEachAdd | MutantKind::LostAddend | MutantKind::RepeatedAddend => {
                Target::AnyFold
            }
            MutantKind::UninitialisedRead | MutantKind::OffByOne => Target::Launch,
            MutantKind::ReplicaBitFlip => Target::Replica,
            MutantKind::LostComponent(_) => Target::Checkpoint,
        }
    }

    /// One line for reports.
    pub fn name(self) -> String {
        match self {
            MutantKind::ReverseRing => "reverse-ring".into(),
            MutantKind::RotatedRing => "rotated-ring".into(),
            MutantKind::TreeForChain => "tree-for-chain".into(),
            MutantKind::ArrivalFold => "arrival-fold".into(),
            MutantKind::RoundEachAdd => "round-each-add".into(),
            MutantKind::LostAddend => "lost-addend".into(),
            MutantKind::RepeatedAddend => "repeated-addend".into(),
            MutantKind::MissingWait => "missing-wait".into(),
            MutantKind::UninitialisedRead => "uninitialised-read".into(),
            MutantKind::OffByOne => "off-by-one".into(),
            MutantKind::ReplicaBitFlip => "replica-bit-flip".into(),
            MutantKind::MismatchedCollective => "mismatched-collective".into(),
            MutantKind::MissingCollective => "missing-collective".into(),
            MutantKind::LostComponent(component) => format!("lost-{component}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn kinds_have_names_of_their_own_and_every_catcher_has_work() {
        let kinds = MutantKind::all();
        let names: BTreeSet<String> = kinds.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), kinds.len());
        let catchers: BTreeSet<Catcher> = kinds.iter().map(|kind| kind.catcher()).collect();
        assert_eq!(catchers.len(), 5);
        assert!(kinds.len() >= 10);
    }
}
