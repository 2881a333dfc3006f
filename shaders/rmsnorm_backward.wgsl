// Gradient of RMSNorm with respect to its input, and each row's contribution to the gradient of
// the weight (summed over rows by a fold, not here). One row an invocation.
//
// x, grad_out, residual, grad_x [rows, hidden]   rstd [rows] f32   weight [hidden]
// contributions [rows, hidden] f32, unrounded
//
// With n = x * rstd and g = grad_out * weight: grad_x = rstd * (g - n * mean(g * n)), plus
// `residual` (the gradient that goes round the norm) when params.add_residual is 1.
// The mean's sum runs over hidden in ascending order, from +0. grad_x is rounded once.
// use: math/round

@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> rstd: array<f32>;
@group(0) @binding(2) var<storage, read_write> weight: array<f32>;
@group(0) @binding(3) var<storage, read_write> grad_out: array<f32>;
@group(0) @binding(4) var<storage, read_write> residual: array<f32>;
@group(0) @binding(5) var<storage, read_write> grad_x: array<f32>;
@group(0) @binding(6) var<storage, read_write> contributions: array<f32>;

struct Params {
    rows: u32,
    hidden: u32,
    add_residual: u32,
    round_code: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= params.rows {
        return;
    }
    let base = gid.x * params.hidden;
    let scale = rstd[gid.x];
    var dot = 0.0;
    for (var j = 0u; j < params.hidden; j = j + 1u) {
        let share = grad_out[base + j] * (x[base + j] * scale);
        contributions[base + j] = share;
        dot = dot + share * weight[j];
    }
    let mean = dot / f32(params.hidden);
    for (var j = 0u; j < params.hidden; j = j + 1u) {
        let normed = x[base + j] * scale;
        var grad = scale * (grad_out[base + j] * weight[j] - normed * mean);
        if params.add_residual == 1u {
            grad = grad + residual[base + j];
        }
        grad_x[base + j] = round_to(grad, params.round_code);
    }
}
