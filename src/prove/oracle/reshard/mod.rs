//! RES on another layout: the state of a killed run, loaded by ranks that are laid out otherwise.
//!
//! What must be equal is the state at the load, in canonical unsharded form: every whole tensor,
//! byte for byte. Later steps need not be: where tensor-parallel sums have other addends, or rings
//! other members, they are other sums. So the plans of both layouts are compared first, and each
//! place of a later step may part only where a plan differs that acts at or before it; those are
//! reported with their reasons, all else is a fault. The resumed run is swept itself, as it has
//! choice points of its own.

mod acts;
mod judge;
mod order;
mod planted;
mod steps;
mod structure;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::fault::Component;
use crate::numerics::ladder::Rung;
use crate::prove::Progress;
use crate::prove::memory;
use crate::prove::oracle::res;
use crate::prove::session::{CheckError, Session};
use crate::prove::sweep::{Reach, Sums, Sweep};
use crate::recipe::ReshardLayout;
use crate::train::{CanonicalError, CanonicalState, Checkpoint, StateDifference};
use crate::world::{Drift, Hazard, RunOptions, RunRecord, State, Unobserved};

pub use acts::{Acts, Parameters};
pub use judge::Parting;
pub use planted::{Planted, plant};
pub(super) use steps::by_sample;
pub use steps::{LaterStep, MetricPair, TokenLosses};
pub use structure::PlanDifference;

/// Differing tensors that a report names.
const DIFFERENCES_SHOWN: usize = 4;

/// What a resume on another layout showed.
#[derive(Clone, Debug, PartialEq)]
pub struct Resharding {
    pub from: ReshardLayout,
    pub to: ReshardLayout,
    /// Step after which the run was killed.
    pub cut: u32,
    /// Whole tensors and words that were compared at the load.
    pub tensors: u64,
    pub words: u64,
    /// State that is none of one layout: the run was not resumed.
    pub refused: Option<CanonicalError>,
    /// Whole tensors that differ at the load.
    pub differences: Vec<StateDifference>,
    /// Components that the layout cannot take over: Megatron-LM starts them anew.
    pub not_carried: BTreeSet<Component>,
    /// Components that the checkpoint left out, or that are not carried over, and of which nothing
    /// is read after the cut.
    pub unread: BTreeSet<Component>,
    /// Why dropout draws other masks from the load on; `None` where it draws the same.
    pub masks_differ: Option<&'static str>,
    /// Where the two layouts compute other sums; empty where every later bit must agree.
    pub plans: Vec<PlanDifference>,
    pub steps: Vec<LaterStep>,
    /// Choice points of the resumed run.
    pub points: u64,
    /// Those that are sensitive, within one allocation and across allocations.
    pub sensitive: BTreeMap<Reach, u64>,
    /// The worst rungs of the resumed run's points.
    pub worst: BTreeMap<Reach, Rung>,
    pub drifts: Vec<Drift>,
    pub hazards: Vec<Hazard>,
}

impl Resharding {
    fn new(from: ReshardLayout, to: ReshardLayout, cut: u32) -> Resharding {
        Resharding {
            from,
            to,
            cut,
            tensors: 0,
            words: 0,
            refused: None,
            differences: Vec::new(),
            not_carried: BTreeSet::new(),
            unread: BTreeSet::new(),
            masks_differ: None,
            plans: Vec::new(),
            steps: Vec::new(),
            points: 0,
            sensitive: BTreeMap::new(),
            worst: BTreeMap::new(),
            drifts: Vec::new(),
            hazards: Vec::new(),
        }
    }

    pub fn is_equal_at_load(&self) -> bool {
        self.refused.is_none() && self.differences.is_empty()
    }

    /// The first place where the later steps part.
    pub fn parting(&self) -> Option<&Parting> {
        self.steps.iter().find_map(LaterStep::parting)
    }

