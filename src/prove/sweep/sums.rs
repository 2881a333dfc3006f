//! What the sums of a run are, kind by kind: what two layouts of one job are compared by.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::EngineError;
use crate::plan::Plan;
use crate::world::fold::{FoldJob, FoldLab, FoldNode};
use crate::world::{Family, Name, Observer, Phase};

/// A collective of a step: its group's first rank, its module and its op.
pub type CollectivePlace = (u32, Name, Name);

/// The sums of one family in one phase of a step.
#[derive(Clone, Debug)]
pub struct SumKind {
    /// Fewest and most addends.
    pub addends: (u32, u32),
    /// The first of them, without its step: every step has the same.
    pub first_site: String,
    /// Plans of the collectives of at least three addends, in the first step that has any: torch's
    /// DDP reduces in other buckets from a process's second step on.
    pub plans: BTreeMap<CollectivePlace, Arc<Plan>>,
    first_step: u32,
}

/// The sums of a run by phase and family, and its token losses.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    pub kinds: BTreeMap<(Phase, Family), SumKind>,
    /// Bits of each rank's token losses by (step, rank), as it adds them up.
    pub token_losses: BTreeMap<(u32, u32), Vec<u32>>,
}

impl Sums {
    /// Takes note of a fold before it runs; token losses of `steps` are kept.
    pub(super) fn add(
        &mut self,
        node: &FoldNode,
        lab: &mut FoldLab<'_>,
        steps: &BTreeSet<u32>,
    ) -> Result<(), EngineError> {
        let addends = node.addend_count();
        let kind = self.kinds.entry((node.site.phase, node.family));
        let kind = kind.or_insert_with(|| SumKind {
            addends: (addends, addends),
            first_site: without_step(&node.site.to_string()),
            plans: BTreeMap::new(),
            first_step: node.id.step,
        });
        kind.addends = (kind.addends.0.min(addends), kind.addends.1.max(addends));
        if let (FoldJob::Slots(job), Some(_)) = (&node.job, node.shape)
            && addends > 2
            && node.id.step == kind.first_step
        {
            let place = (
                node.ranks[0],
                node.site.module.clone(),
                node.site.op.clone(),
            );
            kind.plans.entry(place).or_insert_with(|| job.plan.clone());
        }
        if node.family == Family::LossLocal && steps.contains(&node.id.step) {
            let words = lab.addends(node)?.concat();
            self.token_losses
                .insert((node.id.step, node.ranks[0]), words);
        }
        Ok(())
    }
}

/// Takes note of the sums of a run, and tests none of them.
pub struct SumWatch {
    pub sums: Sums,
    /// Steps whose token losses are kept.
    pub steps: BTreeSet<u32>,
}

impl Observer for SumWatch {
    fn on_fold(&mut self, node: &FoldNode, lab: &mut FoldLab<'_>) -> Result<(), EngineError> {
        self.sums.add(node, lab, &self.steps)
    }
}

fn without_step(site: &str) -> String {
    match site.split_once(", ") {
        Some((_, rest)) => rest.to_string(),
        None => site.to_string(),
    }
}
