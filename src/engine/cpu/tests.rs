//! Each WGSL feature against values worked out in Rust, and what must be caught.

mod features;
mod floats;
mod matmul;
mod memory;
mod random;
mod rounding;

use super::CpuEngine;
use crate::engine::{Engine, EngineError, Launch, Span};
use crate::kernel::Registry;

/// Runs one kernel on operands of its own arenas; returns the operands afterwards.
pub(super) fn run_on(
    workers: usize,
    registry: &Registry,
    kernel: &str,
    grid: [u32; 3],
    operands: &[Vec<u32>],
    params: &[u32],
) -> Result<Vec<Vec<u32>>, EngineError> {
    let mut engine = CpuEngine::new(workers)?;
    let kernel = registry
        .get(kernel)
        .unwrap_or_else(|error| panic!("{error}"));
    let program = engine.load(kernel)?;
    let mut spans = Vec::new();
    for words in operands {
        let arena = engine.alloc(words.len() as u32, 0xdead_beef)?;
        let span = Span {
            arena,
            offset_words: 0,
            words: words.len() as u32,
        };
        engine.write(span, words)?;
        spans.push(span);
    }
    let launch = Launch {
        program,
        grid,
        operands: spans.clone(),
        params: params.to_vec(),
    };
    engine.run(&[launch])?;
    spans.into_iter().map(|span| engine.read(span)).collect()
}

pub(super) fn run_shader(
    kernel: &str,
    grid: [u32; 3],
    operands: &[Vec<u32>],
    params: &[u32],
) -> Vec<Vec<u32>> {
    let registry = Registry::new().expect("shaders link");
    run_on(1, &registry, kernel, grid, operands, params).expect("runs")
}

/// A kernel with one `array<u32>` of inputs and one of outputs; `body` computes `out[i]` from `i`.
pub(super) fn run_body(helpers: &str, body: &str, inputs: &[u32]) -> Vec<u32> {
    let outputs = inputs.len();
    run_sized(helpers, body, inputs, outputs).unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn run_sized(
    helpers: &str,
    body: &str,
    inputs: &[u32],
    outputs: usize,
) -> Result<Vec<u32>, EngineError> {
    let source = format!(
        "@group(0) @binding(0) var<storage, read_write> input: array<u32>;\n\
         @group(0) @binding(1) var<storage, read_write> out: array<u32>;\n\
         {helpers}\n\
         @compute @workgroup_size(4)\n\
         fn main(@builtin(global_invocation_id) gid: vec3<u32>) {{\n\
             let i = gid.x;\n\
             if i >= {outputs}u {{ return; }}\n\
             {body}\n\
         }}\n"
    );
    let registry = Registry::from_sources(&[("case", source.as_str())]).expect("links");
    let grid = [(outputs as u32).div_ceil(4), 1, 1];
    let operands = [inputs.to_vec(), vec![0xdead_beef; outputs]];
    Ok(run_on(1, &registry, "case", grid, &operands, &[])?.remove(1))
}

pub(super) fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// Every kernel of `shaders/` compiles.
#[test]
fn every_shader_compiles() {
    let registry = Registry::new().expect("shaders link");
    let mut engine = CpuEngine::new(1).expect("an engine");
    for name in registry.names() {
        let kernel = registry.get(name).unwrap_or_else(|error| panic!("{error}"));
        engine
            .load(kernel)
            .unwrap_or_else(|error| panic!("{error}"));
    }
}

/// Valid WGSL that passes the support check and is still too much for the engine.
#[test]
fn what_is_too_large_is_refused_and_the_engine_goes_on() {
    let large = "
        @group(0) @binding(0) var<storage, read_write> out: array<u32>;
        @compute @workgroup_size(1)
        fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
            var list: array<u32, 5000>;
            list[gid.x] = 1u;
            out[0] = list[1];
        }";
    let small = large.replace("5000", "50");
    let sources = [("large", large), ("small", small.as_str())];
    let registry = Registry::from_sources(&sources).expect("links");
    let mut engine = CpuEngine::new(1).expect("an engine");
    let error = engine
        .load(registry.get("large").expect("valid"))
        .expect_err("too large");
    let EngineError::Compile { kernel, reason } = error else {
        panic!("{error}")
    };
    assert_eq!((kernel.as_str(), reason.contains("5000")), ("large", true));
    engine
        .load(registry.get("small").expect("valid"))
        .expect("compiles");
}

#[test]
fn the_identity_names_the_versions_of_cargo_toml() {
    let manifest = include_str!("../../../Cargo.toml");
    let identity = CpuEngine::new(1).expect("an engine").identity();
    for (name, version) in identity.versions {
        let pinned = manifest.lines().any(|line| {
            line.starts_with(name.as_str()) && line.contains(&format!("\"={version}\""))
        });
        assert!(pinned, "{name} {version} is not what Cargo.toml pins");
    }
    let wgpu = format!("wgpu = {{ version = \"={}\"", crate::engine::NAGA);
    assert!(
        manifest.contains(&wgpu),
        "wgpu has another version than naga"
    );
}
