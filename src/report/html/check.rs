//! The page of a check.

use serde_json::Value;

use super::curve::curve;
use super::map::{Map, Mark, Unmarked};
use super::spread;
use super::text::{Limits, items, part, string};

/// What a report calls itself.
pub(super) fn name(report: &Value) -> Option<&str> {
    string(&report["scenario"], "name").or_else(|| string(report, "path"))
}

pub(super) fn section(report: &Value, limits: Limits) -> String {
    let first = &report["first_divergence"];
    [
        format!(
            "<h1>{}</h1>\n",
            limits.text(name(report).unwrap_or("a check"))
        ),
        banner(report, limits),
        part("What to do", &what_to_do(report, limits)),
        part("Where, by rank and step", &map(report)),
        part("Narrowed down", &ladder(report, limits)),
        part("The two orders", &expressions(report, limits)),
        part("What it comes to", &effect(report, limits)),
        part(
            "Loss of the reference run",
            &curve("loss", items(report, "losses"), limits),
        ),
        part("Findings", &findings(items(report, "diagnostics"), limits)),
        part("What was compared", &oracles(report, limits)),
        part("Not covered", &not_covered(report, first, limits)),
    ]
    .concat()
}

/// A check, or two folders of traces, that nothing could be said of.
pub(super) fn refusal(report: &Value, limits: Limits) -> String {
    let name = name(report).or_else(|| string(report, "folder"));
    let mut found = items(report, "diagnostics").to_vec();
    found.extend_from_slice(items(report, "reasons"));
    format!(
        "<h1>{}</h1>\n<div class=\"banner bad\"><p class=\"word\">✖ refused</p><p>Nothing was \
         checked: the input was not taken.</p></div>\n{}",
        limits.text(name.unwrap_or("input")),
        part("Findings", &findings(&found, limits))
    )
}

/// Where one recipe's change acts first, beside what varies from run to run there.
pub(super) fn change(change: &Value, limits: Limits) -> String {
    let first = &change["first"];
    let (class, word, line) = match change["alters_bits"].as_bool() {
        Some(true) => (
            "warn",
            "▲ the change alters bits",
            format!(
                "First in iteration {} at <b>{}</b>, on ranks <b>{}</b>: {} ({}).",
                limits.value(&first["iteration"]),
                limits.value(&first["id"]),
                limits.value(&first["ranks"]),
                limits.value(&first["verdict"]),
                limits.value(&first["difference"])
            ),
        ),
        Some(false) => (
            "good",
            "= the change alters no bit of the two reference runs",
            format!(
                "{} records were compared.",
                limits.value(&change["records"])
            ),
        ),
        None => ("warn", "▲ the change was not judged", String::new()),
    };
    let side = |name: &str| limits.value(&change[name]["path"]);
    let varies = &change["varies_there"];
    let varies = match items(change, "varies_there").is_empty() {
        true => String::new(),
        false => format!(
            "<p>It varies there from run to run: {}</p>",
            limits.value(varies)
        ),
    };
    format!(
        "<h1>{} against {}</h1>\n<div class=\"banner {class}\"><p class=\"word\">{word}</p>\
         <p>{line}</p>{varies}</div>\n",
        side("a"),
        side("b")
    )
}

fn banner(report: &Value, limits: Limits) -> String {
    let grade = report["grade"].as_str().unwrap_or("nothing checked");
    let (class, mark) = match grade {
        "proved" => ("good", "✔"),
        "proved-on-this-input" | "bounded" | "masked" | "vacuous" => ("warn", "▲"),
        _ => ("bad", "✖"),
    };
    let verdicts = &report["verdicts"];
    let first = &report["first_divergence"];
    let mut lines = Vec::new();
    if first.is_object() {
        lines.push(format!(
            "Bits part first at <b>{}</b>, on ranks <b>{}</b>, by <b>{}</b>.",
            limits.text(&site(&first["site"])),
            limits.value(&first["ranks"]),
            limits.value(&first["variable"]["name"])
        ));
    } else if let Some(what) = string(&report["stop"], "what") {
        lines.push(format!("The run cannot go on: {}.", limits.text(what)));
    }
    if let Some(what) = string(&report["origin"], "what") {
        let class = limits.value(&report["origin"]["class"]);
        lines.push(format!(
            "First in cause: {} (<b>{class}</b>).",
            limits.text(what)
        ));
    }
    lines.push(format!(
        "Within this allocation: <b>{}</b>. Across allocations: <b>{}</b>. {} ranks, {} steps.",
        limits.value(&verdicts["within"]),
        limits.value(&verdicts["across"]),
        limits.value(&report["ranks"]),
        limits.value(&report["steps"])
    ));
    let expect = &report["expect"];
    if expect.is_object() {
        let met = match expect["met"] == true {
            true => "The scenario expects this",
            false => "The scenario expects another outcome",
        };
        lines.push(format!(
            "{met} (exit code {}).",
            limits.value(&report["exit_code"])
        ));
    }
    if let Some(told) = string(report, "not_said") {
        lines.push(limits.text(told));
    }
    let lines: String = lines.iter().map(|line| format!("<p>{line}</p>")).collect();
    let grade = limits.text(&grade.replace('-', " "));
    format!("<div class=\"banner {class}\"><p class=\"word\">{mark} {grade}</p>{lines}</div>\n")
}

