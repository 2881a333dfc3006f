// Rotary position embedding, half-split, in place on the queries and keys of fused QKV.
//
// qkv [tokens, groups, heads_a_group + 2, head_dim]: of each group its queries, the key, the value
// cosines, sines [positions, pairs] f32, pairs = head_dim / 2; token t stands at position t / batch
//
// (u_j, u_j+half) becomes (u_j cos - u_j+half sin, u_j+half cos + u_j sin). No longer sums; each
// result is rounded once. One pair of one query or key an invocation.
// use: math/round

@group(0) @binding(0) var<storage, read_write> qkv: array<f32>;
@group(0) @binding(1) var<storage, read_write> cosines: array<f32>;
@group(0) @binding(2) var<storage, read_write> sines: array<f32>;

struct Params {
    count: u32,
    groups: u32,
    heads_a_group: u32,
    pairs: u32,
    batch: u32,
    round_code: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= params.count {
        return;
    }
    // Queries and the key of a group; its value is not turned.
    let turned = params.heads_a_group + 1u;
    let j = gid.x % params.pairs;
    let place = gid.x / params.pairs % turned;
    let token_group = gid.x / params.pairs / turned;
    let position = token_group / params.groups / params.batch;
    let c = cosines[position * params.pairs + j];
    let s = sines[position * params.pairs + j];
    let first = (token_group * (turned + 1u) + place) * 2u * params.pairs + j;
    let second = first + params.pairs;
    let u = qkv[first];
    let v = qkv[second];
    qkv[first] = round_to(u * c - v * s, params.round_code);
    qkv[second] = round_to(v * c + u * s, params.round_code);
}
