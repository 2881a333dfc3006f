//! What is said about memory before any of it is taken.

use std::io::IsTerminal;

use super::output::talk;
use crate::diagnostic::Diagnostic;
use crate::prove::memory::{GIB, Memory};
use crate::prove::{CheckOptions, room};
use crate::scenario::Scenario;

/// Estimates above this are told where no progress bar is.
const WORTH_TELLING: u64 = GIB;

/// Why the scenario is refused, if it needs more than this process can have.
pub(super) fn refusal(scenario: &Scenario, options: &CheckOptions) -> Option<Diagnostic> {
    if let Some(finding) = room::refusal(scenario, options) {
        return Some(finding);
    }
    let memory = Memory::of(scenario).ok()?;
    if !std::io::stderr().is_terminal() && memory.total() > WORTH_TELLING {
        talk(&format!("{}: about {memory}", scenario.name));
    }
    None
}
