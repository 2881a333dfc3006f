// ln x. Within 1 ulp over all f32 (measured: see tests/shader_math), subnormals included.
// NaN and all below zero give NaN, either zero gives -inf, inf gives inf, 1 gives +0.
//
// x = 2^k (1 + f) with 1 + f in [sqrt 1/2, sqrt 2); ln(1 + f) = f - f^2 / 2 + f^3 p(f), p a minimax
// polynomial (relative error 2^-28). k times the 15 leading bits of ln 2 is exact.

fn bp_log(x: f32) -> f32 {
    var bits = bitcast<u32>(x);
    let magnitude = bits & 0x7fffffffu;
    if magnitude == 0u {
        return bitcast<f32>(0xff800000u);
    }
    if magnitude > 0x7f800000u || bits != magnitude {
        return bitcast<f32>(0x7fc00000u);
    }
    if bits == 0x7f800000u {
        return x;
    }
    var k = 0;
    if bits < 0x00800000u {
        bits = bitcast<u32>(x * 8388608.0);
        k = -23;
    }
    // The exponent that leaves a significand of at least sqrt 1/2, whose bits these are.
    let shift = bitcast<i32>(bits - 0x3f3504f3u) >> 23u;
    k = k + shift;
    let f = bitcast<f32>(bits - (bitcast<u32>(shift) << 23u)) - 1.0;
    let z = f * f;
    var p = 0x1.145736p-4;
    p = p * f - 0x1.de3bbp-4;
    p = p * f + 0x1.e6f066p-4;
    p = p * f - 0x1.fc2218p-4;
    p = p * f + 0x1.23376ap-3;
    p = p * f - 0x1.555c4cp-3;
    p = p * f + 0x1.99a4b6p-3;
    p = p * f - 0x1.000006p-2;
    p = p * f + 0x1.555548p-2;
    let n = f32(k);
    let tail = (f * z * p + n * 0x1.7f7d1cp-20) - 0.5 * z;
    return (f + tail) + n * 0x1.62e4p-1;
}
