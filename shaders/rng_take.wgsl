// Saves the RNG words that a microbatch's masks are made from, and advances the generator.
//
// rng, saved [4]: seed low, seed high, offset low, offset high

@group(0) @binding(0) var<storage, read_write> rng: array<u32>;
@group(0) @binding(1) var<storage, read_write> saved: array<u32>;

struct Params {
    increment: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= 1u {
        return;
    }
    saved[0] = rng[0];
    saved[1] = rng[1];
    saved[2] = rng[2];
    saved[3] = rng[3];
    let low = rng[2] + params.increment;
    rng[3] = rng[3] + select(0u, 1u, low < params.increment);
    rng[2] = low;
}
