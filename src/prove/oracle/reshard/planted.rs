//! Faults of a resume on another layout: state that lands in the wrong place, or does not arrive.
//! Each must be found at the load, and the tensor or the component be named.

use super::{loaded, state_after, state_of};
use crate::fault::{Component, ReshardFault};
use crate::prove::session::{CheckError, Session};
use crate::train::{CanonicalState, StateDifference};
use crate::world::RunRecord;

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

/// Plants every fault into a load of the state after step `cut`.
///
/// # Errors
/// Whatever stops a load, and a state that has no canonical form.
pub fn plant(
    straight: &Session,
    session: &mut Session,
    reference: &RunRecord,
    cut: u32,
) -> Result<Vec<Planted>, CheckError> {
    let state = state_of(straight, cut, state_after(reference, cut)?);
    let state = state.map_err(|error| CheckError::Internal(error.to_string()))?;
    let mut all = Vec::new();
    for fault in ReshardFault::ALL {
        let kind = format!("{} (reshard)", fault.name());
        all.push(misplaced(session, &state, fault, kind)?);
    }
    for component in state.components() {
        let kind = format!("lost-{component} (reshard)");
        all.push(lost(session, &state, component, kind)?);
    }
    Ok(all)
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
        Err(error) => return Err(CheckError::Internal(error.to_string())),
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
