// Each token's loss: log of the softmax denominator less the target's logit.
//
// sum_exp, predicted, losses [tokens] f32, both inputs summed over all ranks
// use: math/log

@group(0) @binding(0) var<storage, read_write> sum_exp: array<f32>;
@group(0) @binding(1) var<storage, read_write> predicted: array<f32>;
@group(0) @binding(2) var<storage, read_write> losses: array<f32>;

struct Params {
    tokens: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= params.tokens {
        return;
    }
    losses[gid.x] = bp_log(sum_exp[gid.x]) - predicted[gid.x];
}
