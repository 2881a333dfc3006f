//! The teacher-forced sweep: each fold of one reference run is tested, when it runs, against every
//! admissible order of its addends, on its own actual inputs.
//!
//! If no fold of the run is sensitive, every admissible run has the reference run's bits at every
//! node, by induction in topological order. So the cost is a sum over nodes, not a product. The
//! converse holds for call-scoped choices, so a witness is born with one deviation in it.

mod amplify;
mod arrival;
mod catalogue;
mod contraction;
mod elements;
mod order;
mod placement;
mod point;
mod sums;
mod witness;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::EngineError;
use crate::numerics::ladder::Rung;
use crate::world::fold::{FoldLab, FoldNode};
use crate::world::{Choice, CollectiveShape, Family, GroupId, NodeId, Observer, PlanSource};

pub use catalogue::{Catalogue, FoldSite};
pub(crate) use elements::{Elements, multiplied, sum_of};
pub use order::adjacent_swaps;
pub use point::{Reach, Silence, SilentPoint, Tally, TallyKey};
pub use sums::{CollectivePlace, SumKind, SumWatch, Sums};
pub use witness::{Finding, FoundAddend, Side, Variable};

use point::structurally_ordered;

/// How many addends a fold has at full size.
pub trait FullSizeAddends: Send + Sync {
    /// `here` is the fold's addend count in the scenario.
    fn addends(&self, family: Family, group: Option<GroupId>, here: u32) -> u32;
}

/// What a sweep needs to know about the scenario.
#[derive(Clone)]
pub struct SweepOptions {
    /// Seed of the random orders.
    pub seed: u64,
    /// Rounded additions that one element's proof may cost.
    pub element_budget: u64,
    /// Names of communicators.
    pub groups: Arc<[String]>,
    pub full_size: Arc<dyn FullSizeAddends>,
    /// Asked what the plans of larger buffers would be; `None` asks nobody.
    pub plans: Option<Arc<dyn PlanSource>>,
    /// Where the run is compared with one on another layout: the steps whose token losses are kept.
    pub sums: Option<BTreeSet<u32>>,
}

/// Most points proved only on this input that are listed, the first ones that ran; all are counted.
pub const INPUT_POINTS_LISTED_MAX: usize = 64;

/// A point proved by L1-L4: it holds for this run's inputs only.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputPoint {
    pub node: NodeId,
    pub site: String,
    pub family: Family,
    pub rung: Rung,
    pub addends: u32,
    pub addends_at_full_size: u32,
}

/// What the sweep has found so far.
pub struct Sweep {
    options: SweepOptions,
    /// Points by family, kind of choice and rung.
    pub tallies: BTreeMap<TallyKey, Tally>,
    /// The first sensitive fold within one allocation, and the first across allocations.
    pub first: BTreeMap<Reach, Finding>,
    pub sensitive: BTreeMap<Reach, u64>,
    /// The first [`INPUT_POINTS_LISTED_MAX`] of them.
    pub input_points: Vec<InputPoint>,
    pub input_point_count: u64,
    /// Orders that each L5 point was sampled with, the fewest of all.
    pub orders_sampled_min: Option<u64>,
    /// Points that hold here and would not where inputs or sizes are larger.
    pub silent: BTreeMap<(Family, Reach), SilentPoint>,
    /// Folds of the first steps, for planting faults.
    pub catalogue: Catalogue,
    /// Empty where the options do not ask for it.
    pub sums: Sums,
    amplified: BTreeMap<amplify::Key, bool>,
    enlarged: BTreeMap<CollectiveShape, bool>,
    /// The one fold that is looked at; all others are skipped. A replay needs no more.
    only: Option<NodeId>,
}

/// What one fold turned out to be.
enum Outcome {
    Proved(Rung),
    Sampled { orders: u64 },
    Sensitive(Box<Finding>),
}

impl Sweep {
    pub fn new(options: SweepOptions) -> Self {
        Sweep {
            options,
            tallies: BTreeMap::new(),
            first: BTreeMap::new(),
            sensitive: BTreeMap::new(),
            input_points: Vec::new(),
            input_point_count: 0,
            orders_sampled_min: None,
            silent: BTreeMap::new(),
            catalogue: Catalogue::default(),
            sums: Sums::default(),
            amplified: BTreeMap::new(),
            enlarged: BTreeMap::new(),
            only: None,
        }
    }

    /// A sweep that looks at one fold only.
    pub fn at(options: SweepOptions, node: NodeId) -> Self {
        Sweep {
            only: Some(node),
            ..Sweep::new(options)
        }
    }

    pub fn points(&self) -> u64 {
        self.tallies.values().map(|tally| tally.points).sum()
    }

    /// The worst rung of all points that were proved or sampled.
    pub fn worst_rung(&self, reach: Reach) -> Option<Rung> {
        let of_reach = self.tallies.keys().filter(|key| key.reach <= reach);
        of_reach.filter_map(|key| key.rung).max()
    }

