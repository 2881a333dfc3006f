//! Rules about what a job leaves open: Megatron's own for deterministic mode, and those that
//! nobody validates.

mod deterministic;

pub(crate) use deterministic::{Standing, Violation, violations};

use super::megatron::{GivenJob, Understood};
use crate::diagnostic::Diagnostic;

/// What is wrong or left open in a job, in the order of the rules.
pub fn lint(job: &GivenJob, understood: &Understood) -> Vec<Diagnostic> {
    let _ = (job, understood);
    todo!()
}
