//! The plans of every reducing collective of a job at its full size, on one allocation: which
//! groups add in which order. No arithmetic is done.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use crate::job::BucketError;
use crate::plan::{
    Backend, CarriedOut, Digest, Environment, EnvironmentError, OPEN_MPI_BASIS, PLAN_BASIS, Plan,
    PlanError, Request, Selector,
};
use crate::recipe::nccl::{Algorithm, Function};
use crate::recipe::{DataParallelKind, DistributedBackend, Recipe};
use crate::topology::{Allocation, ChannelGraph, MissingOrders};
use crate::train::{LayoutError, StepCollective, TrainOptions, step_collectives};
use crate::world::Communicator;

/// Why a job has no plans.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JobPlanError {
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    #[error("{collective}: {source}")]
    Plan {
        collective: String,
        source: PlanError,
    },
    #[error(transparent)]
    Buckets(#[from] BucketError),
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error("a batch of more than {} samples", u32::MAX)]
    Batch,
    #[error(
        "the buckets of torch's DistributedDataParallel are not listed: `ddp` must be megatron"
    )]
    TorchBuckets,
}

/// One collective of a step, with the plan of each of its groups.
#[derive(Clone, Debug)]
pub struct CollectivePlans {
    pub collective: StepCollective,
    /// Ranks of a group.
    pub ranks: u32,
    /// One for each of the collective's groups.
    pub plans: Vec<Arc<Plan>>,
    /// How NCCL carries each out; `None` where the sum is not NCCL's.
    pub carried_out: Vec<Option<CarriedOut>>,
}

/// All collectives of a step on one allocation.
pub struct JobPlans {
    pub collectives: Vec<CollectivePlans>,
    /// What neither the job nor the allocation pins, and what is taken for it.
    pub assumed: Vec<String>,
    /// Groups that add, and how many of them have their rings and trees from a record.
    pub recorded: Groups,
    pub communicators: Vec<Communicator>,
    selector: Selector,
    backend: Backend,
}

impl JobPlans {
    /// The plans of the recipe's own library.
    ///
    /// # Errors
    /// What NCCL would not take, or what is not modelled.
    pub fn of(recipe: &Recipe, allocation: Allocation) -> Result<JobPlans, JobPlanError> {
        let backend = match recipe.distributed_backend {
            DistributedBackend::Nccl => Backend::Nccl,
            DistributedBackend::Gloo => Backend::Gloo,
        };
        JobPlans::by(backend, recipe, allocation)
    }

    /// The plans of a job whose collectives a library carries out, whatever the recipe says.
    ///
    /// # Errors
    /// As for [`JobPlans::of`].
    pub fn by(
        backend: Backend,
        recipe: &Recipe,
        allocation: Allocation,
    ) -> Result<JobPlans, JobPlanError> {
        let (communicators, collectives) = listed(recipe)?;
        let facts = Facts::of(recipe);
        JobPlans::of_list(backend, &facts, communicators, collectives, allocation)
    }

    /// The plans of collectives that were listed, not derived from a recipe.
    ///
    /// # Errors
    /// As for [`JobPlans::of`].
    pub fn of_list(
        backend: Backend,
        facts: &Facts,
        communicators: Vec<Communicator>,
        collectives: Vec<StepCollective>,
        allocation: Allocation,
    ) -> Result<JobPlans, JobPlanError> {
        let variables = facts.env.iter();
        let environment =
            Environment::parse(variables.map(|(name, value)| (name.as_str(), value.as_str())))?;
        let mut recorded = Groups::of(&collectives, &communicators, &allocation);
        if backend != Backend::Nccl {
            recorded.recorded = 0;
        }
        let mut plans = JobPlans {
            collectives: Vec::new(),
            assumed: match backend {
                Backend::Nccl => assumed(facts, &environment, &allocation, recorded),
                Backend::Gloo => Vec::new(),
                Backend::OpenMpi => open_mpi_assumed(),
            },
            recorded,
            communicators,
            selector: Selector::new(allocation, environment),
            backend,
        };
        for collective in collectives {
            let name = collective.name.clone();
            let found = plans.of_collective(collective);
            let found = found.map_err(|source| JobPlanError::Plan {
                collective: name,
                source,
            })?;
            plans.collectives.push(found);
        }
        Ok(plans)
    }

