//! Which sums of a simulated recipe explain the first divergence of a real trace.
//!
//! A sum explains it if it stands where the trace parts, by every criterion that the trace tells,
//! and parts itself when it is tried on its actual inputs: in the orders that the recipe leaves
//! free, or, where that pins the order, in order of arrival. Nothing is guessed: each criterion is
//! told with both sides, and one that the trace does not tell counts for nothing.

mod names;
mod sums;

use std::collections::BTreeSet;

use serde::Serialize;

use crate::prove::check::CheckOptions;
use crate::prove::session::{CheckError, Session};
use crate::prove::sweep::Sweep;
use crate::scenario::Scenario;
use crate::trace::symptom::Symptom;
use crate::world::{RunOptions, Site};

use sums::{Sum, Sums};

/// Sums that are tried, those first that agree in most.
const TRIED_MAX: usize = 8;
/// Sums that stand elsewhere and are told all the same.
const NEAR_TOLD_MAX: usize = 3;

/// What came of looking for a trace's cause.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Likeness {
    /// The folder of the two traces, as it was named.
    pub folder: String,
    pub symptom: Symptom,
    /// Sums that explain it.
    pub explanations: Vec<Candidate>,
    /// Sums of the same kind that do not, and why not.
    pub near: Vec<Candidate>,
    /// Why nothing explains it; nothing where something does.
    pub unexplained: Option<String>,
}

impl Likeness {
    pub fn is_explained(&self) -> bool {
        !self.explanations.is_empty()
    }
}

/// A sum that was held against the trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Candidate {
    pub site: Site,
    pub ranks: Vec<u32>,
    pub criteria: Vec<Criterion>,
    pub choice: Choice,
    /// Whether it parts on its actual inputs; nothing where it was not tried.
    pub parts: Option<bool>,
    /// What that shows, in a sentence.
    pub what: String,
}

/// Which choice was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Choice {
    /// The recipe leaves it free.
    Free,
    /// The recipe pins it: its order was taken to be that of arrival.
    AssumedArrival,
}

/// One thing in which a sum and the trace can agree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Criterion {
    /// `op`, `group`, `phase`, `dtype`, `occurrence`, `rank`, `microbatch`.
    pub name: &'static str,
    /// What the trace says; nothing where it does not say.
    pub trace: Option<String>,
    pub here: String,
    pub matches: Option<bool>,
}

/// Looks for what explains the symptom.
///
/// # Errors
/// As a check.
pub fn explain(
    scenario: &Scenario,
    options: &CheckOptions,
    folder: &str,
    symptom: &Symptom,
) -> Result<Likeness, CheckError> {
    let mut session = Session::new(scenario.clone(), options)?;
    let asked = symptom.iteration.and_then(|step| u32::try_from(step).ok());
    let step = asked.unwrap_or(0).min(scenario.steps);
    let names = session.sweep_options().groups;
    let mut sums = Sums::of(step, &names);
    let until = 1..step.max(1) + 1;
    session.run(&RunOptions::default(), until, None, &mut sums)?;
    let mut ranked: Vec<(Sum, Vec<Criterion>)> = sums
        .found
        .into_iter()
        .map(|sum| {
            let criteria = criteria(&sum, symptom);
            (sum, criteria)
        })
        .filter(|(_, criteria)| criteria[0].matches == Some(true))
        .collect();
    let agreeing = |criteria: &[Criterion]| {
        let count = |wanted: bool| {
            let all = criteria.iter();
            all.filter(|one| one.matches == Some(wanted)).count()
        };
        (count(false), usize::MAX - count(true))
    };
    ranked.sort_by_key(|(_, criteria)| agreeing(criteria));
    // The same sum of other groups says nothing more.
    let mut places = BTreeSet::new();
    ranked.retain(|(sum, _)| places.insert((sum.site.clone(), sum.occurrences[0])));
    let mut found = Likeness {
        folder: folder.to_string(),
        symptom: symptom.clone(),
        explanations: Vec::new(),
        near: Vec::new(),
        unexplained: None,
    };
    for (sum, criteria) in ranked.into_iter().take(TRIED_MAX) {
        let candidate = tried(&mut session, &sum, criteria)?;
        match candidate.parts {
            Some(true) => found.explanations.push(candidate),
            _ if found.near.len() < NEAR_TOLD_MAX => found.near.push(candidate),
            _ => {}
        }
    }
    if !found.is_explained() {
        found.unexplained = Some(why_not(&found, symptom));
    }
    Ok(found)
}

fn why_not(found: &Likeness, symptom: &Symptom) -> String {
    let name = &symptom.name;
    match found.near.first() {
        None => format!(
            "the recipe's run has no sum that a trace would call `{name}`: what parts there is not \
             modelled, or another recipe ran"
        ),
        Some(near) if near.parts.is_none() => format!(
            "sums like `{name}` stand elsewhere in the recipe's run: compare its layout and steps \
             with the job's"
        ),
        Some(_) => format!(
            "the sums that stand where `{name}` parts give the same bits in every order that was \
             tried: something else changed there"
        ),
    }
}

