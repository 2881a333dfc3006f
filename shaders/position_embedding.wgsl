// Word embeddings plus a learned row for each position, of a block of the tokens: out[t] =
// words[first + t] + table[(first + t) / batch].
//
// words [tokens, hidden]   table [positions, hidden]   out [count / hidden, hidden]
//
// One addition, rounded once.
// use: math/round

@group(0) @binding(0) var<storage, read_write> words: array<f32>;
@group(0) @binding(1) var<storage, read_write> table: array<f32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

struct Params {
    count: u32,
    hidden: u32,
    batch: u32,
    first: u32,
    round_code: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= params.count {
        return;
    }
    let column = gid.x % params.hidden;
    let token = params.first + gid.x / params.hidden;
    let word = words[token * params.hidden + column];
    let position = table[token / params.batch * params.hidden + column];
    out[gid.x] = round_to(word + position, params.round_code);
}
