// tanh x. Within 2 ulp over all f32 (measured: see tests/shader_math). NaN gives NaN, both zeros
// and all below 2^-12 give themselves, all above 9.02 give 1. An odd function, bit for bit.
//
// Below 5/8: x + x^3 p(x^2), p a minimax polynomial (relative error 2^-32). Above:
// 1 - 2 / (e^2x + 1).
// use: math/exp

fn bp_tanh(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let magnitude = bits & 0x7fffffffu;
    if magnitude < 0x39800000u || magnitude > 0x7f800000u {
        return x;
    }
    let a = bitcast<f32>(magnitude);
    var t = 1.0;
    if a < 0.625 {
        let z = a * a;
        var p = 0x1.1a2816p-9;
        p = p * z - 0x1.0c5edp-7;
        p = p * z + 0x1.63a55p-6;
        p = p * z - 0x1.b9f188p-5;
        p = p * z + 0x1.11107ap-3;
        p = p * z - 0x1.555554p-2;
        t = a + a * z * p;
    } else if a < 9.02 {
        t = 1.0 - 2.0 / (bp_exp(2.0 * a) + 1.0);
    }
    return bitcast<f32>(bitcast<u32>(t) | (bits & 0x80000000u));
}
