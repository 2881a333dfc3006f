// Gradients of a scaled loss as fp32 main gradients of the loss itself: main = grads * (1 / scale)
// (Megatron-LM, optimizer.py, _unscale_main_grads_and_check_for_nan).
//
// grads [count]   scale [1] f32   main [count] f32. No sums.

@group(0) @binding(0) var<storage, read_write> grads: array<f32>;
@group(0) @binding(1) var<storage, read_write> scale: array<f32>;
@group(0) @binding(2) var<storage, read_write> main_grads: array<f32>;

struct Params {
    count: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= params.count {
        return;
    }
    main_grads[gid.x] = grads[gid.x] * (1.0 / scale[0]);
}
