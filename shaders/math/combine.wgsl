// use: math/round
//
// The one place where two values of a fold meet.

// Sum of two values, rounded to the type of the partial sums.
fn combine_sum(a: vec4<f32>, b: vec4<f32>, partial_code: u32) -> vec4<f32> {
    return round4(a + b, partial_code);
}

fn round4(x: vec4<f32>, code: u32) -> vec4<f32> {
    if (code == 0u) {
        return x;
    }
    return vec4<f32>(
        round_to(x.x, code),
        round_to(x.y, code),
        round_to(x.z, code),
        round_to(x.w, code),
    );
}

// Order of f32 as unsigned integers: -NaN < -inf < ... < -0 < +0 < ... < +inf < +NaN.
fn total_order_key(bits: vec4<u32>) -> vec4<u32> {
    let negative = (bits >> vec4<u32>(31u)) != vec4<u32>(0u);
    return select(bits | vec4<u32>(0x80000000u), ~bits, negative);
}

// The larger of two values in total order.
fn combine_max(a: vec4<f32>, b: vec4<f32>) -> vec4<f32> {
    let key_a = total_order_key(bitcast<vec4<u32>>(a));
    let key_b = total_order_key(bitcast<vec4<u32>>(b));
    return select(a, b, key_b > key_a);
}
