//! What other placements of a job do to its plans, class by class of what a plan reads: which ranks
//! share a node, which nodes come first, which GPU of its node a rank has, and the orders that
//! NCCL's search found.
//!
//! A class is *derived* where all its placements were tried, or an argument ([`Argument`]) covers
//! those that were not, for every collective. Else it is *sampled*: "other plans" is shown by a
//! placement that has them, "the same" is said of those tried alone, but where an argument holds.

mod members;
mod read;

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::{Backend, Digest, Environment, Request, Selector};
use crate::prove::job_plans::{CollectivePlans, Facts, Hashes, JobPlanError, JobPlans, listed};
use crate::prove::listed::Listed;
use crate::recipe::{DistributedBackend, Recipe};
use crate::topology::Allocation;
use crate::train::StepCollective;
use crate::world::Communicator;

use members::{Member, members, nodes, profile};
use read::Read;

/// Placements that differ from a job's own in one thing that plans read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    NodeOrder,
    LocalOrder,
    Spare,
    CliqueSplit,
    LostNic,
    AnyPlacement,
}

impl Class {
    pub const ALL: [Class; 6] = [
        Class::NodeOrder,
        Class::LocalOrder,
        Class::Spare,
        Class::CliqueSplit,
        Class::LostNic,
        Class::AnyPlacement,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Class::NodeOrder => "node order",
            Class::LocalOrder => "local GPU order",
            Class::Spare => "spare swapped in",
            Class::CliqueSplit => "clique split",
            Class::LostNic => "NIC lost",
            Class::AnyPlacement => "any placement",
        }
    }

    /// Which placements are of the class.
    pub const fn about(self) -> &'static str {
        match self {
            Class::NodeOrder => "the nodes in any order, each with as many ranks as it has",
            Class::LocalOrder => "the ranks of each node in any order on its GPUs",
            Class::Spare => "the ranks of one host on a free host, or on one beyond the topology",
            Class::CliqueSplit => "one NVLink domain cut in two between its hosts",
            Class::LostNic => "one search channel fewer, as after the loss of a NIC",
            Class::AnyPlacement => "any rank on any GPU of the job",
        }
    }

    /// What is taken for granted of these placements of a job.
    pub fn rests_on(self, base: &Allocation) -> Option<&'static str> {
        match self {
            Class::NodeOrder => None,
            Class::LocalOrder | Class::AnyPlacement => Some(
                "NCCL's search finds the same orders of GPUs whichever ranks they have (on DGX \
                 A100 it does not)",
            ),
            Class::Spare | Class::CliqueSplit => (base.topology.hosts_per_nvlink_domain > 1)
                .then_some("a part of an NVLink domain has the orders of the whole"),
            Class::LostNic => Some(
                "nodes keep their other channels; what NCCL finds on the node itself is not known",
            ),
        }
    }
}

/// Why no placement of a class gives a collective another plan, tried or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Argument {
    /// Two addends, or an associative operation: every tree gives the same bits.
    OneOrder,
    /// Its sum is not NCCL's, and its builder sees no machine.
    NoMachine,
    /// Plans read which ranks share a node, and no node's name.
    Renamed,
    /// A node's orders say nothing of a group that has one rank there.
    OneRankANode,
    /// All placements were tried.
    Tried,
}

impl Argument {
    pub const fn in_words(self) -> &'static str {
        match self {
            Argument::OneOrder => "two addends or a maximum have one order",
            Argument::NoMachine => "its sum follows no machine",
            Argument::Renamed => "nodes with the same GPUs differ in their names alone",
            Argument::OneRankANode => "its groups have one rank on a node",
            Argument::Tried => "all were tried",
        }
    }
}

/// What is asked: a job's collectives, and who carries them out.
pub struct Job {
    backend: Backend,
    facts: Facts,
    communicators: Vec<Communicator>,
    collectives: Vec<StepCollective>,
}

impl Job {
    /// A recipe's, by its own library unless another is named.
    ///
    /// # Errors
    /// A job without a list of collectives.
    pub fn of(recipe: &Recipe, backend: Option<Backend>) -> Result<Job, JobPlanError> {
        let (communicators, collectives) = listed(recipe)?;
        let own = match recipe.distributed_backend {
            DistributedBackend::Nccl => Backend::Nccl,
            DistributedBackend::Gloo => Backend::Gloo,
        };
        Ok(Job {
            backend: backend.unwrap_or(own),
            facts: Facts::of(recipe),
            communicators,
            collectives,
        })
    }

