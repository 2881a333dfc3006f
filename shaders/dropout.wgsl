// Dropout with a mask made from saved RNG words, so that backward makes the same mask again.
//
// x, out [count] (may be the same)   rng [4]: seed low, seed high, offset low, offset high
//
// Element i takes word i % 4 of Philox4x32-10 with key = seed and counter = (offset + site, i / 4):
// the offset and subsequence halves as PyTorch lays them out (ATen PhiloxRNGEngine.h). It is kept
// where the word is >= params.threshold, multiplied by params.scale = 1 / (1 - p), rounded once.
// use: math/philox
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
    let low = rng[2] + params.site;
    let carry = select(0u, 1u, low < params.site);
    let counter = vec4<u32>(low, rng[3] + carry, i / 4u, 0u);
    let words = bp_philox(counter, vec2<u32>(rng[0], rng[1]));
    let word = words[i % 4u];
    var value = 0.0;
    if word >= params.threshold {
        value = round_to(x[i] * params.scale, params.round_code);
    }
    out[i] = value;
}
