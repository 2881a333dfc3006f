//! `bitproof trace` as a whole process: exit codes, formats, and what documentation says of them.

#[path = "support/process.rs"]
mod process;
#[path = "trace/synthetic.rs"]
mod synthetic;

use std::collections::BTreeSet;
use std::path::Path;

use process::{bitproof, ended};
use serde_json::Value;
use synthetic::{Plant, Size, run, write};

const DIVERGENT: [&str; 2] = [
    "tests/golden/traces/divergent/run_a",
    "tests/golden/traces/divergent/run_b",
];
const ARTEFACT: [&str; 2] = [
    "tests/golden/traces/artifact_uninitialised/run_a",
    "tests/golden/traces/artifact_uninitialised/run_b",
];

/// Runs a verb of `trace`: the exit code, standard output and standard error.
fn trace(arguments: &[&str]) -> (i32, String, String) {
    let mut command = bitproof(env!("CARGO_MANIFEST_DIR"));
    ended(command.arg("trace").args(arguments))
}

fn object(arguments: &[&str], code: i32) -> Value {
    let (found, text, talk) = trace(&[arguments, &["--format", "json"]].concat());
    assert_eq!(found, code, "{text}{talk}");
    serde_json::from_str(&text).expect("one object")
}

#[test]
fn a_real_divergence_is_told_with_its_origin_and_what_to_try() {
    let (code, text, _) = trace(&["diff", DIVERGENT[0], DIVERGENT[1]]);
    assert_eq!(code, 1);
    for part in [
        "different: 4 of 4 ranks part",
        "first: collective collective:all_reduce:0, iteration 2, microbatch 1, backward (seq 507)",
        "origin: the inputs of its whole group match, its result does not",
        "507 records matched before it (3 collective, 9 grad, 486 op, 9 param)",
        "reduction-order",
        "NCCL_ALGO=Ring",
        "metric  loss, from iteration 3",
        "0-3          origin",
        "evidence of what matched: full",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let json = object(&["diff", DIVERGENT[0], DIVERGENT[1]], 1);
    assert_eq!(
        (&json["identical"], &json["strength"]),
        (&false.into(), &"full".into())
    );
    assert_eq!(json["pattern"], "every-rank-same-op");
    assert_eq!(json["cause_hints"][0]["cause"], "reduction-order");
    let first = json["ranks"][3]["first_divergence"]
        .as_object()
        .expect("it parts");
    let fields: BTreeSet<&str> = first.keys().map(String::as_str).collect();
    let wanted = "kind seq iteration microbatch phase name id scope own_inputs_match \
        group_inputs_match matched_before verdict";
    assert_eq!(fields, wanted.split_whitespace().collect());
}

#[test]
fn artefacts_alone_are_the_same_training_and_are_listed() {
    let json = object(&["diff", ARTEFACT[0], ARTEFACT[1]], 0);
    assert_eq!(json["identical"], false);
    assert_eq!(json["identical_training"], true);
    assert!(
        json["artefacts"]
            .as_array()
            .is_some_and(|list| list.len() >= 12)
    );
    let (code, text, _) = trace(&["diff", ARTEFACT[0], ARTEFACT[1]]);
    assert_eq!(code, 0);
    assert!(
        text.contains("same training") && text.contains("view-of-unwritten-memory"),
        "{text}"
    );
}

#[test]
fn a_run_is_the_same_as_itself() {
    let json = object(&["diff", DIVERGENT[0], DIVERGENT[0]], 0);
    assert_eq!(
        (&json["identical"], &json["identical_training"]),
        (&true.into(), &true.into())
    );
    assert_eq!(json["ranks"][0]["first_divergence"], Value::Null);
}

#[test]
fn thousands_of_ranks_that_are_alike_share_a_line() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let size = Size {
        ranks: 600,
        iterations: 1,
        ops: 4,
    };
    let plant = Plant {
        rank: 7,
        iteration: 1,
        place: 1,
    };
    let paths = ["a", "b"].map(|name| root.path().join(name));
    write(&paths[0], &run(size, None));
    write(&paths[1], &run(size, Some(plant)));
    let [a, b] = paths.map(|path| path.display().to_string());
    let (code, text, _) = trace(&["diff", &a, &b]);
    assert_eq!(code, 1);
    assert!(text.contains("\n  7            origin "), "{text}");
    assert!(text.contains("\n  0-6,8-599    receiver "), "{text}");
    assert!(text.lines().count() < 40, "{text}");
}

