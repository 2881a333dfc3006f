//! Rules about what a job leaves open: what Megatron refuses, and what nobody validates.
//!
//! A rule is data: an id, a severity, why it matters, who says so, and what to do. An error is
//! something that Megatron refuses at launch; a warning something by which bits may differ; a note
//! something that nothing pins, or that a reader should know.

mod deterministic;
mod harness;
mod holes;
mod launch;
mod rule;

pub(crate) use deterministic::{Standing, Violation, violations};
pub use rule::Rule;

use super::megatron::{Catalogue, GivenJob, UnderstandOptions, Understood, Values, understand};
use crate::diagnostic::{Diagnostic, Findings, Severity};
use rule::Job;

/// Every rule but those of deterministic mode, in the order in which they are tried.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    let sets = [
        launch::RULES,
        launch::REFUSED,
        launch::ASSERTED,
        launch::GROUPS,
        launch::GRAPHS,
        launch::SAVING,
        launch::EVALUATION,
        holes::RULES,
        harness::RULES,
    ];
    sets.into_iter().flatten()
}

/// What is wrong or left open in a job: errors first, then warnings, then notes, each in the order
/// of the rules. Of the run that a test resumes with other arguments, errors only: it must start.
pub fn lint(job: &GivenJob, understood: &Understood) -> Vec<Diagnostic> {
    let mut found = of_phase(job, understood);
    if let Some(phase) = job.resumed_phase(understood.phase) {
        let options = UnderstandOptions {
            phase,
            world: Some(understood.world.size),
        };
        // `understand` told of it, for the first run.
        let second = understand(job, &options, &mut Findings::default());
        let broken = of_phase(job, &second).into_iter();
        let is_new = |finding: &Diagnostic| {
            let is_same = |other: &Diagnostic| {
                (other.code, &other.message) == (finding.code, &finding.message)
            };
            finding.severity == Severity::Error && !found.iter().any(is_same)
        };
        let more: Vec<Diagnostic> = broken.filter(is_new).collect();
        found.extend(more);
    }
    // Stable: the order of the rules stays within a severity.
    found.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    found
}

fn of_phase(job: &GivenJob, understood: &Understood) -> Vec<Diagnostic> {
    let catalogue = Catalogue::default();
    // `understand` told what is wrong with single arguments.
    let mut told = Findings::default();
    let values = Values::read(&job.phases[understood.phase], &catalogue, &mut told);
    let view = Job {
        given: job,
        values: &values,
        understood,
    };
    let asked = view.is_deterministic();
    let broken = violations(&values, &job.environment(understood.phase));
    let mut found: Vec<Diagnostic> = broken
        .iter()
        .map(|violation| of_violation(violation, asked))
        .collect();
    found.extend(rules().filter_map(|rule| rule.check(&view)));
    found
}

/// A broken rule of deterministic mode: an error where the job asks for that mode.
fn of_violation(violation: &Violation, asked: bool) -> Diagnostic {
    let rule = violation.rule;
    let (severity, message) = match (asked, violation.standing) {
        (true, Standing::Current) => (
            Severity::Error,
            format!("--deterministic-mode refuses this `{rule}`"),
        ),
        (true, Standing::Pending) => (
            Severity::Warning,
            format!("--deterministic-mode is about to refuse this `{rule}`"),
        ),
        (false, _) => (
            Severity::Note,
            format!("--deterministic-mode would refuse this `{rule}`"),
        ),
    };
    let accepted = violation.accepted;
    let mut finding = Diagnostic::warning("deterministic-mode", message)
        .at(&violation.place, format!("accepted: {accepted}"))
        .with_note(format!(
            "{} (megatron/training/determinism.py)",
            violation.reason
        ))
        .with_help(format!("make it {accepted}"));
    finding.severity = severity;
    finding
}

#[cfg(test)]
mod tests;
