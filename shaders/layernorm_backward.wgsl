// Gradient of LayerNorm with respect to its input, and each row's contribution to the gradient of
// the weight (summed over rows by a fold, not here; the bias's contributions are grad_out itself).
// One row an invocation.
//
// x, grad_out, residual, grad_x [rows, hidden]   weight [hidden]
// stats [rows, 2] f32: the mean and 1 / sqrt(var + eps)
// contributions [rows, hidden] f32, unrounded
//
// With n = (x - mean) * rstd and g = grad_out * weight:
// grad_x = rstd * (g - mean(g) - n * mean(g * n)), plus `residual` (the gradient that goes round
// the norm) when params.add_residual is 1. Both means' sums run over hidden in ascending order,
// from +0. grad_x is rounded once.
// use: math/round

@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> stats: array<f32>;
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
    let centre = stats[2u * gid.x];
    let scale = stats[2u * gid.x + 1u];
    var total = 0.0;
    var dot = 0.0;
    for (var j = 0u; j < params.hidden; j = j + 1u) {
        let share = grad_out[base + j] * ((x[base + j] - centre) * scale);
        contributions[base + j] = share;
        total = total + grad_out[base + j] * weight[j];
        dot = dot + share * weight[j];
    }
    let mean = total / f32(params.hidden);
    let mean_dot = dot / f32(params.hidden);
    for (var j = 0u; j < params.hidden; j = j + 1u) {
        let normed = (x[base + j] - centre) * scale;
        var grad = scale * (grad_out[base + j] * weight[j] - mean - normed * mean_dot);
        if params.add_residual == 1u {
            grad = grad + residual[base + j];
        }
        grad_x[base + j] = round_to(grad, params.round_code);
    }
}
