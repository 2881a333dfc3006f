// The arithmetic that kernels lean on, an expression a case. An engine's self-test runs it and
// compares the bits with those of IEEE 754 (src/engine/self_test).
//
// xs, ys, zs, floats, words [params.count]: element i of `floats`, or of `words` for an expression
// from 99 on, from element i of the others.
//
// Every sum is as written; the chain adds products 0, 1, 2, ... up to its own.
// use: math/exp
// use: math/log
// use: math/rsqrt
// use: math/sincos
// use: math/tanh

@group(0) @binding(0) var<storage, read_write> xs: array<f32>;
@group(0) @binding(1) var<storage, read_write> ys: array<f32>;
@group(0) @binding(2) var<storage, read_write> zs: array<f32>;
@group(0) @binding(3) var<storage, read_write> floats: array<f32>;
@group(0) @binding(4) var<storage, read_write> words: array<u32>;

struct Params {
    count: u32,
    expression: u32,
}
@group(1) @binding(0) var<uniform> params: Params;

fn two_sum_error(x: f32, y: f32) -> f32 {
    let sum = x + y;
    let of_y = sum - x;
    return (x - (sum - of_y)) + (y - of_y);
}

// What Kahan's sum x carries on when it adds y and its carry is z.
fn kahan_carry(x: f32, y: f32, z: f32) -> f32 {
    let term = y - z;
    let sum = x + term;
    return (sum - x) - term;
}

fn vector_lane(x: f32, y: f32, z: f32) -> f32 {
    let lanes = vec4<f32>(x, y, z, -x) * y + vec4<f32>(z, x, y, x);
    return lanes[bitcast<u32>(x) & 3u];
}

fn sum_from_zero(x: f32, y: f32) -> f32 {
    var sum = 0.0;
    sum = sum + x;
    sum = sum + y;
    return sum;
}

fn chain(last: u32) -> f32 {
    var sum = zs[last];
    for (var k = 0u; k <= last; k = k + 1u) {
        sum = sum + xs[k] * ys[k];
    }
    return sum;
}

fn comparisons(x: f32, y: f32) -> u32 {
    let ordered = select(0u, 1u, x < y) + select(0u, 2u, x <= y);
    let reversed = select(0u, 4u, x > y) + select(0u, 8u, x >= y);
    return ordered + reversed + select(0u, 16u, x == y) + select(0u, 32u, x != y);
}

fn float_of(expression: u32, x: f32, y: f32, z: f32) -> f32 {
    switch expression {
        case 0u: { return x; }
        case 1u: { return -x; }
        case 2u: { return x + y; }
        case 3u: { return x - y; }
        case 4u: { return x * y; }
        case 5u: { return x / y; }
        case 6u: { return 1.0 / x; }
        case 7u: { return sqrt(x); }
        case 8u: { return sqrt(abs(x)) * sqrt(abs(x)); }
        case 9u: { return x * y + z; }
        case 10u: { return z - x * y; }
        case 11u: { return x * y + x * z; }
        case 12u: { return (x + y) - y; }
        case 13u: { return (x + y) + z; }
        case 14u: { return x + (y + z); }
        case 15u: { return (x * y) * z; }
        case 16u: { return two_sum_error(x, y); }
        case 17u: { return kahan_carry(x, y, z); }
        case 18u: { return x / 3.0; }
        case 19u: { return (x * y) / y; }
        case 20u: { return x * 0.0; }
        case 21u: { return x + 0.0; }
        case 22u: { return 0.0 - x; }
        case 23u: { return x - x; }
        case 24u: { return x / x; }
        case 25u: { return select(x, y, y > x); }
        case 26u: { return floor(x); }
        case 27u: { return trunc(x); }
        case 28u: { return f32(i32(x)); }
        case 29u: { return f32(i32(x * 8.0)); }
        case 30u: { return f32(bitcast<u32>(x)); }
        case 31u: { return f32(bitcast<i32>(x)); }
        case 32u: { return vector_lane(x, y, z); }
        case 33u: { return bp_exp(x); }
        case 34u: { return bp_log(x); }
        case 35u: { return bp_tanh(x); }
        case 36u: { return bp_sin(x); }
        case 37u: { return bp_cos(x); }
        case 38u: { return bp_rsqrt(x); }
        case 39u: { return sum_from_zero(x, y); }
        default: { return z; }
    }
}

fn word_of(expression: u32, x: f32, y: f32) -> u32 {
    switch expression {
        case 100u: { return comparisons(x, y); }
        case 101u: { return bitcast<u32>(i32(x)); }
        case 102u: { return u32(x); }
        case 103u: { return bitcast<u32>(x - y); }
        default: { return 0u; }
    }
}

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    let i = gid.x;
    if i >= params.count {
        return;
    }
    // The first two look at operands themselves.
    if params.expression == 98u {
        floats[i] = chain(i);
    } else if params.expression == 99u {
        words[i] = bitcast<u32>(xs[i]);
    } else if params.expression >= 100u {
        words[i] = word_of(params.expression, xs[i], ys[i]);
    } else {
        floats[i] = float_of(params.expression, xs[i], ys[i], zs[i]);
    }
}
