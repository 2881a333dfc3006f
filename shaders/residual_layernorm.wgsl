// sum = x + y, then out = (sum - mean(sum)) / sqrt(var(sum) + eps) * weight + bias, one row an
// invocation.
//
// x, y, sum, out [rows, hidden]   weight, bias [hidden]
// stats [rows, 2] f32: the mean and 1 / sqrt(var + eps), kept for backward
//
// sum is rounded before it is normalised. Two passes: var is the mean of (sum - mean)^2. Both sums
// run over hidden in ascending order, from +0. out is rounded once.
// use: math/round

@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> y: array<f32>;
@group(0) @binding(2) var<storage, read_write> weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> bias: array<f32>;
@group(0) @binding(4) var<storage, read_write> sum: array<f32>;
@group(0) @binding(5) var<storage, read_write> stats: array<f32>;
@group(0) @binding(6) var<storage, read_write> out: array<f32>;

struct Params {
    rows: u32,
    hidden: u32,
    eps: f32,
    round_code: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

// Made again rather than read back: an output is only ever written.
fn added(at: u32) -> f32 {
    return round_to(x[at] + y[at], params.round_code);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= params.rows {
        return;
    }
    let base = gid.x * params.hidden;
    var total = 0.0;
    for (var j = 0u; j < params.hidden; j = j + 1u) {
        let v = added(base + j);
        sum[base + j] = v;
        total = total + v;
    }
    let mean = total / f32(params.hidden);
    var squares = 0.0;
    for (var j = 0u; j < params.hidden; j = j + 1u) {
        let v = added(base + j) - mean;
        squares = squares + v * v;
    }
    let scale = 1.0 / sqrt(squares / f32(params.hidden) + params.eps);
    stats[2u * gid.x] = mean;
    stats[2u * gid.x + 1u] = scale;
    for (var j = 0u; j < params.hidden; j = j + 1u) {
        let normed = (added(base + j) - mean) * scale;
        out[base + j] = round_to(normed * weight[j] + bias[j], params.round_code);
    }
}
