//! One outcome, written for people, for programs and for test dashboards.

mod exit;
mod json;
mod junit;
mod names;
mod terminal;

#[cfg(test)]
mod sample;

pub use exit::{Exit, Requirement};
pub use json::SCHEMA_VERSION;
pub use junit::junit;
pub use terminal::Detail;

use crate::prove::outcome::Outcome;
use crate::scenario::Expectation;

/// An outcome, judged against what was asked for.
#[derive(Clone, Debug)]
pub struct Report {
    pub outcome: Outcome,
    /// What the scenario's author expects, if the scenario says so.
    pub expect: Option<Expectation>,
    pub exit: Exit,
}

impl Report {
    pub fn new(outcome: Outcome, requirement: &Requirement, expect: Option<Expectation>) -> Self {
        let exit = Exit::of(&outcome, requirement, expect.as_ref());
        Report {
            outcome,
            expect,
            exit,
        }
    }

    /// The line that reproduces the difference, if there is one.
    pub fn replay_command(&self) -> Option<String> {
        self.outcome
            .replay
            .as_ref()
            .map(|token| format!("bitproof replay {token}"))
    }
}
