//! Input that was refused, as one error value.

use super::Diagnostic;

/// Input that broke a rule: everything that is wrong with it, in order of discovery.
///
/// Shown with file, line, caret and help, uncoloured: what the command line would print.
#[derive(Clone, Debug)]
pub struct InvalidInput {
    diagnostics: Vec<Diagnostic>,
}

impl InvalidInput {
    /// At least one diagnostic.
    pub fn new(diagnostics: Vec<Diagnostic>) -> InvalidInput {
        assert!(!diagnostics.is_empty(), "a refusal has a reason");
        InvalidInput { diagnostics }
    }

    /// What is wrong; warnings may be among the errors.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.diagnostics
    }

    /// Gives the diagnostics away.
    pub fn into_diagnostics(self) -> Vec<Diagnostic> {
        self.diagnostics
    }
}

impl From<Diagnostic> for InvalidInput {
    fn from(diagnostic: Diagnostic) -> InvalidInput {
        InvalidInput::new(vec![diagnostic])
    }
}

impl From<Vec<Diagnostic>> for InvalidInput {
    fn from(diagnostics: Vec<Diagnostic>) -> InvalidInput {
        InvalidInput::new(diagnostics)
    }
}

impl std::fmt::Display for InvalidInput {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (place, diagnostic) in self.diagnostics.iter().enumerate() {
            let gap = if place == 0 { "" } else { "\n" };
            write!(f, "{gap}{}", diagnostic.to_plain())?;
        }
        Ok(())
    }
}

impl std::error::Error for InvalidInput {}
