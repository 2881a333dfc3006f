// Rows of this rank's part of the vocabulary, looked up by token.
//
// weight [vocab_rows, hidden]   first vocabulary row held here: params.first
// tokens [tokens]
// out    [tokens, hidden]       a token of another rank's part gives a row of +0
//
// No sums. The weight already holds values of the model's type, so nothing is rounded.

@group(0) @binding(0) var<storage, read_write> weight: array<f32>;
@group(0) @binding(1) var<storage, read_write> tokens: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

struct Params {
    count: u32,
    hidden: u32,
    first: u32,
    vocab_rows: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    let i = gid.x;
    if i >= params.count {
        return;
    }
    let row = tokens[i / params.hidden] - params.first;
    var value = 0.0;
    // A token below `first` wraps round to a large row.
    if row < params.vocab_rows {
        value = weight[row * params.hidden + i % params.hidden];
    }
    out[i] = value;
}
