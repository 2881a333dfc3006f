// Gradient of causal attention with respect to its scores, one query of one head an invocation.
//
// qkv [seq, batch, groups, heads_a_group + 2, head_dim]
// probs, grad_scores [batch, heads, seq, seq]: the probabilities before dropout
// mask [batch, heads, seq, seq] f32, dropout's multipliers, read when params.drops is 1
// grad_context [seq, batch, heads, head_dim]
//
// grad_scores is f32, unrounded, +0 above the diagonal. Sums: over head_dim for the gradient of a
// probability, over keys for the softmax term, both ascending from +0.

@group(0) @binding(0) var<storage, read_write> qkv: array<f32>;
@group(0) @binding(1) var<storage, read_write> probs: array<f32>;
@group(0) @binding(2) var<storage, read_write> mask: array<f32>;
@group(0) @binding(3) var<storage, read_write> grad_context: array<f32>;
@group(0) @binding(4) var<storage, read_write> grad_scores: array<f32>;

struct Params {
    count: u32,
    seq: u32,
    batch: u32,
    heads: u32,
    heads_a_group: u32,
    head_dim: u32,
    drops: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

fn prob_gradient(context: u32, value: u32, at: u32) -> f32 {
    var sum = 0.0;
    for (var j = 0u; j < params.head_dim; j = j + 1u) {
        sum = sum + grad_context[context + j] * qkv[value + j];
    }
    if params.drops == 1u {
        sum = sum * mask[at];
    }
    return sum;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= params.count {
        return;
    }
    let d = params.head_dim;
    let each = params.heads_a_group;
    let sample_head = gid.x % (params.batch * params.heads);
    let position = gid.x / (params.batch * params.heads);
    let stride = params.batch * (params.heads / each) * (each + 2u) * d;
    let first_value = sample_head / each * (each + 2u) * d + (each + 1u) * d;
    let row = (sample_head * params.seq + position) * params.seq;

    var expected = 0.0;
    for (var s = 0u; s <= position; s = s + 1u) {
        let grad = prob_gradient(gid.x * d, first_value + s * stride, row + s);
        expected = expected + probs[row + s] * grad;
    }
    for (var s = 0u; s < params.seq; s = s + 1u) {
        var score_grad = 0.0;
        if s <= position {
            let grad = prob_gradient(gid.x * d, first_value + s * stride, row + s);
            score_grad = probs[row + s] * (grad - expected);
        }
        grad_scores[row + s] = score_grad;
    }
}