/// Step, phase, module and op of a node.
fn site(site: &Value) -> String {
    let mut words = Vec::new();
    if let Some(step) = site["step"].as_u64() {
        words.push(format!("step {step}"));
    }
    if let Some(microbatch) = site["microbatch"].as_u64() {
        words.push(format!("microbatch {microbatch}"));
    }
    for key in ["phase", "module", "op"] {
        words.extend(string(site, key).map(str::to_string));
    }
    words.join(", ")
}

fn what_to_do(report: &Value, limits: Limits) -> String {
    let tried = items(report, "remedies").iter();
    let told = tried.map(|remedy| {
        let switch = limits.value(&remedy["switch"]);
        let comes = match (remedy["removes"].as_bool(), string(remedy, "still_parts")) {
            (Some(true), _) => "✔ removes it".to_string(),
            (_, Some(at)) => format!("✖ does not remove it: parts at {}", limits.text(at)),
            (Some(false), _) => "✖ does not remove it".to_string(),
            (None, _) => "not tried".to_string(),
        };
        format!("<code>{switch}</code> — {comes}")
    });
    let mut text = limits.list(&told.collect::<Vec<_>>());
    if let Some(line) = string(report, "replay") {
        let line = limits.text(line);
        text.push_str(&format!(
            "<p>Reproduce it:</p>\n<pre tabindex=\"0\">{line}</pre>\n"
        ));
    }
    if let Some(file) = string(report, "regression") {
        let file = limits.text(file);
        text.push_str(&format!(
            "<p>Run first next time: <code>{file}</code></p>\n"
        ));
    }
    text
}

/// The ranks of the first divergence, or of a stop, at its step; and what it reaches, where the
/// report has that.
fn map(report: &Value) -> String {
    let (first, stop) = (&report["first_divergence"], &report["stop"]);
    let reached = spread::marks(report);
    let unmarked = match reached {
        Some(_) => Unmarked::Same,
        None => Unmarked::Untold,
    };
    let mut marks: Vec<(&Value, Mark)> = reached.unwrap_or_default();
    if first.is_object() {
        let what = site(&first["site"]);
        marks.push((
            &first["ranks"],
            Mark {
                step: first["site"]["step"].as_u64(),
                what,
                is_reached: false,
            },
        ));
    } else {
        for side in items(stop, "sides")
            .iter()
            .filter(|side| side["site"].is_object())
        {
            let step = side["site"]["step"].as_u64();
            let what = string(side, "what").unwrap_or("stops").to_string();
            marks.push((
                &side["ranks"],
                Mark {
                    step,
                    what,
                    is_reached: false,
                },
            ));
        }
    }
    // A number in a file may be anything: neither ranks nor steps are counted up without a limit.
    let ranks = report["ranks"].as_u64().unwrap_or(0).min(1 << 17);
    let steps = report["steps"].as_u64().unwrap_or(0).min(1 << 20);
    if marks.is_empty() || ranks == 0 {
        return String::new();
    }
    let mut map = Map {
        unit: "step",
        steps: (1..=steps).map(Some).collect(),
        ranks: (0..ranks).map(|rank| (rank, None)).collect(),
        unmarked,
    };
    for (of, mark) in marks {
        // A witness may need more steps than the check has.
        if !mark.step.is_some_and(|step| (1..=steps).contains(&step)) {
            map.steps.push(mark.step);
        }
        for rank in of
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_u64)
        {
            map.ranks.insert(rank, Some(mark.clone()));
        }
    }
    map.steps.sort_unstable();
    map.steps.dedup();
    map.to_html()
}

fn ladder(report: &Value, limits: Limits) -> String {
    let first = &report["first_divergence"];
    if !first.is_object() {
        return String::new();
    }
    let effect = &report["visible_effect"];
    let metric = match (string(effect, "metric"), effect["first_step"].as_u64()) {
        (Some(metric), Some(step)) => format!("{}, from step {step}", limits.text(metric)),
        (Some(metric), None) => format!("{}: no step differs", limits.text(metric)),
        _ => "not in the report".to_string(),
    };
    let site = &first["site"];
    let choice = format!(
        "{}: {} or {}",
        limits.value(&first["variable"]["name"]),
        limits.value(&first["value_a"]),
        limits.value(&first["value_b"])
    );
    let rung = |name: &str, found: String| vec![name.to_string(), found];
    let rows = [
        rung("metric", metric),
        rung("phase", limits.value(&site["phase"])),
        rung("module", limits.value(&site["module"])),
        rung("op", limits.value(&site["op"])),
        rung("kernel", "not in a report of a check".to_string()),
        rung("choice", choice),
    ];
    limits.table(&["rung", "found"], &rows)
}

