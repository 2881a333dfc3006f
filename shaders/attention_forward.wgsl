// Softmax over the keys that a query may see, and its context; one query of one head an invocation.
//
// qkv [seq, batch, groups, heads_a_group + 2, head_dim]   scores [batch, heads, seq, seq] f32
// mask [batch, heads, seq, seq] f32      dropout's multipliers, read when params.drops is 1
// probs [batch, heads, seq, seq]         kept for backward, undropped; +0 above the diagonal
// context [seq, batch, heads, head_dim]  head_dim at most 128
//
// The greatest score is subtracted first. The denominator and the context are summed over keys in
// ascending order from +0, in f32. Probabilities are rounded once, multiplied by the mask and
// rounded again, then used; the context is rounded once.
// use: math/exp
// use: math/round

@group(0) @binding(0) var<storage, read_write> qkv: array<f32>;
@group(0) @binding(1) var<storage, read_write> scores: array<f32>;
@group(0) @binding(2) var<storage, read_write> mask: array<f32>;
@group(0) @binding(3) var<storage, read_write> probs: array<f32>;
@group(0) @binding(4) var<storage, read_write> context: array<f32>;

struct Params {
    count: u32,
    seq: u32,
    batch: u32,
    heads: u32,
    heads_a_group: u32,
    head_dim: u32,
    drops: u32,
    round_code: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

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

    var greatest = scores[row];
    for (var s = 1u; s <= position; s = s + 1u) {
        let score = scores[row + s];
        greatest = select(greatest, score, score > greatest);
    }
    var total = 0.0;
    for (var s = 0u; s <= position; s = s + 1u) {
        total = total + bp_exp(scores[row + s] - greatest);
    }
    var sums: array<f32, 128>;
    for (var s = 0u; s < params.seq; s = s + 1u) {
        var p = 0.0;
        if s <= position {
            p = round_to(bp_exp(scores[row + s] - greatest) / total, params.round_code);
            var kept = p;
            if params.drops == 1u {
                kept = round_to(p * mask[row + s], params.round_code);
            }
            for (var j = 0u; j < d; j = j + 1u) {
                sums[j] = sums[j] + kept * qkv[first_value + s * stride + j];
            }
        }
        probs[row + s] = p;
    }
    for (var j = 0u; j < d; j = j + 1u) {
        context[gid.x * d + j] = round_to(sums[j], params.round_code);
    }
}