/// What the sum and the trace say of each criterion, the op first.
fn criteria(sum: &Sum, symptom: &Symptom) -> Vec<Criterion> {
    let told = |name, trace: Option<String>, here: String, matches: Option<bool>| Criterion {
        name,
        matches: trace.as_ref().and(matches),
        trace,
        here,
    };
    let mut all = vec![op_of(sum, symptom)];
    if let Some((_, group)) = &sum.collective {
        let ranks = symptom.group_ranks.as_deref();
        let kinds = (
            symptom.group.as_deref().and_then(names::group_kind),
            names::group_kind(group),
        );
        let matches = match (ranks, kinds) {
            (Some(ranks), _) if ranks == &*sum.ranks => Some(true),
            (_, (Some(theirs), Some(ours))) => Some(theirs == ours),
            _ => None,
        };
        all.push(told("group", symptom.group.clone(), group.clone(), matches));
    }
    let phases = names::phases(sum.site.phase);
    let phase = Some(symptom.phase.clone()).filter(|phase| !phase.is_empty());
    let is_phase = phases.contains(&&*symptom.phase);
    all.push(told(
        "phase",
        phase,
        sum.site.phase.name().to_string(),
        Some(is_phase),
    ));
    let dtype = names::torch_name(sum.dtype);
    let is_dtype = symptom.dtype.as_deref() == Some(dtype);
    all.push(told(
        "dtype",
        symptom.dtype.clone(),
        dtype.to_string(),
        Some(is_dtype),
    ));
    let ranks = sum.ranks.iter().zip(&sum.occurrences);
    let own = ranks.clone().find(|(rank, _)| **rank == symptom.rank);
    let occurrence = match (&symptom.place, own) {
        (Some(_), _) => sum.at_place,
        // By the same rank where there is one: else by any.
        (None, own) => own.map_or(sum.occurrences[0], |(_, occurrence)| *occurrence),
    };
    let is_there = occurrence == symptom.occurrence;
    let theirs = Some(symptom.occurrence.to_string());
    all.push(told(
        "occurrence",
        theirs,
        occurrence.to_string(),
        Some(is_there),
    ));
    // Another world has other ranks: that a rank is not among these says nothing.
    let theirs = Some(symptom.rank.to_string());
    all.push(told("rank", theirs, runs_of(&sum.ranks), own.map(|_| true)));
    if sum.site.microbatch.is_some() {
        let theirs = symptom.microbatch.map(|number| number.to_string());
        let ours = sum.site.microbatch.map(|number| number.to_string());
        let is_same = ours.is_some().then_some(theirs == ours);
        all.push(told(
            "microbatch",
            theirs,
            ours.unwrap_or_else(|| "none".into()),
            is_same,
        ));
    }
    all
}

fn runs_of(ranks: &[u32]) -> String {
    crate::trace::certify::runs_of(ranks.iter().map(|rank| u64::from(*rank)))
}

/// Whether a trace would call the sum so.
fn op_of(sum: &Sum, symptom: &Symptom) -> Criterion {
    let is_collective = symptom.kind == "collective" || symptom.name.contains("c10d");
    let matches = match (&symptom.place, &sum.collective) {
        // A check's own records have the program's names.
        (Some(place), _) => *place == sum.place,
        (None, Some((kind, _))) => is_collective && names::collective(&symptom.name) == Some(*kind),
        (None, None) => {
            let base = crate::trace::diff::op_base(&symptom.name);
            !is_collective && names::families(base).contains(&sum.family)
        }
    };
    let site = &sum.site;
    let here = match &sum.collective {
        Some((kind, _)) => (*kind).to_string(),
        None => site.op.to_string(),
    };
    Criterion {
        name: "op",
        trace: Some(symptom.name.clone()),
        here,
        matches: Some(matches),
    }
}

/// Tries the sum, if it stands where the trace parts.
fn tried(
    session: &mut Session,
    sum: &Sum,
    criteria: Vec<Criterion>,
) -> Result<Candidate, CheckError> {
    let choice = match sum.choice {
        "pinned" => Choice::AssumedArrival,
        _ => Choice::Free,
    };
    let mut candidate = Candidate {
        site: (*sum.site).clone(),
        ranks: sum.ranks.to_vec(),
        criteria,
        choice,
        parts: None,
        what: String::new(),
    };
    let apart = candidate
        .criteria
        .iter()
        .filter(|one| one.matches == Some(false));
    let apart: Vec<&str> = apart.map(|one| one.name).collect();
    if !apart.is_empty() {
        candidate.what = format!("not tried: other {}", apart.join(", "));
        return Ok(candidate);
    }
    let options = RunOptions {
        arrival_at: match choice {
            Choice::AssumedArrival => [sum.node].into(),
            Choice::Free => [].into(),
        },
        ..RunOptions::default()
    };
    let mut sweep = Sweep::at(session.sweep_options(), sum.node);
    session.run(&options, 1..sum.node.step.max(1) + 1, None, &mut sweep)?;
    let finding = sweep.first.values().next();
    candidate.parts = Some(finding.is_some());
    let count = sum.addends;
    candidate.what = match (finding, choice) {
        (Some(found), Choice::Free) => format!(
            "its {} is free, and {} of {} elements part",
            sum.choice, found.differing_elements, found.elements
        ),
        (Some(found), Choice::AssumedArrival) => format!(
            "the recipe pins its order; added in order of arrival, {} of {} elements part",
            found.differing_elements, found.elements
        ),
        (None, _) => format!("its {count} addends give the same bits in every order tried here"),
    };
    Ok(candidate)
}
