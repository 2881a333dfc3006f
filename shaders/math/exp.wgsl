// e^x. Within 1 ulp over all f32 (measured: see tests/shader_math), subnormal results included.
// NaN gives NaN, -inf and all below -104 give +0, inf and all above ln(largest f32) give inf.
//
// x = n ln 2 + r with |r| <= ln 2 / 2; n times the 15 leading bits of ln 2 is exact. Then
// e^r = 1 + r + r^2 q(r), q a minimax polynomial (relative error 2^-28). 2^n is applied in two
// steps, both exact but for a rounding into the subnormals.

// 2^n for n in -126 .. 127.
fn bp_power_of_two(n: i32) -> f32 {
    return bitcast<f32>(u32(n + 127) << 23u);
}

fn bp_exp(x: f32) -> f32 {
    if (bitcast<u32>(x) & 0x7fffffffu) > 0x7f800000u {
        return x;
    }
    if x >= 89.0 {
        return bitcast<f32>(0x7f800000u);
    }
    if x <= -104.0 {
        return 0.0;
    }
    let n = floor(x * 0x1.715476p+0 + 0.5);
    let r = (x - n * 0x1.62e4p-1) - n * 0x1.7f7d1cp-20;
    var q = 0x1.6ab89ep-10;
    q = q * r + 0x1.123d7p-7;
    q = q * r + 0x1.55585ap-5;
    q = q * r + 0x1.55548cp-3;
    q = q * r + 0x1.fffffcp-2;
    let y = 1.0 + (r + r * r * q);
    let k = i32(n);
    let half = k >> 1u;
    return y * bp_power_of_two(half) * bp_power_of_two(k - half);
}
