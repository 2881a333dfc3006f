//! Every shipped scenario on the cpu engine and on the adapter: the same grade, and on a strict
//! adapter the same root hash and everything else that a report says, but for the engine's own
//! name and the tokens that are bound to it. Without an adapter a skip with its reason; with
//! BITPROOF_REQUIRE_ADAPTER=1 a failure.
#![cfg(feature = "wgpu")]

use std::path::Path;

use bitproof::engine::{EngineChoice, EngineError};
use bitproof::prove::outcome::Outcome;
use bitproof::prove::{CheckOptions, Silent, check};
use bitproof::report::{Report, Requirement};
use bitproof::scenario::{Overrides, Scenario};
use serde_json::Value;

fn adapter() -> Option<EngineChoice> {
    let choice = EngineChoice::Wgpu { adapter: None };
    match choice.open(2) {
        Ok(_) => Some(choice),
        Err(reason) => {
            assert!(matches!(reason, EngineError::NoAdapter { .. }), "{reason}");
            let required = std::env::var("BITPROOF_REQUIRE_ADAPTER").is_ok_and(|v| v == "1");
            assert!(!required, "BITPROOF_REQUIRE_ADAPTER=1, but {reason}");
            eprintln!("SKIPPED, nothing was compared: {reason}");
            None
        }
    }
}

/// Two steps: every kind of node, restart and fault there is.
fn outcome(scenario: &str, engine: &EngineChoice) -> Outcome {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("scenarios")
        .join(scenario);
    let overrides = Overrides {
        steps: Some(2),
        set: vec!["checkpoint.restarts=[[1]]".to_owned()],
        ..Overrides::default()
    };
    let loaded = Scenario::load(&path, &overrides).unwrap_or_else(|error| panic!("{error:?}"));
    let options = CheckOptions {
        workers: 2,
        engine: engine.clone(),
        ..CheckOptions::default()
    };
    check(loaded.scenario, options, &Silent).unwrap_or_else(|error| panic!("{error}"))
}

/// The report without what is the engine's own.
fn told(outcome: Outcome) -> Value {
    let mut value = Report::new(outcome, &Requirement::default(), None).to_json();
    let report = value.as_object_mut().expect("an object");
    for own in ["engine", "replay", "diagnostics"] {
        assert!(report.remove(own).is_some(), "{own} is in a report");
    }
    // It says what varies between runs, which is the engine's own as well.
    let second = value["certificate"]["second_run"].take();
    assert!(second.is_string(), "the second run is in a report");
    value
}

fn agree(scenario: &str) {
    let Some(adapter) = adapter() else { return };
    let cpu = outcome(scenario, &EngineChoice::Cpu);
    let gpu = outcome(scenario, &adapter);
    assert_eq!(gpu.grade(), cpu.grade(), "{scenario}");
    assert_eq!(
        (cpu.engine.name.as_str(), gpu.engine.name.as_str()),
        ("cpu", "wgpu")
    );
    if !gpu.engine.strict {
        let required = std::env::var("BITPROOF_REQUIRE_ADAPTER").is_ok_and(|v| v == "1");
        let in_software = gpu.engine.adapter.to_lowercase().contains("llvmpipe");
        assert!(
            !(required && in_software),
            "BITPROOF_REQUIRE_ADAPTER=1, but {} is not strict",
            gpu.engine.adapter
        );
        eprintln!(
            "{}: not strict, only the grade was compared",
            gpu.engine.adapter
        );
        return;
    }
    assert_eq!(gpu.certificate.root_hash, cpu.certificate.root_hash);
    assert!(gpu.nodes > 0);
    for outcome in [&cpu, &gpu] {
        let differing = &outcome.certificate.self_test.differing;
        assert!(
            differing.is_empty(),
            "{}: {differing:?}",
            outcome.engine.name
        );
    }
    let (cpu, gpu) = (told(cpu), told(gpu));
    assert_eq!(cpu, gpu, "{scenario}");
}

#[test]
fn quickstart() {
    agree("quickstart.toml");
}

#[test]
fn any_allocation() {
    agree("any-allocation.toml");
}

#[test]
fn arrival_embedding() {
    agree("arrival-embedding.toml");
}

#[test]
fn arrival_wgrad() {
    agree("arrival-wgrad.toml");
}

#[test]
fn resume_without_rng() {
    agree("resume-without-rng.toml");
}

#[test]
fn vacuous() {
    agree("vacuous.toml");
}