    /// What the plans rest on.
    pub fn basis(&self) -> String {
        if self.backend == Backend::OpenMpi {
            return OPEN_MPI_BASIS.to_string();
        }
        match self.recorded {
            Groups { recorded: 0, .. } => PLAN_BASIS.to_string(),
            Groups { recorded, all } => format!(
                "{PLAN_BASIS}; channels, rings and trees of {recorded} of {all} groups as the \
                 topology file has them recorded"
            ),
        }
    }

    pub fn allocation(&self) -> &Allocation {
        self.selector.allocation()
    }

    /// The collective of that name.
    pub fn find(&self, name: &str) -> Option<&CollectivePlans> {
        let mut all = self.collectives.iter();
        all.find(|one| one.collective.name == name)
    }

    fn of_collective(&self, collective: StepCollective) -> Result<CollectivePlans, PlanError> {
        let members = |place: usize| &self.communicators[collective.groups[place].0 as usize].ranks;
        let request = |place: usize| Request {
            backend: self.backend,
            members: members(place),
            collective: collective.collective,
            dtype: collective.dtype,
            elements: collective.elements,
            reduction: collective.reduction,
        };
        let groups = 0..collective.groups.len();
        let plans = groups.clone();
        let plans = plans.map(|place| self.selector.plan(&request(place)));
        let carried_out = groups.map(|place| self.selector.carried_out(&request(place)));
        Ok(CollectivePlans {
            ranks: members(0).len() as u32,
            plans: plans.collect::<Result<_, _>>()?,
            carried_out: carried_out.collect::<Result<_, _>>()?,
            collective,
        })
    }

    /// One hash of all collectives: their names, how often each is done, the ranks of each group in
    /// order, and their plan, which has the operation, the sizes and the types in it.
    pub fn hash(&self) -> Digest {
        let mut hasher = blake3::Hasher::new_derive_key("bitproof plans of a job");
        let mut known = Hashes::default();
        for one in &self.collectives {
            let name = one.collective.name.as_bytes();
            hasher
                .update(&(name.len() as u64).to_le_bytes())
                .update(name);
            hasher.update(&one.collective.times.to_le_bytes());
            hasher.update(&(one.plans.len() as u64).to_le_bytes());
            for (group, plan) in one.collective.groups.iter().zip(&one.plans) {
                let ranks = &self.communicators[group.0 as usize].ranks;
                hasher.update(&(ranks.len() as u64).to_le_bytes());
                for rank in ranks.iter() {
                    hasher.update(&rank.to_le_bytes());
                }
                hasher.update(&known.of(plan));
            }
        }
        *hasher.finalize().as_bytes()
    }

    /// The ring of each channel that a group's ring collective uses, as global ranks.
    ///
    /// # Errors
    /// A group that the allocation does not place.
    pub fn rings(&self, one: &CollectivePlans, place: usize) -> Result<Vec<Vec<u32>>, PlanError> {
        let group = &self.communicators[one.collective.groups[place].0 as usize];
        let communicator = self.selector.communicator(&group.ranks)?;
        let environment = self.selector.environment();
        let channels = communicator.channels(environment.min_channels, environment.max_channels);
        let used = one.carried_out[place].map_or(0, |how| how.channels as usize);
        let global = |local: &u32| group.ranks[*local as usize];
        let rings = channels.into_iter().take(used);
        Ok(rings
            .map(|channel| communicator.ring(channel).iter().map(global).collect())
            .collect())
    }
}

/// What is known of a job beside its collectives.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    pub env: BTreeMap<String, String>,
    /// NCCL's functions that add something.
    pub functions: Vec<Function>,
    /// Variables from which bits follow in a way that is not simulated, and what they decide.
    pub not_covered: Vec<(String, &'static str)>,
    /// What else was taken for granted when the collectives were listed.
    pub assumed: Vec<String>,
}

