//! The report for people: the verdict first, then what explains it, then what it rests on, and
//! last the line to paste.

mod basis;
mod finding;
mod imported;
mod known;
mod like;
mod native;
mod points;
mod style;

pub(super) use like::like_line;
pub(super) use native::{outside_line, races_line};

use super::exit::is_met;
use super::{Report, Requirement};
use crate::prove::outcome::Outcome;
use crate::scenario::Grade;

/// How much is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Detail {
    /// `-q`: the verdict and the line to paste.
    Verdict,
    /// What a reader of the verdict asks next.
    Usual,
    /// `-v`: the certificate in full.
    Full,
}

/// A text of lines under headings.
#[derive(Default)]
struct Page {
    text: String,
}

impl Page {
    fn line(&mut self, line: impl AsRef<str>) {
        self.text.push_str(line.as_ref());
        self.text.push('\n');
    }

    /// A heading, after an empty line.
    fn heading(&mut self, title: &str) {
        self.line("");
        self.line(style::bold(title));
    }

    /// A sentence, broken at blanks to lines of at most [`COLUMNS_MAX`], the later ones indented.
    fn sentence(&mut self, indent: usize, sentence: &str) {
        let mut line = " ".repeat(indent);
        let mut is_empty = true;
        for word in sentence.split_whitespace() {
            if !is_empty && line.chars().count() + 1 + word.chars().count() > COLUMNS_MAX {
                self.line(std::mem::replace(&mut line, " ".repeat(indent + 2)));
                is_empty = true;
            }
            if !is_empty {
                line.push(' ');
            }
            line.push_str(word);
            is_empty = false;
        }
        self.line(line);
    }
}

const COLUMNS_MAX: usize = 96;

impl Report {
    /// The report with styles, for `anstream`.
    pub fn to_human(&self, detail: Detail) -> String {
        let mut page = Page::default();
        verdict(&mut page, self);
        if detail > Detail::Verdict && self.outcome.is_checked() {
            imported::job(&mut page, &self.outcome, detail);
            finding::explain(&mut page, &self.outcome);
            if self.outcome.stop.is_none() {
                points::table(&mut page, &self.outcome);
            }
            basis::checks(&mut page, &self.outcome);
            native::races(&mut page, &self.outcome, detail);
            like::explained(&mut page, &self.outcome);
            if let Some(against) = &self.against {
                known::against(&mut page, against);
            }
            basis::certificate(&mut page, &self.outcome, detail);
        } else {
            native::nothing_raced(&mut page, &self.outcome);
            like::verdict(&mut page, &self.outcome);
            if let Some(against) = &self.against {
                known::verdict(&mut page, against);
            }
            if let Some(told) = self.outcome.scenario.left_open() {
                page.sentence(2, &format!("not covered: {told}"));
            }
        }
        if let Some(command) = self.line_to_paste() {
            page.line("");
            page.line(format!("reproduce it with: {}", style::bold(&command)));
        }
        page.text
    }

    /// What was found, without styles: the body of a JUnit failure.
    pub(super) fn plain_findings(&self) -> String {
        let mut page = Page::default();
        finding::explain(&mut page, &self.outcome);
        style::plain(&page.text)
    }
}

/// The report without styles, as the command line prints it for a check without flags.
impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let report = Report::new(self.clone(), &Requirement::default(), None);
        f.write_str(&style::plain(&report.to_human(Detail::Usual)))
    }
}

fn verdict(page: &mut Page, report: &Report) {
    let outcome = &report.outcome;
    let name = style::bold(&outcome.scenario.name);
    if !outcome.is_checked() {
        page.line(format!("{name}: {}", style::bad("nothing checked")));
        page.line("  no oracle compared anything: `oracles` and `checkpoint.restarts` say what is");
        return;
    }
    page.line(format!("{name}: {}", style::grade(outcome.grade())));
    let verdict = |grade: Option<Grade>| grade.map_or("not checked".to_string(), style::grade);
    let (within, across) = (verdict(outcome.within), verdict(outcome.across));
    page.line(format!("  within this allocation: {within}"));
    page.line(format!("  across allocations:     {across}"));
    if let Some(expect) = &report.expect {
        let met = if is_met(expect, outcome) {
            style::good("met")
        } else {
            style::bad("not met")
        };
        page.line(format!("  expected {expect}: {met}"));
    }
    if let Some(origin) = &outcome.origin {
        let (class, oracle) = (style::bad(origin.class.name()), origin.oracle.name());
        page.line(format!("  origin: {class}, shown by {oracle}"));
        page.sentence(4, &origin.what);
    }
    page.sentence(2, &outcome.not_said);
}

#[cfg(test)]
mod tests;
