// Every word of `out` becomes params.word.
//
// out [count]

@group(0) @binding(0) var<storage, read_write> out: array<u32>;

struct Params {
    count: u32,
    word: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= params.count {
        return;
    }
    out[gid.x] = params.word;
}