    /// Collectives that were listed.
    pub fn of_list(list: &Listed, backend: Option<Backend>) -> Job {
        Job {
            backend: backend.unwrap_or(Backend::Nccl),
            facts: list.facts.clone(),
            communicators: list.communicators.clone(),
            collectives: list.collectives.clone(),
        }
    }

    /// The plans of each collective's groups in a placement. Groups of which it changes nothing
    /// that plans read have those that they have.
    fn hashes(
        &self,
        member: &Member,
        base: &Allocation,
        read: &Read,
        reference: &[Vec<Digest>],
    ) -> Result<Vec<Vec<Digest>>, JobPlanError> {
        let allocation = member.on(base);
        let changed = match member.graph {
            Some(_) => vec![true; self.communicators.len()],
            None => read.changed(&allocation, &self.communicators),
        };
        let env = self.facts.env.iter();
        let env = env.map(|(name, value)| (name.as_str(), value.as_str()));
        let selector = Selector::new(allocation, Environment::parse(env)?);
        let mut hashes = Hashes::default();
        let mut all = reference.to_vec();
        for (one, known) in self.collectives.iter().zip(&mut all) {
            for (group, hash) in one.groups.iter().zip(known) {
                if !changed[group.0 as usize] {
                    continue;
                }
                let request = Request {
                    backend: self.backend,
                    members: &self.communicators[group.0 as usize].ranks,
                    collective: one.collective,
                    dtype: one.dtype,
                    elements: one.elements,
                    reduction: one.reduction,
                };
                let plan = selector
                    .plan(&request)
                    .map_err(|source| JobPlanError::Plan {
                        collective: one.name.clone(),
                        source,
                    })?;
                *hash = hashes.of(&plan);
            }
        }
        Ok(all)
    }

    /// Its plans where the ranks run.
    ///
    /// # Errors
    /// What has no plan.
    pub fn on(&self, allocation: Allocation) -> Result<JobPlans, JobPlanError> {
        let (communicators, collectives) = (self.communicators.clone(), self.collectives.clone());
        JobPlans::of_list(
            self.backend,
            &self.facts,
            communicators,
            collectives,
            allocation,
        )
    }
}

/// What the placements of a class do to a job's plans. Collectives are by their place in the list.
#[derive(Clone, Debug)]
pub struct Found {
    pub class: Class,
    /// Placements of the class; `None` where they are too many to count, or not known.
    pub count: Option<u64>,
    pub tried: usize,
    /// Those tried are all.
    pub is_all: bool,
    /// Different plans of the job that were met, its own among them.
    pub plans: usize,
    /// Collectives of which some placement changes a plan.
    pub differing: BTreeSet<usize>,
    /// Those of which none does.
    pub same: BTreeMap<usize, Argument>,
    /// Those of which none that was tried does.
    pub untold: BTreeSet<usize>,
}

impl Found {
    /// Every placement was tried, or is covered by an argument for every collective.
    pub fn is_derived(&self) -> bool {
        self.is_all || (self.differing.is_empty() && self.untold.is_empty())
    }
}

/// A placement with other plans than the job's own.
#[derive(Clone, Debug)]
pub struct Witness {
    pub class: Class,
    pub allocation: Allocation,
    /// Ranks on another GPU.
    pub moved: u32,
    pub differing: BTreeSet<usize>,
}

impl Witness {
    /// Ranks on other GPUs first: of a lost NIC the orders are not known for certain.
    fn size(&self) -> (bool, u32, usize) {
        (
            self.class == Class::LostNic,
            self.moved,
            self.differing.len(),
        )
    }
}

/// All classes of one job.
pub struct Survey {
    pub own: JobPlans,
    pub classes: Vec<Found>,
    /// Of those that were met, the one that moves the fewest ranks, and then changes the fewest
    /// collectives.
    pub smallest: Option<Witness>,
}

