//! `check --baseline` and `--write-baseline`: what is known passes, what is new fails, and what is
//! no longer there is told.

use process::{bitproof, ended};
use serde_json::Value;

#[path = "support/process.rs"]
mod process;

const RECIPE: &str = "
oracles = ['R2R']
steps = 1
[recipe]
world_size = 2
num_layers = 1
hidden_size = 16
ffn_hidden_size = 16
num_attention_heads = 2
seq_length = 8
micro_batch_size = 1
global_batch_size = 8
train_iters = 4
lr = 5e-3
[recipe.env]
NCCL_ALGO = 'Ring'
[recipe.determinism]
wgrad_splits = 3
";

/// Weight gradients that are added with atomics.
const RACY: &str = "wgrad_split_k = 'arrival'\n";

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        Place(tempfile::tempdir().expect("a folder"))
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.0.path().join(name), text).expect("it is written");
    }

    fn scenario(&self, file: &str, name: &str, more: &str) {
        self.write(file, &format!("name = '{name}'{RECIPE}{more}"));
    }

    fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.path().join(name)).expect("it is there")
    }

    /// The exit code, standard output and standard error.
    fn check(&self, arguments: &[&str]) -> (i32, String, String) {
        let mut command = bitproof(self.0.path());
        ended(command.args(["check", "--no-save"]).args(arguments))
    }

    fn judged(&self, arguments: &[&str], code: i32) -> Value {
        let (found, text, talk) = self.check(&[arguments, &["--format", "json"]].concat());
        assert_eq!(found, code, "{text}{talk}");
        let report: Value = serde_json::from_str(&text).expect("one object");
        assert_eq!(report["exit_code"], code);
        report
    }
}

fn listed(report: &Value, which: &str) -> Vec<String> {
    let list = report["baseline"][which].as_array().expect("a list").iter();
    let line = |one: &Value| {
        format!(
            "{}: {}",
            one["code"].as_str().unwrap(),
            one["what"].as_str().unwrap()
        )
    };
    list.map(line).collect()
}

#[test]
fn known_findings_pass_and_new_ones_fail() {
    let place = Place::new();
    place.scenario("racy.toml", "racy", RACY);
    let failing = place.judged(&["racy.toml"], 1);
    assert_eq!(failing["baseline"], Value::Null);
    let (code, _, talk) = place.check(&["racy.toml", "--write-baseline", "known.json"]);
    assert_eq!(code, 0, "{talk}");
    assert!(talk.contains("known findings in known.json"), "{talk}");
    let known = ["racy.toml", "--baseline", "known.json"];
    let report = place.judged(&known, 0);
    assert_eq!(
        (listed(&report, "new"), listed(&report, "stale")),
        (vec![], vec![])
    );
    let found = listed(&report, "known");
    assert!(
        found.contains(&"sensitive: wgrad-split-k, arrival, within".to_string()),
        "{found:?}"
    );
    // The verdict itself is what it was.
    assert_eq!(report["grade"], failing["grade"]);
    // Other orders, steps and values of the same findings.
    for more in [
        ["--seed", "7"],
        ["--steps", "2"],
        ["--set", "recipe.lr=1e-3"],
    ] {
        let report = place.judged(&[&known[..], &more[..]].concat(), 0);
        assert!(listed(&report, "new").is_empty(), "{more:?}: {report}");
    }
    let more = ["--set", "recipe.determinism.norm_weight_grad=\"arrival\""];
    let report = place.judged(&[&known[..], &more[..]].concat(), 1);
    let new = listed(&report, "new");
    assert!(
        new.contains(&"sensitive: norm-weight-grad, arrival, within".to_string()),
        "{new:?}"
    );
    assert!(
        !new.iter().any(|one| one.contains("wgrad-split-k, arrival")),
        "{new:?}"
    );
    let (code, text, _) = place.check(&[&known[..], &more[..]].concat());
    assert!(
        code == 1 && text.contains("new: sensitive: norm-weight-grad"),
        "{text}"
    );
    let ordered = ["--set", "recipe.determinism.wgrad_split_k=\"ordered\""];
    let report = place.judged(&[&known[..], &ordered[..]].concat(), 0);
    assert_eq!(listed(&report, "stale"), found, "all of it is mended");
    // Known findings are notes, and no failures of a dashboard.
    let (_, sarif, _) = place.check(&[&known[..], &["--format", "sarif"]].concat());
    let sarif: Value = serde_json::from_str(&sarif).unwrap();
    let results = sarif["runs"][0]["results"].as_array().expect("a list");
    assert!(
        !results.is_empty() && results.iter().all(|one| one["level"] == "note"),
        "{sarif}"
    );
    let (_, junit, _) = place.check(&[&known[..], &["--format", "junit"]].concat());
    assert!(!junit.contains("<failure"), "{junit}");
}

