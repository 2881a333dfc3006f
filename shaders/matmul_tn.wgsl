// C = A^T B over part of k, row-major: C[m, n] = sum over k of A[k, m] B[k, n].
//
// operands  a: A, [k, m] f32    b: B, [k, n / 4] vec4    c: C, [m, n / 4] vec4, written once
// params    m, n, k_begin, k_end, round_code: n a multiple of 4; the sum runs over
//           k_begin..k_end, one part of a split-K product; C is rounded by round_code (math/round)
// grid      x: n / 4 columns of four, y: ceil(m / 4) blocks of four rows
//
// Order: each C[m, n] is one chain over k ascending from +0: s = s + a * b, product and sum each
// rounded to f32. Rows of a block past m compute row m - 1 again and are not stored.
// use: math/round

struct Params {
    m: u32,
    n: u32,
    k_begin: u32,
    k_end: u32,
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
    var s0 = vec4<f32>();
    var s1 = vec4<f32>();
    var s2 = vec4<f32>();
    var s3 = vec4<f32>();
    var a_at = params.k_begin * params.m;
    var b_at = params.k_begin * columns + gid.x;
    for (var i = params.k_begin; i < params.k_end; i = i + 1u) {
        let right = b[b_at];
        s0 = s0 + a[a_at + row] * right;
        s1 = s1 + a[a_at + row1] * right;
        s2 = s2 + a[a_at + row2] * right;
        s3 = s3 + a[a_at + row3] * right;
        a_at = a_at + params.m;
        b_at = b_at + columns;
    }
    // One place that rounds and stores: the code of the rounding is long.
    for (var r = 0u; r < 4u && row + r <= last; r = r + 1u) {
        let sum = select(select(s0, s1, r == 1u), select(s2, s3, r == 3u), r >= 2u);
        c[(row + r) * columns + gid.x] = round_to4(sum, params.round_code);
    }
}
