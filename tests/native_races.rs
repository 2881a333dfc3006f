//! `bitproof check --native-races`, as a user runs it.

use std::process::{Command, Output};

use serde_json::Value;

/// Four data-parallel ranks, one layer, three split-K parts.
const RECIPE: &str = "oracles = [\"R2R\"]\nsteps = 1\n[recipe]\nworld_size = 4\nnum_layers = 1\n\
    hidden_size = 16\nnum_attention_heads = 2\nseq_length = 16\nmicro_batch_size = 1\n\
    global_batch_size = 12\ntrain_iters = 2\nlr = 1e-2\nuse_distributed_optimizer = true\n\
    [recipe.determinism]\nwgrad_splits = 3\n";

fn check(more: &str, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("scenario.toml");
    std::fs::write(&path, format!("{RECIPE}{more}")).expect("a writable folder");
    Command::new(env!("CARGO_BIN_EXE_bitproof"))
        .args(["check", "scenario.toml", "--no-save"])
        .args(arguments)
        .current_dir(folder.path())
        .envs(variables.iter().copied())
        .output()
        .expect("the binary starts")
}

const ARRIVAL: &str = "wgrad_split_k = \"arrival\"\n";
const RACES: [&str; 4] = ["--native-races", "6", "--format", "json"];

fn object(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Whether there was an adapter; else says why there is nothing to see, or fails where one is
/// required.
fn has_adapter(output: &Output) -> bool {
    if output.status.code() != Some(5) {
        return true;
    }
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("no usable adapter"), "{said}");
    let required = std::env::var("BITPROOF_REQUIRE_ADAPTER").is_ok_and(|v| v == "1");
    assert!(!required, "BITPROOF_REQUIRE_ADAPTER=1, but {said}");
    eprintln!("SKIPPED, nothing was raced: {said}");
    false
}

#[test]
fn races_leave_the_verdict_and_say_what_was_seen() {
    let output = check(ARRIVAL, &RACES, &[]);
    if !has_adapter(&output) {
        return;
    }
    assert_eq!(output.status.code(), Some(1), "divergent, as without races");
    let told = object(&output);
    assert_eq!(told["grade"], "divergent");
    let races = &told["native_races"];
    assert_eq!((&races["ticketed"], &races["free"]), (&3.into(), &3.into()));
    assert_eq!(races["outside_count"], 0, "{}", races["outside"]);
    assert_eq!(races["folds"].as_array().map(Vec::len), Some(4));
    assert_eq!(races["folds"][0]["family"], "wgrad-split-k");
    assert!(races["judged"]["exact_set"].as_u64() > Some(0));
}

#[test]
fn where_nothing_races_the_verdict_is_the_checks_own() {
    let output = check("", &RACES, &[]);
    if !has_adapter(&output) {
        return;
    }
    let plain = check("", &["--format", "json"], &[]);
    assert_eq!(output.status.code(), plain.status.code());
    let (told, plain) = (object(&output), object(&plain));
    assert_eq!(told["grade"], plain["grade"]);
    assert_eq!(told["native_races"]["folds"], Value::Array(Vec::new()));
    assert!(plain["native_races"].is_null());
}

/// On systems where the Vulkan loader is the only way to a driver.
#[cfg(target_os = "linux")]
#[test]
fn without_an_adapter_nothing_is_checked() {
    let output = check(ARRIVAL, &RACES, &[("VK_DRIVER_FILES", "/nonexistent.json")]);
    assert_eq!(output.status.code(), Some(5));
    let told = object(&output);
    assert!(told["grade"].is_null());
    let message = told["diagnostics"][0]["message"].as_str();
    assert!(
        message.is_some_and(|text| text.contains("no usable adapter")),
        "{told}"
    );
}

#[test]
fn the_number_of_repeats_has_limits() {
    for count in ["0", "10001", "many"] {
        let output = check("", &["--native-races", count], &[]);
        assert_eq!(output.status.code(), Some(2), "{count}");
    }
}
