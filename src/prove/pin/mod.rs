//! The least settings that leave one plan for every collective of a job, whatever its allocations,
//! free placements and unset variables leave open.
//!
//! Nothing is stated from a table: each set of settings is applied, and the plans are built again
//! in every way that it leaves open. All sets are tried in the order of their size, so a set that
//! is found is minimal: each of its subsets was tried before it.

mod cost;
mod judge;
mod setting;
mod ways;

pub use cost::Cost;
pub use judge::Judged;
pub use setting::{Configured, Setting, Side, candidates};

use cost::Tally;
use judge::Judge;

use crate::plan::{Backend, Request, Selector};
use crate::prove::job_plans::{Facts, Groups, JobPlanError, beyond, environment, listed};
use crate::recipe::{DistributedBackend, Recipe};
use crate::topology::Allocation;
use crate::train::StepCollective;

/// A set of settings that pins every plan, none of whose subsets does.
#[derive(Clone, Debug)]
pub struct Pinned {
    pub settings: Vec<Setting>,
    /// Ways that the settings leave open and that were built, over all collectives.
    pub ways: usize,
    /// On the first allocation. `None` where a collective of two addends is left to an algorithm
    /// whose cost is not known.
    pub cost: Option<Cost>,
    /// What the plans rest on beyond what was tried.
    pub beyond: Vec<String>,
}

/// A collective without one plan.
#[derive(Clone, Debug)]
pub struct Unpinned {
    pub name: String,
    pub judged: Judged,
}

/// What pins a job.
#[derive(Clone, Debug)]
pub struct Pins {
    /// Every set that pins all plans and of which no subset does, the least first; empty where
    /// nothing does.
    pub sets: Vec<Pinned>,
    /// Sets of settings that were tried; supersets of those that pin are not.
    pub tried: usize,
    /// Where nothing pins all: the settings that leave the fewest collectives, and those.
    pub left: Option<(Vec<Setting>, Vec<Unpinned>)>,
    /// What the job costs on the first allocation as it is, where its plans are known.
    pub now: Option<Cost>,
    pub collectives: usize,
}

/// Finds what pins a job that may run on any of `allocations`; with `free_placement` its ranks in
/// any order on the GPUs that they have there.
///
/// # Errors
/// A job without a list of collectives, or variables that NCCL does not read.
///
/// # Panics
/// Without an allocation.
pub fn pins(
    recipe: &Recipe,
    backend: Option<Backend>,
    allocations: &[Allocation],
    free_placement: bool,
) -> Result<Pins, JobPlanError> {
    let side = |allocation: &Allocation| Side::new(allocation.clone(), free_placement);
    let job = Configured {
        recipe: recipe.clone(),
        sides: allocations.iter().map(side).collect(),
    };
    environment(recipe)?;
    let backend = backend.unwrap_or(match recipe.distributed_backend {
        DistributedBackend::Nccl => Backend::Nccl,
        DistributedBackend::Gloo => Backend::Gloo,
    });
    let search = Search { job, backend };
    let sets = subsets(&candidates(&search.job));
    let mut sound: Vec<Pinned> = Vec::new();
    let mut tried = 0;
    for settings in &sets {
        let has = |found: &Pinned| found.settings.iter().all(|one| settings.contains(one));
        if sound.iter().any(has) {
            continue;
        }
        tried += 1;
        if let Some(found) = search.pinned(settings)? {
            sound.push(found);
        }
    }
    let lines = |found: &Pinned| found.settings.iter().map(Setting::lines).sum::<usize>();
    sound.sort_by_key(|found| (lines(found), found.cost, found.settings.clone()));
    let left = match sound.is_empty() {
        true => Some(search.best(&sets)?),
        false => None,
    };
    let (_, listed) = listed(recipe)?;
    Ok(Pins {
        sets: sound,
        tried,
        left,
        now: search.cost(&search.job)?,
        collectives: listed.len(),
    })
}

/// Every choice of at most one setting of each list, smaller sets first.
fn subsets(lists: &[Vec<Setting>]) -> Vec<Vec<Setting>> {
    let mut sets = vec![Vec::new()];
    for list in lists {
        let with = |set: &Vec<Setting>| {
            let one = |setting: &Setting| [&set[..], std::slice::from_ref(setting)].concat();
            list.iter().map(one).collect::<Vec<_>>()
        };
        let more: Vec<Vec<Setting>> = sets.iter().flat_map(with).collect();
        sets.extend(more);
    }
    sets.sort_by_key(Vec::len);
    sets
}

struct Search {
    job: Configured,
    backend: Backend,
}

