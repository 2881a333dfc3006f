// One more optimizer step: the counter, and the running powers of both betas.
//
// step [1] u32   powers [2] f32: beta1^step, beta2^step, each power the last one times beta

@group(0) @binding(0) var<storage, read_write> step: array<u32>;
@group(0) @binding(1) var<storage, read_write> powers: array<f32>;

struct Params {
    beta1: f32,
    beta2: f32,
}
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= 1u {
        return;
    }
    step[0] = step[0] + 1u;
    powers[0] = powers[0] * params.beta1;
    powers[1] = powers[1] * params.beta2;
}
