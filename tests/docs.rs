//! `docs/scenario.md` names every key that is read or written. The keys are asked of the program
//! itself: a reader that meets an unknown key lists those it knows, and a report lists its own.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use bitproof::diagnostic::Source;
use bitproof::scenario::{Overrides, Scenario};
use bitproof::topology::Allocation;

const RECIPE: &str = "world_size = 4\nnum_layers = 1\nhidden_size = 16\nnum_attention_heads = 2\n\
    seq_length = 16\nmicro_batch_size = 1\nglobal_batch_size = 12\ntrain_iters = 2\nlr = 1e-2\n";

/// A key that no table has, and that is near to none: the reader then lists all of its keys.
const UNKNOWN: &str = "qqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqqq = 1\n";

fn documentation() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/scenario.md");
    std::fs::read_to_string(path).expect("the reference is part of the tree")
}

/// What is named: every text between backticks, and every word of such a text.
fn named(text: &str) -> BTreeSet<String> {
    let quoted = text.split('`').skip(1).step_by(2);
    let words = |quoted: &str| {
        let word = |c: char| !c.is_alphanumeric() && c != '_' && c != '-';
        let words = quoted.split(word).map(str::to_string);
        words.collect::<Vec<_>>()
    };
    quoted.flat_map(words).collect()
}

fn missing(keys: &BTreeSet<String>, text: &str) -> Vec<String> {
    let named = named(text);
    keys.iter()
        .filter(|key| !named.contains(*key))
        .cloned()
        .collect()
}

/// The keys of the table that `text` puts an unknown key into.
fn listed(text: &str, prefix: &str) -> BTreeSet<String> {
    let source = Source::new("case.toml", text);
    let loaded = Scenario::from_source(&source, Path::new("case.toml"), &Overrides::default());
    let findings = match loaded {
        Ok(loaded) => loaded.warnings,
        Err(findings) => findings,
    };
    let mut notes = findings.iter().flat_map(|finding| &finding.notes);
    let list = notes.find_map(|note| note.strip_prefix(prefix));
    let list = list.unwrap_or_else(|| panic!("no list of keys for\n{text}"));
    list.split(", ").map(str::to_string).collect()
}

#[test]
fn every_key_of_a_scenario_and_its_recipe_is_documented() {
    let recipe = format!("[recipe]\n{RECIPE}");
    let mut keys = BTreeSet::new();
    for (text, least) in [
        (format!("{UNKNOWN}{recipe}"), 12),
        (format!("[recipe]\n{UNKNOWN}{RECIPE}"), 45),
        (format!("{recipe}[recipe.determinism]\n{UNKNOWN}"), 5),
        (format!("[checkpoint]\n{UNKNOWN}{recipe}"), 2),
        (
            format!("[expect]\ngrade = \"proved\"\n{UNKNOWN}{recipe}"),
            2,
        ),
        (format!("[full_size]\n{UNKNOWN}{recipe}"), 7),
        (
            format!("[[allocations]]\nname = \"a\"\ntext = \"\"\n{UNKNOWN}{recipe}"),
            2,
        ),
    ] {
        let found = listed(&text, "known keys: ");
        assert!(found.len() >= least, "{text}: {found:?}");
        keys.extend(found);
    }
    let text = format!("{recipe}[recipe.env]\n{UNKNOWN}");
    keys.extend(listed(&text, "simulated variables: "));
    assert_eq!(missing(&keys, &documentation()), Vec::<String>::new());
}

#[test]
fn every_key_of_an_allocation_file_is_documented() {
    let mut keys = BTreeSet::new();
    for start in [
        "",
        "name = \"a\"\nhosts = [[0]]\n[nccl]\n",
        "name = \"a\"\nhosts = [[0]]\n[[communicators]]\n",
    ] {
        let error = Allocation::from_toml(&format!("{start}{UNKNOWN}")).unwrap_err();
        let message = error.to_string();
        let expected = message.split_once("expected").expect("a list of keys").1;
        keys.extend(expected.split('`').skip(1).step_by(2).map(str::to_string));
    }
    assert!(keys.len() >= 8, "{keys:?}");
    assert_eq!(missing(&keys, &documentation()), Vec::<String>::new());
}

fn collect(value: &serde_json::Value, keys: &mut BTreeSet<String>) {
    match value {
        serde_json::Value::Object(object) => {
            for (key, value) in object {
                keys.insert(key.clone());
                collect(value, keys);
            }
        }
        serde_json::Value::Array(items) => items.iter().for_each(|item| collect(item, keys)),
        _ => {}
    }
}

#[test]
fn every_key_of_a_report_is_documented() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let racy = format!("{RECIPE}[determinism]\nwgrad_splits = 3\nwgrad_split_k = \"arrival\"\n");
    std::fs::write(folder.path().join("racy.toml"), racy).expect("a writable folder");
    std::fs::write(folder.path().join("broken.toml"), "recipe = 1").expect("a writable folder");
    let output = Command::new(env!("CARGO_BIN_EXE_bitproof"))
        .args(["check", "--no-save", "--format", "json", "--steps", "1"])
        .args(["racy.toml", "broken.toml"])
        .current_dir(folder.path())
        .output()
        .expect("the binary starts");
    let text = String::from_utf8(output.stdout).expect("text");
    let objects: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object a line"))
        .collect();
    assert_eq!(objects.len(), 2, "{text}");
    assert!(objects[0]["witness"].is_object(), "{text}");
    let mut keys = BTreeSet::new();
    objects.iter().for_each(|object| collect(object, &mut keys));
    // The rungs are documented as a range.
    keys.retain(|key| !["L1", "L2", "L3", "L4"].contains(&key.as_str()));
    assert!(keys.len() > 80, "{keys:?}");
    assert_eq!(missing(&keys, &documentation()), Vec::<String>::new());
}

/// The negative control of [`missing`].
#[test]
fn a_key_that_is_not_named_is_missed() {
    let keys = ["lr", "steps", "lrs", "world"].map(str::to_string).into();
    let text = "lr, `steps` and `a = [lr]`; world_size, `world_size`";
    assert_eq!(missing(&keys, text), ["lrs", "world"]);
}
