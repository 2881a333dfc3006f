//! What a run on another layout showed, against the straight run.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use super::{Judge, Kept, LaterStep, Parting, PlanDifference, Side, compared, differences};
use crate::fault::Component;
use crate::numerics::ladder::Rung;
use crate::prove::memory;
use crate::prove::reversal;
use crate::prove::session::{CheckError, Session};
use crate::prove::sweep::{Reach, Sweep};
use crate::train::{CanonicalError, CanonicalState, Checkpoint, StateDifference, TrainOptions};
use crate::world::{Drift, Hazard, RunOptions, RunRecord, Unobserved};

/// Differing tensors that a report names.
const DIFFERENCES_SHOWN: usize = 4;

/// A run on another layout: the state before its first step, its steps, and its own choice points.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OtherRun {
    /// Whole tensors and words that were compared before the first step.
    pub tensors: u64,
    pub words: u64,
    /// State that is none of one layout: nothing was compared.
    pub refused: Option<CanonicalError>,
    /// Whole tensors that differ before the first step.
    pub differences: Vec<StateDifference>,
    /// Components that the layout cannot take over: Megatron-LM starts them anew.
    pub not_carried: BTreeSet<Component>,
    /// Where the two layouts compute other sums; empty where every later bit must agree.
    pub plans: Vec<PlanDifference>,
    pub steps: Vec<LaterStep>,
    /// Choice points of the run.
    pub points: u64,
    /// Those that are sensitive, within one allocation and across allocations.
    pub sensitive: BTreeMap<Reach, u64>,
    /// The worst rungs of the run's points.
    pub worst: BTreeMap<Reach, Rung>,
    pub drifts: Vec<Drift>,
    pub hazards: Vec<Hazard>,
}

/// How a run is run that is laid beside the straight one.
pub(in crate::prove::oracle) fn options(straight: &Session, other: &Session) -> RunOptions {
    RunOptions {
        keep_setup: true,
        hazard_steps_max: memory::resumed_hazard_steps(&other.scenario),
        checkpoint_after: memory::states_kept(&straight.scenario),
        ..RunOptions::default()
    }
}

/// Takes those of the run's hazards out of which every occurrence is ordered by way of other ranks
/// in that run, of these steps from that checkpoint.
///
/// # Errors
/// A failure of the machine.
pub(in crate::prove::oracle) fn take_ordered_out(
    session: &mut Session,
    hazards: &mut Vec<Hazard>,
    (steps, checkpoint): (Range<u32>, Option<Arc<Checkpoint>>),
) -> Result<(), CheckError> {
    reversal::take_ordered_out(hazards, |pairs| {
        let options = RunOptions {
            reverse: pairs.to_vec(),
            ..RunOptions::default()
        };
        let loaded = checkpoint.clone();
        Ok(session.run(&options, steps.clone(), loaded, &mut Unobserved)?)
    })
}

/// Whole tensors, or why there are none.
type Whole = Result<CanonicalState, CanonicalError>;

impl OtherRun {
    /// Compares the states before the first step, less what is not carried over and what `unread`
    /// names. Whether both are states of one layout.
    pub(in crate::prove::oracle) fn compare_before(
        &mut self,
        (straight, other): (Whole, Whole),
        options: &TrainOptions,
        unread: &BTreeSet<Component>,
    ) -> bool {
        let (straight, other) = match (straight, other) {
            (Ok(straight), Ok(other)) => (straight, other),
            (Err(error), _) | (_, Err(error)) => {
                self.refused = Some(error);
                return false;
            }
        };
        self.not_carried = straight.not_carried_to(options);
        let left = &self.not_carried;
        let counts = |component| !left.contains(&component) && !unread.contains(&component);
        (self.tensors, self.words) = straight.size(counts);
        self.differences = straight.differences(&other, counts);
        true
    }

    /// Compares these steps, once the states before them are, and finds what excuses each parting.
    pub(in crate::prove::oracle) fn compare_steps(
        &mut self,
        sides: (Side<'_>, Side<'_>),
        kept: (Kept<'_>, Kept<'_>),
        steps: Range<u32>,
    ) {
        self.plans = differences(sides);
        let counts = |component| !self.not_carried.contains(&component);
        self.steps = compared(sides, kept, steps, counts);
        let judge = Judge {
            plans: &self.plans,
            clips: sides.0.session.options.clip_grad > 0.0,
        };
        judge.judge(&mut self.steps, self.differences.is_empty());
    }

    /// Takes what the run itself showed.
    pub(in crate::prove::oracle) fn take(&mut self, record: RunRecord, sweep: Sweep) {
        self.points = sweep.points();
        self.worst = [Reach::Within, Reach::Across]
            .into_iter()
            .filter_map(|reach| Some((reach, sweep.worst_rung(reach)?)))
            .collect();
        self.sensitive = sweep.sensitive;
        self.drifts = record.drifts;
        self.hazards = record.hazards;
    }

    pub fn starts_equal(&self) -> bool {
        self.refused.is_none() && self.differences.is_empty()
    }

    /// The first place where the steps part.
    pub fn parting(&self) -> Option<&Parting> {
        self.steps.iter().find_map(LaterStep::parting)
    }

    /// The first place that parts although nothing that acts at or before it differs.
    pub fn unexcused(&self) -> Option<&Parting> {
        let mut partings = self.steps.iter().flat_map(|step| &step.partings);
        partings.find(|parting| parting.because.is_none())
    }

    /// Something differs that no difference of the layouts explains.
    pub fn is_broken(&self) -> bool {
        !self.starts_equal() || self.unexcused().is_some()
    }

    /// Broken, with a choice point of its own that parts, or with copies that drift apart.
    pub fn parts(&self) -> bool {
        self.is_broken() || !self.sensitive.is_empty() || !self.drifts.is_empty()
    }

    /// Parts, or may with another timing.
    pub fn fails(&self) -> bool {
        self.parts() || !self.hazards.is_empty()
    }

    /// The tensors that differ before the first step, in words.
    pub(in crate::prove::oracle) fn told_differences(&self) -> String {
        let shown = self.differences.iter().take(DIFFERENCES_SHOWN);
        let shown: Vec<String> = shown.map(ToString::to_string).collect();
        shown.join(", ")
    }

    /// The differences of the layouts, in words.
    pub(in crate::prove::oracle) fn told_plans(&self) -> String {
        let reasons: Vec<String> = self.plans.iter().map(ToString::to_string).collect();
        match reasons.is_empty() {
            true => "no plan differs".to_string(),
            false => format!("plans differ: {}", reasons.join("; ")),
        }
    }

    /// What is wrong with the run itself; `called` as "the resumed run".
    pub(in crate::prove::oracle) fn write_own(
        &self,
        f: &mut std::fmt::Formatter<'_>,
        called: &str,
    ) -> std::fmt::Result {
        if let Some(Parting { step, what, .. }) = self.unexcused() {
            write!(
                f,
                "; no difference of the layouts acts at or before step {step}, {what}: {called} \
                 is another"
            )?;
        }
        for (reach, told) in [
            (Reach::Within, "are sensitive"),
            (Reach::Across, "part across allocations"),
        ] {
            if let Some(count) = self.sensitive.get(&reach) {
                write!(f, "; {count} of its {} choice points {told}", self.points)?;
            }
        }
        if let Some(drift) = self.drifts.first() {
            write!(f, "; copies of `{}` differ in {called}", drift.name)?;
        }
        match self.hazards.first() {
            Some(hazard) => write!(f, "; {hazard}"),
            None => Ok(()),
        }
    }
}
