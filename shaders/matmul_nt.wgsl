// C = A B^T, row-major (y = x W^T): C[m, n] = sum over k of A[m, k] B[n, k].
//
// operands  a: A, [m, k / 4] vec4    b: B, [n, k / 4] vec4    c: C, [m, n] f32, written once
// params    m, n, k, round_code: k a multiple of 4; C is rounded by round_code (math/round)
// grid      x: n columns, y: ceil(m / 4) blocks of four rows
//
// Order: lane l of a vec4 is one chain over k = l, l + 4, l + 8, ... ascending from +0:
// s = s + a * b, product and sum each rounded to f32; then (l0 + l1) + (l2 + l3). Rows of a block
// past m compute row m - 1 again and are not stored.
// use: math/round

struct Params {
    m: u32,
    n: u32,
    k: u32,
    round_code: u32,
}

@group(0) @binding(0) var<storage, read_write> a: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> b: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> c: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;

fn lanes_sum(lanes: vec4<f32>, code: u32) -> f32 {
    return round_to((lanes.x + lanes.y) + (lanes.z + lanes.w), code);
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    let row = gid.y * 4u;
    if gid.x >= params.n || row >= params.m {
        return;
    }
    let steps = params.k / 4u;
    let last = params.m - 1u;
    let row1 = select(row + 1u, last, row + 1u > last);
    let row2 = select(row + 2u, last, row + 2u > last);
    let row3 = select(row + 3u, last, row + 3u > last);
    let a0 = row * steps;
    let a1 = row1 * steps;
    let a2 = row2 * steps;
    let a3 = row3 * steps;
    let b0 = gid.x * steps;
    var s0 = vec4<f32>();
    var s1 = vec4<f32>();
    var s2 = vec4<f32>();
    var s3 = vec4<f32>();
    for (var i = 0u; i < steps; i = i + 1u) {
        let right = b[b0 + i];
        s0 = s0 + a[a0 + i] * right;
        s1 = s1 + a[a1 + i] * right;
        s2 = s2 + a[a2 + i] * right;
        s3 = s3 + a[a3 + i] * right;
    }
    // One place that rounds and stores: the code of the rounding is long.
    for (var r = 0u; r < 4u && row + r <= last; r = r + 1u) {
        let sum = select(select(s0, s1, r == 1u), select(s2, s3, r == 3u), r >= 2u);
        c[(row + r) * params.n + gid.x] = lanes_sum(sum, params.round_code);
    }
}
