// C = A B, row-major: C[m, n] = sum over k of A[m, k] B[k, n].
//
// operands  a: A, [m, k] f32    b: B, [k, n / 4] vec4    c: C, [m, n / 4] vec4, written once
// params    m, n, k, round_code: n a multiple of 4; C is rounded by round_code (math/round)
// grid      x: n / 4 columns of four, y: ceil(m / 4) blocks of four rows
//
// Order: each C[m, n] is one chain over k ascending from +0: s = s + a * b, product and sum each
// rounded to f32. Rows of a block past m compute row m - 1 again and are not stored.
// use: math/round

struct Params {
    m: u32,
    n: u32,
    k: u32,
    round_code: u32,
}

@group(0) @binding(0) var<storage, read_write> a: array<f32>;
@group(0) @binding(1) var<storage, read_write> b: array<vec4<f32>>;
@group(0) @binding(2) var<storage, read_write> c: array<vec4<f32>>;
@group(1) @binding(0) var<uniform> params: Params;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    let columns = params.n / 4u;
    let row = gid.y * 4u;
    if gid.x >= columns || row >= params.m {
        return;
    }
    let last = params.m - 1u;
    let row1 = select(row + 1u, last, row + 1u > last);
    let row2 = select(row + 2u, last, row + 2u > last);
    let row3 = select(row + 3u, last, row + 3u > last);
    let a0 = row * params.k;
    let a1 = row1 * params.k;
    let a2 = row2 * params.k;
    let a3 = row3 * params.k;
    var s0 = vec4<f32>();
    var s1 = vec4<f32>();
    var s2 = vec4<f32>();
    var s3 = vec4<f32>();
    var at = gid.x;
    for (var i = 0u; i < params.k; i = i + 1u) {
        let right = b[at];
        s0 = s0 + a[a0 + i] * right;
        s1 = s1 + a[a1 + i] * right;
        s2 = s2 + a[a2 + i] * right;
        s3 = s3 + a[a3 + i] * right;
        at = at + columns;
    }
    // One place that rounds and stores: the code of the rounding is long.
    for (var r = 0u; r < 4u && row + r <= last; r = r + 1u) {
        let sum = select(select(s0, s1, r == 1u), select(s2, s3, r == 3u), r >= 2u);
        c[(row + r) * columns + gid.x] = round_to4(sum, params.round_code);
    }
}
