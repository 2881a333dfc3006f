//! Choice points: how far a choice reaches, and counts of points by what proved them.

use crate::numerics::ladder::{Rung, l0_by_shape};
use crate::plan::{Combine, Init};
use crate::world::fold::{FoldJob, FoldNode};
use crate::world::{Choice, Family};

use super::contraction;

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
            Choice::Pinned | Choice::Arrival | Choice::Configuration(_) => Reach::Within,
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

/// Why a point is silent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Too few addends, or too tame ones.
    Addends,
    /// The allocations' plans agree on this buffer, and not on a larger one.
    BufferSize,
}

/// A point that is *order-dependent, silent here*: it holds in the scenario, and differs where the
/// inputs are amplified or the addends are as many as at full size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SilentPoint {
    pub site: String,
    pub rung: Rung,
    pub why: Silence,
    pub here: u32,
    pub full: u32,
    pub points: u64,
}

/// Rung L0: the order cannot matter for any input.
///
/// A maximum in total order has one value whatever the order, NaNs included, since every NaN has a
/// place in that order. Of sums, those of two values, as `ladder::l0_by_shape` says. Neither says
/// anything where allocations differ in the arithmetic itself.
pub(super) fn structurally_ordered(node: &FoldNode) -> bool {
    let arithmetic = node.arithmetic();
    if let Choice::Placement(plans) = &node.choice
        && plans.iter().any(|plan| plan.arithmetic != arithmetic)
    {
        return false;
    }
    if arithmetic.combine == Combine::Max {
        return true;
    }
    let addends = match (&node.job, &node.choice) {
        // How many rows meet in one is a matter of the data: any number of them may.
        (FoldJob::Segments(_), Choice::Arrival) => node.permuted(),
        _ => node.addend_count(),
    };
    let values = addends + u32::from(arithmetic.init == Init::Accumulator);
    // A product has been rounded to the type of the partial sums.
    let addend = match arithmetic.pre_multiply_bits {
        Some(_) => arithmetic.partial,
        None => arithmetic.addend,
    };
    l0_by_shape(values as usize, addend, arithmetic.partial) && !contraction::is_free(node)
}
