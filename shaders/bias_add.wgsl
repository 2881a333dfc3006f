// A bias added to every row, in place, rounded once.
//
// y [count], rows of params.columns   bias [columns]
// use: math/round

@group(0) @binding(0) var<storage, read_write> y: array<f32>;
@group(0) @binding(1) var<storage, read_write> bias: array<f32>;

struct Params {
    count: u32,
    columns: u32,
    round_code: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= params.count {
        return;
    }
    let sum = y[gid.x] + bias[gid.x % params.columns];
    y[gid.x] = round_to(sum, params.round_code);
}
