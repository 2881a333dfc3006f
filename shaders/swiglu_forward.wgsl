// out = silu(gate) * up, silu(v) = v / (1 + e^-v).
//
// fc1 [tokens, 2, ffn]: gate, then up   out [tokens, ffn], rounded once
// use: math/exp
// use: math/round

@group(0) @binding(0) var<storage, read_write> fc1: array<f32>;
@group(0) @binding(1) var<storage, read_write> out: array<f32>;

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
    out[gid.x] = round_to(gate / (1.0 + bp_exp(-gate)) * up, params.round_code);
}
