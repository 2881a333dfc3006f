//! Real traces of four gloo ranks under DDP, and what is known of them: `expected.json` beside
//! each pair. Two pairs are kept here, packed anew; `BITPROOF_TRACES_DIR` names a folder with more.

use std::path::{Path, PathBuf};

use bitproof::trace::Folder;
use bitproof::trace::Strength;
use bitproof::trace::diff::{Comparison, Divergence, Pattern, Verdict, compare};
use serde_json::{Value, json};

/// Folders that have an `expected.json`.
fn pairs() -> Vec<PathBuf> {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/traces");
    let others = std::env::var_os("BITPROOF_TRACES_DIR").map(PathBuf::from);
    let mut found = Vec::new();
    for root in std::iter::once(own).chain(others) {
        let entries = std::fs::read_dir(&root).expect("a folder of pairs");
        let folders = entries.map(|entry| entry.expect("a readable folder").path());
        found.extend(folders.filter(|path| path.join("expected.json").is_file()));
    }
    found.sort();
    found
}

fn expected(pair: &Path) -> Value {
    let text = std::fs::read_to_string(pair.join("expected.json")).expect("it is there");
    serde_json::from_str(&text).expect("JSON")
}

fn compared(pair: &Path) -> Comparison {
    let [a, b] = ["run_a", "run_b"].map(|run| Folder::open(&pair.join(run)).expect("traces"));
    compare(&a, &b, true)
}

/// A divergence with the fields and words of `expected.json`, those that `want` has.
fn told(first: &Divergence, want: &Value) -> Value {
    let point = &first.point;
    let all = json!({
        "kind": point.kind,
        "seq": point.seq,
        "iteration": point.iteration,
        "microbatch": point.microbatch,
        "phase": point.phase,
        "name": point.name,
        "id": point.id,
        "scope": point.scope,
        "own_inputs_match": first.own_inputs_match,
        "matched_before": first.matched_before,
        "group_inputs_match": first.group_inputs_match,
        "verdict": first.role.name(),
    });
    let want = want.as_object().expect("an object");
    let kept = want.keys().map(|key| (key.clone(), all[key].clone()));
    Value::Object(kept.collect())
}

fn check(pair: &Path) {
    let (want, found) = (expected(pair), compared(pair));
    assert_eq!(found.reasons, [], "{}", pair.display());
    assert_eq!(found.strength, Strength::Full);
    if let Some(records) = want["records_per_rank"].as_u64() {
        assert_eq!(found.records, records * found.ranks.len() as u64);
    }
    if want["identical"] == json!(true) {
        assert_eq!(found.verdict, Verdict::Same);
    }
    if let Some(ranks) = want["first_divergence_per_rank"].as_object() {
        assert_eq!(found.verdict, Verdict::Different);
        assert_eq!(found.firsts.len(), ranks.len());
        for (rank, want) in ranks {
            let first = &found.firsts[&rank.parse().expect("a rank")];
            assert_eq!(&told(first, want), want);
        }
        assert_eq!(found.pattern, Pattern::EveryRank);
        assert_eq!(found.hints[0].cause, "reduction-order");
        assert!(found.artefacts.is_empty());
    }
    if want["identical_training"] == json!(true) {
        assert_eq!(found.verdict, Verdict::OnlyArtefacts);
        assert!(found.firsts.is_empty());
        artefacts(&want, &found);
    }
}

/// The differences that a naive tool would report are listed, and nothing else is.
fn artefacts(want: &Value, found: &Comparison) {
    let ranks = want["naive_first_divergence_per_rank"]
        .as_object()
        .expect("ranks");
    let words = |key: &str| -> Vec<String> {
        let list = want[key].as_array().expect("ops");
        list.iter()
            .map(|op| op.as_str().expect("a name").to_string())
            .collect()
    };
    let (outputs, inputs) = (
        words("differing_output_ops"),
        words("differing_input_only_ops"),
    );
    for (rank, want) in ranks {
        let artefacts = &found.artefacts[&rank.parse().expect("a rank")];
        let mut in_outputs = artefacts.iter().filter(|artefact| artefact.is_in_outputs);
        let first = in_outputs.next().expect("an output differs");
        assert_eq!(&told(&first.first, want), want);
        for artefact in artefacts {
            let list = if artefact.is_in_outputs {
                &outputs
            } else {
                &inputs
            };
            assert!(list.contains(&artefact.point().name), "{artefact:?}");
        }
    }
}

