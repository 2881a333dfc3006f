//! Writing: results to standard output, everything else to standard error.

use std::io::Write;

use crate::diagnostic::{Diagnostic, Severity, escaped, sarif};
use crate::report::{Checked, Detail, Exit, Expected, Refusal, Report, counted, junit};
use crate::scenario::Grade;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Format {
    /// For people
    #[default]
    Human,
    /// One object a scenario: indented for one scenario, a line each for several
    Json,
    /// JUnit XML, a suite a scenario
    Junit,
    /// SARIF 2.1.0 for code scanning: one log of everything that was found
    Sarif,
    /// Workflow commands that annotate a pull request on GitHub: a line a finding
    Github,
}

/// For verbs that show one thing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum ObjectFormat {
    /// A table for people
    #[default]
    Human,
    /// One object
    Json,
}

/// Gathers what is written, so that formats with one document for all scenarios can be.
pub(super) struct Output {
    format: Format,
    detail: Detail,
    is_single: bool,
    scenarios: Vec<Checked>,
    /// Everything that was found, in the order of the command line.
    findings: Vec<Diagnostic>,
    worst: Exit,
    /// Something that was asked for could not be written.
    is_lost: bool,
}

impl Output {
    pub fn new(format: Format, detail: Detail, scenario_count: usize) -> Self {
        Output {
            format,
            detail,
            is_single: scenario_count == 1,
            scenarios: Vec::new(),
            findings: Vec::new(),
            worst: Exit::Proved,
            is_lost: false,
        }
    }

    /// Writes a report, or keeps it until the end.
    pub fn report(&mut self, report: Report) {
        match self.format {
            Format::Human => {
                let is_reported = |checked: &Checked| matches!(checked, Checked::Reported(_));
                let is_first = !self.scenarios.iter().any(is_reported);
                let gap = if is_first { "" } else { "\n" };
                self.data(&format!("{gap}{}", report.to_human(self.detail)));
            }
            Format::Json => self.data(&self.json(&report.to_json())),
            Format::Github => {
                self.annotate(&[verdict(&report)]);
                self.annotate(&report.diagnostics());
            }
            Format::Sarif => self.findings.extend(report.diagnostics()),
            Format::Junit => {}
        }
        self.worst = self.worst.max(report.exit);
        self.scenarios.push(Checked::Reported(Box::new(report)));
    }

    /// A scenario that was not checked: drawn for people, and in the place of its report for
    /// programs. Returns how that ends.
    pub fn refuse(&mut self, name: String, diagnostics: Vec<Diagnostic>, exit: Exit) -> Exit {
        let refusal = Refusal {
            name,
            diagnostics,
            exit,
        };
        match self.format {
            Format::Json => self.data(&self.json(&refusal.to_json())),
            Format::Human | Format::Junit => warn(&refusal.diagnostics),
            Format::Github => self.annotate(&refusal.diagnostics),
            Format::Sarif => self.findings.extend(refusal.diagnostics.iter().cloned()),
        }
        self.worst = self.worst.max(exit);
        self.scenarios.push(Checked::Refused(refusal));
        exit
    }

    /// What is wrong with a file that was only read: a line that sums it up, and the findings as a
    /// refusal shows them.
    pub fn lint(&mut self, name: String, diagnostics: Vec<Diagnostic>, exit: Exit) -> Exit {
        let count = |severity: Severity| {
            let alike = diagnostics
                .iter()
                .filter(|finding| finding.severity == severity);
            alike.count() as u64
        };
        let errors = counted(count(Severity::Error), "error");
        let warnings = counted(count(Severity::Warning), "warning");
        let summary = format!("{}: {errors}, {warnings}\n", escaped(&name));
        let exit = self.refuse(name, diagnostics, exit);
        if self.format == Format::Human {
            self.data(&summary);
        }
        exit
    }

    /// What is asked about a scenario instead of a check.
    pub fn listing(&mut self, human: &str, json: &serde_json::Value) {
        match self.format {
            Format::Json => self.data(&self.json(json)),
            _ => self.data(human),
        }
    }

    /// The last two scenarios, where both have a report.
    pub fn last_two(&self) -> Option<[&Report; 2]> {
        match &self.scenarios[..] {
            [.., Checked::Reported(a), Checked::Reported(b)] => Some([a, b]),
            _ => None,
        }
    }

