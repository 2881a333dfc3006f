// Gradient of silu(gate) * up with respect to both.
//
// fc1, grad_fc1 [tokens, 2, ffn]: gate, then up   grad_out [tokens, ffn]; results rounded once
// use: math/exp
// use: math/round

@group(0) @binding(0) var<storage, read_write> fc1: array<f32>;
@group(0) @binding(1) var<storage, read_write> grad_out: array<f32>;
@group(0) @binding(2) var<storage, read_write> grad_fc1: array<f32>;

struct Params {
    count: u32,
    ffn: u32,
    round_code: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= params.count {
        return;
    }
    let place = gid.x / params.ffn * 2u * params.ffn + gid.x % params.ffn;
    let gate = fc1[place];
    let up = fc1[place + params.ffn];
    let grad = grad_out[gid.x];
    let sigmoid = 1.0 / (1.0 + bp_exp(-gate));
    let slope = sigmoid * (1.0 + gate * (1.0 - sigmoid));
    grad_fc1[place] = round_to(grad * up * slope, params.round_code);
    grad_fc1[place + params.ffn] = round_to(grad * gate * sigmoid, params.round_code);
}
