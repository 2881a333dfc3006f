//! What a rule is: data, and a function that finds where it is broken.

use std::collections::BTreeSet;

use crate::diagnostic::{Diagnostic, Place, Severity};
use crate::recipe::megatron::{CaseFields, GivenJob, GivenVariable, Understood, Values};
use crate::recipe::nccl::Environment;

/// What rules look at.
pub(super) struct Job<'a> {
    pub given: &'a GivenJob,
    pub values: &'a Values<'a>,
    pub understood: &'a Understood,
}

/// Where a rule is broken, in words.
pub(super) struct Found {
    pub message: String,
    pub place: Place,
    /// Beside the caret.
    pub label: String,
}

/// A rule of the linter.
pub struct Rule {
    /// A stable slug, the diagnostic's code.
    pub id: &'static str,
    pub severity: Severity,
    /// Why it matters.
    pub reason: &'static str,
    /// The file, issue or page that says so.
    pub source: &'static str,
    pub fix: &'static str,
    pub(super) find: fn(&Job<'_>) -> Option<Found>,
}

impl Rule {
    pub(super) fn check(&self, job: &Job<'_>) -> Option<Diagnostic> {
        let found = (self.find)(job)?;
        let mut finding = Diagnostic::warning(self.id, found.message)
            .at(&found.place, found.label)
            .with_note(format!("{} ({})", self.reason, self.source))
            .with_help(self.fix);
        finding.severity = self.severity;
        Some(finding)
    }
}

impl Job<'_> {
    /// What the phase itself asks for.
    pub fn asked(&self) -> &CaseFields {
        &self.understood.own
    }

    /// The value of a variable that is set.
    pub fn variable(&self, name: &str) -> Option<&GivenVariable> {
        self.given.variable(self.understood.phase, name)
    }

    pub fn text(&self, name: &str) -> Option<&str> {
        self.variable(name).map(|variable| variable.value.trim())
    }

    /// NCCL's variables, where they can be read: `understand` told of those that cannot.
    pub fn nccl(&self) -> Option<Environment> {
        let variables = self.given.variables(self.understood.phase);
        let names: BTreeSet<&str> = variables.map(|variable| variable.name.as_str()).collect();
        let counting = names.into_iter().filter_map(|name| self.variable(name));
        let pairs = counting.map(|variable| (variable.name.as_str(), variable.value.as_str()));
        Environment::parse(pairs).ok()
    }

    /// Where a variable that is not set would have been: at NCCL_ALGO, else at the first
    /// variable of the file, else at the phase.
    pub fn place_of_environment(&self) -> Place {
        match self.variable("NCCL_ALGO").or(self.given.env.first()) {
            Some(variable) => variable.place.clone(),
            None => self.values.phase_place().clone(),
        }
    }

    /// Whether all of the environment stands in the file: a job's log shows arguments only, and
    /// what a script reads may set more.
    pub fn shows_environment(&self) -> bool {
        self.given.shows_environment(self.understood.phase)
    }

    /// That the variable `name` is not set.
    pub fn unset(&self, name: &str) -> Option<Found> {
        let is_unset = self.shows_environment() && self.variable(name).is_none();
        is_unset.then(|| Found {
            message: format!("{name} is not set"),
            place: self.place_of_environment(),
            label: format!("no {name} beside it"),
        })
    }

    /// That something is wrong with the variable `name`, which is set.
    pub fn variable_found(&self, name: &str, message: String, label: &str) -> Option<Found> {
        Some(Found {
            message,
            place: self.variable(name)?.place.clone(),
            label: label.to_string(),
        })
    }

    /// That something is wrong at the argument `dest`.
    pub fn argument_found(&self, dest: &str, message: &str, label: &str) -> Option<Found> {
        Some(Found {
            message: message.to_string(),
            place: self.values.place(dest).clone(),
            label: label.to_string(),
        })
    }

    pub fn is_deterministic(&self) -> bool {
        self.values.flag("deterministic_mode")
    }

    pub fn count(&self, dest: &str) -> u32 {
        self.values.count(dest).unwrap_or(0)
    }
}
