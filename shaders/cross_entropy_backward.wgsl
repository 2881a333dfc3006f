// Gradient of the scaled loss with respect to this rank's logits: the softmax, less one at the
// target, times `scale` and the loss scale.
//
// logits, grad_logits [tokens, vocab_rows]   targets [tokens]   loss_scale [1] f32
// greatest, sum_exp [tokens] f32, over all ranks. No sums; rounded once.
// use: math/exp
// use: math/round

@group(0) @binding(0) var<storage, read_write> logits: array<f32>;
@group(0) @binding(1) var<storage, read_write> targets: array<u32>;
@group(0) @binding(2) var<storage, read_write> greatest: array<f32>;
@group(0) @binding(3) var<storage, read_write> sum_exp: array<f32>;
@group(0) @binding(4) var<storage, read_write> loss_scale: array<f32>;
@group(0) @binding(5) var<storage, read_write> grad_logits: array<f32>;

struct Params {
    count: u32,
    vocab_rows: u32,
    first: u32,
    scale: f32,
    round_code: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= params.count {
        return;
    }
    let token = gid.x / params.vocab_rows;
    let row = gid.x % params.vocab_rows;
    var grad = bp_exp(logits[gid.x] - greatest[token]) / sum_exp[token];
    if targets[token] == params.first + row {
        grad = grad - 1.0;
    }
    grad_logits[gid.x] = round_to(grad * (params.scale * loss_scale[0]), params.round_code);
}
