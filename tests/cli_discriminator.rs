//! The discriminator table of `bitproof trace diff` as a whole process, on the worked case of
//! Megatron-LM pull request 7262: FP4 operands with float32 output break, accumulating or not.

use std::fmt::Write as _;
use std::path::Path;

use process::{bitproof, ended};
use serde_json::Value;

#[path = "support/process.rs"]
mod process;

/// Operand type, output type, accumulation.
const CALLS: [(&str, &str, u8); 8] = [
    ("bfloat16", "float32", 0),
    ("float4_e2m1fn_x2", "bfloat16", 0),
    ("bfloat16", "float32", 1),
    ("float4_e2m1fn_x2", "float32", 0),
    ("float4_e2m1fn_x2", "bfloat16", 1),
    ("float4_e2m1fn_x2", "float32", 1),
    ("bfloat16", "bfloat16", 0),
    ("bfloat16", "bfloat16", 1),
];

/// One rank's run; `broken` says which calls give other bytes in run 1.
fn write(folder: &Path, run: u8, broken: impl Fn(&str, &str, u8) -> bool) {
    std::fs::create_dir(folder).expect("it is new");
    let mut text = String::new();
    for (seq, (operand, output, accumulate)) in CALLS.into_iter().enumerate() {
        let tensor = |dtype: &str, digest: u8| {
            format!(
                "{{\"shape\":[2],\"dtype\":\"{dtype}\",\"numel\":2,\"digest\":\"{digest:032x}\"}}"
            )
        };
        let got = if broken(operand, output, accumulate) {
            run
        } else {
            0
        };
        let (given, got) = (tensor(operand, 1), tensor(output, got));
        writeln!(
            text,
            "{{\"schema_version\":1,\"seq\":{seq},\"rank\":0,\"iteration\":1,\"kind\":\"op\",\
             \"name\":\"te.wgrad_<gemm>\",\"payload\":{{\"id\":\"gemm:{seq}\",\"in\":[{given}],\
             \"out\":[{got}],\"accumulate\":{accumulate}}}}}"
        )
        .unwrap();
    }
    std::fs::write(folder.join("rank_0.jsonl"), text).expect("it is written");
}

/// The comparison of two runs: standard output.
fn compared(root: &Path, more: &[&str]) -> String {
    let mut diff = bitproof(root);
    let (code, text, talk) = ended(diff.args(["trace", "diff", "a", "b"]).args(more));
    assert_eq!(code, 1, "{text}{talk}");
    text
}

#[test]
fn the_axes_that_separate_are_told() {
    let root = tempfile::tempdir().unwrap();
    let broken = |operand: &str, output: &str, _| operand.contains("float4") && output == "float32";
    write(&root.path().join("a"), 0, broken);
    write(&root.path().join("b"), 1, broken);
    let text = compared(root.path(), &["--html", "diff.html"]);
    let says = "2 records with equal inputs differ, 6 agree: operand dtype with output dtype tells \
                them apart, and nothing smaller does";
    assert!(
        text.contains("discriminator table of te.wgrad_<gemm>:"),
        "{text}"
    );
    assert!(text.contains(says), "{text}");
    let rows = text
        .lines()
        .filter(|line| line.contains("float4_e2m1fn_x2  float32"));
    let rows: Vec<Vec<&str>> = rows.map(|row| row.split_whitespace().collect()).collect();
    assert_eq!(rows.len(), 2, "with and without accumulation: {text}");
    assert!(rows.iter().all(|row| row[3..] == ["1", "0"]), "{rows:?}");
    let page = std::fs::read_to_string(root.path().join("diff.html")).unwrap();
    assert!(
        page.contains(says) && page.contains("te.wgrad_&lt;gemm&gt;"),
        "{page}"
    );
    let json: Value = serde_json::from_str(&compared(root.path(), &["--format", "json"])).unwrap();
    let table = &json["discriminator"];
    assert_eq!(
        table["separating"],
        serde_json::json!([["operand dtype", "output dtype"]])
    );
    assert_eq!(
        table["axes"],
        serde_json::json!(["operand dtype", "output dtype", "accumulate"])
    );
    assert_eq!((&table["differ"], &table["agree"]), (&2.into(), &6.into()));
    assert_eq!(table["says"], says);
}

#[test]
fn what_no_axis_separates_is_not_claimed() {
    let root = tempfile::tempdir().unwrap();
    // The first call of two that are alike breaks.
    let first = std::cell::Cell::new(true);
    write(&root.path().join("a"), 0, |_, _, _| true);
    write(&root.path().join("b"), 1, |_, _, _| first.replace(false));
    let again = std::fs::read_to_string(root.path().join("b/rank_0.jsonl")).unwrap();
    let line = again.lines().next().unwrap();
    for run in ["a", "b"] {
        let path = root.path().join(run).join("rank_0.jsonl");
        let text = std::fs::read_to_string(&path).unwrap();
        // A ninth call, as the first one in all that records say, with the same bytes twice.
        let ninth = line
            .replace("\"seq\":0", "\"seq\":8")
            .replace("gemm:0", "gemm:8");
        std::fs::write(&path, format!("{text}{ninth}\n")).unwrap();
    }
    let text = compared(root.path(), &[]);
    assert!(
        text.contains("1 records with equal inputs differ, 8 agree: no axis tells them apart"),
        "{text}"
    );
    let json: Value = serde_json::from_str(&compared(root.path(), &["--format", "json"])).unwrap();
    assert_eq!(json["discriminator"]["separating"], serde_json::json!([]));
}
