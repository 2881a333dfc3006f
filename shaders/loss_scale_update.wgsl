// The dynamic loss scale after a step (Megatron-LM, grad_scaler.py, DynamicGradScaler.update):
// halved when `hysteresis` steps have overflowed, and in each that overflows after them; doubled
// after `window` steps in a row that have not.
//
// found_inf, scale [1] f32   growth_tracker [1] u32: steps in a row without an overflow
// hysteresis_tracker [1]: overflows that are still without consequence, as a signed number

@group(0) @binding(0) var<storage, read_write> found_inf: array<f32>;
@group(0) @binding(1) var<storage, read_write> scale: array<f32>;
@group(0) @binding(2) var<storage, read_write> growth_tracker: array<u32>;
@group(0) @binding(3) var<storage, read_write> hysteresis_tracker: array<u32>;

struct Params {
    min_scale: f32,
    window: u32,
    hysteresis: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= 1u {
        return;
    }
    if found_inf[0] > 0.0 {
        growth_tracker[0] = 0u;
        let left = hysteresis_tracker[0] - 1u;
        hysteresis_tracker[0] = left;
        if bitcast<i32>(left) <= 0 {
            let halved = scale[0] * 0.5;
            scale[0] = select(halved, params.min_scale, halved < params.min_scale);
        }
        return;
    }
    let grown = growth_tracker[0] + 1u;
    growth_tracker[0] = grown;
    if grown == params.window {
        growth_tracker[0] = 0u;
        hysteresis_tracker[0] = params.hysteresis;
        scale[0] = scale[0] * 2.0;
    }
}