    /// What two scenarios show beside each other.
    pub fn beside(&mut self, human: &str, json: &serde_json::Value, finding: Diagnostic) {
        match self.format {
            Format::Human => self.data(human),
            Format::Json => self.data(&self.json(json)),
            Format::Github => self.annotate(&[finding]),
            Format::Sarif => self.findings.push(finding),
            // Its cases are those of one scenario each.
            Format::Junit => warn(&[finding]),
        }
    }

    /// Warnings about a scenario that is checked all the same. For people they are talk.
    pub fn remark(&mut self, warnings: &[Diagnostic]) {
        match self.format {
            Format::Github => self.annotate(warnings),
            Format::Sarif => self.findings.extend(warnings.iter().cloned()),
            _ if self.detail == Detail::Verdict => {}
            _ => warn(warnings),
        }
    }

    fn annotate(&mut self, findings: &[Diagnostic]) {
        for finding in findings {
            self.data(&format!("{}\n", finding.to_github()));
        }
    }

    fn json(&self, value: &serde_json::Value) -> String {
        let text = match self.is_single {
            true => serde_json::to_string_pretty(value),
            false => serde_json::to_string(value),
        };
        format!(
            "{}\n",
            ascii_controls(&text.expect("a JSON value has a JSON form"))
        )
    }

    /// Writes what was kept. A report that was lost is worse than whatever it said.
    pub fn finish(mut self) -> Exit {
        if self.format == Format::Junit {
            self.data(&junit(&self.scenarios));
        }
        if self.format == Format::Sarif {
            let log = sarif(&self.findings, self.worst.code());
            let text = serde_json::to_string_pretty(&log).expect("a JSON value has a JSON form");
            self.data(&format!("{}\n", ascii_controls(&text)));
        }
        if let (Format::Human, Some(score)) = (self.format, Expected::of(&self.scenarios)) {
            self.data(&format!("\n{score}\n"));
        }
        match self.is_lost {
            true => Exit::Internal,
            false => Exit::Proved,
        }
    }

    fn data(&mut self, text: &str) {
        self.is_lost |= !write(text);
    }
}

/// The verdicts in one notice: a proof has no finding, and is no silence.
fn verdict(report: &Report) -> Diagnostic {
    let outcome = &report.outcome;
    let words = |grade: Option<Grade>| match grade.filter(|_| outcome.is_checked()) {
        Some(grade) => grade.words(),
        None => "not checked",
    };
    let (within, across) = (words(outcome.within), words(outcome.across));
    let name = &outcome.scenario.name;
    let message = format!("{name}: within this allocation {within}, across allocations {across}");
    Diagnostic::note("verdict", message)
}

/// Writes text to standard output; whether that went well. A reader that has seen enough (`| head`)
/// is no error.
pub(super) fn write(text: &str) -> bool {
    let mut stream = anstream::stdout();
    let written = stream
        .write_all(text.as_bytes())
        .and_then(|()| stream.flush());
    let is_loss = |error: &std::io::Error| error.kind() != std::io::ErrorKind::BrokenPipe;
    match written.err().filter(is_loss) {
        Some(error) => {
            talk(&format!("cannot write to standard output: {error}"));
            false
        }
        None => true,
    }
}

/// Writes one indented object to standard output; whether that went well.
pub(super) fn write_json(value: &serde_json::Value) -> bool {
    let text = serde_json::to_string_pretty(value).expect("a JSON value has a JSON form");
    write(&format!("{}\n", ascii_controls(&text)))
}

/// JSON escapes the control characters of C0 only; those of C1 steer terminals as well. They can
/// stand in strings alone, where an escape means the same.
fn ascii_controls(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\u{7f}'..='\u{9f}' => text.push_str(&format!("\\u{:04x}", c as u32)),
            _ => text.push(c),
        }
    }
    text
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_no_raw_control_character_and_means_the_same() {
        let value = serde_json::json!({ "name": "a\u{1b}\u{9b}\u{7f}\u{f6}" });
        let output = Output::new(Format::Json, Detail::Usual, 1);
        let text = output.json(&value);
        assert!(
            text.chars().all(|c| c == '\n' || !c.is_control()),
            "{text:?}"
        );
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&text).unwrap(),
            value
        );
    }
}
