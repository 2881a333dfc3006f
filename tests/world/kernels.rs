//! Small kernels that the world's tests launch, beside the real fold kernels.

use std::sync::{Arc, OnceLock};

use bitproof::kernel::Registry;

/// `out[i] = a[i] * scale + b[i]`.
const SCALE_ADD: &str = "
struct Params { count: u32, scale: f32 }
@group(0) @binding(0) var<storage, read_write> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> b: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    let i = gid.x;
    if (i >= params.count) { return; }
    out[i] = a[i] * params.scale + b[i];
}";

/// `x[i] = x[i] * scale + 1`, in place.
const STEP_IN_PLACE: &str = "
struct Params { count: u32, scale: f32 }
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    let i = gid.x;
    if (i >= params.count) { return; }
    x[i] = x[i] * params.scale + 1.0;
}";

/// `out[i] = i * scale + base`: only writes.
const RAMP: &str = "
struct Params { count: u32, scale: f32, base: f32 }
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    let i = gid.x;
    if (i >= params.count) { return; }
    out[i] = f32(i) * params.scale + params.base;
}";

/// Forgets every third word: a kernel whose footprint is not what its operand says.
const GAPS: &str = "
struct Params { count: u32 }
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    let i = gid.x;
    if (i >= params.count || i % 3u == 2u) { return; }
    out[i] = 1.0;
}";

const SOURCES: [(&str, &str); 8] = [
    ("scale_add", SCALE_ADD),
    ("step_in_place", STEP_IN_PLACE),
    ("ramp", RAMP),
    ("gaps", GAPS),
    ("fold", include_str!("../../shaders/fold.wgsl")),
    (
        "fold_segments",
        include_str!("../../shaders/fold_segments.wgsl"),
    ),
    (
        "math/combine",
        include_str!("../../shaders/math/combine.wgsl"),
    ),
    ("math/round", include_str!("../../shaders/math/round.wgsl")),
];

/// Parsed once for all tests.
pub fn registry() -> Arc<Registry> {
    static REGISTRY: OnceLock<Arc<Registry>> = OnceLock::new();
    REGISTRY
        .get_or_init(|| Arc::new(Registry::from_sources(&SOURCES).expect("the kernels link")))
        .clone()
}
