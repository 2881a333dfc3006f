//! The page of a comparison of two folders of traces.

use serde_json::Value;

use super::check::findings;
use super::map::{Map, Mark, Unmarked, runs};
use super::text::{Limits, items, part, string};

pub(super) fn section(report: &Value, names: Option<&str>, limits: Limits) -> String {
    let own = ["a", "b"].map(|side| string(&report["folders"], side).unwrap_or("?"));
    let own = match report["folders"].is_object() {
        true => own.join(" against "),
        false => "comparison of two traces".to_string(),
    };
    let title = limits.text(names.unwrap_or(&own));
    let has_parted = parted(report).next().is_some();
    let mut values = String::new();
    if has_parted {
        values.push_str(
            "<p>Traces hold digests, not values: there are no two expressions and no distances to \
             show. <code>bitproof check RECIPE --like DIR</code> says which sums explain it.</p>\n",
        );
    }
    [
        format!("<h1>{title}</h1>\n"),
        banner(report, limits),
        part("What to do", &hints(report, limits)),
        part("Where, by rank and iteration", &map(report)),
        part("Narrowed down", &ladder(report, limits)),
        part(
            "What tells those that differ apart",
            &discriminator(report, limits),
        ),
        part("First divergence of each rank", &table(report, limits)),
        part("Metrics", &metrics(report, limits)),
        part("Values", &values),
        part(
            "Set apart, as the recorder's own",
            &artefacts(report, limits),
        ),
        part(
            "Why a side cannot be trusted",
            &findings(items(report, "reasons"), limits),
        ),
        part("Not covered", &not_covered(report, limits)),
    ]
    .concat()
}

/// Ranks that part, each with its first divergence.
fn parted(report: &Value) -> impl Iterator<Item = (u64, &Value)> {
    let ranks = items(report, "ranks").iter();
    ranks.filter_map(|rank| {
        let first = &rank["first_divergence"];
        Some((rank["rank"].as_u64()?, first)).filter(|_| first.is_object())
    })
}

/// The divergence of the earliest iteration, an origin if there is one in it: as `trace diff` has
/// it.
fn earliest(report: &Value) -> Option<(u64, &Value)> {
    parted(report).min_by_key(|(rank, first)| {
        let is_no_origin = first["verdict"] != "origin";
        (
            first["iteration"].as_u64(),
            is_no_origin,
            first["seq"].as_u64(),
            *rank,
        )
    })
}

fn banner(report: &Value, limits: Limits) -> String {
    let total = items(report, "ranks").len();
    let is = |key: &str| report[key].as_bool();
    let strength = limits.value(&report["strength"]);
    let (class, word, line) = match (is("identical"), is("identical_training")) {
        (Some(true), _) => (
            "good",
            "✔ same",
            format!("{total} ranks were compared, evidence {strength}."),
        ),
        (_, Some(true)) => (
            "good",
            "✔ same training",
            format!("Only the recorder's artefacts differ: {total} ranks, evidence {strength}."),
        ),
        (Some(false), _) => ("bad", "✖ different", differs(report, total, limits)),
        _ => (
            "warn",
            "▲ not compared",
            "A side cannot be trusted, or there was nothing to compare.".to_string(),
        ),
    };
    format!(
        "<div class=\"banner {class}\"><p class=\"word\">{word}</p><p>{line}</p>\
         <p>Pattern: <b>{}</b>. Evidence of what matched: <b>{strength}</b>.</p></div>\n",
        limits.value(&report["pattern"])
    )
}

fn differs(report: &Value, total: usize, limits: Limits) -> String {
    let count = parted(report).count();
    let Some((rank, first)) = earliest(report) else {
        return "No rank says where.".to_string();
    };
    format!(
        "{count} of {total} ranks part. First: <b>{}</b>, on rank <b>{rank}</b>: <b>{}</b>.",
        limits.text(&place(first)),
        limits.text(verdict(first))
    )
}

/// What a verdict means, in words.
fn verdict(first: &Value) -> &str {
    match first["verdict"].as_str() {
        Some("origin") => "origin (its inputs match, its outputs do not)",
        Some("receiver") => "receiver (its inputs differ already)",
        Some("undecided") => "undecided (not all of its inputs are known)",
        other => other.unwrap_or("not told"),
    }
}

fn place(first: &Value) -> String {
    let mut words = vec![
        string(first, "id")
            .or(string(first, "name"))
            .unwrap_or("")
            .to_string(),
    ];
    for key in ["iteration", "microbatch"] {
        words.extend(first[key].as_u64().map(|number| format!("{key} {number}")));
    }
    words.extend(string(first, "phase").map(str::to_string));
    words.extend(string(first, "scope").map(|scope| format!("in {scope}")));
    words.join(", ")
}

fn hints(report: &Value, limits: Limits) -> String {
    let hints = items(report, "cause_hints").iter().map(|hint| {
        let [cause, why, next] = ["cause", "why", "try"].map(|key| limits.value(&hint[key]));
        format!("<b>{cause}</b>: {why}<br>try: {next}")
    });
    limits.list(&hints.collect::<Vec<_>>())
}

