//! Whether a job with settings has one plan for a collective, whatever is left open.

use std::collections::BTreeSet;

use super::setting::{Configured, Side};
use super::ways::{Choice, Machine, Machines, algorithms, choices, function, machines};
use crate::plan::{
    Backend, Communicator as RingsAndTrees, Digest, Environment, PlanError, Request, Selector,
};
use crate::prove::job_plans::Hashes;
use crate::recipe::nccl::{Algorithm, EnvironmentError};
use crate::topology::Allocation;
use crate::train::StepCollective;
use crate::world::Communicator;

/// Plans that are built for one collective at most; beyond, nothing is claimed.
const BUILDS_MAX: usize = 20_000;

/// What is known of a collective under some settings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judged {
    /// One plan a group, in all of so many ways.
    One { ways: usize },
    /// Two ways that are left open, and add in different orders.
    Open { between: [String; 2] },
    /// Nothing is known: neither two different plans, nor that there is one.
    Unknown { why: String },
}

/// A job's collectives, and the settings under which they are judged.
pub(super) struct Judge<'a> {
    pub configured: &'a Configured,
    pub environment: Environment,
    pub communicators: &'a [Communicator],
    pub backend: Backend,
}

impl Judge<'_> {
    pub fn judge(&self, collective: &StepCollective) -> Judged {
        self.judged(collective)
            .unwrap_or_else(|why| Judged::Unknown { why })
    }

    fn judged(&self, collective: &StepCollective) -> Result<Judged, String> {
        let groups: Vec<&[u32]> = self.groups(collective);
        let by_nccl = function(collective.collective).filter(|_| self.backend == Backend::Nccl);
        let Some(function) = by_nccl else {
            // Another library, or a sum in rank order: its builder sees no machine. Built all the
            // same, on every side.
            return self.compared(collective, &self.bare(), &[self.as_it_is()]);
        };
        if let Some(ways) = self.one_order(collective)? {
            return Ok(Judged::One { ways });
        }
        let in_words = |error: EnvironmentError| error.to_string();
        let (modelled, others) = algorithms(&self.environment, function).map_err(in_words)?;
        let known = self.channels_known(&groups);
        let choices = choices(
            self.configured,
            &self.environment,
            function,
            &modelled,
            known,
        );
        let choices = choices.map_err(in_words)?;
        let by_tree = modelled.contains(&Algorithm::Tree);
        let machines = machines(&self.configured.sides, &groups, by_tree);
        let judged = match choices.is_empty() {
            true => Judged::One { ways: 0 },
            false => self.compared(collective, &machines, &choices)?,
        };
        let names: Vec<&str> = others.iter().map(|algorithm| algorithm.name()).collect();
        Ok(match judged {
            Judged::One { .. } if !names.is_empty() => Judged::Unknown {
                why: format!(
                    "NCCL may take {} for it, whose order is not modelled for all placements",
                    names.join(", ")
                ),
            },
            judged => judged,
        })
    }

    fn groups(&self, collective: &StepCollective) -> Vec<&[u32]> {
        let groups = collective.groups.iter();
        groups
            .map(|group| &*self.communicators[group.0 as usize].ranks)
            .collect()
    }

    /// Sides as they are.
    fn bare(&self) -> Machines {
        let machine = |side: &Side| {
            let allocation = side.allocation.clone();
            Machine::plain(allocation, side.allocation.name.clone())
        };
        Machines {
            list: self.configured.sides.iter().map(machine).collect(),
            sampled: None,
        }
    }

    fn as_it_is(&self) -> Choice {
        Choice {
            environment: self.environment.clone(),
            said: "as it is set".into(),
        }
    }

    /// Two addends, or a maximum: one order in every algorithm. The plan that says so is of any
    /// environment, so of NCCL's default.
    fn one_order(&self, collective: &StepCollective) -> Result<Option<usize>, String> {
        let machine = &self.configured.sides[0].allocation;
        let selector = Selector::new(machine.clone(), Environment::default());
        for ranks in self.groups(collective) {
            let plan = selector.plan(&self.request(collective, ranks));
            let plan = plan.map_err(|error| error.to_string())?;
            if !plan.has_one_order() {
                return Ok(None);
            }
        }
        Ok(Some(1))
    }

    /// Every group has its channels recorded on every side, which is where it runs.
    fn channels_known(&self, groups: &[&[u32]]) -> bool {
        self.configured.sides.iter().all(|side| {
            let recorded = &side.allocation.recorded;
            !side.placement_free && groups.iter().all(|group| recorded.of(group).is_some())
        })
    }

    fn request<'r>(&self, collective: &StepCollective, members: &'r [u32]) -> Request<'r> {
        Request {
            backend: self.backend,
            members,
            collective: collective.collective,
            dtype: collective.dtype,
            elements: collective.elements,
            reduction: collective.reduction,
        }
    }

    /// Builds the plans of every machine under every choice. Those that differ from the first in
    /// one of the two come first, so that what is told apart is told by one thing. A plan is made
    /// of rings and trees: of machines on which the groups have the same, the first stands for all.
    fn compared(
        &self,
        collective: &StepCollective,
        machines: &Machines,
        choices: &[Choice],
    ) -> Result<Judged, String> {
        let groups = self.groups(collective);
        let (first, own) = (&machines.list[0], &choices[0]);
        let reference = self.built(collective, &groups, first, own)?;
        let differs = |machine: &Machine, choice: &Choice| {
            let plans = self.built(collective, &groups, machine, choice)?;
            let open = || Judged::Open {
                between: told_apart([first, machine], [own, choice]),
            };
            Ok::<_, String>((plans != reference).then(open))
        };
        let mut rows: Vec<&Machine> = Vec::new();
        let mut known = BTreeSet::new();
        for machine in &machines.list {
            let alike = groups.iter().enumerate();
            let alike = alike.map(|(place, group)| RingsAndTrees::new(machine.of(place), group));
            if known.insert(alike.collect::<Vec<_>>()) {
                if let Some(open) = differs(machine, own)? {
                    return Ok(open);
                }
                rows.push(machine);
            }
        }
        let ways = rows.len() * choices.len();
        if ways * groups.len() > BUILDS_MAX {
            // What one of the two alone shows is shown all the same.
            for choice in choices {
                if let Some(open) = differs(first, choice)? {
                    return Ok(open);
                }
            }
            let why = format!("{ways} ways are too many to build");
            return Ok(Judged::Unknown { why });
        }
        for machine in rows {
            for choice in &choices[1..] {
                if let Some(open) = differs(machine, choice)? {
                    return Ok(open);
                }
            }
        }
        Ok(match &machines.sampled {
            None => Judged::One { ways },
            Some(why) => Judged::Unknown {
                why: format!("no two plans were found, but {why}"),
            },
        })
    }

    /// The plan of each group, hashed.
    fn built(
        &self,
        collective: &StepCollective,
        groups: &[&[u32]],
        machine: &Machine,
        choice: &Choice,
    ) -> Result<Vec<Digest>, String> {
        let selector =
            |allocation: &Allocation| Selector::new(allocation.clone(), choice.environment.clone());
        let own = selector(&machine.allocation);
        let given = machine.given.as_ref().map(|given| selector(&given.0));
        let mut hashes = Hashes::default();
        let plans = groups.iter().enumerate().map(|(place, ranks)| {
            let is_own = std::ptr::eq(machine.of(place), &machine.allocation);
            let selector = given.as_ref().filter(|_| !is_own).unwrap_or(&own);
            let plan = selector.plan(&self.request(collective, ranks))?;
            Ok(hashes.of(&plan))
        });
        let plans: Result<Vec<Digest>, PlanError> = plans.collect();
        plans.map_err(|error| error.to_string())
    }
}

/// Two ways, by what is different in them.
fn told_apart(machines: [&Machine; 2], choices: [&Choice; 2]) -> [String; 2] {
    let way = |side: usize| {
        let (machine, choice) = (&machines[side].said, &choices[side].said);
        match (
            machines[0].said == machines[1].said,
            choices[0].said == choices[1].said,
        ) {
            (true, false) => choice.clone(),
            (false, true) => machine.clone(),
            _ => format!("{machine}, {choice}"),
        }
    };
    [way(0), way(1)]
}
