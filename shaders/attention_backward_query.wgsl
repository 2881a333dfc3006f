// Gradient of causal attention with respect to scores and queries, one query of one head an
// invocation; the rotation of the query is undone here.
//
// qkv [seq, batch, heads, 3, head_dim], rotated   probs, grad_scores [batch, heads, seq, seq]
// grad_context [seq, batch, heads, head_dim]      grad_qkv as qkv: the query part is written
// cosines, sines [seq, half] f32
//
// grad_scores is f32, unrounded, +0 above the diagonal. Sums: over head_dim for grad_probs, over
// keys for the softmax term and for the query gradient, all ascending from +0.
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

// The sum over keys 0..=position of grad_scores * key element.
fn query_gradient(row: u32, key: u32, stride: u32, position: u32) -> f32 {
    var sum = 0.0;
    for (var s = 0u; s <= position; s = s + 1u) {
        sum = sum + grad_scores[row + s] * qkv[key + s * stride];
    }
    return sum * params.scale;
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= params.count {
        return;
    }
    let d = params.head_dim;
    let half = d / 2u;
    let head = gid.x % params.heads;
    let sample = gid.x / params.heads % params.batch;
    let position = gid.x / params.heads / params.batch;
    let query = gid.x * 3u * d;
    let stride = params.batch * params.heads * 3u * d;
    let first_key = (sample * params.heads + head) * 3u * d + d;
    let row = ((sample * params.heads + head) * params.seq + position) * params.seq;

    var expected = 0.0;
    for (var s = 0u; s <= position; s = s + 1u) {
        var grad = 0.0;
        for (var j = 0u; j < d; j = j + 1u) {
            grad = grad + grad_context[gid.x * d + j] * qkv[first_key + d + s * stride + j];
        }
        grad_scores[row + s] = grad;
        expected = expected + probs[row + s] * grad;
    }
    for (var s = 0u; s <= position; s = s + 1u) {
        grad_scores[row + s] = probs[row + s] * (grad_scores[row + s] - expected);
    }
    for (var s = position + 1u; s < params.seq; s = s + 1u) {
        grad_scores[row + s] = 0.0;
    }
    for (var j = 0u; j < half; j = j + 1u) {
        let u = query_gradient(row, first_key + j, stride, position);
        let v = query_gradient(row, first_key + half + j, stride, position);
        let c = cosines[position * half + j];
        let s = sines[position * half + j];
        grad_qkv[query + j] = round_to(u * c + v * s, params.round_code);
        grad_qkv[query + half + j] = round_to(v * c - u * s, params.round_code);
    }
}
