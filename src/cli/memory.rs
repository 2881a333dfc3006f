//! What is said about memory before any of it is taken.

use std::io::IsTerminal;

use super::output::talk;
use crate::diagnostic::Diagnostic;
use crate::prove::memory::{GIB, Memory};
use crate::prove::room;
use crate::scenario::Scenario;

/// Estimates above this are told where no progress bar is.
const WORTH_TELLING: u64 = GIB;

/// Why the scenario is refused, if it needs more than the machine has to give.
pub(super) fn refusal(scenario: &Scenario) -> Option<Diagnostic> {
    let refusal = room::refusal(scenario);
    if refusal.is_none() && !std::io::stderr().is_terminal() {
        let memory = Memory::of(scenario).ok()?;
        if memory.total() > WORTH_TELLING {
            talk(&format!("{}: about {memory}", scenario.name));
        }
    }
    refusal
}
