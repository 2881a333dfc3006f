// One AdamW update (Loshchilov and Hutter, arXiv:1711.05101) of fp32 main parameters, and the
// model's copy of them.
//
// grads, main, exp_avg, exp_avg_sq [count] f32   model [count], main rounded
// flags [count]: bit 0 says that the element decays   clip [2] f32: norm, coefficient
// powers [2] f32: beta1^step, beta2^step of this step   lr [1] f32
//
// No sums.
// use: math/round

@group(0) @binding(0) var<storage, read_write> grads: array<f32>;
@group(0) @binding(1) var<storage, read_write> flags: array<u32>;
@group(0) @binding(2) var<storage, read_write> clip: array<f32>;
@group(0) @binding(3) var<storage, read_write> powers: array<f32>;
@group(0) @binding(4) var<storage, read_write> main_params: array<f32>;
@group(0) @binding(5) var<storage, read_write> exp_avg: array<f32>;
@group(0) @binding(6) var<storage, read_write> exp_avg_sq: array<f32>;
@group(0) @binding(7) var<storage, read_write> model: array<f32>;
@group(0) @binding(8) var<storage, read_write> learning_rate: array<f32>;

struct Params {
    count: u32,
    beta1: f32,
    beta2: f32,
    eps: f32,
    weight_decay: f32,
    round_code: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    let i = gid.x;
    if i >= params.count {
        return;
    }
    let lr = learning_rate[0];
    let grad = grads[i] * clip[1];
    let average = params.beta1 * exp_avg[i] + (1.0 - params.beta1) * grad;
    let square = params.beta2 * exp_avg_sq[i] + (1.0 - params.beta2) * grad * grad;
    exp_avg[i] = average;
    exp_avg_sq[i] = square;
    var value = main_params[i];
    if (flags[i] & 1u) != 0u {
        value = value * (1.0 - lr * params.weight_decay);
    }
    let denominator = sqrt(square / (1.0 - powers[1])) + params.eps;
    value = value - lr * (average / (1.0 - powers[0])) / denominator;
    main_params[i] = value;
    model[i] = round_to(value, params.round_code);
}
