//! Writing: results to standard output, everything else to standard error.

use std::io::Write;

use serde_json::json;

use crate::diagnostic::Diagnostic;
use crate::report::{Detail, Exit, Report, SCHEMA_VERSION, junit};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// For people
    #[default]
    Human,
    /// One object a scenario: indented for one scenario, a line each for several
    Json,
    /// JUnit XML, a suite a scenario
    Junit,
}

/// Gathers what is written, so that formats with one document for all scenarios can be.
pub(super) struct Output {
    format: Format,
    detail: Detail,
    is_single: bool,
    reports: Vec<Report>,
}

impl Output {
    pub fn new(format: Format, detail: Detail, scenario_count: usize) -> Self {
        Output {
            format,
            detail,
            is_single: scenario_count == 1,
            reports: Vec::new(),
        }
    }

    /// Writes a report, or keeps it until the end.
    pub fn report(&mut self, report: Report) {
        match self.format {
            Format::Human => {
                let gap = if self.reports.is_empty() { "" } else { "\n" };
                data(&format!("{gap}{}", report.to_human(self.detail)));
            }
            Format::Json => data(&self.json(&report.to_json())),
            Format::Junit => {}
        }
        self.reports.push(report);
    }

    /// Input errors: drawn for people, or the one object that a program waits for.
    pub fn refuse(&self, diagnostics: &[Diagnostic], exit: Exit) {
        if self.format == Format::Json {
            let diagnostics: Vec<_> = diagnostics.iter().map(Diagnostic::to_json).collect();
            data(&self.json(&json!({
                "schema_version": SCHEMA_VERSION,
                "grade": null,
                "exit_code": exit.code(),
                "diagnostics": diagnostics,
            })));
            return;
        }
        warn(diagnostics);
    }

    fn json(&self, value: &serde_json::Value) -> String {
        let text = match self.is_single {
            true => serde_json::to_string_pretty(value),
            false => serde_json::to_string(value),
        };
        format!("{}\n", text.expect("a JSON value has a JSON form"))
    }

    /// Writes what was kept.
    pub fn finish(self) {
        if self.format == Format::Junit {
            data(&junit(&self.reports));
        }
    }
}

/// Draws diagnostics on standard error.
pub(super) fn warn(diagnostics: &[Diagnostic]) {
    for diagnostic in diagnostics {
        talk(&diagnostic.to_human());
    }
}

/// A line on standard error. Nobody may be listening; that is no error.
pub(super) fn talk(line: &str) {
    let _ = writeln!(anstream::stderr(), "{line}");
}

/// Text on standard output. A reader that has seen enough (`| head`) is no error.
fn data(text: &str) {
    let mut stream = anstream::stdout();
    let written = stream
        .write_all(text.as_bytes())
        .and_then(|()| stream.flush());
    let is_loss = |error: &std::io::Error| error.kind() != std::io::ErrorKind::BrokenPipe;
    if let Some(error) = written.err().filter(is_loss) {
        talk(&format!("cannot write to standard output: {error}"));
    }
}
