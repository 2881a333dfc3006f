//! Steps after a resume on another layout, against the straight run's: what the user sees, then
//! whole tensors.

use std::collections::BTreeMap;

use crate::fault::Component;
use crate::train::{CanonicalState, StateDifference};

/// A number that both runs print.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricPair {
    pub name: String,
    pub straight: f32,
    pub resumed: f32,
}

impl MetricPair {
    pub fn is_equal(&self) -> bool {
        self.straight.to_bits() == self.resumed.to_bits()
    }
}

/// One step of both runs.
#[derive(Clone, Debug, PartialEq)]
pub struct LaterStep {
    pub step: u32,
    /// In the order in which a step computes them: the loss, then the norm.
    pub metrics: Vec<MetricPair>,
    /// Whole tensors compared after the step, and those that are equal; `None` where the state
    /// after it was not kept.
    pub tensors: Option<(u64, u64)>,
    pub first_tensor: Option<StateDifference>,
}

/// Where two runs part first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parting {
    pub step: u32,
    pub what: String,
}

impl LaterStep {
    pub(super) fn new(
        step: u32,
        metrics: Vec<MetricPair>,
        states: Option<(CanonicalState, CanonicalState)>,
        counts: impl Fn(Component) -> bool,
    ) -> LaterStep {
        let mut compared = LaterStep {
            step,
            metrics,
            tensors: None,
            first_tensor: None,
        };
        if let Some((straight, resumed)) = states {
            let (total, _) = straight.size(&counts);
            let differences = straight.differences(&resumed, &counts);
            let equal = total.saturating_sub(differences.len() as u64);
            compared.tensors = Some((total, equal));
            compared.first_tensor = differences.into_iter().next();
        }
        compared
    }

    pub fn parting(&self) -> Option<Parting> {
        let step = self.step;
        if let Some(pair) = self.metrics.iter().find(|pair| !pair.is_equal()) {
            let MetricPair {
                name,
                straight,
                resumed,
            } = pair;
            let what = format!("{name} ({straight:?} and {resumed:?})");
            return Some(Parting { step, what });
        }
        if self.metrics.is_empty() && self.tensors.is_none() {
            let what = "nothing that both runs have of it".to_string();
            return Some(Parting { step, what });
        }
        let what = self.first_tensor.as_ref()?.to_string();
        Some(Parting { step, what })
    }
}

/// The metrics that both runs have of a step, forward before backward.
pub(super) fn metrics(
    straight: &BTreeMap<(u32, String), f32>,
    resumed: &BTreeMap<(u32, String), f32>,
    step: u32,
) -> Vec<MetricPair> {
    let of_step = straight.iter().filter(|((of, _), _)| *of == step);
    let pairs = of_step.filter_map(|((_, name), value)| {
        Some(MetricPair {
            name: name.clone(),
            straight: *value,
            resumed: *resumed.get(&(step, name.clone()))?,
        })
    });
    let mut pairs: Vec<MetricPair> = pairs.collect();
    pairs.sort_by_key(|pair| pair.name != crate::train::Trainer::LM_LOSS);
    pairs
}
