//! Scenarios that were not checked, and why: a report must not lose them.

use super::{Exit, Report};
use crate::diagnostic::Diagnostic;

/// A scenario that was refused.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// Its path as the user wrote it, or a replay's token.
    pub name: String,
    pub diagnostics: Vec<Diagnostic>,
    pub exit: Exit,
}

/// What became of one scenario of the command line.
#[derive(Clone, Debug)]
pub enum Checked {
    Reported(Box<Report>),
    Refused(Refusal),
}
