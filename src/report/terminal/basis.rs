//! What the verdict rests on: oracles, planted faults, losses, the certificate.

use super::finding::oracle_detail;
use super::{Detail, Page, style};
use crate::prove::outcome::{Certificate, MutantScore, OracleResult, OracleVerdict, Outcome};
use crate::report::names::{counted, grouped, slug};
use crate::scenario::{ChoiceVariable, Values};

pub(super) fn checks(page: &mut Page, outcome: &Outcome) {
    page.heading("oracles");
    for result in &outcome.oracles {
        oracle(page, result);
    }
    for (heading, moved) in [("layouts", false), ("allocations", true)] {
        let resumed = outcome.reshardings.iter();
        let resumed = resumed.filter(|found| found.moved == moved);
        let resumed = resumed.map(|found| &*found.summary);
        summaries(page, &format!("resumed on other {heading}"), resumed);
    }
    let varied = outcome.topo.iter().map(|found| &*found.summary);
    summaries(page, "of other sizes and in other places", varied);
    mutants(page, &outcome.mutants);
    if !outcome.losses.is_empty() {
        page.heading("lm loss, a value a step");
        let losses: Vec<String> = outcome
            .losses
            .iter()
            .map(|loss| format!("{loss:.6}"))
            .collect();
        page.sentence(2, &losses.join(" "));
    }
}

fn oracle(page: &mut Page, result: &OracleResult) {
    let verdict = match result.verdict {
        OracleVerdict::Equal => style::good("equal"),
        OracleVerdict::EqualInPart => style::dim("equal in part"),
        OracleVerdict::Different => style::bad("different"),
        OracleVerdict::NotChecked => style::dim("not checked"),
    };
    let comparisons = counted(result.comparisons, "comparison");
    page.line(format!(
        "  {:<4} {verdict} ({comparisons})",
        result.oracle.name()
    ));
    // A failure is told in full above.
    if result.verdict != OracleVerdict::Different {
        oracle_detail(page, 7, result);
    }
}

/// Runs beside the straight one, a sentence each.
fn summaries<'a>(page: &mut Page, heading: &str, summaries: impl Iterator<Item = &'a str>) {
    let mut summaries = summaries.peekable();
    if summaries.peek().is_none() {
        return;
    }
    page.heading(heading);
    for summary in summaries {
        page.sentence(2, summary);
    }
}

fn mutants(page: &mut Page, score: &MutantScore) {
    page.heading("planted faults");
    page.line(format!(
        "  {} of {} caught and named",
        score.caught, score.total
    ));
    if !score.not_planted.is_empty() {
        page.sentence(
            2,
            &format!("no place for: {}", score.not_planted.join(", ")),
        );
    }
    if !score.coinciding.is_empty() {
        let losses = score.coinciding.join(", ");
        page.sentence(
            2,
            &format!("before any step that would show them: {losses}"),
        );
    }
}

pub(super) fn certificate(page: &mut Page, outcome: &Outcome, detail: Detail) {
    let certificate = &outcome.certificate;
    page.heading("certificate");
    page.line(format!(
        "  {}, {}, {}",
        counted(u64::from(outcome.steps), "step"),
        counted(u64::from(outcome.ranks), "rank"),
        counted(outcome.nodes, "node"),
    ));
    if !outcome.faults.is_empty() {
        page.sentence(2, &format!("faults: {}", outcome.faults.join("; ")));
    }
    let engine = &outcome.engine;
    let versions: Vec<String> = engine
        .versions
        .iter()
        .filter(|(name, _)| name != "adapter")
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    let strict = if engine.strict {
        "strict"
    } else {
        "NON-STRICT"
    };
    let versions = versions.join(", ");
    page.sentence(
        2,
        &format!(
            "engine {} ({strict}): {}, {versions}",
            engine.name, engine.adapter
        ),
    );
    variables(page, &certificate.variables);
    page.sentence(2, &format!("plans: {}", certificate.plan_basis));
    if detail == Detail::Full {
        in_full(page, outcome, certificate);
    }
    page.heading("not covered");
    for sentence in &outcome.not_covered {
        page.sentence(2, &format!("- {sentence}"));
    }
}

fn variables(page: &mut Page, variables: &[ChoiceVariable]) {
    if variables.is_empty() {
        page.line("  nothing is free");
    }
    for variable in variables {
        let values = match &variable.values {
            Values::Listed(values) => values.join(", "),
            Values::AnyOrder => "any order".to_string(),
            Values::Configurations => "any configuration, by rank".to_string(),
        };
        let scope = slug(variable.scope);
        page.sentence(
            2,
            &format!("free: {} (one value a {scope}): {values}", variable.name),
        );
    }
}

fn in_full(page: &mut Page, outcome: &Outcome, certificate: &Certificate) {
    if let Some((bytes, rank)) = outcome.peak_bytes {
        let bytes = grouped(bytes);
        page.line(format!("  peak memory {bytes} bytes, on rank {rank}"));
    }
    for (name, hash) in [
        ("scenario", &outcome.scenario.hash),
        ("recipe", &certificate.recipe_hash),
        ("data", &certificate.data_hash),
        ("kernels", &certificate.kernels_hash),
        ("root", &certificate.root_hash),
    ] {
        page.line(format!("  {name:<8}  {hash}"));
    }
    page.sentence(2, &format!("second run: {}", certificate.second_run));
    let tested = &certificate.self_test;
    page.sentence(
        2,
        &match &tested.differing[..] {
            [] => format!("self-test: {} expressions exact", tested.expressions),
            names => format!(
                "self-test: {} of {} expressions differ: {}",
                names.len(),
                tested.expressions,
                names.join(", ")
            ),
        },
    );
    for assumption in &certificate.assumptions {
        page.sentence(2, assumption);
    }
    let points = grouped(outcome.point_count());
    page.line(format!("  {points} choice points in all"));
}
