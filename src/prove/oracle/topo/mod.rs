//! TOPO: the same training of another size or in another place: other hosts, cliques, orders of
//! ranks, buckets, messages, layouts.
//!
//! Libraries choose algorithms and cut messages by what they find, and sums of other orders are
//! other numbers (ROCm/rocm-systems#11661: the same rows of a larger message come out different).
//! Equality is proved where every sum has the same plan on both sides; where plans differ, both are
//! run, and what parts is named with the difference that acts before it. What parts without one is
//! no sum's doing: state, data or random numbers that depend on the size (pytorch/pytorch#168058).

mod planted;

use std::collections::BTreeSet;
use std::ops::Range;

use crate::fault::Fault;
use crate::prove::full_size::FullSizeCounts;
use crate::prove::oracle::parting::{self, Kept, OtherRun, Parting, PlanDifference, Side, whole};
use crate::prove::session::{CheckError, Session};
use crate::prove::sweep::{Reach, Sums, Sweep, SweepOptions};
use crate::prove::{Progress, memory};
use crate::scenario::{OracleKind, Scenario, Variation};
use crate::world::{Family, RunRecord, WorldError};

pub use planted::plant;

/// How the scenario's own side is called.
const HERE: &str = "the scenario's own";

/// What one variation showed.
#[derive(Clone, Debug, PartialEq)]
pub struct Topo {
    pub name: String,
    /// What is another, as keys and an allocation.
    pub changes: Vec<String>,
    /// It need not be equal.
    pub may_differ: bool,
    pub run: OtherRun,
    /// Sums over ranks of two addends on both sides, and of three or more in the real job: that
    /// they agree says nothing. Family, addends here, addends at full size.
    pub too_few: Vec<(Family, u32, u32)>,
    /// The scenario's faults that this run has met.
    pub faults_met: BTreeSet<Fault>,
}

impl Topo {
    /// Bits part; where the variation need not be equal, only what nothing excuses.
    pub fn parts(&self) -> bool {
        self.run.is_broken() || (!self.may_differ && self.run.parting().is_some())
    }

    /// Parts, or is not determined itself, in the one place that it has.
    pub fn fails(&self) -> bool {
        let OtherRun {
            sensitive,
            drifts,
            hazards,
            ..
        } = &self.run;
        let is_steady =
            !sensitive.contains_key(&Reach::Within) && drifts.is_empty() && hazards.is_empty();
        self.parts() || !is_steady
    }

    /// The runs agree byte for byte, though they add in other orders: so do these inputs.
    pub fn is_equal_by_input(&self) -> bool {
        let has_other_sums = |plan: &PlanDifference| plan.family.is_some();
        self.run.parting().is_none() && self.run.plans.iter().any(has_other_sums)
    }

    fn new(variation: &Variation) -> Topo {
        let allocation = variation.allocation.iter();
        let allocation = allocation.map(|file| format!("allocation = {}", file.name));
        Topo {
            name: variation.name.clone(),
            changes: allocation.chain(variation.changes.clone()).collect(),
            may_differ: variation.may_differ,
            run: OtherRun::default(),
            too_few: Vec::new(),
            faults_met: BTreeSet::new(),
        }
    }
}

/// Runs every variation of the scenario.
///
/// # Errors
/// A variation that cannot be run, or whatever stops one.
pub fn vary_all(
    straight: &Session,
    reference: &RunRecord,
    sums: &Sums,
    progress: &dyn Progress,
) -> Result<Vec<Topo>, CheckError> {
    let varied = Varied {
        straight,
        reference,
        sums,
    };
    let mut found = Vec::new();
    for variation in &straight.scenario.topo {
        found.push(varied.as_in(variation)?);
        progress.advance(1);
    }
    Ok(found)
}

/// A straight run that is compared with others.
pub struct Varied<'a> {
    pub straight: &'a Session,
    pub reference: &'a RunRecord,
    /// The sums of the reference run.
    pub sums: &'a Sums,
}

