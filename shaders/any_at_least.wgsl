// Whether one of a lane's values has at least the magnitude that `least` is the bits of: 1 if so,
// else 0. From 0x7f800000 on that is an infinity or a NaN; of such flags, 0x3f800000 is 1.
//
// values [count]   found [lanes] f32. Lane l has values l, l + lanes, ...; no sums.

@group(0) @binding(0) var<storage, read_write> values: array<f32>;
@group(0) @binding(1) var<storage, read_write> found: array<f32>;

struct Params {
    lanes: u32,
    count: u32,
    least: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= params.lanes {
        return;
    }
    var any = 0.0;
    for (var i = gid.x; i < params.count; i = i + params.lanes) {
        if (bitcast<u32>(values[i]) & 0x7fffffffu) >= params.least {
            any = 1.0;
        }
    }
    found[gid.x] = any;
}