/// Iterations that no rank parts in are not told, so the map has only those between the first and
/// the last in which one does.
fn map(report: &Value) -> String {
    if report["identical"] != false || parted(report).next().is_none() {
        return String::new();
    }
    let mut ranks: std::collections::BTreeMap<u64, Option<Mark>> = Default::default();
    for rank in items(report, "ranks") {
        ranks.extend(rank["rank"].as_u64().map(|rank| (rank, None)));
    }
    for (rank, first) in parted(report) {
        let step = first["iteration"].as_u64();
        let what = place(first);
        ranks.insert(
            rank,
            Some(Mark {
                step,
                what,
                is_reached: false,
            }),
        );
    }
    let mut steps: Vec<Option<u64>> = ranks.values().flatten().map(|mark| mark.step).collect();
    steps.sort_unstable();
    steps.dedup();
    let map = Map {
        unit: "iteration",
        steps,
        ranks,
        unmarked: Unmarked::Same,
    };
    map.to_html()
        + "<p class=\"soft\">Only iterations in which some rank parts first have a column; what \
           came before them matched.</p>\n"
}

fn ladder(report: &Value, limits: Limits) -> String {
    let rungs = items(report, "ladder").iter().map(|rung| {
        let found = match rung["found"].is_null() {
            true => "not in the trace".to_string(),
            false => limits.value(&rung["found"]),
        };
        vec![limits.value(&rung["rung"]), found]
    });
    match parted(report).next() {
        Some(_) => limits.table(&["rung", "found"], &rungs.collect::<Vec<_>>()),
        None => String::new(),
    }
}

fn discriminator(report: &Value, limits: Limits) -> String {
    let table = &report["discriminator"];
    if !table.is_object() {
        return String::new();
    }
    let axes = items(table, "axes").iter().map(|axis| limits.value(axis));
    let axes: Vec<String> = axes.collect();
    let heads = axes.iter().map(String::as_str).chain(["differ", "agree"]);
    let heads: Vec<&str> = heads.collect();
    let rows = items(table, "cells").iter().map(|cell| {
        let values = items(cell, "values")
            .iter()
            .map(|value| match value.is_null() {
                true => "not told".to_string(),
                false => limits.value(value),
            });
        let counts = ["differ", "agree"].map(|key| limits.value(&cell[key]));
        values.chain(counts).collect::<Vec<String>>()
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let [name, says, untested] = ["name", "says", "untested"].map(|key| limits.value(&table[key]));
    format!(
        "<p>Records of <b>{name}</b> by how it was called. {says}. Not tried on the same known \
         inputs twice: {untested}.</p>\n{}",
        limits.table(&heads, &rows)
    )
}

/// Ranks that part at the same record share a row.
fn table(report: &Value, limits: Limits) -> String {
    let mut rows: Vec<(String, Vec<u64>, &Value)> = Vec::new();
    let mut at = std::collections::BTreeMap::new();
    for (rank, first) in parted(report) {
        let key = format!("{} {}", first["verdict"], place(first));
        let row = *at.entry(key).or_insert_with_key(|key| {
            rows.push((key.clone(), Vec::new(), first));
            rows.len() - 1
        });
        rows[row].1.push(rank);
    }
    let cells = rows.iter().map(|(_, ranks, first)| {
        vec![
            runs(ranks),
            limits.value(&first["verdict"]),
            limits.text(&place(first)),
            limits.value(&first["matched_before"]),
        ]
    });
    let cells: Vec<Vec<String>> = cells.collect();
    match cells.is_empty() {
        true => String::new(),
        false => limits.table(&["ranks", "verdict", "record", "matched before it"], &cells),
    }
}

fn metrics(report: &Value, limits: Limits) -> String {
    let keys = ["metric", "compared", "differing", "first_difference"];
    let metrics = items(report, "metrics").iter();
    let rows = metrics.map(|metric| Vec::from(keys.map(|key| limits.value(&metric[key]))));
    let rows: Vec<Vec<String>> = rows.collect();
    match rows.is_empty() {
        true => String::new(),
        false => limits.table(
            &["metric", "compared", "differing", "first in iteration"],
            &rows,
        ),
    }
}

fn artefacts(report: &Value, limits: Limits) -> String {
    let keys = ["rank", "count", "name", "why"];
    let found = items(report, "artefacts").iter();
    let rows = found.map(|one| Vec::from(keys.map(|key| limits.value(&one[key]))));
    let rows: Vec<Vec<String>> = rows.collect();
    match rows.is_empty() {
        true => String::new(),
        false => limits.table(&["rank", "count", "op", "why"], &rows),
    }
}

fn not_covered(report: &Value, limits: Limits) -> String {
    let told = items(report, "not_covered").iter();
    limits.list(&told.map(|one| limits.value(one)).collect::<Vec<_>>())
}