    /// The first place that parts although nothing that acts at or before it differs.
    pub fn unexcused(&self) -> Option<&Parting> {
        let mut partings = self.steps.iter().flat_map(|step| &step.partings);
        partings.find(|parting| parting.because.is_none())
    }

    /// State that later steps read and the layout does not take over, or takes for other numbers:
    /// the runs are not the same ones from the load on.
    pub fn is_in_part(&self) -> bool {
        let mut lost = self.not_carried.difference(&self.unread);
        lost.next().is_some() || self.masks_differ.is_some()
    }

    pub fn is_broken(&self) -> bool {
        !self.is_equal_at_load() || self.unexcused().is_some()
    }

    /// Broken, with a choice point of its own that parts, or with copies that drift apart.
    pub fn parts(&self) -> bool {
        self.is_broken() || !self.sensitive.is_empty() || !self.drifts.is_empty()
    }

    /// Parts, or may with another timing.
    pub fn fails(&self) -> bool {
        self.parts() || !self.hazards.is_empty()
    }

    /// Why [`Resharding::is_in_part`], in words.
    pub fn in_part_because(&self) -> String {
        let lost = self.not_carried.difference(&self.unread);
        let mut reasons: Vec<String> = lost
            .map(|component| {
                format!(
                    "later steps read {component}, which is not carried over, as Megatron-LM \
                     ignores it where TP or PP differ"
                )
            })
            .collect();
        reasons.extend(self.masks_differ.map(str::to_string));
        reasons.join(", and ")
    }
}

/// Resumes the straight run on every layout of the scenario, after every step that a restart names.
///
/// # Errors
/// A layout that cannot be run, or whatever stops a resumed run.
pub fn resume_all(
    straight: &Session,
    reference: &RunRecord,
    sweep: &Sweep,
    progress: &dyn Progress,
) -> Result<Vec<Resharding>, CheckError> {
    let mut found = Vec::new();
    let cuts = straight.scenario.checkpoint.cuts();
    for layout in &straight.scenario.checkpoint.reshard {
        let mut session = straight.resharded(*layout)?;
        for cut in cuts.iter().filter(|cut| **cut < straight.scenario.steps) {
            let run = Resume {
                straight,
                reference,
                sums: &sweep.sums,
                cut: *cut,
            };
            found.push(run.on(&mut session)?);
            progress.advance(1);
        }
    }
    Ok(found)
}

/// One resume of a straight run that is known.
pub struct Resume<'a> {
    pub straight: &'a Session,
    pub reference: &'a RunRecord,
    /// The sums of the reference run.
    pub sums: &'a Sums,
    pub cut: u32,
}

