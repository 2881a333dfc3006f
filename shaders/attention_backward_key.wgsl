// Gradient of causal attention with respect to keys and values, one key of one head an
// invocation; the rotation of the key is undone here.
//
// qkv [seq, batch, heads, 3, head_dim], rotated   probs, grad_scores [batch, heads, seq, seq]
// grad_context [seq, batch, heads, head_dim]      grad_qkv as qkv: key and value parts written
// cosines, sines [seq, pairs] f32
//
// Sums run over the queries position..seq in ascending order, from +0, in f32.
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

// The sum over queries of grad_scores (down a column) * query element.
fn key_gradient(column: u32, query: u32, stride: u32, position: u32) -> f32 {
    var sum = 0.0;
    for (var t = position; t < params.seq; t = t + 1u) {
        sum = sum + grad_scores[column + t * params.seq] * qkv[query + t * stride];
    }
    return sum * params.scale;
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
    let column = sample_head * params.seq * params.seq + position;
    let key = gid.x * 3u * d + d;

    for (var j = 0u; j < pairs; j = j + 1u) {
        let u = key_gradient(column, sample_head * 3u * d + j, stride, position);
        let v = key_gradient(column, sample_head * 3u * d + pairs + j, stride, position);
        let c = cosines[position * pairs + j];
        let s = sines[position * pairs + j];
        grad_qkv[key + j] = round_to(u * c + v * s, params.round_code);
        grad_qkv[key + pairs + j] = round_to(v * c - u * s, params.round_code);
    }
    for (var j = 0u; j < d; j = j + 1u) {
        var sum = 0.0;
        for (var t = position; t < params.seq; t = t + 1u) {
            let grad = grad_context[(t * params.batch * params.heads + sample_head) * d + j];
            sum = sum + probs[column + t * params.seq] * grad;
        }
        grad_qkv[key + d + j] = round_to(sum, params.round_code);
    }
}
