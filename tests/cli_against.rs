//! `check A --against B`: whether a change alters bits, and where first, apart from what varies
//! from run to run.

use std::path::Path;

use process::{bitproof, ended};
use serde_json::Value;

#[path = "support/process.rs"]
mod process;

const RECIPE: &str = "
oracles = ['R2R']
steps = 2
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

struct Place(tempfile::TempDir);

impl Place {
    /// `a.toml` as it is, `b.toml` with `from` replaced by `to`.
    fn new(from: &str, to: &str) -> Place {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(RECIPE.contains(from), "{from}");
        for (name, text) in [("a", RECIPE.to_string()), ("b", RECIPE.replace(from, to))] {
            let file = folder.path().join(format!("{name}.toml"));
            std::fs::write(file, format!("name = '{name}'{text}")).expect("it is written");
        }
        Place(folder)
    }

    fn check(&self, more: &[&str]) -> (i32, String, String) {
        check(
            self.0.path(),
            &[&["a.toml", "--against", "b.toml"], more].concat(),
        )
    }

    /// The third object, and the exit code.
    fn change(&self) -> (Value, i32) {
        let (code, text, talk) = self.check(&["--format", "json"]);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}{talk}");
        let found: Value = serde_json::from_str(lines[2]).expect("an object a line");
        (found["change"].clone(), code)
    }
}

fn check(folder: &Path, arguments: &[&str]) -> (i32, String, String) {
    let mut command = bitproof(folder);
    ended(command.args(["check", "--no-save"]).args(arguments))
}

#[test]
fn what_changes_nothing_is_said_to() {
    // A variable that nothing reads.
    let place = Place::new(
        "NCCL_ALGO = 'Ring'",
        "NCCL_ALGO = 'Ring'\nNCCL_DEBUG = 'INFO'",
    );
    let (change, code) = place.change();
    assert_eq!(
        (code, &change["alters_bits"], &change["first"]),
        (0, &false.into(), &Value::Null)
    );
    assert!(change["records"].as_u64() > Some(100), "{change}");
    let (_, text, _) = place.check(&[]);
    assert!(
        text.contains("b.toml changes no bit of a.toml's straight run"),
        "{text}"
    );
    assert!(text.contains("from run to run a.toml is proved"), "{text}");
}

#[test]
fn the_first_node_is_that_at_which_the_change_acts() {
    for (from, to, phase, name) in [
        ("lr = 5e-3", "lr = 4e-3", "optimizer", None),
        (
            "lr = 5e-3",
            "lr = 5e-3\nadam_beta2 = 0.9",
            "optimizer",
            Some("advance"),
        ),
        ("lr = 5e-3", "lr = 5e-3\nseed = 7", "setup", None),
        ("wgrad_splits = 3", "wgrad_splits = 2", "backward", None),
    ] {
        let place = Place::new(from, to);
        let (change, code) = place.change();
        assert_eq!(
            (code, &change["alters_bits"]),
            (0, &true.into()),
            "{to}: {change}"
        );
        assert_eq!(change["first"]["phase"], phase, "{to}: {change}");
        if let Some(name) = name {
            assert_eq!(change["first"]["name"], name, "{to}: {change}");
            assert_eq!(change["first"]["verdict"], "origin", "{to}: {change}");
        }
        assert_eq!(
            change["first"]["ranks"],
            serde_json::json!([0, 1]),
            "{to}: {change}"
        );
        assert_eq!(change["varies_there"], serde_json::json!([]));
    }
}

/// A freed order changes no bit of the canonical run: that is run-to-run variation, and the
/// verdict of the scenario that has it.
#[test]
fn what_varies_from_run_to_run_is_kept_apart() {
    let free = "wgrad_splits = 3\nwgrad_split_k = 'arrival'";
    let place = Place::new("wgrad_splits = 3", free);
    let (change, code) = place.change();
    assert_eq!(
        (code, &change["alters_bits"]),
        (1, &false.into()),
        "{change}"
    );
    assert_eq!(
        (&change["a"]["grade"], &change["b"]["grade"]),
        (&"proved".into(), &"divergent".into())
    );
    let (_, text, _) = place.check(&[]);
    assert!(
        text.contains("what varies from run to run has no part in this"),
        "{text}"
    );
    assert!(
        text.contains("from run to run b.toml is divergent, first at"),
        "{text}"
    );
}