impl Facts {
    pub fn of(recipe: &Recipe) -> Facts {
        let not_covered = recipe.variables_not_covered();
        Facts {
            env: recipe.env.clone(),
            functions: recipe.nccl_reductions(),
            not_covered: not_covered
                .map(|(name, what)| (name.to_string(), what))
                .collect(),
            assumed: Vec::new(),
        }
    }
}

/// What a job says of NCCL in its environment.
pub(super) fn environment(recipe: &Recipe) -> Result<Environment, EnvironmentError> {
    let variables = recipe.env.iter();
    Environment::parse(variables.map(|(name, value)| (name.as_str(), value.as_str())))
}

/// A job's communicators, and the reducing collectives of a step.
pub(super) fn listed(
    recipe: &Recipe,
) -> Result<(Vec<Communicator>, Vec<StepCollective>), JobPlanError> {
    if recipe.ddp == DataParallelKind::Torch {
        return Err(JobPlanError::TorchBuckets);
    }
    let options = TrainOptions::from(recipe);
    options.layout.check()?;
    // A full size that is written beside a small recipe may multiply to any batch.
    if recipe.global_batch_size == u32::MAX {
        return Err(JobPlanError::Batch);
    }
    Ok((options.layout.communicators(), step_collectives(&options)?))
}

/// What a plan needs to know and nobody has said. On real machines NCCL finds these out by itself:
/// where it finds something else, the plans are others.
fn assumed(
    facts: &Facts,
    environment: &Environment,
    allocation: &Allocation,
    groups: Groups,
) -> Vec<String> {
    let mut list = environment.assumed(&facts.functions);
    let is_set = |name: &str| facts.env.get(name).is_some_and(|value| !value.is_empty());
    let Groups { recorded, all } = groups;
    let is_built = recorded < all;
    if is_built && (!is_set("NCCL_MIN_NCHANNELS") || !is_set("NCCL_MAX_NCHANNELS")) {
        let channels = "how many channels NCCL has: NCCL_MIN_NCHANNELS and NCCL_MAX_NCHANNELS are \
                        not both set, and two for each ring of the topology are assumed";
        list.push(channels.to_string());
    }
    let takes_pat = |function: &Function| environment.algorithm(*function) == Ok(Algorithm::Pat);
    if facts.functions.iter().any(takes_pat) {
        list.push(
            "that PAT takes every channel for small messages too, as NCCL's table has no number of \
             threads for it: from 33 ranks on its order follows from the bytes on each"
                .into(),
        );
    }
    list.extend(beyond(facts, groups));
    if is_built {
        list.extend(allocation.assumes.iter().cloned());
    }
    let topology = &allocation.topology;
    if is_built && recorded > 0 {
        let rest = all - recorded;
        list.push(format!(
            "that {rest} of {all} groups have the rings that the topology gives a node: none are \
             recorded of them"
        ));
    }
    if is_built && topology.graph == ChannelGraph::ascending(topology.gpus_per_node()) {
        let rings = "the rings within a node: one is assumed, GPUs in ascending order, as the \
                     topology's `[nccl]` has no other";
        list.push(rings.to_string());
    }
    let missing = match topology.graph.missing {
        Some(MissingOrders::Rings) => Some(("rings", "ring_orders")),
        Some(MissingOrders::Trees) => Some(("chains of trees", "tree_orders")),
        None => None,
    };
    if let Some((what, key)) = missing.filter(|_| is_built) {
        list.push(format!(
            "the {what} within a node: GPUs in ascending order are assumed, as the topology's \
             `[nccl]` has no {key}"
        ));
    }
    list
}