fn expressions(report: &Value, limits: Limits) -> String {
    let witness = &report["witness"];
    if !witness.is_object() {
        return String::new();
    }
    let first = &report["first_divergence"];
    let side = |name: &str, of: &Value| {
        format!(
            "<div class=\"side\"><h3>{} <span class=\"soft\">{}</span></h3>\
             <pre tabindex=\"0\">{}</pre>\
             <p>= <b class=\"mono\">{}</b> <span class=\"mono\">{}</span></p></div>",
            name.to_uppercase(),
            limits.value(&first[format!("value_{name}")]),
            limits.value(&of[format!("plan_{name}")]),
            limits.value(&of[format!("sum_{name}")]["hex"]),
            limits.value(&of[format!("sum_{name}")]["decimal"])
        )
    };
    let both = |of: &Value| {
        format!(
            "<div class=\"both\">{}{}</div>\n",
            side("a", of),
            side("b", of)
        )
    };
    let mut text = both(witness);
    text.push_str(&format!(
        "<p>Element {}{}: {} of {} elements differ, by {} ulp at most.</p>\n",
        limits.value(&witness["element"]),
        string(witness, "group").map_or(String::new(), |of| format!(" of {}", limits.text(of))),
        limits.value(&witness["differing_elements"]),
        limits.value(&witness["total_elements"]),
        limits.value(&witness["max_ulp"])
    ));
    if witness["shrunk"].is_object() {
        text.push_str("<p>The least addends that still part:</p>\n");
        text.push_str(&both(&witness["shrunk"]));
    }
    let addends = items(witness, "addends").iter();
    let rows =
        addends.map(|addend| ["source", "hex", "decimal"].map(|key| limits.value(&addend[key])));
    let rows: Vec<Vec<String>> = rows.map(Vec::from).collect();
    let table = limits.table(&["addend", "bits", "value"], &rows);
    text + &format!("<details><summary>All addends</summary>\n{table}</details>\n")
}

fn effect(report: &Value, limits: Limits) -> String {
    let effect = &report["visible_effect"];
    if !effect.is_object() {
        return String::new();
    }
    let metric = limits.value(&effect["metric"]);
    match effect["first_step"].as_u64() {
        Some(step) => format!(
            "<p>{metric} differs from step {step} on: <span class=\"mono\">{} {}</span> against \
             <span class=\"mono\">{} {}</span>.</p>\n{}",
            limits.value(&effect["value_a"]["hex"]),
            limits.value(&effect["value_a"]["decimal"]),
            limits.value(&effect["value_b"]["hex"]),
            limits.value(&effect["value_b"]["decimal"]),
            spread::distances(effect, limits)
        ),
        None => format!(
            "<p>{metric} differs in none of the {} steps that were run on.</p>\n",
            limits.value(&effect["steps"])
        ),
    }
}

/// Diagnostics as people read them.
pub(super) fn findings(found: &[Value], limits: Limits) -> String {
    let told = found.iter().map(|finding| {
        let mut text = format!(
            "<b>{}</b> <code>{}</code>: {}",
            limits.value(&finding["severity"]),
            limits.value(&finding["code"]),
            limits.value(&finding["message"])
        );
        if let Some(file) = string(finding, "file") {
            let line = limits.value(&finding["line"]);
            let file = limits.text(file);
            text.push_str(&format!(
                " <span class=\"soft\">({file}, line {line})</span>"
            ));
        }
        for (key, word) in [("notes", ""), ("help", "try: ")] {
            let lines = items(finding, key).iter();
            let lines = lines.map(|line| format!("{word}{}", limits.value(line)));
            text.push_str(&limits.list(&lines.collect::<Vec<_>>()));
        }
        text
    });
    limits.list(&told.collect::<Vec<_>>())
}

fn oracles(report: &Value, limits: Limits) -> String {
    let oracles = report["oracles"].as_object().into_iter().flatten();
    let rows = oracles.map(|(name, oracle)| {
        vec![
            limits.text(name),
            limits.value(&oracle["verdict"]),
            limits.value(&oracle["comparisons"]),
            limits.value(&oracle["detail"]),
        ]
    });
    let rows: Vec<Vec<String>> = rows.collect();
    let mut text = limits.table(&["oracle", "verdict", "comparisons", "detail"], &rows);
    let mutants = &report["mutants"];
    if mutants.is_object() {
        text.push_str(&format!(
            "<p>Planted faults caught: {} of {}.</p>\n",
            limits.value(&mutants["caught"]),
            limits.value(&mutants["total"])
        ));
    }
    text
}

fn not_covered(report: &Value, first: &Value, limits: Limits) -> String {
    let told = items(report, "not_covered").iter();
    let mut told: Vec<String> = told.map(|one| limits.value(one)).collect();
    if first.is_object() && spread::marks(report).is_none() {
        told.push(
            "where each other rank parts after the first node: <code>trace diff</code> of two \
                   recordings says"
                .to_string(),
        );
    }
    limits.list(&told)
}