impl Resume<'_> {
    /// Runs on to the last step on the layout of `session`.
    ///
    /// # Errors
    /// Whatever stops the resumed run.
    pub fn on(&self, session: &mut Session) -> Result<Resharding, CheckError> {
        let (from, to) = (layout(self.straight), layout(session));
        let mut found = Resharding::new(from, to, self.cut);
        let omitted = &self.straight.scenario.checkpoint.omit;
        let omitted: Vec<Component> = omitted.iter().copied().collect();
        let state = state_after(self.reference, self.cut)?;
        let parts = match self.parts(session, state, &omitted)? {
            Ok(parts) => parts,
            Err(error) => {
                found.refused = Some(error);
                return Ok(found);
            }
        };
        let last = self.straight.scenario.steps;
        let options = RunOptions {
            keep_setup: true,
            hazard_steps_max: 1,
            checkpoint_after: memory::states_kept(&self.straight.scenario),
            ..RunOptions::default()
        };
        let mut sweep = Sweep::new(session.sweep_options());
        let steps = self.cut + 1..last + 1;
        let resumed = session.run(&options, steps, Some(Arc::new(parts)), &mut sweep)?;
        found.unread = res::unread(self.reference, self.cut, &omitted);
        self.compare_at_load(session, &resumed, &mut found);
        let left: Vec<Component> = found.not_carried.iter().copied().collect();
        found
            .unread
            .extend(res::unread(self.reference, self.cut, &left));
        found.plans = structure::differences(self, session, &sweep.sums);
        found.masks_differ = structure::masks_differ(&self.straight.options, &session.options);
        found.steps = self.later_steps(session, (&resumed, &sweep.sums), &found.not_carried);
        let judge = judge::Judge {
            plans: &found.plans,
            clips: self.straight.options.clip_grad > 0.0,
        };
        judge.judge(&mut found.steps, found.differences.is_empty());
        found.points = sweep.points();
        found.worst = [Reach::Within, Reach::Across]
            .into_iter()
            .filter_map(|reach| Some((reach, sweep.worst_rung(reach)?)))
            .collect();
        found.sensitive = sweep.sensitive;
        found.drifts = resumed.drifts;
        found.hazards = resumed.hazards;
        Ok(found)
    }

    /// The checkpoint that `session`'s ranks load: from the straight run's state to a file of whole
    /// tensors, and from there to the ranks.
    fn parts(
        &self,
        session: &Session,
        state: &State,
        omitted: &[Component],
    ) -> Result<Result<Checkpoint, CanonicalError>, CheckError> {
        let saved = Checkpoint::from_state(self.cut, state, omitted);
        let whole = match CanonicalState::gather(&self.straight.options, &saved) {
            Ok(whole) => through_a_file(&whole)?,
            Err(error) => return Ok(Err(error)),
        };
        Ok(whole.scatter(&session.options))
    }

    /// The straight run's state at the cut, nothing left out, against what the resumed run's memory
    /// holds before its first step.
    fn compare_at_load(&self, session: &Session, resumed: &RunRecord, found: &mut Resharding) {
        let straight = state_of(
            self.straight,
            self.cut,
            &self.reference.checkpoints[&self.cut],
        );
        let loaded = state_of(session, self.cut, &resumed.setup_state);
        let (straight, loaded) = match (straight, loaded) {
            (Ok(straight), Ok(loaded)) => (straight, loaded),
            (Err(error), _) | (_, Err(error)) => {
                found.refused = Some(error);
                return;
            }
        };
        found.not_carried = straight.not_carried_to(&session.options);
        let counts = |component: Component| {
            !found.not_carried.contains(&component) && !found.unread.contains(&component)
        };
        (found.tensors, found.words) = straight.size(counts);
        found.differences = straight.differences(&loaded, counts);
    }

    fn later_steps(
        &self,
        session: &Session,
        (resumed, sums): (&RunRecord, &Sums),
        not_carried: &BTreeSet<Component>,
    ) -> Vec<LaterStep> {
        let counts = |component| !not_carried.contains(&component);
        let whole = |of: &Session, step: u32, state: Option<&State>| {
            // Copies that drift apart are reported as such, and have no canonical state.
            state_of(of, step, state?).ok()
        };
        let states = |step: u32, loaded: Option<&State>| {
            let straight = whole(self.straight, step, self.reference.checkpoints.get(&step))?;
            Some((straight, whole(session, step, loaded)?))
        };
        let (a, b) = (&self.straight.options, &session.options);
        let mut before = states(self.cut, Some(&resumed.setup_state));
        let mut steps = Vec::new();
        for step in self.cut + 1..self.straight.scenario.steps + 1 {
            let after = states(step, resumed.checkpoints.get(&step));
            let losses = steps::token_losses((a, self.sums), (b, sums), step);
            let metrics = steps::metrics(&self.reference.metrics, &resumed.metrics, step);
            let pair = (before.as_ref(), after.as_ref());
            steps.push(LaterStep::new(step, losses, metrics, pair, counts));
            before = after;
        }
        steps
    }
}

fn layout(session: &Session) -> ReshardLayout {
    session.scenario.recipe.own_layout()
}

fn state_after(reference: &RunRecord, cut: u32) -> Result<&State, CheckError> {
    let state = reference.checkpoints.get(&cut);
    state.ok_or_else(|| CheckError::Internal(format!("no state was kept after step {cut}")))
}