#[test]
fn real_traces_come_out_as_is_known() {
    let pairs = pairs();
    assert!(pairs.len() >= 2, "{pairs:?}");
    pairs.iter().for_each(|pair| check(pair));
}

/// The loss still agrees where the sum first differs, and parts an iteration later.
#[test]
fn the_ladder_begins_with_the_metric() {
    let pair = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/traces/divergent");
    let found = compared(&pair);
    let (metric, result) = found.metrics.iter().next().expect("a loss is recorded");
    assert_eq!(metric.words(), "loss");
    assert_eq!(result.first_difference, Some(3));
    assert_eq!(found.earliest().expect("it parts").point.iteration, Some(2));
}

/// Negative controls: what was set apart is real as soon as nothing settles it, or something shows
/// it.
#[test]
fn an_artefact_that_nothing_settles_is_a_difference() {
    let pair = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/traces");
    let pair = pair.join("artifact_uninitialised");
    let root = tempfile::tempdir().expect("a temporary folder");
    for run in ["run_a", "run_b"] {
        std::fs::create_dir(root.path().join(run)).expect("a writable folder");
        for rank in 0..4 {
            let name = format!("rank_{rank:06}.jsonl");
            let packed = pair.join(run).join(format!("{name}.zst"));
            let bytes = std::fs::read(packed).expect("it is there");
            let text = zstd::decode_all(&bytes[..]).expect("zstd");
            let text = String::from_utf8(text).expect("text");
            // Right after the views of unwritten memory.
            let kept: Vec<&str> = text.lines().take(330).collect();
            std::fs::write(root.path().join(run).join(name), kept.join("\n")).expect("written");
        }
    }
    let found = compared(root.path());
    assert_eq!(found.verdict, Verdict::Different);
    let first = &found.firsts[&0];
    assert_eq!((first.point.seq, first.may_be_artefact), (319, true));
    assert!(
        found
            .hints
            .iter()
            .any(|hint| hint.cause == "may-be-artefact")
    );
}

#[test]
fn a_value_that_is_computed_with_is_no_artefact() {
    let view = |value: u64| record(0, "aten.as_strided.default", &[value], value + 1);
    let reader = |value: u64, out: u64| record(1, "aten.mul.Tensor", &[value], out);
    let param =
        |out: u64| record(2, "w", &[], out).replace("\"kind\":\"op\"", "\"kind\":\"param\"");
    // Nobody computes with it; somebody does; somebody does, to no effect.
    for (read, out, verdict) in [
        ([50, 50], [7, 7], Verdict::OnlyArtefacts),
        ([11, 21], [7, 8], Verdict::Different),
        ([11, 21], [7, 7], Verdict::OnlyArtefacts),
    ] {
        let root = tempfile::tempdir().expect("a temporary folder");
        for (side, name) in ["run_a", "run_b"].into_iter().enumerate() {
            let folder = root.path().join(name);
            std::fs::create_dir(&folder).expect("a writable folder");
            let value = [10, 20][side];
            let lines = [view(value), reader(read[side], out[side]), param(3)];
            std::fs::write(folder.join("rank_0.jsonl"), lines.join("\n")).expect("written");
        }
        let found = compared(root.path());
        assert_eq!(found.verdict, verdict, "{read:?} {out:?}");
        if verdict == Verdict::Different {
            let first = &found.firsts[&0];
            assert_eq!(first.point.name, "aten.as_strided.default");
            assert!(found.hints.iter().any(|hint| hint.cause == "one-hop-later"));
        }
    }
}

fn record(seq: u64, name: &str, inputs: &[u64], output: u64) -> String {
    let operand = |value: &u64| {
        format!(
            "{{\"shape\":[1],\"dtype\":\"float32\",\"numel\":1,\"digest\":\"{value:016x}\",\
             \"bytes64\":\"{value:016x}\"}}"
        )
    };
    let inputs: Vec<String> = inputs.iter().map(operand).collect();
    format!(
        "{{\"schema_version\":1,\"seq\":{seq},\"rank\":0,\"iteration\":1,\"microbatch\":0,\
         \"phase\":\"forward\",\"kind\":\"op\",\"name\":\"{name}\",\
         \"payload\":{{\"id\":\"{name}:0\",\"scope\":\"\",\"in\":[{}],\"out\":[{}]}}}}",
        inputs.join(","),
        operand(&output)
    )
}
