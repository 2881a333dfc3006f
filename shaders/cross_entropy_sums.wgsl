// This rank's share of each token's softmax denominator, and of its target's logit.
//
// logits [tokens, vocab_rows]   targets [tokens]   greatest [tokens] f32, over all ranks
// sum_exp, predicted [tokens] f32; predicted is +0 where the target is another rank's
//
// Logits are taken less the greatest. The sum runs over the vocabulary in ascending order, from
// +0. Megatron-LM, tensor_parallel/cross_entropy.py.
// use: math/exp

@group(0) @binding(0) var<storage, read_write> logits: array<f32>;
@group(0) @binding(1) var<storage, read_write> targets: array<u32>;
@group(0) @binding(2) var<storage, read_write> greatest: array<f32>;
@group(0) @binding(3) var<storage, read_write> sum_exp: array<f32>;
@group(0) @binding(4) var<storage, read_write> predicted: array<f32>;

struct Params {
    tokens: u32,
    vocab_rows: u32,
    first: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= params.tokens {
        return;
    }
    let base = gid.x * params.vocab_rows;
    let top = greatest[gid.x];
    var sum = 0.0;
    for (var i = 0u; i < params.vocab_rows; i = i + 1u) {
        sum = sum + bp_exp(logits[base + i] - top);
    }
    sum_exp[gid.x] = sum;
    let row = targets[gid.x] - params.first;
    var logit = 0.0;
    // A target below `first` wraps round to a large row.
    if row < params.vocab_rows {
        logit = logits[base + row] - top;
    }
    predicted[gid.x] = logit;
}