#[test]
fn a_file_knows_scenarios_by_name_and_keeps_its_form() {
    let place = Place::new();
    place.scenario("racy.toml", "racy", RACY);
    place.scenario("sound.toml", "sound", "");
    let both = ["racy.toml", "sound.toml", "--write-baseline", "known.json"];
    assert_eq!(place.check(&both).0, 0);
    let first = place.read("known.json");
    assert_eq!(place.check(&both).0, 0, "a baseline is replaced");
    assert_eq!(place.read("known.json"), first, "by the same bytes");
    let written: Value = serde_json::from_str(&first).unwrap();
    assert_eq!(written["format"], "bitproof-baseline");
    let names = written["scenarios"].as_array().unwrap().iter();
    let names: Vec<&Value> = names.map(|one| &one["name"]).collect();
    assert_eq!(names, ["racy", "sound"]);
    // Another scenario's findings are not this one's.
    place.scenario("sound.toml", "sound", RACY);
    assert_eq!(
        place.check(&["sound.toml", "--baseline", "known.json"]).0,
        1
    );
    let (code, _, talk) = place.check(&["sound.toml", "--baseline", "known.json", "-q"]);
    assert!(
        code == 1 && talk.contains("`racy` was not checked"),
        "{talk}"
    );
    place.scenario("twin.toml", "racy", RACY);
    let (code, _, talk) = place.check(&["racy.toml", "twin.toml", "--baseline", "known.json"]);
    assert!(
        code == 2 && talk.contains("two scenarios are called `racy`"),
        "{talk}"
    );
}

#[test]
fn what_no_baseline_lets_pass_is_not_written() {
    let place = Place::new();
    let flip = "[fault]\nflip_bit = { node = \"optimizer.adamw\", rank = 1, step = 1, bit = 20 }";
    place.scenario("flip.toml", "flip", flip);
    let (code, _, talk) = place.check(&["flip.toml", "--write-baseline", "known.json"]);
    assert_eq!(code, 3, "{talk}");
    assert!(talk.contains("no baseline was written"), "{talk}");
    assert!(!place.0.path().join("known.json").exists());
    // Nor does one that names it by hand.
    place.scenario("racy.toml", "racy", RACY);
    place.write("broken.toml", "recipe = 1");
    let (code, _, talk) = place.check(&["racy.toml", "broken.toml", "--write-baseline", "k.json"]);
    assert!(
        code == 2 && talk.contains("no baseline was written"),
        "{talk}"
    );
    let report = place.judged(&["flip.toml"], 3);
    assert_eq!(report["grade"], "uncontrolled");
    let empty = r#"{"format":"bitproof-baseline","format_version":1,"scenarios":[]}"#;
    place.write("empty.json", empty);
    let report = place.judged(&["flip.toml", "--baseline", "empty.json"], 3);
    let never = report["baseline"]["never_known"]
        .as_array()
        .expect("a list");
    assert_eq!(never.len(), 1, "{report}");
    let mut all: Vec<Value> = Vec::new();
    all.extend(
        report["baseline"]["new"]
            .as_array()
            .unwrap()
            .iter()
            .cloned(),
    );
    let findings = serde_json::to_string(&all).unwrap();
    let forged = empty.replace(
        "[]",
        &format!(r#"[{{"name":"flip","findings":{findings}}}]"#),
    );
    place.write("forged.json", &forged);
    let report = place.judged(&["flip.toml", "--baseline", "forged.json"], 3);
    assert_eq!(
        listed(&report, "new"),
        [""; 0],
        "all is listed, and it fails all the same"
    );
}

#[test]
fn a_file_that_is_no_baseline_is_refused_with_its_place() {
    let place = Place::new();
    place.scenario("racy.toml", "racy", RACY);
    let head = r#"{"format":"bitproof-baseline","format_version":1"#;
    for (text, told) in [
        ("", "not a baseline"),
        ("{", "not a baseline"),
        ("[]", "not a baseline"),
        ("\u{f6}\u{f6}", "not a baseline"),
        (
            r#"{"format":"other","format_version":1,"scenarios":[]}"#,
            "this is `other`",
        ),
        (
            r#"{"format":"bitproof-baseline","format_version":2,"scenarios":[]}"#,
            "version 2",
        ),
        (
            &format!("{head},\"scenarios\":[],\"more\":1}}"),
            "unknown field `more`",
        ),
        (
            &format!(
                "{head},\"scenarios\":[{0},{0}]}}",
                r#"{"name":"a","findings":[]}"#
            ),
            "`a` is there twice",
        ),
    ] {
        place.write("known.json", text);
        let (code, out, talk) = place.check(&["racy.toml", "--baseline", "known.json"]);
        assert_eq!((code, &*out), (2, ""), "{text}: {talk}");
        assert!(talk.contains(told), "{text}: {talk}");
        assert!(
            text.is_empty() || talk.contains("known.json"),
            "{text}: {talk}"
        );
        // What is no baseline is not written over.
        let (code, _, talk) = place.check(&["racy.toml", "--write-baseline", "known.json"]);
        assert!(code == 2 && talk.contains("no baseline"), "{text}: {talk}");
        assert_eq!(place.read("known.json"), text);
    }
    let (code, _, talk) = place.check(&["racy.toml", "--baseline", "none.json"]);
    assert!(
        code == 2 && talk.contains("--write-baseline FILE"),
        "{talk}"
    );
    let (code, _, talk) = place.check(&["racy.toml", "--write-baseline", "none/x.json"]);
    assert!(
        code == 2 && talk.contains("no folder that is there"),
        "{talk}"
    );
}
