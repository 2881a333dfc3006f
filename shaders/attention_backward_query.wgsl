// Contributions of blocks of keys to the gradients of queries, which a fold then adds: the dQ that
// FlashAttention's workers, a block of keys each, add into one buffer (Dao, arXiv:2307.08691).
// One query of one head and one block an invocation.
//
// qkv [seq, batch, groups, heads_a_group + 2, head_dim]   grad_scores [batch, heads, seq, seq] f32
// parts [blocks, seq, batch, heads, head_dim] f32, unrounded, of the rotated query before scaling
//
// Block b holds the keys b * keys .. (b + 1) * keys; its sum runs over those that the query may
// see in ascending order, from +0.

@group(0) @binding(0) var<storage, read_write> qkv: array<f32>;
@group(0) @binding(1) var<storage, read_write> grad_scores: array<f32>;
@group(0) @binding(2) var<storage, read_write> parts: array<f32>;

struct Params {
    count: u32,
    seq: u32,
    batch: u32,
    heads: u32,
    heads_a_group: u32,
    head_dim: u32,
    keys: u32,
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
    let first_key = sample_head / each * (each + 2u) * d + each * d;
    let row = (sample_head * params.seq + position) * params.seq;

    let begin = gid.z * params.keys;
    let after = begin + params.keys;
    let end = select(after, position + 1u, position + 1u < after);
    let out = (gid.z * params.count + gid.x) * d;
    for (var j = 0u; j < d; j = j + 1u) {
        var sum = 0.0;
        for (var s = begin; s < end; s = s + 1u) {
            sum = sum + grad_scores[row + s] * qkv[first_key + s * stride + j];
        }
        parts[out + j] = sum;
    }
}
