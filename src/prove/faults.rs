//! The faults of a scenario: where each kind could strike, and whether those it names do.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::diagnostic::nearest;
use crate::fault::{BitFlip, Component, Fault, FaultKind};
use crate::prove::CheckOptions;
use crate::prove::oracle::res::{self, Restart};
use crate::prove::session::{CheckError, Session};
use crate::scenario::{Faults, Scenario};
use crate::world::{FaultHost, RunOptions, RunRecord, Unobserved};

/// A place that a fault can strike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FaultPlace {
    pub kind: FaultKind,
    pub at: String,
    /// Ranks that have it.
    pub ranks: u32,
    /// How often one of them comes by it in a step, at most.
    pub times_in_step: u32,
}

/// Every place of `scenario` that a fault can strike, as its straight run and its first restart
/// come by them. Its own faults are left out: what they hide is there as well.
///
/// # Errors
/// A scenario that cannot be run.
pub fn places(scenario: Scenario, options: &CheckOptions) -> Result<Vec<FaultPlace>, CheckError> {
    let mut session = Session::new(scenario, options)?;
    places_of(&mut session)
}

fn places_of(session: &mut Session) -> Result<Vec<FaultPlace>, CheckError> {
    let mut scenario = session.scenario.clone();
    scenario.faults = Faults::default();
    let mut session = session.changed(scenario)?;
    let cut = session.scenario.checkpoint.cuts().first().copied();
    let options = RunOptions {
        list_faults: true,
        checkpoint_after: cut.into_iter().collect(),
        ..RunOptions::default()
    };
    let steps = session.steps();
    let last = session.scenario.steps;
    let straight = session.plain_run(&options, steps)?;
    let mut hosts = straight.fault_hosts;
    if let Some((cut, state)) = straight.checkpoints.iter().next() {
        let restart = Restart {
            cut: *cut,
            state,
            omitted: &[],
            until: last,
            keep: false,
        };
        let resumed = res::run_on(&mut session, &restart, last, &options, &mut Unobserved)?;
        join(&mut hosts, resumed);
    }
    let found = hosts.into_iter().map(|((kind, at), host)| FaultPlace {
        kind,
        at,
        ranks: host.ranks.len() as u32,
        times_in_step: host.times_in_step,
    });
    Ok(found.chain(components(&session)).collect())
}

fn join(hosts: &mut BTreeMap<(FaultKind, String), FaultHost>, more: RunRecord) {
    for (key, host) in more.fault_hosts {
        let known = hosts.entry(key).or_default();
        known.ranks.extend(host.ranks);
        known.times_in_step = known.times_in_step.max(host.times_in_step);
    }
}

/// What a checkpoint can lack, and what a folder can have of an earlier one.
fn components(session: &Session) -> impl Iterator<Item = FaultPlace> {
    let ranks = session.ranks();
    let saved_before = session.scenario.checkpoint.cuts().last() > Some(&1);
    let mixed = saved_before.then_some(FaultKind::MixedGenerations);
    let kinds = [FaultKind::OmitComponent].into_iter().chain(mixed);
    let is_scaled = session.options.loss_scale.is_some();
    kinds.flat_map(move |kind| {
        let all = Component::ALL.into_iter();
        let all = all.filter(move |of| is_scaled || *of != Component::LossScaler);
        all.map(move |component| FaultPlace {
            kind,
            at: component.name().to_string(),
            ranks,
            times_in_step: 1,
        })
    })
}

/// A fault of a scenario that no run has met, and the name that may have been meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unmet {
    pub fault: String,
    pub nearest: Option<String>,
    /// A bit that the type of the place has not.
    pub unheld: bool,
}

impl std::fmt::Display for Unmet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no run comes by {}", self.fault)?;
        if self.unheld {
            return f.write_str(
                ": a 16-bit value is held in the high bits of its word, bf16 from bit 16 on and \
                 fp16 from bit 13 on",
            );
        }
        match &self.nearest {
            Some(name) => write!(f, ": did you mean `{name}`?"),
            None => Ok(()),
        }
    }
}

/// Refuses faults that changed nothing: a check of them would be one of the sound recipe.
///
/// # Errors
/// What was not met in any run so far, with the nearest names.
pub(super) fn refuse_unmet(session: &mut Session) -> Result<(), CheckError> {
    let faults = &session.scenario.faults;
    let omissions = faults.omissions();
    let named = faults.named.iter().chain(&omissions);
    let is_met = |fault: &&Fault| session.faults_met.contains(*fault);
    let named: Vec<Fault> = named.filter(|fault| !is_met(fault)).cloned().collect();
    let flips = faults.flips.difference(&session.flips_met);
    let flips: Vec<BitFlip> = flips.cloned().collect();
    if named.is_empty() && flips.is_empty() {
        return Ok(());
    }
    let places = places_of(session)?;
    let known = |kind: FaultKind| {
        let of_kind = places.iter().filter(move |place| place.kind == kind);
        of_kind.map(|place| place.at.as_str())
    };
    let named = named.iter().map(|fault| Unmet {
        fault: fault.to_string(),
        nearest: named_elsewhere(fault, known(fault.kind)),
        unheld: false,
    });
    let flips = flips.iter().map(|flip| Unmet {
        fault: flip.to_string(),
        nearest: None,
        unheld: session.flips_unheld.contains(flip),
    });
    Err(CheckError::UnmetFaults(named.chain(flips).collect()))
}

fn named_elsewhere<'a>(fault: &Fault, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let known: BTreeSet<&str> = known.collect();
    match known.contains(fault.at.as_str()) {
        // The name is right, and the rank or the step has none of it.
        true => None,
        false => nearest(&fault.at, known).map(str::to_string),
    }
}
