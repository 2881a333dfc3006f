//! What explains a real trace.

use super::Page;
use crate::prove::likeness::{Candidate, Likeness};
use crate::prove::outcome::Outcome;

pub(super) fn explained(page: &mut Page, outcome: &Outcome) {
    let Some(like) = &outcome.like else {
        return;
    };
    page.heading("the trace");
    page.sentence(2, &like_line(like));
    for candidate in &like.explanations {
        told(page, "explained by", candidate);
    }
    for candidate in &like.near {
        told(page, "not by", candidate);
    }
}

/// The line beside a verdict that stands alone.
pub(super) fn verdict(page: &mut Page, outcome: &Outcome) {
    if let Some(like) = &outcome.like {
        page.sentence(2, &format!("the trace: {}", like_line(like)));
    }
}

fn told(page: &mut Page, how: &str, candidate: &Candidate) {
    let Candidate { site, what, .. } = candidate;
    page.sentence(2, &format!("{how} {site}: {what}"));
    for one in &candidate.criteria {
        let trace = one.trace.as_deref().unwrap_or("not told");
        let verdict = match one.matches {
            Some(true) => "matches",
            Some(false) => "is another",
            None => "is not known to match",
        };
        page.sentence(
            6,
            &format!(
                "{} {verdict}: {trace} in the trace, {} here",
                one.name, one.here
            ),
        );
    }
}

/// All of it in one sentence.
pub(in crate::report) fn like_line(like: &Likeness) -> String {
    let symptom = &like.symptom;
    let iteration = symptom
        .iteration
        .map_or(String::new(), |number| format!(" in iteration {number}"));
    let first = format!(
        "{} parts first at `{}`{iteration} on rank {}",
        like.folder, symptom.id, symptom.rank
    );
    match &like.unexplained {
        Some(why) => format!("{first}, and nothing here explains it: {why}"),
        None => format!(
            "{first}, and {} here explains it",
            match like.explanations.len() {
                1 => "one sum".to_string(),
                count => format!("each of {count} sums"),
            }
        ),
    }
}
