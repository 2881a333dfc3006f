// The global gradient norm, and the factor that clips it.
//
// sum [1] f32: sum of squares over every rank   clip [2] f32: norm, coefficient
//
// coefficient = max_norm / (norm + 1e-6) where that is below 1, else 1; always 1 when max_norm
// is 0 (torch.nn.utils.clip_grad_norm_).

@group(0) @binding(0) var<storage, read_write> sum: array<f32>;
@group(0) @binding(1) var<storage, read_write> clip: array<f32>;

struct Params {
    max_norm: f32,
}
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= 1u {
        return;
    }
    let norm = sqrt(sum[0]);
    let wanted = params.max_norm / (norm + 1e-6);
    clip[0] = norm;
    clip[1] = select(1.0, wanted, wanted < 1.0 && params.max_norm > 0.0);
}
