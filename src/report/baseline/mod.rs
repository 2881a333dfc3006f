//! Findings that are known: a check with a baseline fails only on those that are new.

mod file;
mod named;

pub use file::Baseline;
pub use named::{Finding, Named};

use std::collections::BTreeSet;

use serde::Serialize;

use super::{Exit, Report};

/// A check's findings against those that are known.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Against {
    pub new: Vec<Finding>,
    pub known: Vec<Finding>,
    /// Known, and no longer there.
    pub stale: Vec<Finding>,
    /// Why the check fails whatever is known, sentences.
    pub never_known: Vec<String>,
}

impl Against {
    /// Whether there is nothing but what is known.
    pub fn passes(&self) -> bool {
        self.new.is_empty() && self.never_known.is_empty()
    }
}

impl Report {
    /// What fails the check, by names that stay the same from run to run.
    pub fn named(&self) -> Named {
        match self.exit {
            // An expectation that is met, or a weaker proof that was accepted, is no finding.
            Exit::Proved => Named::default(),
            _ => named::of(&self.outcome, self.exit, self.expect.as_ref(), self.passing),
        }
    }

    /// What the check found, whether or not it fails by it.
    pub(super) fn found(&self) -> BTreeSet<Finding> {
        named::of(&self.outcome, self.exit, None, self.passing).findings
    }

    /// The report, which fails only on what is new.
    #[must_use]
    pub fn against(self, baseline: &Baseline) -> Report {
        let Named {
            findings,
            never_known,
        } = self.named();
        let listed = baseline.of(&self.outcome.scenario.name);
        let parted = |is_listed: bool| {
            let all = findings.iter();
            let all = all.filter(|finding| listed.contains(finding) == is_listed);
            all.cloned().collect::<Vec<Finding>>()
        };
        let against = Against {
            new: parted(false),
            known: parted(true),
            stale: listed.difference(&findings).cloned().collect(),
            never_known,
        };
        let exit = match against.passes() {
            true => Exit::Proved,
            false => self.exit,
        };
        Report {
            exit,
            against: Some(against),
            ..self
        }
    }
}

/// Findings of one scenario.
type Listed = BTreeSet<Finding>;
