// Purpose: rows chosen by index are added into output rows (a scatter-add as a gather).
// Operands:
//   addends   f32[rows][width]
//   pointers  u32[out_rows + 1], pointers[r]..pointers[r + 1] are row r's places in `indices`
//   indices   u32[pointers[out_rows]], numbers of addend rows
//   result    f32[out_rows][width]
// Order: result[r] = +0, then the rows of `indices` in the order listed, folded left in f32.
// Params: out_rows, width4 (width / 4), out_code.
// use: math/combine

struct Params {
    out_rows: u32,
    width4: u32,
    out_code: u32,
}

@group(0) @binding(0) var<storage, read_write> addends: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> pointers: array<u32>;
@group(0) @binding(2) var<storage, read_write> indices: array<u32>;
@group(0) @binding(3) var<storage, read_write> result: array<vec4<f32>>;
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    let row = gid.x / params.width4;
    let column = gid.x - row * params.width4;
    if (row >= params.out_rows) {
        return;
    }
    var partial = vec4<f32>(0.0);
    let end = pointers[row + 1u];
    for (var i = pointers[row]; i < end; i = i + 1u) {
        partial = combine_sum(partial, addends[indices[i] * params.width4 + column], 0u);
    }
    result[row * params.width4 + column] = round4(partial, params.out_code);
}
