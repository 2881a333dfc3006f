//! Faults that a check plants into the scenario under check, to show that it would see them.
//!
//! Each kind is a class of real bug, found in issue trackers of training stacks. A mutant counts as
//! caught only when the finding names the node it was planted at. A kind that the scenario cannot
//! host (no fold with three addends, no replica) is reported as not planted, never as caught.

use serde::Serialize;

use super::Component;

/// A class of planted fault. The first eight are faults of one fold, which
/// `world::fold::FoldFault` plants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum MutantKind {
    /// Addends meet in another order than the plan's.
    OtherOrder,
    /// One addend never arrives and another is taken twice.
    DuplicateAddend,
    /// Partial sums are rounded to a narrower type at every add.
    NarrowPartialSums,
    /// The last bit of one element of the result flips, everywhere.
    FlippedBit,
    /// One destination keeps what it held before: a missing wait.
    StaleDestination,
    /// One destination's copy of the result differs in one bit.
    DriftingDestination,
    /// The last element is not written: off by one.
    SkippedElement,
    /// Two neighbouring elements change places: a wrong offset.
    SwappedElements,
    /// An ordered local fold lands in arrival order: an atomic where none was meant.
    Race,
    /// One bit of one rank's persisted state flips between two steps.
    StateFlip,
    /// The wait for a collective is left out.
    DroppedWait,
    /// A launch never happens: what it would have written is read all the same.
    SkippedLaunch,
    /// A kernel indexes one element past its operand.
    OffByOne,
    /// Activations are recomputed without the RNG state of their forward.
    UnrestoredRng,
    /// One rank joins a collective with another element count.
    MismatchedCollective,
    /// One rank never joins a collective.
    MissingCollective,
    /// A checkpoint lacks a component.
    LostComponent(Component),
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

    const WITHOUT_COMPONENT: [MutantKind; 16] = [
        MutantKind::OtherOrder,
        MutantKind::DuplicateAddend,
        MutantKind::NarrowPartialSums,
        MutantKind::FlippedBit,
        MutantKind::StaleDestination,
        MutantKind::DriftingDestination,
        MutantKind::SkippedElement,
        MutantKind::SwappedElements,
        MutantKind::Race,
        MutantKind::StateFlip,
        MutantKind::DroppedWait,
        MutantKind::SkippedLaunch,
        MutantKind::OffByOne,
        MutantKind::UnrestoredRng,
        MutantKind::MismatchedCollective,
        MutantKind::MissingCollective,
    ];

    /// The name that reports use.
    pub fn name(self) -> String {
        let name = match self {
            MutantKind::OtherOrder => "other-order",
            MutantKind::DuplicateAddend => "duplicate-addend",
            MutantKind::NarrowPartialSums => "narrow-partial-sums",
            MutantKind::FlippedBit => "flipped-bit",
            MutantKind::StaleDestination => "stale-destination",
            MutantKind::DriftingDestination => "drifting-destination",
            MutantKind::SkippedElement => "skipped-element",
            MutantKind::SwappedElements => "swapped-elements",
            MutantKind::Race => "race",
            MutantKind::StateFlip => "state-flip",
            MutantKind::DroppedWait => "dropped-wait",
            MutantKind::SkippedLaunch => "skipped-launch",
            MutantKind::OffByOne => "off-by-one",
            MutantKind::UnrestoredRng => "unrestored-rng",
            MutantKind::MismatchedCollective => "mismatched-collective",
            MutantKind::MissingCollective => "missing-collective",
            MutantKind::LostComponent(component) => return format!("lost-{component}"),
        };
        name.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn kinds_have_names_of_their_own() {
        let kinds = MutantKind::all();
        let names: BTreeSet<String> = kinds.iter().map(|kind| kind.name()).collect();
        assert_eq!(names.len(), kinds.len());
        assert!(kinds.len() >= 10);
    }
}
