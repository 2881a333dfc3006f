//! Steps of a run on another layout, against the straight run's, in the order in which a step
//! computes: token losses, their mean, the norm, then whole tensors of the state.

use std::collections::BTreeMap;
use std::ops::Range;

use super::judge::Parting;
use super::{Kept, Side, whole};
use crate::fault::Component;
use crate::prove::sweep::Sums;
use crate::train::{CanonicalState, Coordinates, StateDifference, TrainOptions};
use crate::world::State;

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

/// The losses of a step's tokens, sample by sample: what forward ends in, whichever rank has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenLosses {
    pub total: u64,
    pub equal: u64,
    /// The first token whose loss differs: sample of the step, place in it, and both words.
    pub first: Option<(u32, u32, u32, u32)>,
}

/// One step of both runs.
#[derive(Clone, Debug, PartialEq)]
pub struct LaterStep {
    pub step: u32,
    /// `None` where they were not kept.
    pub token_losses: Option<TokenLosses>,
    /// In the order in which a step computes them: the loss, then the norm.
    pub metrics: Vec<MetricPair>,
    /// Whole tensors compared after the step, and those that are equal; `None` where the state
    /// after it was not kept.
    pub tensors: Option<(u64, u64)>,
    /// Whole tensors that differ after the step.
    pub differing: Vec<StateDifference>,
    /// A main parameter with an element that differs although both its moments agree after the
    /// step, and it did before.
    pub unmoved: Option<StateDifference>,
    /// What parts in the step, with what excuses it.
    pub partings: Vec<Parting>,
}

/// Both runs' whole tensors after a step.
pub(in crate::prove::oracle) type States = (CanonicalState, CanonicalState);

impl LaterStep {
    /// `before` are the states after the step before, where they were kept.
    pub(in crate::prove::oracle) fn new(
        step: u32,
        token_losses: Option<TokenLosses>,
        metrics: Vec<MetricPair>,
        (before, after): (Option<&States>, Option<&States>),
        counts: impl Fn(Component) -> bool,
    ) -> LaterStep {
        let mut compared = LaterStep {
            step,
            token_losses,
            metrics,
            tensors: None,
            differing: Vec::new(),
            unmoved: None,
            partings: Vec::new(),
        };
        if let Some((straight, resumed)) = after {
            let (total, _) = straight.size(&counts);
            let differing = straight.differences(resumed, &counts);
            let equal = total.saturating_sub(differing.len() as u64);
            compared.tensors = Some((total, equal));
            compared.differing = differing;
            if let Some((straight_before, resumed_before)) = before {
                let was = (straight_before, resumed_before);
                compared.unmoved = straight.moved_without_moments(resumed, was);
            }
        }
        compared
    }

    /// The first place of the step where the runs part.
    pub fn parting(&self) -> Option<&Parting> {
        self.partings.first()
    }

    /// The step compared nothing: none of it was kept on both sides.
    pub(super) fn is_empty(&self) -> bool {
        self.metrics.is_empty() && self.tensors.is_none() && self.token_losses.is_none()
    }
}

/// Each of `steps` of both runs. The states before the first are those that were kept before it;
/// copies that drift apart are reported as such, and have no canonical state.
pub(in crate::prove::oracle) fn compared(
    (straight, other): (Side<'_>, Side<'_>),
    (a, b): (Kept<'_>, Kept<'_>),
    steps: Range<u32>,
    counts: impl Fn(Component) -> bool,
) -> Vec<LaterStep> {
    let states = |step: u32, a: Option<&State>, b: Option<&State>| {
        let straight = whole(straight.session, step, a?).ok()?;
        Some((straight, whole(other.session, step, b?).ok()?))
    };
    let options = (&*straight.session.options, &*other.session.options);
    let first = steps.start.saturating_sub(1);
    let mut before = states(first, Some(a.before), Some(b.before));
    let mut found = Vec::new();
    for step in steps {
        let kept = (
            a.record.checkpoints.get(&step),
            b.record.checkpoints.get(&step),
        );
        let after = states(step, kept.0, kept.1);
        let losses = token_losses((options.0, straight.sums), (options.1, other.sums), step);
        let metrics = metrics(&a.record.metrics, &b.record.metrics, step);
        let pair = (before.as_ref(), after.as_ref());
        found.push(LaterStep::new(step, losses, metrics, pair, &counts));
        before = after;
    }
    found
}

/// The metrics that both runs have of a step, forward before backward.
pub(in crate::prove::oracle) fn metrics(
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

/// Both runs' token losses of a step; `None` where either has not all of them.
pub(in crate::prove::oracle) fn token_losses(
    straight: (&TrainOptions, &Sums),
    resumed: (&TrainOptions, &Sums),
    step: u32,
) -> Option<TokenLosses> {
    let a = by_sample((straight.0, 0), &straight.1.token_losses, step)?;
    let b = by_sample((resumed.0, 0), &resumed.1.token_losses, step)?;
    assert_eq!(a.len(), b.len(), "layouts share the samples of a step");
    let mut differing = a.iter().zip(&b).enumerate().filter(|(_, (a, b))| a != b);
    let equal = a.len() - differing.clone().count();
    let seq = straight.0.model.seq_length;
    let first = differing
        .next()
        .map(|(place, (a, b))| (place as u32 / seq, place as u32 % seq, *a, *b));
    Some(TokenLosses {
        total: a.len() as u64,
        equal: equal as u64,
        first,
    })
}

/// Token losses of a step as `[samples, seq]`, from the last stage's ranks of one tensor-parallel
/// place. Samples are dealt as `Batch::at` deals them.
pub(in crate::prove::oracle) fn by_sample(
    (options, tensor): (&TrainOptions, u32),
    token_losses: &BTreeMap<(u32, u32), Vec<u32>>,
    step: u32,
) -> Option<Vec<u32>> {
    let (seq, batch) = (options.model.seq_length, options.model.micro_batch_size);
    let layout = &options.layout;
    let ranks = layout.data_parallel_size;
    let mut losses = vec![0; (options.global_batch_size * seq) as usize];
    for data in 0..ranks {
        let rank = layout.rank(Coordinates {
            tensor,
            data,
            stage: layout.pipeline_model_parallel_size - 1,
        });
        let words = token_losses.get(&(step, rank))?;
        assert_eq!(words.len() as u32, options.microbatches() * seq * batch);
        for (place, word) in (0..).zip(words) {
            let (row, in_batch): (u32, u32) = (place / batch, place % batch);
            let (microbatch, token) = (row / seq, row % seq);
            let sample = (microbatch * ranks + data) * batch + in_batch;
            losses[(sample * seq + token) as usize] = *word;
        }
    }
    Some(losses)
}
