//! The folds of the first steps, and what mutants need to know about them.

use std::collections::BTreeMap;

use crate::world::fold::{FoldJob, FoldNode};
use crate::world::{Family, GroupId, NodeId, Owner};

/// The last step whose folds are listed; the first is step 1.
const LAST_STEP_LISTED: u32 = 2;

/// One fold, as a place for a mutant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldSite {
    pub node: NodeId,
    /// Wave of the canonical schedule, counted within the step.
    pub wave: u32,
    pub name: String,
    pub family: Family,
    pub addends: u32,
    pub elements: u64,
    pub is_slots: bool,
}

/// Every fold of the first two steps that the sweep looked at.
#[derive(Clone, Debug, Default)]
pub struct Catalogue {
    pub sites: BTreeMap<NodeId, FoldSite>,
    /// Ranks of each communicator that reduces something, in any step.
    groups: BTreeMap<u32, u32>,
}

impl Catalogue {
    pub(super) fn add(&mut self, node: &FoldNode) {
        if let Owner::Group(group) = node.id.owner {
            self.groups.insert(group, node.ranks.len() as u32);
        }
        if node.id.step > LAST_STEP_LISTED {
            return;
        }
        self.sites.insert(
            node.id,
            FoldSite {
                node: node.id,
                wave: node.wave,
                name: node.site.to_string(),
                family: node.family,
                addends: node.addend_count(),
                elements: node.elements(),
                is_slots: matches!(node.job, FoldJob::Slots(_)),
            },
        );
    }

    /// The communicator with the most ranks that reduces something; the first of equals.
    pub fn widest_group(&self) -> Option<GroupId> {
        let widest = self
            .groups
            .iter()
            .max_by_key(|(id, ranks)| (**ranks, std::cmp::Reverse(**id)));
        widest.map(|(id, _)| GroupId(*id))
    }
}
