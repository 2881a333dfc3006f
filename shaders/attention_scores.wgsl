// Scores of causal attention, one query and one key of one head an invocation.
//
// qkv [seq, batch, groups, heads_a_group + 2, head_dim]: of each group its queries, then the key
//   and the value that they share; already rotated where positions are
// scores [batch, heads, seq, seq] f32    +0 above the diagonal
//
// (q . k) * scale; the dot product runs over head_dim in ascending order, from +0.

@group(0) @binding(0) var<storage, read_write> qkv: array<f32>;
@group(0) @binding(1) var<storage, read_write> scores: array<f32>;

struct Params {
    count: u32,
    seq: u32,
    batch: u32,
    heads: u32,
    heads_a_group: u32,
    head_dim: u32,
    scale: f32,
}
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= params.count {
        return;
    }
    let d = params.head_dim;
    let each = params.heads_a_group;
    let key = gid.x % params.seq;
    let query = gid.x / params.seq % params.seq;
    let sample_head = gid.x / params.seq / params.seq;
    // Samples follow each other as groups do, so one number counts both.
    let group = sample_head / each * (each + 2u) * d;
    // From one position to the next: all samples, all groups.
    let stride = params.batch * (params.heads / each) * (each + 2u) * d;
    let query_base = query * stride + group + sample_head % each * d;
    let key_base = key * stride + group + each * d;
    var score = 0.0;
    if key <= query {
        for (var j = 0u; j < d; j = j + 1u) {
            score = score + qkv[query_base + j] * qkv[key_base + j];
        }
        score = score * params.scale;
    }
    scores[gid.x] = score;
}
