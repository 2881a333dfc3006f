//! Faults of a resume on another layout: state that lands in the wrong place, or does not arrive:
//! each must be found at the load, and the tensor or the component be named. And a parameter that
//! changes without the load being compared: the forward after it must be named.

use std::sync::Arc;

use super::{Resume, loaded, state_after};
use crate::fault::{Component, ReshardFault};
use crate::prove::oracle::parting::{self, FORWARD, Judge, LaterStep, whole};
use crate::prove::session::{CheckError, Session};
use crate::prove::sweep::{SumWatch, Sums};
use crate::train::{CanonicalError, CanonicalState, StateDifference};
use crate::world::RunOptions;

/// How one planted fault fared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planted {
    /// The fault's name in reports.
    pub kind: String,
    /// What it damages, a tensor or the whole component; `None` where there is no place for it.
    pub target: Option<(Component, Option<String>)>,
    /// Why it does not count as caught.
    pub missed: Option<String>,
}

/// Plants every fault into a load of the state after the step of `resume`.
///
/// # Errors
/// Whatever stops a load.
pub fn plant(resume: &Resume<'_>, session: &mut Session) -> Result<Vec<Planted>, CheckError> {
    let (cut, state) = (resume.cut, state_after(resume.reference, resume.cut)?);
    let mut all = Vec::new();
    // Copies that disagree are found without a fault of ours, and nothing can be loaded of them.
    let Ok(state) = whole(resume.straight, cut, state) else {
        return Ok(all);
    };
    for fault in ReshardFault::ALL {
        let kind = format!("{} (reshard)", fault.name());
        all.push(misplaced(session, &state, fault, kind)?);
    }
    for component in state.components() {
        let kind = format!("lost-{component} (reshard)");
        all.push(lost(session, &state, component, kind)?);
    }
    all.push(unseen(resume, session, &state)?);
    Ok(all)
}

/// The gain that a planted change strikes: every model has it, and every token's loss depends on
/// it.
const STRUCK: &str = "decoder.final_layernorm.weight";

/// A parameter that changes while nobody compares the load. Its forward must be named, where no
/// difference of the layouts excuses one.
fn unseen(
    resume: &Resume<'_>,
    session: &mut Session,
    state: &CanonicalState,
) -> Result<Planted, CheckError> {
    let kind = "changed-parameter (reshard)".to_string();
    let not_planted = Planted {
        kind: kind.clone(),
        target: None,
        missed: None,
    };
    let Some(changed) = state.changed(Component::Model, STRUCK) else {
        return Ok(not_planted);
    };
    let parts = changed.scatter(&session.options);
    let parts = parts.map_err(|error| CheckError::Internal(error.to_string()))?;
    let step = resume.cut + 1;
    let mut watch = SumWatch {
        sums: Sums::default(),
        steps: [step].into(),
    };
    let options = RunOptions::default();
    let record = session.run(&options, step..step + 1, Some(Arc::new(parts)), &mut watch)?;
    let names = ("the straight run", "the resumed one");
    let plans = parting::differences(resume.sides(names, session, &watch.sums));
    if plans.iter().any(|plan| plan.acts.reach_forward()) {
        return Ok(not_planted);
    }
    let (a, b) = (&resume.straight.options, &session.options);
    let losses = parting::token_losses((a, resume.sums), (b, &watch.sums), step);
    let metrics = parting::metrics(&resume.reference.metrics, &record.metrics, step);
    let mut compared = [LaterStep::new(step, losses, metrics, (None, None), |_| {
        true
    })];
    let judge = Judge {
        plans: &plans,
        clips: a.clip_grad > 0.0,
    };
    judge.judge(&mut compared, true);
    let first = compared[0].parting();
    let is_named =
        first.is_some_and(|first| first.because.is_none() && first.what.starts_with(FORWARD));
    Ok(Planted {
        kind,
        target: Some((Component::Model, Some(STRUCK.to_string()))),
        missed: (!is_named).then(|| match first {
            Some(first) => format!("{} was named", first.what),
            None => "no loss was found to differ".to_string(),
        }),
    })
}

fn misplaced(
    session: &mut Session,
    state: &CanonicalState,
    fault: ReshardFault,
    kind: String,
) -> Result<Planted, CheckError> {
    let options = session.options.clone();
    let target = state.fault_target(&options, fault);
    let parts = |fault| {
        let parts = state.scatter_with(&options, fault);
        parts.map_err(|error| CheckError::Internal(error.to_string()))
    };
    let wrong = parts(Some(fault))?;
    let changes_nothing = wrong == parts(None)?;
    let Some((component, name)) = target.filter(|_| !changes_nothing) else {
        return Ok(Planted {
            kind,
            target: None,
            missed: None,
        });
    };
    let left = state.not_carried_to(&options);
    let counts = |of: Component| !left.contains(&of);
    let loaded = loaded(session, wrong)?;
    let is_named = state.names_fault(&loaded, counts, (component, name.as_deref()));
    let reported = || match &loaded {
        Ok(loaded) => named(&state.differences(loaded, counts)),
        Err(error) => format!("what was reported is: {error}"),
    };
    Ok(Planted {
        kind,
        missed: (!is_named).then(reported),
        target: Some((component, name)),
    })
}

/// A checkpoint without one component.
fn lost(
    session: &mut Session,
    state: &CanonicalState,
    component: Component,
    kind: String,
) -> Result<Planted, CheckError> {
    let left = state.not_carried_to(&session.options);
    let parts = state.without(component).scatter(&session.options);
    let parts = parts.map_err(|error| CheckError::Internal(error.to_string()))?;
    let counts = |of: Component| !left.contains(&of);
    let differences = match loaded(session, parts)? {
        Ok(loaded) => state.differences(&loaded, counts),
        // A fault of the scenario's own lets copies start apart where nothing is loaded into them.
        Err(error) => {
            let of = match &error {
                CanonicalError::Disagree { component, .. } => Some(*component),
                _ => None,
            };
            return Ok(Planted {
                kind,
                target: Some((component, None)),
                missed: (of != Some(component)).then(|| format!("what was reported is: {error}")),
            });
        }
    };
    let is_named = differences.iter().any(|found| found.component == component);
    Ok(Planted {
        kind,
        // Where every tensor is what a fresh start has, nothing is lost.
        target: (!differences.is_empty()).then_some((component, None)),
        missed: (!is_named && !differences.is_empty()).then(|| named(&differences)),
    })
}

fn named(differences: &[StateDifference]) -> String {
    match differences.first() {
        Some(first) => format!("{} `{}` was named", first.component, first.name),
        None => "no tensor was found to differ".to_string(),
    }
}
