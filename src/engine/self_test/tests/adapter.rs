//! The self-test on an adapter, where there is one.
#![cfg(feature = "wgpu")]

use super::run;
use crate::engine::Engine;
use crate::engine::wgpu::WgpuEngine;
use crate::engine::wgpu::skip::{is_required, unless_missing};

#[test]
fn an_adapter_is_tested_and_its_differences_are_named() {
    let Some(mut engine) = unless_missing(WgpuEngine::new()) else {
        return;
    };
    let test = run(&mut engine);
    eprintln!("{:?}", engine.identity());
    for tested in test.expressions.iter().filter(|tested| !tested.passed()) {
        eprintln!("{tested:x?}");
    }
    let identity = engine.identity();
    if is_required() && identity.adapter.to_lowercase().contains("llvmpipe") {
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
