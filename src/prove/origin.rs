//! Origin before symptom: of all that a check found, what came first in cause, in one sentence.
//!
//! The first tensor that differs is often far downstream of the mistake (NVIDIA-NeMo/
//! Megatron-Bridge#5380: a loss that jumps after a resume, because an embedding's copies had never
//! been summed together). So findings that name a cause (a missing edge, a contribution that is
//! not there, a component that was not saved) go before those that name a difference.

use serde::Serialize;

use crate::prove::check::Findings;
use crate::prove::oracle::replicas::told;
use crate::prove::oracle::res::Resumption;
use crate::prove::oracle::topo::Topo;
use crate::prove::session::Session;
use crate::prove::sweep::{Finding, Reach, Variable};
use crate::prove::witness;
use crate::scenario::{OracleKind, OriginClass};
use crate::train::set_too_late;
use crate::world::memory::{Hazard, HazardKind};

/// Where a fault comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Origin {
    pub class: OriginClass,
    /// The comparison that shows it.
    pub oracle: OracleKind,
    /// What it is, naming who did what.
    pub what: String,
}

/// The origin of what a check found; `None` where nothing is wrong.
pub(super) fn of(session: &Session, findings: &Findings) -> Option<Origin> {
    made_stop(findings)
        .or_else(|| stopped(findings))
        .or_else(|| torn(findings))
        .or_else(|| unordered(findings))
        .or_else(|| corrupted(findings))
        .or_else(|| recomputed(findings))
        .or_else(|| started_apart(session, findings))
        .or_else(|| contributed(findings))
        .or_else(|| drifted(session, findings))
        .or_else(|| computed(findings))
        .or_else(|| reordered(session, findings))
        .or_else(|| answered(findings))
        .or_else(|| resumed(findings))
        .or_else(|| varied(findings))
}

fn origin(class: OriginClass, oracle: OracleKind, what: String) -> Option<Origin> {
    Some(Origin {
        class,
        oracle,
        what,
    })
}

/// Accesses that nothing orders, where the run then stopped: hosts that read what is not there yet
/// go different ways.
fn made_stop(findings: &Findings) -> Option<Origin> {
    let stop = findings.stopped.as_ref()?;
    let own = &findings.reference.hazards;
    let hazard = own.iter().chain(&stop.hazards).next()?;
    let what = format!("{hazard}; then the run stopped: {}", stop.what);
    origin(class_of(hazard), OracleKind::R2R, what)
}

/// Nothing else was looked at.
fn stopped(findings: &Findings) -> Option<Origin> {
    let stop = findings.stopped.as_ref()?;
    origin(stop.class, stop.oracle, stop.what.clone())
}

/// The same choices gave other bits, and no unordered access explains it.
fn corrupted(findings: &Findings) -> Option<Origin> {
    let difference = findings.second.as_ref()?.as_ref()?;
    let (site, rank) = (&difference.a.site, difference.a.rank);
    let what = format!("the same choices gave other bits at {site} on rank {rank}");
    origin(OriginClass::Uncontrolled, OracleKind::R2R, what)
}

/// A checkpoint of two steps. Where the writer's own buffers are used too early, that comes first.
fn torn(findings: &Findings) -> Option<Origin> {
    let snapshots = findings.snapshots.as_ref()?;
    let torn = snapshots.torn.first()?;
    let mut hazards = findings.reference.hazards.iter().chain(&snapshots.hazards);
    let is_own = |hazard: &Hazard| {
        let buffer = hazard.buffer.as_deref();
        buffer.is_some_and(|name| name.starts_with("checkpoint_"))
    };
    if hazards.any(is_own) {
        return None;
    }
    let class = OriginClass::CheckpointSnapshot;
    origin(class, OracleKind::RES, torn.to_string())
}

fn unordered(findings: &Findings) -> Option<Origin> {
    let of_resumed = |found: &Resumption| found.hazards.first().cloned();
    let resumed = findings.resumptions.iter().flatten();
    let resumed = resumed.filter_map(|(_, found)| of_resumed(found));
    let own = findings.reference.hazards.first().cloned();
    let saving = findings.snapshots.iter();
    let saving = saving.flat_map(|snapshots| snapshots.hazards.first().cloned());
    let hazard: Hazard = own.into_iter().chain(saving).chain(resumed).next()?;
    origin(class_of(&hazard), OracleKind::R2R, hazard.to_string())
}

pub(super) fn class_of(hazard: &Hazard) -> OriginClass {
    match hazard.kind {
        HazardKind::ReuseWhileInUse => OriginClass::BufferLifetime,
        HazardKind::UninitialisedRead => OriginClass::UninitialisedRead,
        _ => OriginClass::MissingWait,
    }
}

fn recomputed(findings: &Findings) -> Option<Origin> {
    let mut drifts = findings.reference.drifts.iter();
    let drift = drifts.find(|drift| drift.microbatch.is_some())?;
    let class = OriginClass::RecomputeMismatch;
    origin(class, OracleKind::XR, drift.to_string())
}

