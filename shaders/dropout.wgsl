// Dropout with a mask made from saved RNG words, so that backward makes the same mask again.
//
// x, out [count] (may be the same)   rng [4]: seed low, seed high, offset low, offset high
//
// Element i takes the word of math/dropout. It is kept where the word is >= params.threshold,
// multiplied by params.scale = 1 / (1 - p), rounded once.
// use: math/dropout
// use: math/round

@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> rng: array<u32>;
@group(0) @binding(2) var<storage, read_write> out: array<f32>;

struct Params {
    count: u32,
    site: u32,
    threshold: u32,
    scale: f32,
    round_code: u32,
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
    var value = 0.0;
    if word >= params.threshold {
        value = round_to(x[i] * params.scale, params.round_code);
    }
    out[i] = value;
}
