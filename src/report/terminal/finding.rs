//! What explains a verdict: the first divergence, its witness, what removes it, hazards, and sums
//! that could not have differed.

use super::{Page, style};
use crate::prove::outcome::{
    FirstDivergence, Hazard, MutantScore, OracleResult, OracleVerdict, Outcome, Remedy,
    VacuityFinding, VacuityReason, VisibleEffect, Witness,
};
use crate::prove::stop::Stop;
use crate::report::junit::vacuity_line;
use crate::report::names::{counted, grouped, ranks, slug};

pub(super) fn explain(page: &mut Page, outcome: &Outcome) {
    // The mistake before what it leads to.
    hazards(page, &outcome.hazards);
    if let Some(stop) = &outcome.stop {
        stopped(page, stop);
    }
    failed_oracles(page, outcome);
    if let Some(first) = &outcome.first_divergence {
        first_divergence(page, first);
    }
    if let Some(shown) = &outcome.witness {
        witness(page, shown);
    }
    if let Some(effect) = &outcome.visible_effect {
        visible_effect(page, effect);
    }
    remedies(page, &outcome.remedies);
    notes(page, &outcome.notes);
    vacuity(page, &outcome.vacuity);
    missed_mutants(page, &outcome.mutants);
}

/// The ranks of each side, and where they are.
fn stopped(page: &mut Page, stop: &Stop) {
    let group: String = stop
        .group
        .iter()
        .map(|name| format!(" in {name}"))
        .collect();
    page.heading(&format!("{}{group}", stop.class));
    for side in &stop.sides {
        page.sentence(2, &format!("{}: {}", ranks(&side.ranks), side.what));
        if let Some(site) = &side.site {
            page.sentence(4, &format!("at {site}"));
        }
    }
}

/// Every oracle that failed, but what a stop told.
fn failed_oracles(page: &mut Page, outcome: &Outcome) {
    let told = outcome.stop.as_ref().map(|stop| stop.oracle);
    let is_failed = |result: &&OracleResult| {
        result.verdict == OracleVerdict::Different && told != Some(result.oracle)
    };
    for result in outcome.oracles.iter().filter(is_failed) {
        page.heading(&format!("oracle {} failed", result.oracle.name()));
        oracle_detail(page, 2, result);
    }
}

/// What an oracle lacked or says, one indented line each.
pub(super) fn oracle_detail(page: &mut Page, indent: usize, result: &OracleResult) {
    if !result.components.is_empty() {
        let names: Vec<&str> = result
            .components
            .iter()
            .map(|component| component.name())
            .collect();
        page.sentence(
            indent,
            &format!("a resumed run lacks: {}", names.join(", ")),
        );
    }
    if let Some(detail) = &result.detail {
        page.sentence(indent, detail);
    }
}

fn first_divergence(page: &mut Page, first: &FirstDivergence) {
    page.heading("first divergence");
    page.sentence(2, &first.site.to_string());
    let family = first
        .family
        .map(|family| format!(", {}", slug(family)))
        .unwrap_or_default();
    let before = counted(first.nodes_equal_before, "node");
    let group: String = first.group.iter().map(|name| format!("{name}: ")).collect();
    let ranks = ranks(&first.ranks);
    page.line(format!(
        "  {group}{ranks}{family}; {before} before it agree"
    ));
    let how = if first.is_origin {
        "its inputs are equal"
    } else {
        "its inputs differ already"
    };
    page.line(format!("  {how}"));
    let variable = &first.variable;
    let scope = slug(variable.scope);
    page.line(format!("  free: {} (one value a {scope})", variable.name));
    page.line(format!("  A: {}", first.value_a));
    page.line(format!("  B: {}", first.value_b));
}

/// Addends that are listed.
const ADDENDS_SHOWN: usize = 16;

fn witness(page: &mut Page, witness: &Witness) {
    page.heading("witness");
    let ulp = witness
        .max_ulp
        .map_or(", with a NaN among them".to_string(), |ulp| {
            format!(", by at most {} ulp", grouped(ulp))
        });
    page.line(format!(
        "  element {}; {} of {} differ{ulp}",
        grouped(witness.element),
        grouped(witness.differing_elements),
        counted(witness.total_elements, "element"),
    ));
    page.sentence(2, &format!("A = {}", witness.plan_a));
    page.sentence(2, &format!("B = {}", witness.plan_b));
    let width = witness
        .addends
        .iter()
        .map(|addend| addend.source.chars().count())
        .max();
    let width = width.unwrap_or(0).max("sum A".len());
    let row =
        |name: &str, hex: &str, decimal: &str| format!("    {name:<width$}  {hex}  {decimal}");
    for addend in witness.addends.iter().take(ADDENDS_SHOWN) {
        page.line(row(
            &addend.source,
            &addend.value.hex,
            &addend.value.decimal,
        ));
    }
    let rest = witness.addends.len().saturating_sub(ADDENDS_SHOWN);
    if rest > 0 {
        page.line(style::dim(&format!(
            "    and {} more",
            grouped(rest as u64)
        )));
    }
    page.line(row("sum A", &witness.sum_a.hex, &witness.sum_a.decimal));
    page.line(row("sum B", &witness.sum_b.hex, &witness.sum_b.decimal));
    if let Some(swaps) = witness.adjacent_swaps {
        let swaps = counted(swaps, "swap");
        page.line(format!("  B is {swaps} of neighbours away from A"));
    }
    if let Some(shrunk) = &witness.shrunk {
        page.line(format!("  {} addends suffice:", shrunk.addends.len()));
        page.sentence(
            4,
            &format!("A = {} = {}", shrunk.plan_a, shrunk.sum_a.decimal),
        );
        page.sentence(
            4,
            &format!("B = {} = {}", shrunk.plan_b, shrunk.sum_b.decimal),
        );
    }
    if let Some(effect) = &witness.alone {
        alone(page, witness.counterfactual, effect);
    }
    for cause in &witness.causes {
        page.line(format!("  from {cause}"));
    }
}

