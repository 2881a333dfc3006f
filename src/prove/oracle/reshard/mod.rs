//! RES elsewhere: the state of a killed run, loaded by ranks that are laid out otherwise, or that
//! run on another allocation.
//!
//! What must be equal is the state at the load, in canonical unsharded form: every whole tensor,
//! byte for byte. Later steps need not be: where tensor-parallel sums have other addends, or rings
//! other members, they are other sums. So the plans of both layouts are compared first, and each
//! place of a later step may part only where a plan differs that acts at or before it; those are
//! reported with their reasons, all else is a fault. The resumed run is swept itself, as it has
//! choice points of its own.

mod planted;

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::fault::{Component, Fault};
use crate::prove::oracle::parting::{self, Kept, OtherRun, Parting, Side, whole};
use crate::prove::oracle::res;
use crate::prove::session::{CheckError, Session};
use crate::prove::sweep::{Sums, Sweep, SweepOptions};
use crate::prove::{Progress, memory};
use crate::recipe::ReshardLayout;
use crate::train::{CanonicalError, CanonicalState, Checkpoint};
use crate::world::{RunOptions, RunRecord, State, Unobserved};

pub use planted::{Planted, plant};

/// Allocations that a run is resumed on, beside its own.
pub const PLACES_MAX: usize = 4;

/// What a resume elsewhere showed.
#[derive(Clone, Debug, PartialEq)]
pub struct Resharding {
    pub from: ReshardLayout,
    pub to: ReshardLayout,
    /// The allocations before and after, where it is another one; else the layout is.
    pub moved: Option<(String, String)>,
    /// Step after which the run was killed.
    pub cut: u32,
    /// What the resumed run showed.
    pub run: OtherRun,
    /// Components that the checkpoint left out, or that are not carried over, and of which nothing
    /// is read after the cut.
    pub unread: BTreeSet<Component>,
    /// Why dropout draws other masks from the load on; `None` where it draws the same.
    pub masks_differ: Option<&'static str>,
    /// The scenario's faults that a run on this layout has met.
    pub faults_met: BTreeSet<Fault>,
}

impl Resharding {
    fn new(from: ReshardLayout, to: ReshardLayout, cut: u32) -> Resharding {
        Resharding {
            from,
            to,
            moved: None,
            cut,
            run: OtherRun::default(),
            unread: BTreeSet::new(),
            masks_differ: None,
            faults_met: BTreeSet::new(),
        }
    }

    /// What was before and what is after: allocations, or layouts.
    pub fn names(&self) -> (String, String) {
        let layouts = || (self.from.to_string(), self.to.to_string());
        self.moved.clone().unwrap_or_else(layouts)
    }

    /// State that later steps read and the layout does not take over, or takes for other numbers:
    /// the runs are not the same ones from the load on.
    pub fn is_in_part(&self) -> bool {
        let mut lost = self.run.not_carried.difference(&self.unread);
        lost.next().is_some() || self.masks_differ.is_some()
    }

