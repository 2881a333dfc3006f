//! Choice points: how far a choice reaches, and counts of points by what proved them.

use crate::numerics::ladder::Rung;
use crate::plan::{Combine, Init};
use crate::world::fold::FoldNode;
use crate::world::{Choice, Family};

/// Which verdict a choice belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Reach {
    /// Varies on one and the same allocation.
    Within,
    /// Varies only with the allocation.
    Across,
}

impl Reach {
    pub fn of(choice: &Choice) -> Reach {
        match choice {
            Choice::Placement(_) => Reach::Across,
            Choice::Pinned | Choice::Arrival => Reach::Within,
        }
    }
}

/// What a tally counts. `rung` is `None` for sensitive points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TallyKey {
    pub family: Family,
    pub reach: Reach,
    pub choice: &'static str,
    pub rung: Option<Rung>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    pub points: u64,
    pub addends_min: u32,
    pub addends_max: u32,
    /// A communicator of one of the points.
    pub group: Option<u32>,
}

impl Tally {
    pub fn add(&mut self, node: &FoldNode) {
        let addends = node.addend_count();
        self.addends_min = if self.points == 0 {
            addends
        } else {
            self.addends_min.min(addends)
        };
        self.addends_max = self.addends_max.max(addends);
        self.group = self.group.or(node.group.map(|group| group.0));
        self.points += 1;
    }
}

/// A point that is *order-dependent, silent here*: it holds in the scenario, and differs where the
/// inputs are amplified or the addends are as many as at full size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SilentPoint {
    pub site: String,
    pub rung: Rung,
    pub here: u32,
    pub full: u32,
    pub points: u64,
}

/// Rung L0: the order cannot matter for any input.
///
/// A maximum in total order has one value whatever the order, NaNs included, since canonical NaNs
/// have a place in that order. A sum of two values commutes; the accumulator counts as a value,
/// and a proven +0 in front of a single addend does not make a third. Two addends behind a +0 are
/// two adds: (0 + a) + b and (0 + b) + a agree, as 0 + a is a but for the sign of a zero, and the
/// second add sees the same pair of values or two zeros.
pub(super) fn structurally_ordered(node: &FoldNode) -> bool {
    let arithmetic = node.arithmetic();
    if arithmetic.combine == Combine::Max {
        return true;
    }
    let in_partial_type = arithmetic.addend == arithmetic.partial
        || arithmetic.addend.precision_bits() <= arithmetic.partial.precision_bits()
            && arithmetic.partial == crate::numerics::Dtype::F32;
    let values = node.addend_count() + u32::from(arithmetic.init == Init::Accumulator);
    values <= 2 && in_partial_type && !arithmetic.contraction_free
}
