//! Choice points and schedules: what may vary at a node, and an assignment of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::numerics::Dtype;
use crate::plan::{Combine, Plan};
use crate::world::command::CollectiveKind;
use crate::world::rank::GroupId;
use crate::world::site::Family;

/// Who owns a fold: a rank (a local fold) or a communicator (a collective).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Owner {
    Rank(u32),
    Group(u32),
}

/// A fold of a run. The same in every run of a scenario: `ordinal` counts the owner's folds of the
/// step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct NodeId {
    pub step: u32,
    pub owner: Owner,
    pub ordinal: u32,
}

impl std::fmt::Display for NodeId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (owner, number) = match self.owner {
            Owner::Rank(rank) => ("rank", rank),
            Owner::Group(group) => ("communicator", group),
        };
        let NodeId { step, ordinal, .. } = self;
        write!(f, "fold {ordinal} of {owner} {number} in step {step}")
    }
}

/// A non-blocking question of a rank's host: `ordinal` counts those of the rank in the step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct QueryId {
    pub step: u32,
    pub rank: u32,
    pub ordinal: u32,
}

impl std::fmt::Display for QueryId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let QueryId {
            step,
            rank,
            ordinal,
        } = self;
        write!(f, "query {ordinal} of rank {rank} in step {step}")
    }
}

/// What may vary at a fold.
#[derive(Clone, Debug)]
pub enum Choice {
    /// One admissible plan.
    Pinned,
    /// A plan for each value of the run-scoped placement variable; the reference is value 0.
    Placement(Arc<[Arc<Plan>]>),
    /// Any permutation of the addends, chosen at each call; the reference is ascending.
    Arrival,
    /// A plan for each configuration of a kernel that is tuned, chosen at the rank's first call
    /// with this shape; the reference is configuration 0.
    Configuration(Arc<[Arc<Plan>]>),
}

/// What a rank's autotuner keeps a configuration by: the kernel and the shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TuneKey {
    pub rank: u32,
    pub family: Family,
    pub addends: u32,
    pub elements: u64,
}

impl Choice {
    /// The name of a configuration's choice, whatever its plans.
    pub const CONFIGURATION: &str = "configuration";

    pub fn name(&self) -> &'static str {
        match self {
            Choice::Pinned => "pinned",
            Choice::Placement(_) => "placement",
            Choice::Arrival => "arrival",
            Choice::Configuration(_) => Choice::CONFIGURATION,
        }
    }
}

/// An assignment of all choice variables: the canonical one plus sparse deltas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Schedule {
    /// Value of the placement variable.
    pub placement: u32,
    /// Arrival orders that are not ascending: addend numbers in the order in which they land.
    pub arrivals: BTreeMap<NodeId, Arc<[u32]>>,
    /// Configurations that are not the first, by what each rank has tuned.
    pub configurations: BTreeMap<TuneKey, u32>,
    /// Plan numbers of single nodes, whose variable reaches further: a counterfactual, for
    /// shrinking wider scopes.
    pub plan_at: BTreeMap<NodeId, u32>,
    /// Queries that are answered *not ready*; the canonical answer is *ready*, wherever the work
    /// can be over by then.
    pub not_ready: BTreeSet<QueryId>,
    /// Who is ahead where a host asks whether work is over; nobody asks where this is absent.
    pub priorities: Option<Priorities>,
}

/// Random priorities of hosts and of the work that they ask about, as PCT has them (Burckhardt and
/// others, ASPLOS 2010): who is ahead of whom is drawn, and changes at a few points.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Priorities {
    pub seed: u64,
    /// Events at which who is about to act falls behind, with how far: a lower number is further
    /// behind. Each query is two events, its host's and its work's.
    pub changes: BTreeMap<u64, u64>,
}

impl Schedule {
    /// The placement value that `node` reads.
    pub fn placement_of(&self, node: NodeId) -> u32 {
        self.plan_at.get(&node).copied().unwrap_or(self.placement)
    }

    /// The configuration that `node` runs with, which is tuned by `key`.
    pub fn configuration_of(&self, node: NodeId, key: &TuneKey) -> u32 {
        let of_node = self.plan_at.get(&node);
        let chosen = of_node.or_else(|| self.configurations.get(key));
        chosen.copied().unwrap_or(0)
    }
}

/// What a collective is, as far as its plan can depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CollectiveShape {
    pub group: GroupId,
    pub kind: CollectiveKind,
    pub dtype: Dtype,
    /// Elements of the whole reduced buffer.
    pub elements: u64,
}

/// Gives the plans of a reducing collective, one for each value of the placement variable.
pub trait PlanSource: Send + Sync {
    /// Errors in words: what cannot be planned and why.
    fn plans(&self, shape: CollectiveShape) -> Result<Arc<[Arc<Plan>]>, String>;
}

/// The combine of a reducing collective, `None` where it only moves data.
pub fn combine_of(kind: CollectiveKind) -> Option<Combine> {
    match kind {
        CollectiveKind::AllReduce { combine, .. } => Some(combine),
        CollectiveKind::ReduceScatter { .. } => Some(Combine::Sum),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_named_in_words() {
        let named = |owner, ordinal| {
            NodeId {
                step: 1,
                owner,
                ordinal,
            }
            .to_string()
        };
        assert_eq!(named(Owner::Rank(2), 3), "fold 3 of rank 2 in step 1");
        assert_eq!(
            named(Owner::Group(5), 0),
            "fold 0 of communicator 5 in step 1"
        );
    }
}
