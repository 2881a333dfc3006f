//! What may part in a run on another layout. Each place where bits part needs an excuse: a sum (or
//! a mask) that the layouts do not share and that acts at or before that place. What has none is a
//! fault: of a resume, state that did not arrive, or arrived elsewhere.

use super::steps::{LaterStep, MetricPair};
use super::structure::PlanDifference;
use crate::fault::Component;
use crate::train::{StateDifference, Trainer};

/// A place where two runs part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parting {
    pub step: u32,
    /// The place, and its first differing number.
    pub what: String,
    /// What the layouts do not share and acts at or before it; `None` is a fault.
    pub because: Option<String>,
}

impl std::fmt::Display for Parting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "step {}, {}", self.step, self.what)
    }
}

/// How the place of a token's loss begins.
pub(in crate::prove::oracle) const FORWARD: &str = "forward";

/// What later steps are judged by.
pub(in crate::prove::oracle) struct Judge<'a> {
    pub plans: &'a [PlanDifference],
    /// Gradients are clipped by their norm.
    pub clips: bool,
}

impl Judge<'_> {
    /// Fills in the partings of every step. States before the first were `equal` or not.
    pub fn judge(&self, steps: &mut [LaterStep], equal: bool) {
        let mut entering = (!equal).then(|| "the state differs at load".to_string());
        for step in steps {
            step.partings = self.of_step(step, entering.as_deref());
            entering = match &step.tensors {
                Some(_) => step
                    .differing
                    .first()
                    .map(|_| format!("the state differs after step {}", step.step)),
                // Not looked at: it can differ where something reaches it, or did before.
                None => entering.or_else(|| self.reason(|acts| acts.reach_state(self.clips))),
            };
        }
    }

    /// The first difference of the layouts that acts so.
    fn reason(&self, acts: impl Fn(&super::Acts) -> bool) -> Option<String> {
        let mut plans = self.plans.iter();
        plans
            .find(|plan| acts(&plan.acts))
            .map(PlanDifference::name)
    }

    fn of_step(&self, step: &LaterStep, entering: Option<&str>) -> Vec<Parting> {
        let entered = || entering.map(str::to_string);
        let mut found = Vec::new();
        let mut take = |what: String, because: Option<String>| {
            found.push(Parting {
                step: step.step,
                what,
                because,
            });
        };
        if step.is_empty() {
            take("nothing that both runs have of it".to_string(), None);
        }
        let losses = step.token_losses.as_ref().and_then(|losses| losses.first);
        if let Some((sample, token, a, b)) = losses {
            let (a, b) = (f32::from_bits(a), f32::from_bits(b));
            let what = format!(
                "{FORWARD}, the loss of token {token} of sample {sample} ({a:?} and {b:?})"
            );
            take(
                what,
                entered().or_else(|| self.reason(|acts| acts.reach_forward())),
            );
        }
        for pair in step.metrics.iter().filter(|pair| !pair.is_equal()) {
            take(told(pair), self.metric(step, pair, entering));
        }
        for differing in first_ones(step, |differing| self.tensor(step, differing, entering)) {
            take(differing.0, differing.1);
        }
        found
    }

    /// What excuses a printed number.
    fn metric(
        &self,
        step: &LaterStep,
        pair: &MetricPair,
        entering: Option<&str>,
    ) -> Option<String> {
        if let Some(entering) = entering {
            return Some(entering.to_string());
        }
        if pair.name != Trainer::LM_LOSS {
            return self.reason(|acts| acts.reach_norm());
        }
        // The mean of equal losses parts by its own sums alone.
        match step.token_losses.as_ref().map(|losses| losses.first) {
            Some(None) => self.reason(|acts| *acts == super::Acts::LossValue),
            Some(Some(_)) | None => self.reason(|acts| acts.reach_loss_value()),
        }
    }

    /// What excuses a whole tensor of the state.
    fn tensor(
        &self,
        step: &LaterStep,
        differing: &StateDifference,
        entering: Option<&str>,
    ) -> Option<String> {
        let name = &differing.name;
        let also = |component: Component| {
            let mut others = step.differing.iter();
            others.any(|other| other.component == component && other.name == *name)
        };
        match differing.component {
            Component::ExpAvg | Component::ExpAvgSq => entering
                .map(str::to_string)
                .or_else(|| self.reason(|acts| acts.reach_gradient(name)))
                .or_else(|| self.clipped(step)),
            // Computed from its moments, element by element.
            Component::MainParams => match &step.unmoved {
                Some(unmoved) if unmoved.name == *name => None,
                _ if also(Component::ExpAvg) => Some("its first moment differs".to_string()),
                _ if also(Component::ExpAvgSq) => Some("its second moment differs".to_string()),
                _ => entering.map(str::to_string),
            },
            // Rounded from its main parameter.
            Component::Model if also(Component::MainParams) => {
                Some("its main parameter differs".to_string())
            }
            Component::Model => entering.map(str::to_string),
            // Other layers of a rank draw other numbers of words, and no sum decides how many.
            Component::Rng => self.masks(),
            // Counters: no sum reaches them.
            _ => None,
        }
    }

    /// Masks that are drawn otherwise.
    fn masks(&self) -> Option<String> {
        let is_masks = |plan: &&PlanDifference| plan.family.is_none() && plan.acts.reach_forward();
        self.plans.iter().find(is_masks).map(PlanDifference::name)
    }

    /// A norm that differs scales every gradient that is clipped by it.
    fn clipped(&self, step: &LaterStep) -> Option<String> {
        let mut norms = step
            .metrics
            .iter()
            .filter(|pair| pair.name != Trainer::LM_LOSS);
        let differs = norms.any(|pair| !pair.is_equal());
        (self.clips && differs).then(|| "gradients are clipped by a norm that differs".to_string())
    }
}

fn told(pair: &MetricPair) -> String {
    let MetricPair {
        name,
        straight,
        resumed,
    } = pair;
    format!("{name} ({straight:?} and {resumed:?})")
}

/// Moments take a gradient in before a parameter moves, and a parameter is rounded from its main
/// one.
fn cause(component: Component) -> u32 {
    match component {
        Component::ExpAvg => 0,
        Component::ExpAvgSq => 1,
        Component::MainParams => 2,
        Component::Model => 3,
        _ => 4,
    }
}

/// The first tensor of the state that is excused, and the first that is not.
fn first_ones(
    step: &LaterStep,
    excuse: impl Fn(&StateDifference) -> Option<String>,
) -> Vec<(String, Option<String>)> {
    let mut differing: Vec<&StateDifference> = step.differing.iter().collect();
    differing.sort_by_key(|found| cause(found.component));
    let judged = differing.into_iter().map(|found| (found, excuse(found)));
    let mut first: Vec<(String, Option<String>)> = Vec::new();
    for (found, because) in judged {
        if first
            .iter()
            .all(|(_, of)| of.is_some() != because.is_some())
        {
            first.push((found.to_string(), because));
        }
    }
    first
}
