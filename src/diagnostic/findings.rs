//! Diagnostics gathered in one pass, so that a user mends a file once.

use super::{Diagnostic, Severity};

/// What was found so far. Keeps the first of them (`FINDINGS_MAX`) and counts the rest.
#[derive(Debug, Default)]
pub struct Findings {
    kept: Vec<Diagnostic>,
    dropped_count: usize,
    error_count: usize,
}

/// More than this many at once help nobody.
const FINDINGS_MAX: usize = 40;

impl Findings {
    pub fn push(&mut self, finding: Diagnostic) {
        self.error_count += usize::from(finding.severity == Severity::Error);
        if self.kept.len() < FINDINGS_MAX {
            self.kept.push(finding);
        } else {
            self.dropped_count += 1;
        }
    }

    pub fn has_errors(&self) -> bool {
        self.error_count > 0
    }

    pub fn error_count(&self) -> usize {
        self.error_count
    }

    /// All that was found, in order of discovery; a last note counts what was left out.
    pub fn into_vec(mut self) -> Vec<Diagnostic> {
        if self.dropped_count > 0 {
            let message = format!("{} more findings are not shown", self.dropped_count);
            self.kept
                .push(Diagnostic::new(Severity::Note, "more-findings", message));
        }
        self.kept
    }

    /// `value` with the warnings, or every finding when one of them is an error.
    pub fn finish<T>(self, value: Option<T>) -> Result<(T, Vec<Diagnostic>), Vec<Diagnostic>> {
        match value {
            Some(value) if !self.has_errors() => Ok((value, self.into_vec())),
            _ => {
                assert!(self.has_errors(), "no value, and no error that says why");
                Err(self.into_vec())
            }
        }
    }
}
