// values = values * scale, rounded once, in place.
//
// values [count]
// use: math/round

@group(0) @binding(0) var<storage, read_write> values: array<f32>;

struct Params {
    count: u32,
    scale: f32,
    round_code: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= params.count {
        return;
    }
    values[gid.x] = round_to(values[gid.x] * params.scale, params.round_code);
}