    /// Why [`Resharding::is_in_part`], in words.
    pub fn in_part_because(&self) -> String {
        let lost = self.run.not_carried.difference(&self.unread);
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

/// Resumes the straight run on every layout of the scenario, and on other allocations that the job
/// may be given, after every step that a restart names.
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
    let scenario = &straight.scenario;
    let cuts = scenario.checkpoint.cuts();
    let layouts = scenario.checkpoint.reshard.iter();
    let layouts = layouts.map(|layout| straight.resharded(*layout));
    let places = scenario.other_allocations().iter().take(PLACES_MAX);
    let places = places.map(|allocation| straight.moved(allocation));
    for session in layouts.chain(places) {
        let mut session = session?;
        for cut in cuts.iter().filter(|cut| **cut < scenario.steps) {
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
    /// Runs on to the last step on the layout and the allocation of `session`.
    ///
    /// # Errors
    /// Whatever stops the resumed run.
    pub fn on(&self, session: &mut Session) -> Result<Resharding, CheckError> {
        let (from, to) = (layout(self.straight), layout(session));
        let mut found = Resharding::new(from, to, self.cut);
        found.moved = self.moved(session);
        let omitted = &self.straight.scenario.checkpoint.omit;
        let omitted: Vec<Component> = omitted.iter().copied().collect();
        let state = state_after(self.reference, self.cut)?;
        let parts = match self.parts(session, state, &omitted)? {
            Ok(parts) => parts,
            Err(error) => {
                found.run.refused = Some(error);
                return Ok(found);
            }
        };
        let last = self.straight.scenario.steps;
        let options = parting::options(self.straight, session);
        let mut sweep = Sweep::new(SweepOptions {
            sums: Some(memory::states_kept(&self.straight.scenario)),
            ..session.sweep_options()
        });
        let steps = self.cut + 1..last + 1;
        let parts = Some(Arc::new(parts));
        let mut resumed = session.run(&options, steps.clone(), parts.clone(), &mut sweep)?;
        parting::take_ordered_out(session, &mut resumed.hazards, (steps.clone(), parts))?;
        found.unread = res::unread(self.reference, self.cut, &omitted);
        // Nothing is left out of the straight run's; the other's is what its memory holds.
        let loaded = (
            whole(self.straight, self.cut, state),
            whole(session, self.cut, &resumed.setup_state),
        );
        let unread = &found.unread;
        found.run.compare_before(loaded, &session.options, unread);
        let left: Vec<Component> = found.run.not_carried.iter().copied().collect();
        found
            .unread
            .extend(res::unread(self.reference, self.cut, &left));
        let names = found.names();
        let sides = self.sides((&names.0, &names.1), session, &sweep.sums);
        found.masks_differ = parting::masks_differ(&self.straight.options, &session.options);
        let kept = |record, before| Kept { record, before };
        let kept = (
            kept(self.reference, state),
            kept(&resumed, &resumed.setup_state),
        );
        found.run.compare_steps(sides, kept, steps);
        found.run.take(resumed, sweep);
        found.faults_met = session.faults_met.clone();
        Ok(found)
    }

    /// The allocations' names, where `session` has another one.
    fn moved(&self, session: &Session) -> Option<(String, String)> {
        let name = |session: &Session| session.scenario.allocations.first().map(|a| a.name.clone());
        let (from, to) = (name(self.straight)?, name(session)?);
        (from != to).then_some((from, to))
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
        if layout(self.straight) == layout(session) {
            return Ok(Ok(saved));
        }
        let whole = match CanonicalState::gather(&self.straight.options, &saved) {
            Ok(gathered) => through_a_file(&gathered)?,
            Err(error) => return Ok(Err(error)),
        };
        Ok(whole.scatter(&session.options))
    }

    /// The straight run and the one of `session`, whose sums are `resumed`.
    fn sides<'s>(
        &'s self,
        names: (&'s str, &'s str),
        session: &'s Session,
        resumed: &'s Sums,
    ) -> (Side<'s>, Side<'s>) {
        let straight = Side {
            name: names.0,
            session: self.straight,
            sums: self.sums,
        };
        let other = Side {
            name: names.1,
            session,
            sums: resumed,
        };
        (straight, other)
    }
}

fn layout(session: &Session) -> ReshardLayout {
    session.scenario.recipe.own_layout()
}

fn state_after(reference: &RunRecord, cut: u32) -> Result<&State, CheckError> {
    let state = reference.checkpoints.get(&cut);
    state.ok_or_else(|| CheckError::Internal(format!("no state was kept after step {cut}")))
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
    Ok(whole(session, steps, &record.setup_state))
}

impl std::fmt::Display for Resharding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ((from, to), cut) = (self.names(), self.cut);
        let how = if self.moved.is_some() {
            "moved"
        } else {
            "resharded"
        };
        write!(f, "{how} {from} -> {to} after step {cut}: ")?;
        if let Some(error) = &self.run.refused {
            return write!(f, "the state is none of one layout: {error}");
        }
        self.write_load(f)?;
        self.write_steps(f)?;
        self.run.write_own(f, "the resumed run")
    }
}

impl Resharding {
    fn write_load(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (tensors, words) = (self.run.tensors, self.run.words);
        match self.run.differences.len() {
            0 if self.is_in_part() => write!(
                f,
                "state equal at load in part ({tensors} tensors, {words} words)"
            )?,
            0 => write!(f, "state equal at load ({tensors} tensors, {words} words)")?,
            differing => {
                let told = self.run.told_differences();
                write!(f, "{differing} of {tensors} tensors differ at load: {told}")?;
            }
        }
        for component in &self.run.not_carried {
            write!(
                f,
                "; {component} is not carried over, as Megatron-LM ignores it where TP or PP differ"
            )?;
            match self.unread.contains(component) {
                true => write!(f, ", and nothing reads it later")?,
                false => write!(f, ", and later steps read it")?,
            }
        }
        for component in self.unread.difference(&self.run.not_carried) {
            write!(
                f,
                "; the checkpoint lacks {component}, which nothing reads later"
            )?;
        }
        Ok(())
    }

    fn write_steps(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (first, last) = (self.cut + 1, self.cut + self.run.steps.len() as u32);
        let steps = match first == last {
            true => format!("step {first}"),
            false => format!("steps {first} to {last}"),
        };
        let reasons = self.run.told_plans();
        match self.run.parting() {
            None => write!(f, "; {steps} equal the straight run's; {reasons}"),
            Some(Parting { step, what, .. }) => write!(
                f,
                "; later steps differ from the straight run first at step {step}, {what}; {reasons}"
            ),
        }
    }
}

#[cfg(test)]
pub(in crate::prove) mod tests;
