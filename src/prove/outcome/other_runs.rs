//! Runs beside the straight one: on other layouts, of other sizes, on one rank.

use serde::Serialize;

use super::OracleVerdict;
use crate::fault::Component;
use crate::prove::oracle::parting::{LaterStep, OtherRun};
use crate::prove::oracle::reference::Values;
use crate::prove::oracle::reshard::Resharding;
use crate::prove::oracle::topo::Topo;
use crate::prove::sweep::Reach;

/// What a run on another layout showed, against the straight run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OtherRunResult {
    /// Whole tensors and words that were compared before the first step, and the tensors that
    /// differ there.
    pub tensors: u64,
    pub words: u64,
    pub differing: Vec<String>,
    /// Components that the other layout cannot take over.
    pub not_carried: Vec<Component>,
    /// Why steps need not agree: sums that the layouts do not share.
    pub plans_differ: Vec<String>,
    pub steps: Vec<ReshardStep>,
    /// The first step whose bits part from the straight run's.
    pub first_step: Option<u32>,
    /// The first place that parts although no plan differs that acts at or before it.
    pub unexcused: Option<String>,
}

impl From<&OtherRun> for OtherRunResult {
    fn from(run: &OtherRun) -> OtherRunResult {
        OtherRunResult {
            tensors: run.tensors,
            words: run.words,
            differing: run.differences.iter().map(ToString::to_string).collect(),
            not_carried: run.not_carried.iter().copied().collect(),
            plans_differ: run.plans.iter().map(ToString::to_string).collect(),
            steps: run.steps.iter().map(ReshardStep::from).collect(),
            first_step: run.parting().map(|parting| parting.step),
            unexcused: run.unexcused().map(ToString::to_string),
        }
    }
}

/// A resume on another layout or allocation: the state at the load, and how far later steps agree.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ReshardResult {
    /// Layouts as TPxPPxVPP, or names of allocations.
    pub from: String,
    pub to: String,
    /// The allocation is another, not the layout.
    pub moved: bool,
    pub after_step: u32,
    /// `Different` where the state differs at the load, or later bits part though no plan differs
    /// that acts before them; `EqualInPart` where later steps read what is not carried over.
    pub verdict: OracleVerdict,
    #[serde(flatten)]
    pub run: OtherRunResult,
    /// Choice points of the resumed run, those that are sensitive on one allocation, and those that
    /// part across allocations.
    pub points: u64,
    pub sensitive: u64,
    pub sensitive_across: u64,
    /// All of it in one sentence.
    pub summary: String,
}

/// One step after a resume on another layout.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReshardStep {
    pub step: u32,
    /// Token losses compared, and those equal; `None` where they were not kept.
    pub token_losses: Option<u64>,
    pub equal_token_losses: Option<u64>,
    /// Numbers that both runs print, by whether their bits are equal.
    pub equal_metrics: Vec<String>,
    pub differing_metrics: Vec<String>,
    /// Whole tensors compared after the step, and those equal; `None` where no state was kept.
    pub tensors: Option<u64>,
    pub equal_tensors: Option<u64>,
    /// What parts in the step, each with what excuses it.
    pub partings: Vec<ReshardParting>,
}

/// A place where a step after a resume on another layout parts from the straight run's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReshardParting {
    pub what: String,
    /// The difference of the layouts that acts at or before it; `None` is a fault.
    pub because: Option<String>,
}

impl From<&Resharding> for ReshardResult {
    fn from(found: &Resharding) -> ReshardResult {
        let count = |reach: Reach| found.run.sensitive.get(&reach).copied().unwrap_or(0);
        let (from, to) = found.names();
        ReshardResult {
            from,
            to,
            moved: found.moved.is_some(),
            after_step: found.cut,
            verdict: match (found.run.is_broken(), found.is_in_part()) {
                (true, _) => OracleVerdict::Different,
                (false, true) => OracleVerdict::EqualInPart,
                (false, false) => OracleVerdict::Equal,
            },
            run: OtherRunResult::from(&found.run),
            points: found.run.points,
            sensitive: count(Reach::Within),
            sensitive_across: count(Reach::Across),
            summary: found.to_string(),
        }
    }
}