/// Tries the placements of each class, at most so many of each.
///
/// # Errors
/// What has no plan.
///
/// # Panics
/// Where communicators were recorded: those are of the ranks where they were.
pub fn survey(job: &Job, base: &Allocation, most: usize) -> Result<Survey, JobPlanError> {
    assert!(base.recorded.is_empty(), "records are of one placement");
    let own = job.on(base.clone())?;
    let reference = hashes_of(&own);
    let read = Read::of(base, &job.communicators);
    let mut smallest: Option<(Member, Witness)> = None;
    let mut classes = Vec::new();
    for class in Class::ALL {
        let members = members(class, base, most.max(1));
        let mut differing = BTreeSet::new();
        let mut met = BTreeSet::from([digest(&reference)]);
        for member in &members.list {
            let hashes = job.hashes(member, base, &read, &reference)?;
            let pairs = hashes.iter().zip(&reference).enumerate();
            let changed = pairs.filter(|(_, (there, here))| there != here);
            let changed: BTreeSet<usize> = changed.map(|(place, _)| place).collect();
            if changed.is_empty() {
                continue;
            }
            met.insert(digest(&hashes));
            differing.extend(&changed);
            let witness = Witness {
                class,
                allocation: base.clone(),
                moved: member.moved(base),
                differing: changed,
            };
            let is_smaller = |(_, best): &(Member, Witness)| witness.size() < best.size();
            if smallest.as_ref().is_none_or(is_smaller) {
                smallest = Some((member.clone(), witness));
            }
        }
        classes.push(found(class, base, &own, &members, met.len(), differing));
    }
    let smallest = smallest.map(|(member, witness)| Witness {
        allocation: member.on(base),
        ..witness
    });
    Ok(Survey {
        own,
        classes,
        smallest,
    })
}

fn digest(hashes: &[Vec<Digest>]) -> Digest {
    let mut hasher = blake3::Hasher::new();
    for hash in hashes.iter().flatten() {
        hasher.update(hash);
    }
    *hasher.finalize().as_bytes()
}

/// The plans of each collective's groups.
fn hashes_of(plans: &JobPlans) -> Vec<Vec<Digest>> {
    let mut hashes = Hashes::default();
    let mut of_one = |one: &CollectivePlans| -> Vec<Digest> {
        one.plans.iter().map(|plan| hashes.of(plan)).collect()
    };
    plans.collectives.iter().map(&mut of_one).collect()
}

fn found(
    class: Class,
    base: &Allocation,
    own: &JobPlans,
    members: &members::Members,
    plans: usize,
    differing: BTreeSet<usize>,
) -> Found {
    let (mut same, mut untold) = (BTreeMap::new(), BTreeSet::new());
    for (place, one) in own.collectives.iter().enumerate() {
        if differing.contains(&place) {
            continue;
        }
        let why = argument(class, base, own, one).or(members.is_all.then_some(Argument::Tried));
        match why {
            Some(why) => drop(same.insert(place, why)),
            None => drop(untold.insert(place)),
        }
    }
    Found {
        class,
        count: members.count,
        tried: members.list.len(),
        is_all: members.is_all,
        plans,
        differing,
        same,
        untold,
    }
}

/// Why a collective's plans are the same in every placement of the class.
fn argument(
    class: Class,
    base: &Allocation,
    own: &JobPlans,
    one: &CollectivePlans,
) -> Option<Argument> {
    if one.plans.iter().all(|plan| plan.has_one_order()) {
        return Some(Argument::OneOrder);
    }
    if one.carried_out.iter().all(Option::is_none) {
        return Some(Argument::NoMachine);
    }
    match class {
        Class::NodeOrder if are_alike(base) => Some(Argument::Renamed),
        // A host is a node: another one has another name.
        Class::Spare if base.topology.hosts_per_nvlink_domain == 1 => Some(Argument::Renamed),
        // One rank a node: any placement is another order of the nodes.
        Class::AnyPlacement if are_alike(base) && nodes(base)[0].len() == 1 => {
            Some(Argument::Renamed)
        }
        Class::LocalOrder => {
            let groups = one.collective.groups.iter();
            let ranks = groups.map(|group| &*own.communicators[group.0 as usize].ranks);
            let mut ranks = ranks.map(|ranks| has_one_rank_a_node(base, ranks));
            ranks.all(|is_so| is_so).then_some(Argument::OneRankANode)
        }
        _ => None,
    }
}

/// Every node has the same GPUs of the job.
fn are_alike(base: &Allocation) -> bool {
    let nodes = nodes(base);
    let mut profiles = nodes.iter().map(|node| profile(base, node));
    let first = profiles.next();
    profiles.all(|other| Some(other) == first)
}

fn has_one_rank_a_node(base: &Allocation, ranks: &[u32]) -> bool {
    let nodes: BTreeSet<u32> = ranks
        .iter()
        .map(|rank| base.node_and_gpu(*rank).0)
        .collect();
    nodes.len() == ranks.len()
}
