// What each element of a dropout is multiplied by: 0 where it is dropped, params.scale =
// 1 / (1 - p) where it is kept. Made from saved RNG words, so that backward makes it again.
//
// rng [4]: seed low, seed high, offset low, offset high   mask [count] f32
//
// Words and their threshold are those of dropout.wgsl.
// use: math/dropout

@group(0) @binding(0) var<storage, read_write> rng: array<u32>;
@group(0) @binding(1) var<storage, read_write> mask: array<f32>;

struct Params {
    count: u32,
    site: u32,
    threshold: u32,
    scale: f32,
}
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    let i = gid.x;
    if i >= params.count {
        return;
    }
    let state = vec4<u32>(rng[0], rng[1], rng[2], rng[3]);
    let word = bp_dropout_word(state, params.site, i);
    mask[i] = select(0.0, params.scale, word >= params.threshold);
}