/// Copies that part before the first step.
fn started_apart(session: &Session, findings: &Findings) -> Option<Origin> {
    asks(session, OracleKind::XR)?;
    let mut drifts = findings.reference.drifts.iter();
    let drift = drifts.find(|drift| drift.step.is_none())?;
    let class = OriginClass::ReplicaDivergence;
    let what = told(drift, findings.let_in.as_ref());
    origin(class, OracleKind::XR, what)
}

fn contributed(findings: &Findings) -> Option<Origin> {
    let followed = findings.provenances.as_ref()?;
    let finding = followed
        .findings
        .first()
        .filter(|_| followed.is_followed())?;
    let class = OriginClass::WrongContribution;
    origin(class, OracleKind::REF, finding.to_string())
}

/// Values that no serial model has. Copies that drift apart, or that lack a contribution, are
/// wrong as well, and say more.
fn computed(findings: &Findings) -> Option<Origin> {
    let what = findings.provenances.as_ref()?.values.finding()?;
    origin(OriginClass::WrongValue, OracleKind::REF, what)
}

fn drifted(session: &Session, findings: &Findings) -> Option<Origin> {
    asks(session, OracleKind::XR)?;
    let drift = findings.reference.drifts.first()?;
    let class = OriginClass::ReplicaDivergence;
    let what = told(drift, findings.let_in.as_ref());
    origin(class, OracleKind::XR, what)
}

fn resumed(findings: &Findings) -> Option<Origin> {
    let resumptions = findings.resumptions.iter().flatten();
    let mut broken = resumptions.filter(|(_, found)| !found.is_equal());
    if let Some((list, found)) = broken.next() {
        let text = super::certificate::resumption_text(found);
        let what = format!("restarts {list:?}: {text}");
        return origin(class_of_resumption(found), OracleKind::RES, what);
    }
    let mut resharded = findings.reshardings.iter();
    let found = resharded.find(|found| found.run.fails())?;
    origin(OriginClass::LostState, OracleKind::RES, found.to_string())
}

/// What a resumed run that is not the straight one has in place of it.
pub(super) fn class_of_resumption(found: &Resumption) -> OriginClass {
    let covered = (found.components.is_empty(), found.uncovered.is_empty());
    let is_answered = found.first_step.is_none() && found.queries.worst().is_some();
    match (found.stale.is_empty(), covered) {
        (true, (true, true)) if is_answered => OriginClass::QueryAnswer,
        (false, _) => OriginClass::CheckpointSnapshot,
        (true, (false, _)) => OriginClass::LostState,
        (true, (true, false)) => OriginClass::HiddenState,
        (true, (true, true)) => OriginClass::OtherAfterResume,
    }
}

/// Another size or place: sums that it orders otherwise, or something else that depends on it.
fn varied(findings: &Findings) -> Option<Origin> {
    let found = findings.topo.iter().find(|found| found.fails())?;
    origin(class_of_variant(found), OracleKind::TOPO, found.to_string())
}

pub(super) fn class_of_variant(found: &Topo) -> OriginClass {
    let run = &found.run;
    // What is wrong with its own run comes before what that run does otherwise.
    let own = match (run.hazards.first(), run.drifts.first()) {
        (Some(hazard), _) => Some(class_of(hazard)),
        (None, Some(drift)) if drift.microbatch.is_some() => Some(OriginClass::RecomputeMismatch),
        (None, Some(_)) => Some(OriginClass::ReplicaDivergence),
        (None, None) => None,
    };
    own.unwrap_or(match run.is_broken() {
        true => OriginClass::MeshDependence,
        false if run.sensitive.contains_key(&Reach::Within) => OriginClass::AccumulationOrder,
        false => OriginClass::AlgorithmSelection,
    })
}

/// A sum whose order varies.
fn reordered(session: &Session, findings: &Findings) -> Option<Origin> {
    let (reach, first) = findings.sweep.first.iter().next()?;
    if let Variable::Configuration { key, .. } = first.variable {
        let (a, b) = witness::values(session, first);
        let (addends, elements) = (key.addends, key.elements);
        let what = format!(
            "{a} or {b}, by timing at its first call of a sum of {addends} x {elements}: that at \
             {} parts",
            first.site
        );
        return origin(class_of_sum(*reach, first), OracleKind::R2R, what);
    }
    let mut what = format!("the order of the sum at {} varies", first.site);
    for variable in session.late.iter().filter(|_| *reach == Reach::Across) {
        what += &format!("; {}", set_too_late(variable));
    }
    origin(class_of_sum(*reach, first), OracleKind::R2R, what)
}

pub(super) fn class_of_sum(reach: Reach, found: &Finding) -> OriginClass {
    match (&found.variable, reach) {
        (Variable::Configuration { .. }, _) => OriginClass::AutotuneChoice,
        (_, Reach::Within) => OriginClass::AccumulationOrder,
        (_, Reach::Across) => OriginClass::AlgorithmSelection,
    }
}

/// A question that may be answered otherwise.
fn answered(findings: &Findings) -> Option<Origin> {
    let what = findings.queries.consequence()?;
    origin(OriginClass::QueryAnswer, OracleKind::R2R, what)
}

fn asks(session: &Session, oracle: OracleKind) -> Option<()> {
    session.scenario.oracles.contains(&oracle).then_some(())
}
