//! One outcome, written for people, for programs and for test dashboards.

pub mod baseline;
pub mod change;
pub mod doctor;
mod exit;
mod expected;
mod findings;
pub mod html;
pub mod identified;
mod json;
mod junit;
mod names;
pub mod pins;
pub mod placements;
mod places;
pub mod plans;
mod refusal;
mod terminal;
pub mod tested;
pub mod traces;

#[cfg(test)]
mod sample;

pub use exit::{Exit, Requirement};
pub use expected::Expected;
pub use json::SCHEMA_VERSION;
pub use junit::junit;
pub(crate) use names::counted;
pub use places::KeyPlaces;
pub use refusal::{Checked, Refusal};
pub use terminal::Detail;

use crate::prove::outcome::Outcome;
use crate::scenario::{Expectation, Grade};
use baseline::Against;

/// An outcome, judged against what was asked for.
#[derive(Clone, Debug)]
pub struct Report {
    pub outcome: Outcome,
    /// What the scenario's author expects, if the scenario says so.
    pub expect: Option<Expectation>,
    pub exit: Exit,
    /// What is known of its findings, where a baseline was given.
    pub against: Option<Against>,
    /// The worst grade that passes.
    passing: Grade,
    /// The command that repeats the check.
    command: Option<String>,
    /// The flags that choose the check's engine again.
    engine_flags: Option<String>,
    /// Where the scenario's keys are written.
    places: Option<KeyPlaces>,
}

impl Report {
    pub fn new(outcome: Outcome, requirement: &Requirement, expect: Option<Expectation>) -> Self {
        let exit = Exit::of(&outcome, requirement, expect.as_ref());
        Report {
            outcome,
            expect,
            exit,
            against: None,
            passing: requirement.worst_passing(),
            command: None,
            engine_flags: None,
            places: None,
        }
    }

    /// Says how to repeat the check, for failures that no token names.
    #[must_use]
    pub fn repeated_by(self, command: String) -> Self {
        let command = Some(command);
        Report { command, ..self }
    }

    /// Says which flags choose the engine of the check: a token is bound to it.
    #[must_use]
    pub fn on_engine(self, flags: String) -> Self {
        let engine_flags = Some(flags);
        Report {
            engine_flags,
            ..self
        }
    }

    /// Says which file was checked, so that findings can point into it.
    #[must_use]
    pub fn located(self, path: &std::path::Path) -> Self {
        let places = Some(KeyPlaces::of(path));
        Report { places, ..self }
    }

    /// The line to paste after a failure: the replay of one difference, else the check itself.
    pub fn line_to_paste(&self) -> Option<String> {
        let check = || self.command.clone().filter(|_| self.exit != Exit::Proved);
        self.replay_command().or_else(check)
    }

    /// The line that reproduces the difference, if there is one.
    pub fn replay_command(&self) -> Option<String> {
        let token = self.outcome.replay.as_ref()?;
        let flags = match (&self.engine_flags, self.outcome.engine.name.as_str()) {
            (Some(flags), _) => flags.clone(),
            // A token is of one engine; the default one needs no flag.
            (None, "cpu") => String::new(),
            (None, name) => format!("--engine {name}"),
        };
        Some(replay_line(token, &flags))
    }
}

/// The line that replays a token on the engine that `flags` choose. A regression file begins with
/// it, and a check that meets one says it.
pub fn replay_line(token: &str, flags: &str) -> String {
    let line = format!("bitproof replay {token} {flags}");
    line.trim_end().to_string()
}
