// The greatest logit of each token in this rank's part of the vocabulary.
//
// logits [tokens, vocab_rows]   greatest [tokens] f32
//
// Compared in ascending order; a later value replaces only a smaller one.

@group(0) @binding(0) var<storage, read_write> logits: array<f32>;
@group(0) @binding(1) var<storage, read_write> greatest: array<f32>;

struct Params {
    tokens: u32,
    vocab_rows: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= params.tokens {
        return;
    }
    let base = gid.x * params.vocab_rows;
    var value = logits[base];
    for (var i = 1u; i < params.vocab_rows; i = i + 1u) {
        let next = logits[base + i];
        value = select(value, next, next > value);
    }
    greatest[gid.x] = value;
}
