// Gradient of fused QKV: queries scaled, keys and values summed over queries; where positions are
// rotary the rotation of queries and keys is undone. One position of one group an invocation.
//
// qkv, grad_qkv [seq, batch, groups, heads_a_group + 2, head_dim]   grad_scores, probs, mask
//   [batch, heads, seq, seq]: mask holds dropout's multipliers, read when params.drops is 1
// grad_query, grad_context [seq, batch, heads, head_dim]: grad_query f32, summed over blocks
// cosines, sines [seq, pairs] f32, read when params.rotates is 1
//
// Sums of a key and of a value run over the group's heads, and in each over the queries
// position..seq, ascending, from +0, in f32. Results are rounded once.
// use: math/round

@group(0) @binding(0) var<storage, read_write> qkv: array<f32>;
@group(0) @binding(1) var<storage, read_write> probs: array<f32>;
@group(0) @binding(2) var<storage, read_write> mask: array<f32>;
@group(0) @binding(3) var<storage, read_write> grad_context: array<f32>;
@group(0) @binding(4) var<storage, read_write> cosines: array<f32>;
@group(0) @binding(5) var<storage, read_write> sines: array<f32>;
@group(0) @binding(6) var<storage, read_write> grad_scores: array<f32>;
@group(0) @binding(7) var<storage, read_write> grad_query: array<f32>;
@group(0) @binding(8) var<storage, read_write> grad_qkv: array<f32>;

struct Params {
    count: u32,
    seq: u32,
    batch: u32,
    heads: u32,
    heads_a_group: u32,
    head_dim: u32,
    scale: f32,
    drops: u32,
    rotates: u32,
    round_code: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

// The gradient of element j of the key at `position`: over the heads of `sample_group`.
fn key_gradient(sample_group: u32, position: u32, j: u32) -> f32 {
    let d = params.head_dim;
    let each = params.heads_a_group;
    let stride = params.batch * (params.heads / each) * (each + 2u) * d;
    var sum = 0.0;
    for (var h = 0u; h < each; h = h + 1u) {
        let column = (sample_group * each + h) * params.seq * params.seq + position;
        let query = (sample_group * (each + 2u) + h) * d + j;
        for (var t = position; t < params.seq; t = t + 1u) {
            sum = sum + grad_scores[column + t * params.seq] * qkv[query + t * stride];
        }
    }
    return sum * params.scale;
}

fn value_gradient(sample_group: u32, position: u32, j: u32) -> f32 {
    let each = params.heads_a_group;
    var sum = 0.0;
    for (var h = 0u; h < each; h = h + 1u) {
        let head = sample_group * each + h;
        for (var t = position; t < params.seq; t = t + 1u) {
            let at = (head * params.seq + t) * params.seq + position;
            var p = probs[at];
            if params.drops == 1u {
                p = round_to(p * mask[at], params.round_code);
            }
            let context = (t * params.batch * params.heads + head) * params.head_dim;
            sum = sum + p * grad_context[context + j];
        }
    }
    return sum;
}

// Stores a pair of elements, turned back by their position's angle.
fn store(out: u32, position: u32, j: u32, u: f32, v: f32) {
    let pairs = params.head_dim / 2u;
    var first = u;
    var second = v;
    if params.rotates == 1u {
        let c = cosines[position * pairs + j];
        let s = sines[position * pairs + j];
        first = u * c + v * s;
        second = v * c - u * s;
    }
    grad_qkv[out + j] = round_to(first, params.round_code);
    grad_qkv[out + pairs + j] = round_to(second, params.round_code);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= params.count {
        return;
    }
    let d = params.head_dim;
    let each = params.heads_a_group;
    let pairs = d / 2u;
    let groups = params.batch * (params.heads / each);
    let sample_group = gid.x % groups;
    let position = gid.x / groups;
    let out = gid.x * (each + 2u) * d;

    for (var h = 0u; h < each; h = h + 1u) {
        let query = (gid.x * each + h) * d;
        for (var j = 0u; j < pairs; j = j + 1u) {
            let u = grad_query[query + j] * params.scale;
            let v = grad_query[query + pairs + j] * params.scale;
            store(out + h * d, position, j, u, v);
        }
    }
    for (var j = 0u; j < pairs; j = j + 1u) {
        let u = key_gradient(sample_group, position, j);
        let v = key_gradient(sample_group, position, pairs + j);
        store(out + each * d, position, j, u, v);
    }
    for (var j = 0u; j < d; j = j + 1u) {
        let sum = value_gradient(sample_group, position, j);
        grad_qkv[out + (each + 1u) * d + j] = round_to(sum, params.round_code);
    }
}