fn state_of(
    session: &Session,
    steps: u32,
    state: &State,
) -> Result<CanonicalState, CanonicalError> {
    let checkpoint = Checkpoint::from_state(steps, state, &[]);
    CanonicalState::gather(&session.options, &checkpoint)
}

/// The state as the next run reads it: from the bytes of a file.
fn through_a_file(whole: &CanonicalState) -> Result<CanonicalState, CheckError> {
    let folder = tempfile::tempdir().map_err(|error| {
        CheckError::Input(format!("no folder for a checkpoint can be had: {error}"))
    })?;
    let file = folder.path().join("canonical.safetensors");
    whole.save(&file)?;
    Ok(CanonicalState::load(&file)?)
}

/// What the ranks of `session` hold once they have loaded `parts`; no step is run.
pub(super) fn loaded(
    session: &mut Session,
    parts: Checkpoint,
) -> Result<Result<CanonicalState, CanonicalError>, CheckError> {
    let options = RunOptions {
        keep_setup: true,
        ..RunOptions::default()
    };
    let next = parts.steps + 1;
    let steps = parts.steps;
    let record = session.run(&options, next..next, Some(Arc::new(parts)), &mut Unobserved)?;
    Ok(state_of(session, steps, &record.setup_state))
}

impl std::fmt::Display for Resharding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Resharding { from, to, cut, .. } = self;
        write!(f, "resharded {from} -> {to} after step {cut}: ")?;
        if let Some(error) = &self.refused {
            return write!(f, "the state is none of one layout: {error}");
        }
        self.write_load(f)?;
        self.write_steps(f)
    }
}

impl Resharding {
    fn write_load(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (tensors, words) = (self.tensors, self.words);
        match self.differences.len() {
            0 if self.is_in_part() => write!(
                f,
                "state equal at load in part ({tensors} tensors, {words} words)"
            )?,
            0 => write!(f, "state equal at load ({tensors} tensors, {words} words)")?,
            differing => {
                write!(f, "{differing} of {tensors} tensors differ at load: ")?;
                let shown = self.differences.iter().take(DIFFERENCES_SHOWN);
                let shown: Vec<String> = shown.map(ToString::to_string).collect();
                write!(f, "{}", shown.join(", "))?;
            }
        }
        for component in &self.not_carried {
            write!(
                f,
                "; {component} is not carried over, as Megatron-LM ignores it where TP or PP differ"
            )?;
            match self.unread.contains(component) {
                true => write!(f, ", and nothing reads it later")?,
                false => write!(f, ", and later steps read it")?,
            }
        }
        for component in self.unread.difference(&self.not_carried) {
            write!(
                f,
                "; the checkpoint lacks {component}, which nothing reads later"
            )?;
        }
        Ok(())
    }

    fn write_steps(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (first, last) = (self.cut + 1, self.cut + self.steps.len() as u32);
        let steps = match first == last {
            true => format!("step {first}"),
            false => format!("steps {first} to {last}"),
        };
        let reasons: Vec<String> = self.plans.iter().map(ToString::to_string).collect();
        let reasons = match reasons.is_empty() {
            true => "no plan differs".to_string(),
            false => format!("plans differ: {}", reasons.join("; ")),
        };
        match self.parting() {
            None => write!(f, "; {steps} equal the straight run's; {reasons}")?,
            Some(Parting { step, what, .. }) => write!(
                f,
                "; later steps differ from the straight run first at step {step}, {what}; {reasons}"
            )?,
        }
        if let Some(Parting { step, what, .. }) = self.unexcused() {
            write!(
                f,
                "; no difference of the layouts acts at or before step {step}, {what}: the resumed \
                 run is another"
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
            write!(f, "; copies of `{}` differ in the resumed run", drift.name)?;
        }
        match self.hazards.first() {
            Some(hazard) => write!(f, "; {hazard}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
pub(in crate::prove) mod tests;
