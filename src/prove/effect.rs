//! What a deviation does to what the user sees: the deviated run, carried to its end.

use std::collections::BTreeMap;

use crate::prove::oracle::r2r::same_bits;
use crate::prove::outcome::{Bits, VisibleEffect};
use crate::prove::session::{CheckError, Session};
use crate::prove::sweep::{Reach, Sweep};
use crate::world::{RunOptions, RunRecord};

/// The metric that is reported, where it is there.
const LOSS: &str = "lm loss";

/// Whether deviations reach a declared output: a metric of some step, or the state at the end.
#[derive(Clone, Debug, Default)]
pub struct Effect {
    reached: BTreeMap<Reach, bool>,
    pub visible: BTreeMap<Reach, VisibleEffect>,
}

impl Effect {
    pub fn reaches(&self, reach: Reach) -> bool {
        self.reached.get(&reach).copied().unwrap_or(true)
    }
}

/// Runs the first deviation of each reach to the end; `None` where nothing is sensitive.
pub fn measure(
    session: &mut Session,
    sweep: &Sweep,
    reference: &RunRecord,
) -> Result<Option<Effect>, CheckError> {
    let mut effect = Effect::default();
    let last = session.scenario.steps;
    for (reach, finding) in &sweep.first {
        let options = RunOptions {
            schedule: finding.schedule(),
            checkpoint_after: [last].into(),
            ..RunOptions::default()
        };
        let steps = session.steps();
        let deviated = session.plain_run(&options, steps)?;
        let metrics_differ = !same_bits(&deviated.metrics, &reference.metrics);
        let state_differs = deviated.checkpoints.get(&last) != reference.checkpoints.get(&last);
        effect
            .reached
            .insert(*reach, metrics_differ || state_differs);
        effect.visible.insert(*reach, visible(&deviated, reference));
    }
    Ok((!sweep.first.is_empty()).then_some(effect))
}

/// When the loss that is printed first differs.
fn visible(deviated: &RunRecord, reference: &RunRecord) -> VisibleEffect {
    let of = |record: &RunRecord| -> Vec<(u32, f32)> {
        let losses = record.metrics.iter().filter(|((_, name), _)| name == LOSS);
        losses.map(|((step, _), value)| (*step, *value)).collect()
    };
    let (a, b) = (of(reference), of(deviated));
    let mut pairs = a.into_iter().zip(b);
    let first = pairs.find(|((_, a), (_, b))| a.to_bits() != b.to_bits());
    VisibleEffect {
        metric: LOSS.to_string(),
        first_step: first.map(|((step, _), _)| step),
        value_a: first.map(|((_, a), _)| Bits::of(a)),
        value_b: first.map(|(_, (_, b))| Bits::of(b)),
    }
}
