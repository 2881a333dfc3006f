//! The self-test on an adapter, where there is one.
#![cfg(feature = "wgpu")]

use super::run;
use crate::engine::Engine;
use crate::engine::wgpu::WgpuEngine;

#[test]
fn an_adapter_is_tested_and_its_differences_are_named() {
    let mut engine = match WgpuEngine::new() {
        Ok(engine) => engine,
        Err(reason) => {
            let required = std::env::var("BITPROOF_REQUIRE_ADAPTER").is_ok_and(|v| v == "1");
            assert!(!required, "BITPROOF_REQUIRE_ADAPTER=1, but {reason}");
            eprintln!("SKIPPED, nothing was tested: {reason}");
            return;
        }
    };
    let test = run(&mut engine);
    eprintln!("{:?}", engine.identity());
    for tested in test.expressions.iter().filter(|tested| !tested.passed()) {
        eprintln!("{tested:x?}");
    }
    let identity = engine.identity();
    let required = std::env::var("BITPROOF_REQUIRE_ADAPTER").is_ok_and(|v| v == "1");
    if required && identity.adapter.to_lowercase().contains("llvmpipe") {
        let differing: Vec<&str> = test.differing().collect();
        assert!(
            identity.strict && test.strict(),
            "{identity:?}: {differing:?}"
        );
    }
    // What no device gets wrong: the inputs have arrived and the results come back.
    for name in ["sum", "difference", "product"] {
        assert!(
            test.differing().all(|differing| differing != name),
            "{name}"
        );
    }
}