/// The job of another size or in another place.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TopoResult {
    pub name: String,
    /// What is another there.
    pub changes: Vec<String>,
    /// It need not be equal.
    pub may_differ: bool,
    /// `EqualInPart` where it differs, and may.
    pub verdict: OracleVerdict,
    /// Every sum has one plan on both sides: equal for all finite inputs.
    pub same_plans: bool,
    #[serde(flatten)]
    pub run: OtherRunResult,
    pub summary: String,
}

impl From<&Topo> for TopoResult {
    fn from(found: &Topo) -> TopoResult {
        let run = &found.run;
        TopoResult {
            name: found.name.clone(),
            changes: found.changes.clone(),
            may_differ: found.may_differ,
            verdict: match (found.fails(), run.parting().is_some()) {
                (true, _) => OracleVerdict::Different,
                (false, true) => OracleVerdict::EqualInPart,
                (false, false) => OracleVerdict::Equal,
            },
            same_plans: run.plans.is_empty(),
            run: OtherRunResult::from(run),
            summary: found.to_string(),
        }
    }
}

impl From<&LaterStep> for ReshardStep {
    fn from(compared: &LaterStep) -> ReshardStep {
        let named = |equal: bool| {
            let pairs = compared.metrics.iter();
            let pairs = pairs.filter(|pair| pair.is_equal() == equal);
            pairs.map(|pair| pair.name.clone()).collect()
        };
        ReshardStep {
            step: compared.step,
            token_losses: compared.token_losses.as_ref().map(|losses| losses.total),
            equal_token_losses: compared.token_losses.as_ref().map(|losses| losses.equal),
            equal_metrics: named(true),
            differing_metrics: named(false),
            tensors: compared.tensors.map(|(total, _)| total),
            equal_tensors: compared.tensors.map(|(_, equal)| equal),
            partings: compared
                .partings
                .iter()
                .map(|parting| ReshardParting {
                    what: parting.what.clone(),
                    because: parting.because.clone(),
                })
                .collect(),
        }
    }
}

/// What the ranks compute, against a serial model within a bound.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SerialResult {
    /// Steps that were compared, from the first.
    pub steps: u32,
    /// In the order in which a step computes them. Tensors of a component of the state that are all
    /// equal are one entry.
    pub tensors: Vec<SerialTensor>,
    /// The first tensor beyond its bound, in one sentence.
    pub finding: Option<String>,
}

/// One tensor of one step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SerialTensor {
    pub step: u32,
    /// `token losses`, `gradient`, `grad norm`, `clip coefficient`, a component of the state,
    /// `lm loss`.
    pub quantity: String,
    pub tensor: String,
    pub elements: u64,
    /// The element that is nearest to its bound, or furthest beyond it.
    pub element: u64,
    pub difference: f64,
    /// 0 where every bit must agree.
    pub bound: f64,
    /// `None` where the bound is 0 and the element differs.
    pub ratio: Option<f64>,
    /// Elements beyond their bounds.
    pub exceeding: u64,
    /// How far the tensor is from itself in the other precision, by its size.
    pub conditioning: f64,
}

impl From<&Values> for SerialResult {
    fn from(values: &Values) -> SerialResult {
        let tensors = values.compared.iter().map(|compared| SerialTensor {
            step: compared.step,
            quantity: compared.quantity.to_string(),
            tensor: compared.name.clone(),
            elements: compared.elements,
            element: compared.element,
            difference: compared.difference,
            bound: compared.bound,
            ratio: Some(compared.ratio()).filter(|ratio| ratio.is_finite()),
            exceeding: compared.exceeding,
            conditioning: compared.conditioning,
        });
        SerialResult {
            steps: values.steps,
            tensors: tensors.collect(),
            finding: values.finding(),
        }
    }
}
