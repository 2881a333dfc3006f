// Gradient of gelu(fc1 + bias) with respect to its argument, see gelu_forward. With
// t = tanh(0.79788456 x (1 + 0.044715 x^2)) the slope is
// x/2 (1 - t^2) (0.79788456 + 0.1070322243 x^2) + (1 + t)/2 (core/fusions/fused_bias_gelu.py).
//
// fc1, grad_out, grad_fc1 [count], rows of params.columns   bias [columns], read when
// params.has_bias is 1. Rounded once.
// use: math/gelu
// use: math/round

@group(0) @binding(0) var<storage, read_write> fc1: array<f32>;
@group(0) @binding(1) var<storage, read_write> bias: array<f32>;
@group(0) @binding(2) var<storage, read_write> grad_out: array<f32>;
@group(0) @binding(3) var<storage, read_write> grad_fc1: array<f32>;

struct Params {
    count: u32,
    columns: u32,
    has_bias: u32,
    round_code: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= params.count {
        return;
    }
    var x = fc1[gid.x];
    if params.has_bias == 1u {
        x = x + bias[gid.x % params.columns];
    }
    let t = bp_gelu_tanh(x);
    let rise = 0.79788456 + 0.1070322243 * x * x;
    let slope = 0.5 * x * ((1.0 - t * t) * rise) + 0.5 * (1.0 + t);
    grad_fc1[gid.x] = round_to(slope * grad_out[gid.x], params.round_code);
}
