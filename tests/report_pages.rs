//! Pages of hostile and of large reports, without a browser; `report_html` opens real ones.

use bitproof::report::html::page;
use serde_json::{Value, json};

const HOSTILE: &str = "<script>alert(1)</script>\"'&</title>{{body}}\u{1b}\u{202e}";

/// What a check of `scenarios/any-allocation.toml` says, without recipe and certificate.
fn divergent() -> Value {
    let text = include_str!("fixtures/report/divergent.json");
    serde_json::from_str(text).expect("one object")
}

/// Puts a text in the place of every string, but those that say what kind of object it is.
fn poisoned(value: &mut Value) {
    match value {
        Value::String(text) => *text = HOSTILE.to_string(),
        Value::Array(items) => items.iter_mut().for_each(poisoned),
        Value::Object(object) => object.values_mut().for_each(poisoned),
        _ => {}
    }
}

#[test]
fn every_string_of_the_input_is_escaped() {
    let mut check = divergent();
    poisoned(&mut check);
    let first = json!({
        "kind": "op", "seq": 1, "iteration": 1, "microbatch": 0, "phase": HOSTILE, "name": HOSTILE,
        "id": HOSTILE, "scope": HOSTILE, "matched_before": 3, "verdict": HOSTILE,
    });
    let traces = json!({
        "identical": false, "identical_training": false, "strength": HOSTILE, "pattern": HOSTILE,
        "cause_hints": [{ "cause": HOSTILE, "why": HOSTILE, "try": HOSTILE }],
        "ranks": [{ "rank": 0, "first_divergence": first }],
        "artefacts": [{ "rank": 0, "reason": HOSTILE, "why": HOSTILE, "name": HOSTILE }],
        "metrics": [{ "metric": HOSTILE }], "ladder": [{ "rung": HOSTILE, "found": HOSTILE }],
        "folders": { "a": HOSTILE, "b": HOSTILE },
        "discriminator": {
            "name": HOSTILE, "axes": [HOSTILE], "says": HOSTILE, "untested": HOSTILE,
            "cells": [{ "values": [HOSTILE, null], "differ": HOSTILE, "agree": HOSTILE }],
        },
        "reasons": [{ "message": HOSTILE, "file": HOSTILE }], "not_covered": [HOSTILE],
    });
    let refusal = json!({
        "schema_version": 1, "path": HOSTILE, "grade": null, "exit_code": 2,
        "diagnostics": [{ "message": HOSTILE, "notes": [HOSTILE], "help": [HOSTILE] }],
    });
    let named = [check, traces.clone(), refusal].map(|report| (report, Some(HOSTILE)));
    // A report of a comparison names its folders itself.
    for (report, name) in named.into_iter().chain([(traces, None)]) {
        let text = page(&[report], name).expect("a page");
        assert!(
            !text.contains("<script") && text.contains("&lt;script&gt;"),
            "{text}"
        );
        assert_eq!(text.matches("</title>").count(), 1);
        assert_eq!(text.matches("<main>").count(), 1);
        let steers = |c: char| c != '\n' && c.is_control() || c == '\u{202e}';
        assert!(!text.contains(steers));
        // Quotes of the input end no attribute: every tag but those of the frame is ours.
        assert!(!text.contains("&</title"), "{text}");
    }
}

#[test]
fn a_divergence_shows_its_place_its_orders_and_its_line() {
    let report = divergent();
    let text = page(std::slice::from_ref(&report), None).expect("a page");
    let replay = report["replay"].as_str().expect("a replay line");
    for part in [
        "✖ divergent",
        "class=\"first\" tabindex=\"0\"",
        "The two orders",
        "0x3c34aa85",
        "Not covered",
        "First in cause: the order of the sum at step 1, grad-reduce",
        "(<b>algorithm-selection</b>)",
        "Element 3680 of dp2: 2183 of 14720",
        "<svg",
        replay,
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let mut proved = report;
    (proved["grade"], proved["remedies"]) = (json!("proved"), json!([]));
    (proved["first_divergence"], proved["witness"]) = (Value::Null, Value::Null);
    let text = page(&[proved], None).expect("a page");
    assert!(text.contains("✔ proved") && !text.contains("✖"), "{text}");
}

#[test]
fn a_change_shows_where_it_acts() {
    let first = json!({ "iteration": 2, "id": "forward/gelu@0", "ranks": [0, 1],
        "verdict": "origin", "difference": "content" });
    let sides = |alters: bool, first: Value, varies: Value| {
        let change = json!({ "a": { "path": "a.toml" }, "b": { "path": HOSTILE }, "records": 7,
            "alters_bits": alters, "first": first, "varies_there": varies });
        page(&[json!({ "schema_version": 1, "change": change })], None).expect("a page")
    };
    let text = sides(true, first, json!(["a.toml"]));
    for part in [
        "alters bits",
        "iteration 2 at <b>forward/gelu@0",
        "from run to run: a.toml",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let text = sides(false, Value::Null, json!([]));
    assert!(
        text.contains("alters no bit") && !text.contains("from run to run"),
        "{text}"
    );
}

#[test]
fn large_reports_are_thinned_and_say_so() {
    let mut report = divergent();
    report["ranks"] = json!(2_432);
    report["steps"] = json!(800);
    report["losses"] = json!(vec![1.5; 800]);
    report["not_covered"] = json!(vec!["<".repeat(8_000); 300]);
    let text = page(std::slice::from_ref(&report), None).expect("a page");
    assert!(text.len() < 2_000_000, "{}", text.len());
    for part in [
        "ranks are drawn as",
        "800 steps are drawn as",
        "characters more)",
        "more: the JSON has them",
        "Thinned: lists are cut short",
    ] {
        assert!(text.contains(part), "{part}");
    }
    let text = page(&vec![report; 12], None).expect("a page");
    assert!(text.len() < 2_000_000 && text.contains("have no room here"));
}

#[test]
fn ranks_and_steps_that_nobody_has_are_no_hang() {
    let mut report = divergent();
    report["ranks"] = json!(u64::MAX);
    report["steps"] = json!(u64::MAX);
    report["first_divergence"]["ranks"] = json!([u64::MAX, 0]);
    report["first_divergence"]["site"]["step"] = json!(u64::MAX);
    let text = page(&[report], None).expect("a page");
    assert!(text.len() < 2_000_000);
}

#[test]
fn what_is_no_report_is_refused_with_its_number() {
    for (other, why) in [
        (json!([1]), "no report"),
        (json!("x"), "no report"),
        (json!({ "grade": "proved" }), "no report"),
        (
            json!({ "schema_version": 99, "verdicts": {}, "oracles": {} }),
            "schema version 99",
        ),
    ] {
        let refused = page(&[divergent(), other], None).unwrap_err();
        assert_eq!(refused.number, 2);
        assert!(refused.why.contains(why), "{refused:?}");
    }
}
