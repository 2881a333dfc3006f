// The square of each gradient that this rank counts in the global norm, +0 for the others.
//
// grads, squares [count] f32
// flags [count]: bit 1 says that this rank counts the element, so that a parameter held by several
// tensor-parallel ranks is counted once. Summed by folds, not here.

@group(0) @binding(0) var<storage, read_write> grads: array<f32>;
@group(0) @binding(1) var<storage, read_write> flags: array<u32>;
@group(0) @binding(2) var<storage, read_write> squares: array<f32>;

struct Params {
    count: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= params.count {
        return;
    }
    var square = 0.0;
    if (flags[gid.x] & 2u) != 0u {
        square = grads[gid.x] * grads[gid.x];
    }
    squares[gid.x] = square;
}
