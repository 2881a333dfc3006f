//! What is said about memory before any of it is taken.

use std::io::IsTerminal;

use super::output::talk;
use crate::diagnostic::Diagnostic;
use crate::prove::memory::{GIB, Memory};
use crate::prove::{CheckOptions, room};
use crate::report::Exit;
use crate::scenario::Scenario;

/// Estimates above this are told where no progress bar is.
const WORTH_TELLING: u64 = GIB;

/// Why the scenario is refused, and how bitproof ends, if it needs more than the machine or the
/// adapter has to give.
pub(super) fn refusal(scenario: &Scenario, options: &CheckOptions) -> Option<(Diagnostic, Exit)> {
    if let Some(finding) = room::refusal(scenario) {
        return Some((finding, Exit::Usage));
    }
    if let Some(finding) = room::arena_refusal(scenario, &options.engine) {
        return Some((finding, Exit::NothingChecked));
    }
    let memory = Memory::of(scenario).ok()?;
    if !std::io::stderr().is_terminal() && memory.total() > WORTH_TELLING {
        talk(&format!("{}: about {memory}", scenario.name));
    }
    None
}