/// What no plan is made of, whatever is set.
pub(super) fn beyond(facts: &Facts, groups: Groups) -> Vec<String> {
    let mut list = Vec::new();
    let recorded = groups.recorded;
    if facts.env.get("NCCL_TUNER_PLUGIN").map(String::as_str) != Some("none") {
        list.push("that no tuner plugin chooses otherwise: NCCL_TUNER_PLUGIN is not none".into());
    }
    if recorded > 0 {
        list.push(
            "that the job's communicators have the channels that were recorded, cut or filled to \
             NCCL_MAX_NCHANNELS and NCCL_MIN_NCHANNELS where those are set"
                .into(),
        );
    }
    list.extend(facts.assumed.iter().cloned());
    let variables = facts.not_covered.iter();
    list.extend(variables.map(|(name, what)| format!("that {name} changes no plan: {what}")));
    list
}

/// The same of Open MPI.
fn open_mpi_assumed() -> Vec<String> {
    let list = [
        "that coll/tuned carries collectives out (not han, adapt, ucc, hcoll or cuda), and no \
         OMPI_MCA_coll_tuned variable chooses an algorithm",
        "that reduce-scatters are MPI_Reduce_scatter_block of equal blocks",
        "that no maximum meets a NaN, or zeros of both signs",
    ];
    list.map(str::to_string).to_vec()
}

/// How many groups of several ranks add, and of how many the rings and trees were recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    pub recorded: u32,
    pub all: u32,
}

impl Groups {
    pub(super) fn of(
        collectives: &[StepCollective],
        communicators: &[Communicator],
        allocation: &Allocation,
    ) -> Groups {
        let groups = collectives.iter().flat_map(|one| &one.groups);
        let ranks: BTreeSet<&[u32]> = groups
            .map(|group| &*communicators[group.0 as usize].ranks)
            .filter(|ranks| ranks.len() > 1)
            .collect();
        let is_recorded = |ranks: &&&[u32]| allocation.recorded.of(ranks).is_some();
        Groups {
            recorded: ranks.iter().filter(is_recorded).count() as u32,
            all: ranks.len() as u32,
        }
    }
}

/// Hashes of plans that many groups share.
#[derive(Default)]
pub struct Hashes(BTreeMap<usize, (Arc<Plan>, Digest)>);

impl Hashes {
    pub fn of(&mut self, plan: &Arc<Plan>) -> Digest {
        let address = Arc::as_ptr(plan) as usize;
        // The plan is kept, so that no other one gets its address.
        let entry = self.0.entry(address);
        entry.or_insert_with(|| (plan.clone(), plan.hash())).1
    }
}

/// Where one collective differs between two allocations.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The collective's place in both lists.
    pub place: usize,
    /// Groups whose plans differ.
    pub groups: u32,
    /// Elements that may differ, in the first such group: ascending ranges.
    pub ranges: Vec<Range<u64>>,
    /// That group's place among the collective's groups.
    pub first_group: usize,
    pub cause: Cause,
}

/// What first tells two plans of one collective apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The library carries it out otherwise.
    CarriedOut(CarriedOut, CarriedOut),
    /// Alike but for the order of the ranks on rings, or in trees.
    Order,
}

/// The collectives that differ. Both are of one job: the lists have the same names.
pub fn differences(a: &JobPlans, b: &JobPlans) -> Vec<Difference> {
    let mut hashes = Hashes::default();
    let both = a.collectives.iter().zip(&b.collectives);
    let difference = |(place, (one, other)): (usize, (&CollectivePlans, &CollectivePlans))| {
        assert_eq!(one.collective, other.collective, "plans of one job");
        let pairs = one.plans.iter().zip(&other.plans);
        let differing: Vec<usize> = pairs
            .enumerate()
            .filter(|(_, (x, y))| hashes.of(x) != hashes.of(y))
            .map(|(group, _)| group)
            .collect();
        let first_group = *differing.first()?;
        let (x, y) = (&one.plans[first_group], &other.plans[first_group]);
        Some(Difference {
            place,
            groups: differing.len() as u32,
            ranges: x.differing_ranges(y),
            first_group,
            cause: match (one.carried_out[first_group], other.carried_out[first_group]) {
                (Some(x), Some(y)) if x != y => Cause::CarriedOut(x, y),
                _ => Cause::Order,
            },
        })
    };
    both.enumerate().filter_map(difference).collect()
}
