//! The rungs' names, and the classes of orders they speak about.

use std::fmt;

/// Which orders are admissible for a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OrderClass {
    /// Left folds over any permutation of the addends; what the sum starts from comes first.
    Chains,
    /// Binary trees with the addends, and what the sum starts from, as leaves in any places.
    Trees,
}

/// What a choice point was proved by, cheapest first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub enum Rung {
    /// One admissible plan, or one canonical hash for all.
    #[serde(rename = "P")]
    Plan,
    /// By structure: all inputs.
    L0,
    /// Every partial sum is exact.
    L1,
    /// Every rounding error is absorbed by the output's rounding.
    L2,
    /// Least and greatest sum over the class are the same bits.
    L3,
    /// Every admissible order was evaluated.
    L4,
    /// A sample of orders: a probability, not a proof.
    L5,
}

impl Rung {
    pub const ALL: [Rung; 7] = [
        Rung::Plan,
        Rung::L0,
        Rung::L1,
        Rung::L2,
        Rung::L3,
        Rung::L4,
        Rung::L5,
    ];

    /// Whether the rung holds for all inputs, not only the ones it was given.
    pub const fn holds_for_all_inputs(self) -> bool {
        matches!(self, Rung::Plan | Rung::L0)
    }

    pub const fn name(self) -> &'static str {
        match self {
            Rung::Plan => "P",
            Rung::L0 => "L0",
            Rung::L1 => "L1",
            Rung::L2 => "L2",
            Rung::L3 => "L3",
            Rung::L4 => "L4",
            Rung::L5 => "L5",
        }
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
