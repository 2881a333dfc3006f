// The learning rate of a step, from the samples before it (Megatron-LM's OptimizerParamScheduler,
// get_lr): linear warm-up from 0, then constant, or down to min_lr in a line or half a cosine.
//
// num_steps [1] u32: samples   lr [1] f32
//
// warmup and decay count samples, and the decay has the warm-up in it. No sums.
// use: math/sincos

@group(0) @binding(0) var<storage, read_write> num_steps: array<u32>;
@group(0) @binding(1) var<storage, read_write> lr: array<f32>;

struct Params {
    max_lr: f32,
    min_lr: f32,
    warmup: u32,
    decay: u32,
    // 0 constant, 1 linear, 2 cosine
    style: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

fn after_warmup(samples: u32) -> f32 {
    if params.style == 0u {
        return params.max_lr;
    }
    if samples > params.decay {
        return params.min_lr;
    }
    let ratio = f32(samples - params.warmup) / f32(params.decay - params.warmup);
    var coefficient = 1.0 - ratio;
    if params.style == 2u {
        coefficient = 0.5 * (bp_cos(0x1.921fb6p+1 * ratio) + 1.0);
    }
    return params.min_lr + coefficient * (params.max_lr - params.min_lr);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= 1u {
        return;
    }
    let samples = num_steps[0];
    if params.warmup > 0u && samples <= params.warmup {
        lr[0] = params.max_lr * f32(samples) / f32(params.warmup);
    } else {
        lr[0] = after_warmup(samples);
    }
}
