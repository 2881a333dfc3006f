// Causal attention of one query of one head an invocation.
//
// qkv [seq, batch, heads, 3, head_dim]   queries and keys already rotated
// probs [batch, heads, seq, seq]         kept for backward; +0 above the diagonal
// context [seq, batch, heads, head_dim]
//
// Scores are (q . k) * scale; softmax subtracts the greatest score. Sums: q . k over head_dim,
// the softmax denominator and the context over keys, all in ascending order from +0, in f32.
// Probabilities and context are rounded once each.
// use: math/exp
// use: math/round

@group(0) @binding(0) var<storage, read_write> qkv: array<f32>;
@group(0) @binding(1) var<storage, read_write> probs: array<f32>;
@group(0) @binding(2) var<storage, read_write> context: array<f32>;

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

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= params.count {
        return;
    }
    let d = params.head_dim;
    let head = gid.x % params.heads;
    let sample = gid.x / params.heads % params.batch;
    let position = gid.x / params.heads / params.batch;
    let query = gid.x * 3u * d;
    // From one position to the next: all samples, all heads.
    let stride = params.batch * params.heads * 3u * d;
    let first_key = (sample * params.heads + head) * 3u * d + d;
    let row = ((sample * params.heads + head) * params.seq + position) * params.seq;

    var greatest = 0.0;
    for (var s = 0u; s <= position; s = s + 1u) {
        var score = 0.0;
        for (var j = 0u; j < d; j = j + 1u) {
            score = score + qkv[query + j] * qkv[first_key + s * stride + j];
        }
        score = score * params.scale;
        greatest = select(greatest, score, s == 0u || score > greatest);
        probs[row + s] = score;
    }
    var total = 0.0;
    for (var s = 0u; s <= position; s = s + 1u) {
        let e = bp_exp(probs[row + s] - greatest);
        probs[row + s] = e;
        total = total + e;
    }
    for (var s = 0u; s <= position; s = s + 1u) {
        probs[row + s] = round_to(probs[row + s] / total, params.round_code);
    }
    for (var s = position + 1u; s < params.seq; s = s + 1u) {
        probs[row + s] = 0.0;
    }
    for (var j = 0u; j < d; j = j + 1u) {
        var value = 0.0;
        for (var s = 0u; s <= position; s = s + 1u) {
            value = value + probs[row + s] * qkv[first_key + d + s * stride + j];
        }
        context[gid.x * d + j] = round_to(value, params.round_code);
    }
}
