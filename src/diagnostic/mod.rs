//! Errors in what a user wrote: file, line, caret, what was expected, what to do next.
//!
//! One [`Diagnostic`] feeds every output: people, JSON, and continuous integration.

pub mod document;
mod escape;
mod findings;
mod invalid;
mod nearest;
mod render;
mod source;

pub use escape::escaped;
pub use findings::Findings;
pub use invalid::InvalidInput;
pub use nearest::nearest;
pub use source::{FILE_BYTES_MAX, Place, Source, SourceError, open_regular};

use serde::Serialize;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Note,
    Warning,
    Error,
}

/// One finding about the input. Built with [`Diagnostic::error`] and the `with_` methods.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Diagnostic {
    pub severity: Severity,
    /// A stable slug such as `unknown-key`, for filters and searches.
    pub code: &'static str,
    pub message: String,
    /// Where, and the words beside the caret.
    pub place: Option<(Place, String)>,
    /// Other places that explain the first, such as the other side of a division.
    pub context: Vec<(Place, String)>,
    pub notes: Vec<String>,
    /// What to write or run next.
    pub help: Vec<String>,
}

impl Diagnostic {
    pub fn error(code: &'static str, message: impl Into<String>) -> Self {
        Diagnostic::new(Severity::Error, code, message.into())
    }

    pub fn warning(code: &'static str, message: impl Into<String>) -> Self {
        Diagnostic::new(Severity::Warning, code, message.into())
    }

    fn new(severity: Severity, code: &'static str, message: String) -> Self {
        let (context, notes, help) = (Vec::new(), Vec::new(), Vec::new());
        Diagnostic {
            severity,
            code,
            message,
            place: None,
            context,
            notes,
            help,
        }
    }

    #[must_use]
    pub fn at(mut self, place: &Place, label: impl Into<String>) -> Self {
        self.place = Some((place.clone(), label.into()));
        self
    }

    #[must_use]
    pub fn with_context(mut self, place: Option<&Place>, label: impl Into<String>) -> Self {
        if let Some(place) = place {
            self.context.push((place.clone(), label.into()));
        }
        self
    }

    #[must_use]
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }
}
