// Split-K parts of a weight gradient: the contributions that a fold then sums.
//
// grad_out [tokens, rows]   input [tokens, columns]   parts [splits, rows, columns] f32, unrounded
// parts[p, r, c] = sum over tokens of part p of grad_out[t, r] * input[t, c]
//
// Part p holds the tokens p * tokens / splits .. (p + 1) * tokens / splits; its sum runs over them
// in ascending order, from +0. One invocation gives 4 rows x 4 columns; rows and columns are
// multiples of 4.

@group(0) @binding(0) var<storage, read_write> grad_out: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> input: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> parts: array<vec4<f32>>;

struct Params {
    tokens: u32,
    rows: u32,
    columns: u32,
    splits: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    let row_blocks = params.rows / 4u;
    let column_blocks = params.columns / 4u;
    if gid.x >= row_blocks * column_blocks {
        return;
    }
    let part = gid.z;
    let row = gid.x / column_blocks;
    let column = gid.x % column_blocks;
    let begin = part * params.tokens / params.splits;
    let end = (part + 1u) * params.tokens / params.splits;

    var sum0 = vec4<f32>(0.0);
    var sum1 = vec4<f32>(0.0);
    var sum2 = vec4<f32>(0.0);
    var sum3 = vec4<f32>(0.0);
    for (var t = begin; t < end; t = t + 1u) {
        let grad = grad_out[t * row_blocks + row];
        let value = input[t * column_blocks + column];
        sum0 = sum0 + grad.x * value;
        sum1 = sum1 + grad.y * value;
        sum2 = sum2 + grad.z * value;
        sum3 = sum3 + grad.w * value;
    }
    let out = (part * params.rows + row * 4u) * column_blocks + column;
    parts[out] = sum0;
    parts[out + column_blocks] = sum1;
    parts[out + 2u * column_blocks] = sum2;
    parts[out + 3u * column_blocks] = sum3;
}
