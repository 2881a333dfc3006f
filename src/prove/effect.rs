//! What a deviation does to what the user sees: the deviated run, carried to its end.

use std::collections::BTreeMap;

use crate::prove::deviation::Course;
use crate::prove::oracle::r2r::same_bits;
use crate::prove::oracle::replicas::{self, LetIn};
use crate::prove::outcome::{Bits, Spread, VisibleEffect};
use crate::prove::session::{CheckError, Session};
use crate::prove::sweep::{Finding, Reach, Sweep, Variable};
use crate::train::Trainer;
use crate::world::{Drift, RunOptions, RunRecord, Schedule};

/// Whether deviations reach a declared output: a metric of some step, or the state at the end.
#[derive(Clone, Debug, Default)]
pub struct Effect {
    reached: BTreeMap<Reach, bool>,
    pub visible: BTreeMap<Reach, VisibleEffect>,
    /// For findings whose variable reaches further than their node.
    pub alone: BTreeMap<Reach, Alone>,
    /// The first copies that part in the deviated run, and not in the canonical one, and what let
    /// that in.
    pub drifts: BTreeMap<Reach, (Drift, Option<LetIn>)>,
}

/// What a run does in which one node only deviates: a counterfactual, as no placement and no table
/// of tuned configurations does that.
#[derive(Clone, Debug, PartialEq)]
pub struct Alone {
    /// The node's own ranks and step have other roots. Nothing before the node deviates, so it is
    /// this node that parts.
    pub parts: bool,
    pub visible: VisibleEffect,
}

impl Effect {
    pub fn reaches(&self, reach: Reach) -> bool {
        self.reached.get(&reach).copied().unwrap_or(true)
    }
}

/// Runs the first deviation of each reach to the end; `None` where nothing is sensitive.
pub fn measure(session: &mut Session, sweep: &Sweep) -> Result<Option<Effect>, CheckError> {
    let mut effect = Effect::default();
    if sweep.first.is_empty() {
        return Ok(None);
    }
    // A deviation of the last bit takes its time: both runs go on to the end of the training.
    let last = session
        .scenario
        .recipe
        .train_iters
        .max(session.scenario.steps);
    let whole = whole_run(session, last, Schedule::default())?;
    for (reach, finding) in &sweep.first {
        let deviated = whole_run(session, last, finding.schedule())?;
        let metrics_differ = !same_bits(&deviated.metrics, &whole.metrics);
        let state_differs = deviated.checkpoints != whole.checkpoints;
        effect
            .reached
            .insert(*reach, metrics_differ || state_differs);
        effect.visible.insert(*reach, visible(&deviated, &whole));
        let mut drifts = deviated.drifts.iter();
        if let Some(drift) = drifts.find(|drift| !whole.drifts.contains(drift)) {
            let had = RunOptions {
                schedule: finding.schedule(),
                ..RunOptions::default()
            };
            let drifts = std::slice::from_ref(drift);
            let let_in = replicas::let_in(session, Course::Straight, &had, drifts)?;
            effect.drifts.insert(*reach, (drift.clone(), let_in));
        }
        if let Some(alone) = alone(session, finding, &whole, last)? {
            effect.alone.insert(*reach, alone);
        }
    }
    Ok(Some(effect))
}

/// A run through the whole training that keeps its last state.
fn whole_run(
    session: &mut Session,
    last: u32,
    schedule: Schedule,
) -> Result<RunRecord, CheckError> {
    let options = RunOptions {
        schedule,
        checkpoint_after: [last].into(),
        ..RunOptions::default()
    };
    Ok(session.plain_run(&options, 1..last + 1)?)
}

/// Runs with the finding's value at its own node only; `None` where the variable has no more nodes.
fn alone(
    session: &mut Session,
    finding: &Finding,
    whole: &RunRecord,
    last: u32,
) -> Result<Option<Alone>, CheckError> {
    let value = match finding.variable {
        Variable::Placement { value } | Variable::Configuration { value, .. } => value,
        Variable::Arrival { .. } => return Ok(None),
    };
    let schedule = Schedule {
        plan_at: [(finding.node, value)].into(),
        ..Schedule::default()
    };
    let deviated = whole_run(session, last, schedule)?;
    let step = finding.node.step;
    let parts = finding.ranks.iter().any(|rank| {
        let root = (step, *rank);
        deviated.roots.get(&root) != whole.roots.get(&root)
    });
    let visible = visible(&deviated, whole);
    Ok(Some(Alone { parts, visible }))
}

/// When the loss that is printed first differs.
fn visible(deviated: &RunRecord, reference: &RunRecord) -> VisibleEffect {
    let of = |record: &RunRecord| -> Vec<(u32, f32)> {
        let losses = record
            .metrics
            .iter()
            .filter(|((_, name), _)| name == Trainer::LM_LOSS);
        losses.map(|((step, _), value)| (*step, *value)).collect()
    };
    let (a, b) = (of(reference), of(deviated));
    let losses = a.iter().zip(&b).map(|((_, a), (_, b))| (*a, *b)).collect();
    let mut pairs = a.into_iter().zip(b);
    let first = pairs.find(|((_, a), (_, b))| a.to_bits() != b.to_bits());
    VisibleEffect {
        steps: reference
            .metrics
            .keys()
            .map(|(step, _)| *step)
            .max()
            .unwrap_or(0),
        metric: Trainer::LM_LOSS.to_string(),
        first_step: first.map(|((step, _), _)| step),
        value_a: first.map(|((_, a), _)| Bits::of(a)),
        value_b: first.map(|(_, (_, b))| Bits::of(b)),
        losses,
        spread: spread(deviated, reference),
    }
}

/// From which step on each rank has other roots, the earliest first and ranks without any last.
fn spread(deviated: &RunRecord, reference: &RunRecord) -> Vec<Spread> {
    let mut firsts: BTreeMap<u32, Option<u32>> = BTreeMap::new();
    for (place, root) in &reference.roots {
        let (step, rank) = *place;
        let first = firsts.entry(rank).or_default();
        if deviated.roots.get(place) != Some(root) {
            first.get_or_insert(step);
        }
    }
    let mut by_step: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (rank, first) in firsts {
        by_step
            .entry(first.unwrap_or(u32::MAX))
            .or_default()
            .push(rank);
    }
    let groups = by_step.into_iter().map(|(step, ranks)| Spread {
        first_step: (step < u32::MAX).then_some(step),
        ranks,
    });
    groups.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numerics::Digest;

    #[test]
    fn ranks_are_told_by_the_step_that_reaches_them() {
        let run = |other: &[(u32, u32)]| {
            let places = (1..4).flat_map(|step| (0..3).map(move |rank| (step, rank)));
            let root = |place: (u32, u32)| {
                (
                    place,
                    Digest::of_words(&[u32::from(other.contains(&place))]),
                )
            };
            RunRecord {
                roots: places.map(root).collect(),
                ..RunRecord::default()
            }
        };
        let found = spread(&run(&[(2, 0), (3, 0), (3, 2)]), &run(&[]));
        let found = found.into_iter().map(|one| (one.first_step, one.ranks));
        let told = [(Some(2), vec![0]), (Some(3), vec![2]), (None, vec![1])];
        assert_eq!(found.collect::<Vec<_>>(), told);
    }
}
