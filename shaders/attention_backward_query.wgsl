// Gradient of causal attention with respect to scores and queries, one query of one head an
// invocation; the rotation of the query is undone here.
//
// qkv [seq, batch, heads, 3, head_dim], rotated; head_dim at most 128
// probs, grad_scores [batch, heads, seq, seq]
// grad_context [seq, batch, heads, head_dim]      grad_qkv as qkv: the query part is written,
//   the rest is set to +0 (the kernel for keys and values fills it), so that what this kernel
//   leaves does not depend on what the tensor held before
// cosines, sines [seq, pairs] f32
//
// grad_scores is f32, unrounded, +0 above the diagonal. Sums: over head_dim for the gradient of a
// probability, over keys for the softmax term and for the query's gradient, all ascending from +0.
// use: math/round

@group(0) @binding(0) var<storage, read_write> qkv: array<f32>;
@group(0) @binding(1) var<storage, read_write> probs: array<f32>;
@group(0) @binding(2) var<storage, read_write> grad_context: array<f32>;
@group(0) @binding(3) var<storage, read_write> cosines: array<f32>;
@group(0) @binding(4) var<storage, read_write> sines: array<f32>;
@group(0) @binding(5) var<storage, read_write> grad_scores: array<f32>;
@group(0) @binding(6) var<storage, read_write> grad_qkv: array<f32>;

struct Params {
    count: u32,
    seq: u32,
    batch: u32,
    heads: u32,
    head_dim: u32,
    scale: f32,
    round_code: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

fn prob_gradient(context: u32, value: u32) -> f32 {
    var sum = 0.0;
    for (var j = 0u; j < params.head_dim; j = j + 1u) {
        sum = sum + grad_context[context + j] * qkv[value + j];
    }
    return sum;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= params.count {
        return;
    }
    let d = params.head_dim;
    let pairs = d / 2u;
    let sample_head = gid.x % (params.batch * params.heads);
    let position = gid.x / (params.batch * params.heads);
    let stride = params.batch * params.heads * 3u * d;
    let first_key = sample_head * 3u * d + d;
    let row = (sample_head * params.seq + position) * params.seq;

    var expected = 0.0;
    for (var s = 0u; s <= position; s = s + 1u) {
        let grad = prob_gradient(gid.x * d, first_key + d + s * stride);
        expected = expected + probs[row + s] * grad;
    }
    var sums: array<f32, 128>;
    for (var s = 0u; s < params.seq; s = s + 1u) {
        var score_grad = 0.0;
        if s <= position {
            let grad = prob_gradient(gid.x * d, first_key + d + s * stride);
            score_grad = probs[row + s] * (grad - expected);
            for (var j = 0u; j < d; j = j + 1u) {
                sums[j] = sums[j] + score_grad * qkv[first_key + s * stride + j];
            }
        }
        grad_scores[row + s] = score_grad;
    }
    let query = gid.x * 3u * d;
    for (var j = 0u; j < pairs; j = j + 1u) {
        let u = sums[j] * params.scale;
        let v = sums[j + pairs] * params.scale;
        let c = cosines[position * pairs + j];
        let s = sines[position * pairs + j];
        grad_qkv[query + j] = round_to(u * c + v * s, params.round_code);
        grad_qkv[query + pairs + j] = round_to(v * c - u * s, params.round_code);
    }
    for (var j = 0u; j < 2u * d; j = j + 1u) {
        grad_qkv[query + d + j] = 0.0;
    }
}
