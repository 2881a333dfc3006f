// Rotary position embedding, half-split, in place on the queries and keys of fused QKV.
//
// qkv [tokens, heads, 3, head_dim]   token t stands at position t / batch
// cosines, sines [positions, pairs] f32, pairs = head_dim / 2
//
// (u_j, u_j+half) becomes (u_j cos - u_j+half sin, u_j+half cos + u_j sin). No longer sums; each
// result is rounded once.
// use: math/round

@group(0) @binding(0) var<storage, read_write> qkv: array<f32>;
@group(0) @binding(1) var<storage, read_write> cosines: array<f32>;
@group(0) @binding(2) var<storage, read_write> sines: array<f32>;

struct Params {
    count: u32,
    heads: u32,
    pairs: u32,
    batch: u32,
    round_code: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

fn rotate(first: u32, c: f32, s: f32) {
    let second = first + params.pairs;
    let u = qkv[first];
    let v = qkv[second];
    qkv[first] = round_to(u * c - v * s, params.round_code);
    qkv[second] = round_to(v * c + u * s, params.round_code);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= params.count {
        return;
    }
    let j = gid.x % params.pairs;
    let token_head = gid.x / params.pairs;
    let position = token_head / params.heads / params.batch;
    let c = cosines[position * params.pairs + j];
    let s = sines[position * params.pairs + j];
    let query = token_head * 6u * params.pairs + j;
    rotate(query, c, s);
    rotate(query + 2u * params.pairs, c, s);
}
