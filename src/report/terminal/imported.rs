//! What was understood of a job that was not written for bitproof, and what stands for it.

use super::{Detail, Page, style};
use crate::prove::outcome::Outcome;
use crate::recipe::Change;
use crate::recipe::megatron::{JudgedArgument, tally};
use crate::report::names::counted;
use crate::scenario::Imported;

pub(super) fn job(page: &mut Page, outcome: &Outcome, detail: Detail) {
    let Some(job) = &outcome.imported else {
        return;
    };
    page.heading("the job");
    page.sentence(2, &format!("{} {}", job.form, job.file));
    if job.phases.len() > 1 {
        let all = job.phases.join(", ");
        page.sentence(2, &format!("run {} of {all} (--phase)", job.phase));
    }
    page.sentence(2, &job.layout);
    world(page, job);
    // The world has its own line.
    let others = job
        .derived
        .iter()
        .filter(|derived| derived.key != "world_size");
    for derived in others {
        let line = format!("{} = {}: {}", derived.key, derived.value, derived.reason);
        page.sentence(2, &line);
    }
    arguments(page, job, detail);
    changes(page, &job.changes);
}

fn world(page: &mut Page, job: &Imported) {
    let ranks = counted(u64::from(job.world.size), "rank");
    let how = match job.world_is_assumed() {
        true => style::bold("assumed"),
        false => "given".to_string(),
    };
    page.sentence(2, &format!("{ranks}, {how}: {}", job.world.reason));
}

/// How many arguments were understood how; each one under `-v`.
fn arguments(page: &mut Page, job: &Imported, detail: Detail) {
    let all = || job.arguments.iter().chain(&job.variables);
    let hint = match detail {
        Detail::Full => "",
        _ => " (-v lists them)",
    };
    page.sentence(
        2,
        &format!("arguments and variables: {}{hint}", tally(all())),
    );
    if detail < Detail::Full {
        return;
    }
    for argument in all() {
        page.sentence(4, &argument_line(argument));
    }
}

fn argument_line(argument: &JudgedArgument) -> String {
    let value = argument.value.as_ref();
    let value: String = value.map(|value| format!(" {value}")).unwrap_or_default();
    let JudgedArgument {
        flag,
        verdict,
        reason,
        ..
    } = argument;
    format!("{flag}{value}: {}: {reason}", verdict.words())
}

/// The table of what is smaller here, or larger.
fn changes(page: &mut Page, changes: &[Change]) {
    page.heading("scaled: the job, and what runs here");
    if changes.is_empty() {
        page.line("  nothing: the job runs as it is");
        return;
    }
    let width = |of: fn(&Change) -> &str| {
        let lengths = changes.iter().map(|change| of(change).chars().count());
        lengths.max().unwrap_or(0)
    };
    let key = width(|change| change.key);
    let (from, to) = (width(|change| &change.from), width(|change| &change.to));
    for change in changes {
        page.line(format!(
            "  {:key$}  {:>from$} -> {:>to$}  {}",
            change.key,
            change.from,
            change.to,
            style::dim(change.why)
        ));
    }
}
