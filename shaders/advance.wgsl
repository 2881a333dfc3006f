// Adds a constant to a counter cell, wrapping.
//
// cell [1]

@group(0) @binding(0) var<storage, read_write> cell: array<u32>;

struct Params {
    amount: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= 1u {
        return;
    }
    cell[0] = cell[0] + params.amount;
}