impl Search {
    /// The set, if it pins every collective.
    fn pinned(&self, settings: &[Setting]) -> Result<Option<Pinned>, JobPlanError> {
        let configured = self.job.clone().with(settings);
        let mut ways = 0;
        let is_one = |judged: &Judged| match judged {
            Judged::One { ways: own } => {
                ways += own;
                true
            }
            _ => false,
        };
        if !self.all_are(&configured, is_one)? {
            return Ok(None);
        }
        let (communicators, collectives) = listed(&configured.recipe)?;
        let first = &configured.sides[0].allocation;
        let groups = Groups::of(&collectives, &communicators, first);
        Ok(Some(Pinned {
            settings: settings.to_vec(),
            ways,
            cost: self.cost(&configured)?,
            beyond: match self.backend {
                Backend::Nccl => self.beyond(&configured, groups),
                _ => Vec::new(),
            },
        }))
    }

    /// What no plan is made of, and what is taken for granted of the sides.
    fn beyond(&self, configured: &Configured, groups: Groups) -> Vec<String> {
        let mut list = beyond(&Facts::of(&configured.recipe), groups);
        for one in configured
            .sides
            .iter()
            .flat_map(|side| &side.allocation.assumes)
        {
            if !list.contains(one) {
                list.push(one.clone());
            }
        }
        list
    }

    /// Whether all collectives are so; those after the first that is not are not judged.
    fn all_are(
        &self,
        configured: &Configured,
        mut is_so: impl FnMut(&Judged) -> bool,
    ) -> Result<bool, JobPlanError> {
        let mut all = true;
        self.each(configured, |_, judged| {
            all = is_so(judged);
            all
        })?;
        Ok(all)
    }

    /// Judges one collective after the other for as long as `goes_on`. Collectives that are the
    /// same but for their name are judged once.
    fn each(
        &self,
        configured: &Configured,
        mut goes_on: impl FnMut(&StepCollective, &Judged) -> bool,
    ) -> Result<(), JobPlanError> {
        let (communicators, collectives) = listed(&configured.recipe)?;
        let judge = Judge {
            configured,
            environment: environment(&configured.recipe)?,
            communicators: &communicators,
            backend: self.backend,
        };
        let mut known: Vec<(&StepCollective, Judged)> = Vec::new();
        for collective in &collectives {
            let same = known.iter().find(|(other, _)| alike(other, collective));
            let judged = match same {
                Some((_, judged)) => judged.clone(),
                None => judge.judge(collective),
            };
            if !goes_on(collective, &judged) {
                return Ok(());
            }
            known.push((collective, judged));
        }
        Ok(())
    }

    /// The set that leaves the fewest collectives, and those. Of equal ones, the smallest.
    fn best(&self, sets: &[Vec<Setting>]) -> Result<(Vec<Setting>, Vec<Unpinned>), JobPlanError> {
        let mut best: Option<(Vec<Setting>, Vec<Unpinned>)> = None;
        for settings in sets {
            let configured = self.job.clone().with(settings);
            let most = best.as_ref().map_or(usize::MAX, |(_, left)| left.len());
            let mut left = Vec::new();
            self.each(&configured, |collective, judged| {
                if !matches!(judged, Judged::One { .. }) {
                    left.push(Unpinned {
                        name: collective.name.clone(),
                        judged: judged.clone(),
                    });
                }
                left.len() < most
            })?;
            if left.len() < most {
                best = Some((settings.clone(), left));
            }
        }
        Ok(best.expect("the empty set was tried"))
    }

    /// What a step costs on the first side. `None` where a plan has no algorithm.
    fn cost(&self, configured: &Configured) -> Result<Option<Cost>, JobPlanError> {
        let (communicators, collectives) = listed(&configured.recipe)?;
        let first = &configured.sides[0].allocation;
        let selector = Selector::new(first.clone(), environment(&configured.recipe)?);
        let mut tally = Tally::new(first.placement.world());
        for collective in &collectives {
            for group in &collective.groups {
                let request = Request {
                    backend: self.backend,
                    members: &communicators[group.0 as usize].ranks,
                    collective: collective.collective,
                    dtype: collective.dtype,
                    elements: collective.elements,
                    reduction: collective.reduction,
                };
                if tally.add(&selector, &request, collective.times).is_err() {
                    return Ok(None);
                }
            }
        }
        Ok(Some(tally.total()))
    }
}

/// The same but for name, family and how often.
fn alike(one: &StepCollective, other: &StepCollective) -> bool {
    one.collective == other.collective
        && one.reduction == other.reduction
        && one.dtype == other.dtype
        && one.elements == other.elements
        && one.groups == other.groups
}