#[test]
fn every_exit_code_is_as_documented() {
    let root = tempfile::tempdir().expect("a temporary folder");
    let path = |name: &str| root.path().join(name).display().to_string();
    for name in ["empty", "cut", "one"] {
        std::fs::create_dir(root.path().join(name)).expect("a writable folder");
    }
    let size = Size {
        ranks: 1,
        iterations: 1,
        ops: 3,
    };
    write(&root.path().join("one"), &run(size, None));
    let whole = std::fs::read_to_string(root.path().join("one/rank_000000.jsonl"));
    let whole = whole.expect("it was written");
    std::fs::write(
        root.path().join("cut/rank_000000.jsonl"),
        &whole[..whole.len() - 20],
    )
    .expect("written");
    let (one, cut, empty, none) = (path("one"), path("cut"), path("empty"), path("none"));
    for (arguments, code) in [
        (vec!["certify", &one], 0),
        (vec!["certify", &cut], 4),
        (vec!["certify", &empty], 4),
        (vec!["certify", &none], 2),
        (vec!["certify"], 2),
        (vec!["diff", &one, &one], 0),
        (vec!["diff", &one, &cut], 4),
        (vec!["diff", &cut, &cut], 4),
        (vec!["diff", &one, &empty], 5),
        (vec!["diff", &empty, &empty], 5),
        (vec!["diff", &one, &none], 2),
        (vec!["show", &one], 0),
        (vec!["show", &one, "--rank", "9"], 5),
        (vec!["show", &cut], 4),
        (vec!["convert", &one, "--to", "ops", "-o", &empty], 2),
        (vec!["convert", &cut, "--to", "ops", "-o", &none], 4),
    ] {
        for format in ["human", "json", "junit", "sarif", "github"] {
            let is_object = ["certify", "diff"].contains(&arguments[0]) && arguments.len() > 1;
            let extra = if is_object {
                vec!["--format", format]
            } else {
                Vec::new()
            };
            let (found, text, talk) = trace(&[&arguments[..], &extra[..]].concat());
            assert_eq!(found, code, "{arguments:?} {format}\n{text}{talk}");
        }
    }
    let (_, _, talk) = trace(&["certify", &cut]);
    assert!(
        talk.contains("cut/rank_000000.jsonl:5:") && talk.contains("cut-line"),
        "{talk}"
    );
}

#[test]
fn dashboards_read_what_was_found() {
    let arguments = |format| ["diff", DIVERGENT[0], DIVERGENT[1], "--format", format];
    let (code, xml, _) = trace(&arguments("junit"));
    let document = quick_junit::Report::deserialize_from_str(&xml).expect("JUnit");
    assert_eq!((code, document.failures, document.errors), (1, 1, 0));
    let (_, sarif, _) = trace(&arguments("sarif"));
    let sarif: Value = serde_json::from_str(&sarif).expect("SARIF");
    assert_eq!(sarif["runs"][0]["results"][0]["ruleId"], "trace-origin");
    let (_, github, _) = trace(&arguments("github"));
    assert!(
        github.starts_with("::error title=trace-origin,file="),
        "{github}"
    );
    assert_eq!(github.lines().count(), 1);
    let same = ["diff", DIVERGENT[0], DIVERGENT[0], "--format", "github"];
    assert!(
        trace(&same).1.starts_with("::notice title=trace-verdict"),
        "no silence"
    );
}

#[test]
fn a_trace_is_shown_and_converted() {
    let (code, text, _) = trace(&["show", DIVERGENT[0], "--rank", "2", "--kind", "collective"]);
    assert_eq!((code, text.lines().count()), (0, 9));
    assert!(
        text.lines().all(|line| line.starts_with("rank 2 seq ")),
        "{text}"
    );
    let root = tempfile::tempdir().expect("a temporary folder");
    let out = root.path().join("v1").display().to_string();
    let (code, text, talk) = trace(&["convert", DIVERGENT[0], "--to", "megatron-v1", "-o", &out]);
    assert_eq!((code, &*text), (0, ""), "{talk}");
    assert_eq!(trace(&["certify", &out]).0, 0);
    assert_eq!(
        trace(&["convert", DIVERGENT[0], "--to", "ops", "-o", &out]).0,
        2,
        "it is there"
    );
}

/// Keys of objects, codes of reasons, words of hints: all are in the documentation.
#[test]
fn documented_keys_are_all_keys() {
    fn keys(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(object) => {
                for (key, value) in object {
                    // Kinds and reasons of a trace are its own words.
                    if key != "kinds" && key != "undigested" && key != "matched_by_kind" {
                        keys(value, found);
                    }
                    found.insert(key.clone());
                }
            }
            Value::Array(list) => list.iter().for_each(|value| keys(value, found)),
            _ => {}
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/trace.md");
    let documentation = std::fs::read_to_string(path).expect("it is part of the tree");
    let mut found = BTreeSet::new();
    keys(
        &object(&["diff", DIVERGENT[0], DIVERGENT[1]], 1),
        &mut found,
    );
    keys(&object(&["diff", ARTEFACT[0], ARTEFACT[1]], 0), &mut found);
    keys(&object(&["certify", DIVERGENT[0]], 0), &mut found);
    assert!(found.len() > 30, "{found:?}");
    let missing = found
        .iter()
        .filter(|key| !documentation.contains(&format!("`{key}`")));
    assert_eq!(missing.collect::<Vec<_>>(), Vec::<&String>::new());
}
