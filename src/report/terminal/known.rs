//! Findings against those that are known.

use super::Page;
use crate::report::baseline::{Against, Finding};
use crate::report::names::counted;

pub(super) fn against(page: &mut Page, against: &Against) {
    page.heading("against the baseline");
    page.sentence(2, &line(against));
    for (how, findings) in [("new", &against.new), ("no longer there", &against.stale)] {
        for Finding { code, what } in findings {
            page.sentence(2, &format!("{how}: {code}: {what}"));
        }
    }
    for why in &against.never_known {
        page.sentence(2, &format!("never known: {why}"));
    }
}

/// Beside a verdict that stands alone.
pub(super) fn verdict(page: &mut Page, against: &Against) {
    page.sentence(2, &format!("against the baseline: {}", line(against)));
}

fn line(against: &Against) -> String {
    let count = |findings: &Vec<Finding>, noun: &str| counted(findings.len() as u64, noun);
    let verdict = match against.passes() {
        true => "nothing new",
        false => "fails",
    };
    format!(
        "{verdict}: {}, {}, {}",
        count(&against.new, "new finding"),
        count(&against.known, "known one"),
        count(&against.stale, "stale one")
    )
}