    fn test(&mut self, node: &FoldNode, lab: &mut FoldLab<'_>) -> Result<Outcome, EngineError> {
        if structurally_ordered(node) {
            return Ok(Outcome::Proved(Rung::L0));
        }
        // Only the first finding of a reach is shown, so only that one is made small.
        let shrink = !self.first.contains_key(&Reach::of(&node.choice));
        if contraction::is_free(node) {
            return contraction::test(&self.options, node, shrink, lab);
        }
        match &node.choice {
            Choice::Pinned => Ok(Outcome::Proved(Rung::Plan)),
            Choice::Placement(plans) => {
                let placed = |value| Variable::Placement { value };
                placement::test(&self.options, node, plans, placed, lab)
            }
            Choice::Configuration(plans) => {
                let key = node.tune_key();
                let tuned = |value| Variable::Configuration { key, value };
                placement::test(&self.options, node, plans, tuned, lab)
            }
            Choice::Arrival => arrival::test(&self.options, node, shrink, lab),
        }
    }

    fn take(
        &mut self,
        node: &FoldNode,
        outcome: Outcome,
        lab: &mut FoldLab<'_>,
    ) -> Result<(), EngineError> {
        let reach = Reach::of(&node.choice);
        let (rung, sampled) = match &outcome {
            Outcome::Proved(rung) => (Some(*rung), None),
            Outcome::Sampled { orders } => (Some(Rung::L5), Some(*orders)),
            Outcome::Sensitive(_) => (None, None),
        };
        let key = TallyKey {
            family: node.family,
            reach,
            choice: node.choice.name(),
            rung,
        };
        self.tallies.entry(key).or_default().add(node);
        if let Some(orders) = sampled {
            let least = self.orders_sampled_min.unwrap_or(orders).min(orders);
            self.orders_sampled_min = Some(least);
        }
        if let Outcome::Sensitive(finding) = outcome {
            *self.sensitive.entry(reach).or_default() += 1;
            let nodes_before = self.points() - 1;
            self.first.entry(reach).or_insert(Finding {
                nodes_before,
                ..*finding
            });
            return Ok(());
        }
        self.judge_vacuity(node, rung.expect("sensitive was handled"), lab)
    }

    /// A point that holds may hold only because there is too little here to part: retests it with
    /// amplified inputs.
    fn judge_vacuity(
        &mut self,
        node: &FoldNode,
        rung: Rung,
        lab: &mut FoldLab<'_>,
    ) -> Result<(), EngineError> {
        let here = node.addend_count();
        let full = self
            .options
            .full_size
            .addends(node.family, node.group, here);
        let on_this_input = !rung.holds_for_all_inputs() && rung != Rung::L5;
        if on_this_input {
            self.input_point_count += 1;
            if self.input_points.len() < INPUT_POINTS_LISTED_MAX {
                self.input_points.push(InputPoint {
                    node: node.id,
                    site: node.site.to_string(),
                    family: node.family,
                    rung,
                    addends: here,
                    addends_at_full_size: full,
                });
            }
        }
        if rung == Rung::Plan && self.differs_enlarged(node) {
            self.silent(node, rung, Silence::BufferSize);
        }
        let too_small = rung == Rung::L0 && here <= 2 && full >= 3;
        if !(too_small || on_this_input) {
            return Ok(());
        }
        let key = amplify::Key::of(node);
        let differs = match self.amplified.get(&key) {
            Some(differs) => *differs,
            None => amplify::differs(&self.options, node, lab)?,
        };
        self.amplified.insert(key, differs);
        if differs {
            self.silent(node, rung, Silence::Addends);
        }
        Ok(())
    }

    fn silent(&mut self, node: &FoldNode, rung: Rung, why: Silence) {
        let here = node.addend_count();
        let full_size = &self.options.full_size;
        let point = SilentPoint {
            site: node.site.to_string(),
            rung,
            why,
            here,
            full: full_size.addends(node.family, node.group, here),
            points: 0,
        };
        let key = (node.family, Reach::of(&node.choice));
        self.silent.entry(key).or_insert(point).points += 1;
    }

    /// Whether allocations that agree on this buffer would part on one of a real job's size: a
    /// small buffer takes few channels, and may miss the ones that differ.
    fn differs_enlarged(&mut self, node: &FoldNode) -> bool {
        let (Choice::Placement(_), Some(shape)) = (&node.choice, node.shape) else {
            return false;
        };
        let Some(plans) = self.options.plans.clone().filter(|_| grows(node.family)) else {
            return false;
        };
        *self.enlarged.entry(shape).or_insert_with(|| {
            let ranks = u64::from(node.addend_count());
            let elements = ENLARGED_ELEMENTS.div_ceil(ranks) * ranks;
            let enlarged = plans.plans(CollectiveShape { elements, ..shape });
            // Where the larger operation has no plan, nothing is known of it.
            enlarged.map_or(true, |plans| {
                plans.iter().any(|plan| !plan.same_bits(&plans[0]))
            })
        })
    }
}

/// Elements of the largest buffer that is asked about: 256 MiB in fp32, more than any channel
/// partition needs to reach every channel.
const ENLARGED_ELEMENTS: u64 = 1 << 26;

/// Families whose buffers are larger in a real job; a scalar stays one.
fn grows(family: Family) -> bool {
    !matches!(
        family,
        Family::NormGlobal | Family::FoundInf | Family::LossMean
    )
}

impl Observer for Sweep {
    fn on_fold(&mut self, node: &FoldNode, lab: &mut FoldLab<'_>) -> Result<(), EngineError> {
        if self.only.is_some_and(|only| only != node.id) {
            return Ok(());
        }
        self.catalogue.add(node);
        if let Some(steps) = &self.options.sums {
            self.sums.add(node, lab, steps)?;
        }
        let outcome = self.test(node, lab)?;
        self.take(node, outcome, lab)
    }
}

#[cfg(test)]
mod tests;