impl Varied<'_> {
    /// # Errors
    /// As [`vary_all`].
    pub fn as_in(&self, variation: &Variation) -> Result<Topo, CheckError> {
        let session = self.session(variation, self.straight.scenario.varied(variation))?;
        if self.straight.runs_as(&session) {
            let name = &variation.name;
            return Err(CheckError::Input(format!(
                "`{name}`: nothing that a run reads is another here: it would compare the \
                 scenario with itself"
            )));
        }
        self.run_in(session, variation, self.straight.steps())
    }

    fn session(&self, variation: &Variation, varied: Scenario) -> Result<Session, CheckError> {
        let session = self.straight.changed(varied);
        session.map_err(|error| named(&variation.name, error))
    }

    /// Runs `varied`, which stands for `variation`, through these steps.
    pub(super) fn run(
        &self,
        variation: &Variation,
        varied: Scenario,
        steps: Range<u32>,
    ) -> Result<Topo, CheckError> {
        self.run_in(self.session(variation, varied)?, variation, steps)
    }

    fn run_in(
        &self,
        mut session: Session,
        variation: &Variation,
        steps: Range<u32>,
    ) -> Result<Topo, CheckError> {
        let mut sweep = Sweep::new(self.sweep_options(&session));
        let record = session.run(
            &parting::options(self.straight, &session),
            steps.clone(),
            None,
            &mut sweep,
        );
        let mut record = record.map_err(|error| {
            let error = CheckError::from(error);
            named(&variation.name, error.stop_shown_by(OracleKind::TOPO))
        })?;
        parting::take_ordered_out(&mut session, &mut record.hazards, (steps.clone(), None))?;
        let mut found = Topo::new(variation);
        self.compare(&session, (&record, &sweep.sums), steps, &mut found);
        found.run.take(record, sweep);
        found.faults_met = session.faults_met;
        Ok(found)
    }

    fn sweep_options(&self, session: &Session) -> SweepOptions {
        SweepOptions {
            sums: Some(memory::states_kept(&self.straight.scenario)),
            ..session.sweep_options()
        }
    }

    fn compare(
        &self,
        session: &Session,
        (record, sums): (&RunRecord, &Sums),
        steps: Range<u32>,
        found: &mut Topo,
    ) {
        let quoted = format!("`{}`", found.name);
        let side = |name, session, sums| Side {
            name,
            session,
            sums,
        };
        let sides = (
            side(HERE, self.straight, self.sums),
            side(&quoted, session, sums),
        );
        let (here, there) = (&self.reference.setup_state, &record.setup_state);
        let states = (whole(self.straight, 0, here), whole(session, 0, there));
        let run = &mut found.run;
        if !run.compare_before(states, &session.options, &BTreeSet::new()) {
            return;
        }
        let kept = |record, before| Kept { record, before };
        let kept = (kept(self.reference, here), kept(record, there));
        run.compare_steps(sides, kept, steps);
        found.too_few = too_few(self.straight, self.sums);
    }
}

/// Sums over ranks of two addends here and of more in the real job. Addition commutes: two addends
/// have one plan wherever the ranks run.
fn too_few(straight: &Session, sums: &Sums) -> Vec<(Family, u32, u32)> {
    let counts = FullSizeCounts::of(&straight.scenario, Vec::new()).of_layout();
    let is_local = |family| matches!(family, Family::MicrobatchAccumulation | Family::WgradSplitK);
    let is_here = |family| sums.kinds.keys().any(|(_, of)| *of == family);
    let few = counts.into_iter().filter(|(family, here, full)| {
        *here == 2 && *full >= 3 && !is_local(*family) && is_here(*family)
    });
    few.map(|(family, here, full)| (family, here as u32, full.try_into().unwrap_or(u32::MAX)))
        .collect()
}

/// An error of a variation's own run, with its name.
fn named(name: &str, error: CheckError) -> CheckError {
    match error {
        CheckError::Input(text) => CheckError::Input(format!("`{name}`: {text}")),
        CheckError::Options(error) => CheckError::Input(format!("`{name}`: {error}")),
        CheckError::Environment(error) => CheckError::Input(format!("`{name}`: {error}")),
        CheckError::World(error @ WorldError::NoPlan { .. }) => {
            CheckError::Input(format!("`{name}`: {error}"))
        }
        CheckError::Stopped(mut stop) => {
            stop.what = format!("`{name}`: {}", stop.what);
            CheckError::Stopped(stop)
        }
        other => other,
    }
}

impl std::fmt::Display for Topo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Topo { name, run, .. } = self;
        write!(f, "`{name}`: ")?;
        if let Some(error) = &run.refused {
            return write!(f, "the state is none of one layout: {error}");
        }
        let (tensors, words) = (run.tensors, run.words);
        match run.differences.len() {
            0 => write!(f, "starts equal ({tensors} tensors, {words} words); ")?,
            differing => {
                let told = run.told_differences();
                write!(
                    f,
                    "{differing} of {tensors} tensors differ at the start: {told}; "
                )?;
            }
        }
        let (reasons, steps) = (run.told_plans(), run.steps.len());
        match run.parting() {
            None => write!(f, "all {steps} steps are equal; {reasons}")?,
            Some(Parting { step, what, .. }) => {
                write!(f, "parts first at step {step}, {what}; {reasons}")?;
            }
        }
        if self.may_differ && run.parting().is_some() {
            write!(f, "; it need not be equal")?;
        }
        run.write_own(f, "this run")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_stops_in_a_variation_says_in_which() {
        let deadlock = CheckError::World(WorldError::Deadlock {
            detail: "no rank can go on".to_string(),
            sides: Vec::new(),
            hazards: Vec::new(),
        });
        let error = named("half", deadlock.stop_shown_by(OracleKind::TOPO));
        let CheckError::Stopped(stop) = error else {
            panic!("it is a stop");
        };
        assert_eq!(stop.oracle, OracleKind::TOPO);
        assert!(stop.what.starts_with("`half`: "), "{}", stop.what);
    }
}
