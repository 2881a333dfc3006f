// out = gelu(x), x = fc1 + bias; gelu(x) = x/2 (1 + tanh(0.79788456 x (1 + 0.044715 x^2))), the
// approximation and the constants of Megatron-LM's fused kernel (core/fusions/fused_bias_gelu.py).
//
// fc1, out [count], rows of params.columns   bias [columns], read when params.has_bias is 1
//
// x is not rounded; out is, once.
// use: math/gelu
// use: math/round

@group(0) @binding(0) var<storage, read_write> fc1: array<f32>;
@group(0) @binding(1) var<storage, read_write> bias: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

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
    out[gid.x] = round_to(x * 0.5 * (1.0 + t), params.round_code);
}