/// What was seen when this node alone deviated, though its variable reaches further.
fn alone(page: &mut Page, parts: bool, effect: &VisibleEffect) {
    let parts = match parts {
        true => "parts them too",
        false => "parts nothing",
    };
    let reached = match effect.first_step {
        Some(step) => format!("{} differs from step {step} on", effect.metric),
        None => format!("{} stays the same", effect.metric),
    };
    page.line(format!("  changing this node alone {parts}; {reached}"));
}

fn visible_effect(page: &mut Page, effect: &VisibleEffect) {
    page.heading("visible effect");
    let steps = counted(u64::from(effect.steps), "step");
    let Some(step) = effect.first_step else {
        page.line(format!(
            "  {} is the same in {steps} of both runs",
            effect.metric
        ));
        return;
    };
    page.line(format!(
        "  {} differs from step {step} on (both runs: {steps})",
        effect.metric
    ));
    for (name, value) in [("A", &effect.value_a), ("B", &effect.value_b)] {
        if let Some(bits) = value {
            page.line(format!("    {name}  {}  {}", bits.hex, bits.decimal));
        }
    }
}

fn remedies(page: &mut Page, remedies: &[Remedy]) {
    if remedies.is_empty() {
        return;
    }
    page.heading("switches that were tried");
    for remedy in remedies {
        let mark = if remedy.removes {
            style::good("removes it")
        } else {
            style::bad("does not")
        };
        page.line(format!("  {mark}: {}", remedy.switch));
        let grade = remedy.tried_grade.words();
        match &remedy.still_parts {
            Some(site) if remedy.removes => {
                page.sentence(4, &format!("the sweep is then {grade}, elsewhere: {site}"));
            }
            Some(site) => page.sentence(4, &format!("the sweep stays {grade}: {site}")),
            None => page.sentence(4, &format!("the sweep is then {grade}")),
        }
    }
}

/// Hazards that are listed.
const HAZARDS_SHOWN: usize = 8;

fn hazards(page: &mut Page, hazards: &[Hazard]) {
    if hazards.is_empty() {
        return;
    }
    page.heading("hazards");
    for hazard in hazards.iter().take(HAZARDS_SHOWN) {
        let kind = slug(hazard.kind);
        let (from, to) = hazard.elements;
        page.line(format!(
            "  {kind}: `{}` on rank {}, elements {from} to {to}",
            hazard.buffer, hazard.rank
        ));
        page.sentence(4, &hazard.first.to_string());
        page.sentence(4, &hazard.second.to_string());
        page.sentence(4, &hazard.missing_edge);
        if let Some(consequence) = &hazard.consequence {
            page.sentence(4, consequence);
        }
    }
    let rest = hazards.len().saturating_sub(HAZARDS_SHOWN);
    if rest > 0 {
        page.line(style::dim(&format!("  and {} more", grouped(rest as u64))));
    }
}

/// Notes that are listed; JSON has them all.
const NOTES_SHOWN: usize = 8;

fn notes(page: &mut Page, notes: &[String]) {
    if notes.is_empty() {
        return;
    }
    page.heading("noted");
    for note in notes.iter().take(NOTES_SHOWN) {
        page.sentence(2, note);
    }
}

/// A check that overlooks a planted fault proves nothing: the verdict is vacuous for it.
fn missed_mutants(page: &mut Page, score: &MutantScore) {
    if score.missed.is_empty() {
        return;
    }
    page.heading("planted faults that this check did not catch");
    for missed in &score.missed {
        page.sentence(
            2,
            &format!("{} at {}: {}", missed.kind, missed.site, missed.reason),
        );
    }
}

fn noun_of_points(reason: VacuityReason) -> &'static str {
    match reason {
        VacuityReason::NotFinite | VacuityReason::Skipped => "step",
        _ => "point",
    }
}

fn vacuity(page: &mut Page, findings: &[VacuityFinding]) {
    if findings.is_empty() {
        return;
    }
    page.heading("what could not have failed here");
    for finding in findings {
        let reason = match finding.reason {
            VacuityReason::TooFewAddends => "too few addends to differ",
            VacuityReason::SilentHere => "order-dependent, silent here",
            VacuityReason::Absent => "no such sum here",
            VacuityReason::BufferSize => "plans agree at this buffer size, not at larger ones",
            VacuityReason::NotFinite => "infinite or no number: nothing could differ",
            VacuityReason::Skipped => "every step overflowed and was skipped",
        };
        let points = counted(finding.points, noun_of_points(finding.reason));
        page.line(format!("  {}: {reason} ({points})", slug(finding.family)));
        if let Some(site) = &finding.site {
            page.sentence(4, site);
        }
        page.sentence(4, &vacuity_line(finding));
    }
}