/// What a checkpoint leaves out shows after a restart alone, and in no record of the straight run.
#[test]
fn what_acts_in_resumed_runs_is_no_change_without_effect() {
    let place = Place::new("steps = 2", "steps = 2\nfault.omit_component = 'exp-avg'");
    for name in ["a.toml", "b.toml"] {
        let file = place.0.path().join(name);
        let text = std::fs::read_to_string(&file).unwrap();
        let text = text.replace("oracles = ['R2R']\n", "oracles = ['RES']\n");
        std::fs::write(&file, format!("{text}\n[checkpoint]\nrestarts = [[1]]\n")).unwrap();
    }
    let (change, code) = place.change();
    assert_eq!((code, &change["alters_bits"]), (1, &false.into()));
    let only = change["b"]["only_here"].as_array().expect("a list");
    assert!(!only.is_empty(), "{change}");
    assert_eq!(change["a"]["only_here"], serde_json::json!([]), "{change}");
    let (_, text, _) = place.check(&[]);
    assert!(text.contains("acts in other runs"), "{text}");
    assert!(text.contains("only b.toml: "), "{text}");
    let (_, github, _) = place.check(&["--format", "github"]);
    assert!(github.contains("change-acts-elsewhere"), "{github}");
}

/// The same job on two allocations: where the check of both, which knows of neither run, says that
/// placement acts.
#[test]
fn two_allocations_part_where_placement_acts() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let topologies = root.join("../topologies");
    let recipe = root.join("recipes/gpt-tp2-pp2-dp4.toml");
    let scenario = |name: &str, files: &[&str], free: &str| {
        let files = files
            .iter()
            .map(|file| format!("'{}'", topologies.join(file).display()));
        let files = files.collect::<Vec<_>>().join(", ");
        let text = format!(
            "name = '{name}'\nrecipe = '{}'\nallocations = [{files}]\n{free}oracles = ['R2R']\n\
             steps = 1\n",
            recipe.display()
        );
        std::fs::write(path(name), text).unwrap();
    };
    scenario("a.toml", &["block-2x8.toml"], "");
    scenario("b.toml", &["plane2-2x8.toml"], "");
    scenario(
        "both.toml",
        &["block-2x8.toml", "plane2-2x8.toml"],
        "free = ['placement']\n",
    );
    let (_, text, talk) = check(folder.path(), &["both.toml", "--format", "json"]);
    let both: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}{talk}"));
    let site = &both["first_divergence"]["site"];
    let given = ["a.toml", "--against", "b.toml", "--format", "json"];
    let (_, text, _) = check(folder.path(), &given);
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    let first = &last["change"]["first"];
    for (theirs, ours) in [
        ("module", "scope"),
        ("op", "name"),
        ("phase", "phase"),
        ("step", "iteration"),
    ] {
        assert_eq!(site[theirs], first[ours], "{first}\n{site}");
    }
    assert_eq!(first["verdict"], "origin");
}

#[test]
fn other_shapes_part_by_form_and_other_worlds_are_refused() {
    let place = Place::new("num_layers = 1", "num_layers = 2");
    let (change, _) = place.change();
    let difference = change["first"]["difference"].as_str().expect("they part");
    assert!(
        ["missing", "metadata", "order", "content"].contains(&difference),
        "{change}"
    );
    for (from, to, told) in [
        ("world_size = 2", "world_size = 4", "2 ranks and 4 ranks"),
        (
            "steps = 2",
            "steps = 3",
            "2 steps are checked of one, 3 of the other",
        ),
    ] {
        let (code, text, talk) = Place::new(from, to).check(&[]);
        assert_eq!((code, &*text), (2, ""), "{talk}");
        assert!(talk.contains(told), "{talk}");
    }
    let place = Place::new("steps = 2", "steps = 2");
    let (code, _, talk) = place.check(&["--trace", "x"]);
    assert!(code == 2 && talk.contains("cannot be used with"), "{talk}");
    let (code, _, talk) = place.check(&["b.toml"]);
    assert!(code == 2 && talk.contains("check A --against B"), "{talk}");
    let (code, _, talk) = check(place.0.path(), &["a.toml", "--against", "none.toml"]);
    assert!(code == 2 && talk.contains("none.toml"), "{talk}");
}

#[test]
fn every_format_has_one_document() {
    let place = Place::new("lr = 5e-3", "lr = 4e-3");
    let (_, sarif, _) = place.check(&["--format", "sarif"]);
    let sarif: Value = serde_json::from_str(&sarif).expect("one log");
    let results = sarif["runs"][0]["results"].as_array().unwrap();
    assert!(
        results
            .iter()
            .any(|one| one["ruleId"] == "change-acts" && one["level"] == "note")
    );
    let (_, github, _) = place.check(&["--format", "github"]);
    assert!(github.contains("::notice title=change-acts"), "{github}");
    let (_, junit, talk) = place.check(&["--format", "junit"]);
    assert!(
        junit.starts_with("<?xml") && junit.matches("<testsuite ").count() == 2,
        "{junit}"
    );
    assert!(talk.contains("change-acts"), "{talk}");
}
