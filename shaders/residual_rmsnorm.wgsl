// sum = x + y, then out = sum / sqrt(mean(sum^2) + eps) * weight, one row an invocation.
//
// x, y, sum, out [rows, hidden]   weight [hidden]   rstd [rows] f32, kept for backward
//
// sum is rounded before it is normalised. The sum of squares runs over hidden in ascending
// order, from +0.
// use: math/round

@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> sum: array<f32>;
@group(0) @binding(4) var<storage, read_write> rstd: array<f32>;
@group(0) @binding(5) var<storage, read_write> out: array<f32>;

struct Params {
    rows: u32,
    hidden: u32,
    eps: f32,
    round_code: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= params.rows {
        return;
    }
    let base = gid.x * params.hidden;
    var squares = 0.0;
    for (var j = 0u; j < params.hidden; j = j + 1u) {
        let v = round_to(x[base + j] + y[base + j], params.round_code);
        sum[base + j] = v;
        squares = squares + v * v;
    }
    let scale = 1.0 / sqrt(squares / f32(params.hidden) + params.eps);
    rstd[gid.x] = scale;
    for (var j = 0u; j < params.hidden; j = j + 1u) {
        // Made again rather than read back: an output is only ever written.
        let v = round_to(x[base + j] + y[base + j], params.round_code);
        out[base + j] = round_to(v * scale * weight[j], params.round_code);
    }
}
