// sin x and cos x. Within 1 ulp over all f32, the largest included (measured: tests/shader_math).
// NaN and infinities give NaN, sin of a zero is that zero. sin is odd, cos even, bit for bit.
//
// Beyond pi/4 the argument is reduced by quarter turns with the integer product of its significand
// and 1/(2 pi) to 64 bits behind the point (Payne and Hanek), which no f32 comes close to
// exhausting; what is left is kept as a sum of two f32. Then minimax polynomials, relative error
// 2^-32 (sin) and 2^-37 (cos).
// use: math/product

// x = turns * pi/2 + high + low, |high| <= pi/4, low below half an ulp of high; for finite x >= 0.
struct BpReduced {
    turns: u32,
    high: f32,
    low: f32,
}

// 32 bits of 1/(2 pi), from bit 32 * word behind the point.
fn bp_turn_word(word: u32) -> u32 {
    switch word {
        case 0u: { return 0x28be60dbu; }
        case 1u: { return 0x9391054au; }
        case 2u: { return 0x7f09d5f4u; }
        case 3u: { return 0x7d4d3770u; }
        case 4u: { return 0x36d8a566u; }
        case 5u: { return 0x4f10e410u; }
        case 6u: { return 0x7f9458eau; }
        default: { return 0u; }
    }
}

// 32 bits of 1/(2 pi) times 2^shift, from bit 32 * word behind the point; word -1 is before it.
fn bp_turn_bits(word: i32, shift: u32) -> u32 {
    let place = word + i32(shift >> 5u);
    var upper = 0u;
    if place >= 0 {
        upper = bp_turn_word(u32(place));
    }
    let within = shift & 31u;
    if within == 0u {
        return upper;
    }
    return (upper << within) | (bp_turn_word(u32(place + 1)) >> (32u - within));
}

fn bp_reduce(x: f32) -> BpReduced {
    let bits = bitcast<u32>(x);
    if bits <= 0x3f490fdau {
        return BpReduced(0u, x, 0.0);
    }
    // x = significand * 2^(shift - 32), with the significand's top bit set.
    let significand = (bits << 8u) | 0x80000000u;
    let shift = (bits >> 23u) - 126u;
    // Turns modulo 1, in units of 2^-64: whole turns leave by wrapping.
    let middle = bp_turn_bits(0, shift);
    let carried = bp_high_product(significand, bp_turn_bits(1, shift));
    let below = significand * middle + carried;
    var above = significand * bp_turn_bits(-1, shift) + bp_high_product(significand, middle);
    if below < carried {
        above = above + 1u;
    }
    // Quarter turns to the nearest; what is left is a signed fraction of one, |fraction| <= 1/2.
    var high = (above << 2u) | (below >> 30u);
    var low = below << 2u;
    let negative = high >> 31u;
    let turns = (above >> 30u) + negative;
    if negative == 1u {
        low = ~low + 1u;
        high = ~high;
        if low == 0u {
            high = high + 1u;
        }
    }
    return bp_radians(turns & 3u, high, low, negative);
}

// A fraction of a quarter turn, in units of 2^-64 and other than zero, times pi/2.
fn bp_radians(turns: u32, above: u32, below: u32, negative: u32) -> BpReduced {
    var high = above;
    var low = below;
    var zeros = countLeadingZeros(high);
    if zeros >= 32u {
        high = low;
        low = 0u;
        zeros = 32u + countLeadingZeros(high);
    }
    let up = zeros & 31u;
    if up > 0u {
        high = (high << up) | (low >> (32u - up));
        low = low << up;
    }
    // 12, 12 and 24 bits of the fraction; pi/2 is 12 bits, 12 bits and the rest: the products of
    // 12 bits are exact.
    let first = f32(high >> 20u) * 0x1p-12;
    let second = f32((high >> 8u) & 0xfffu) * 0x1p-24;
    let third = f32(((high & 0xffu) << 16u) | (low >> 16u)) * 0x1p-48;
    let lead = first * 0x1.92p+0;
    let rest = (first * 0x1.fb4p-12 + second * 0x1.92p+0)
        + (second * 0x1.fb4p-12 + (first * 0x1.4442d2p-24 + third * 0x1.921fb6p+0));
    let sum = lead + rest;
    let scale = bitcast<f32>(((127u - zeros) << 23u) | (negative << 31u));
    return BpReduced(turns, sum * scale, ((lead - sum) + rest) * scale);
}

fn bp_sin_near_zero(high: f32, low: f32) -> f32 {
    let z = high * high;
    var p = 0x1.7c2c4ep-19;
    p = p * z - 0x1.a05954p-13;
    p = p * z + 0x1.111174p-7;
    p = p * z - 0x1.555556p-3;
    return high + (high * z * p + low * (1.0 - 0.5 * z));
}

fn bp_cos_near_zero(high: f32, low: f32) -> f32 {
    let z = high * high;
    var p = -0x1.361852p-22;
    p = p * z + 0x1.a071bep-16;
    p = p * z - 0x1.6c175ep-10;
    p = p * z + 0x1.555556p-5;
    let half = 0.5 * z;
    let lead = 1.0 - half;
    return lead + (((1.0 - lead) - half) + (z * z * p - high * low));
}

// sin for an even number of quarter turns, cos for an odd one; the sign turns with each half.
fn bp_at_quarter(turns: u32, high: f32, low: f32) -> f32 {
    var y = 0.0;
    if (turns & 1u) == 0u {
        y = bp_sin_near_zero(high, low);
    } else {
        y = bp_cos_near_zero(high, low);
    }
    return bitcast<f32>(bitcast<u32>(y) ^ ((turns & 2u) << 30u));
}

fn bp_sin(x: f32) -> f32 {
    let bits = bitcast<u32>(x);
    let magnitude = bits & 0x7fffffffu;
    if magnitude >= 0x7f800000u {
        return bitcast<f32>(0x7fc00000u);
    }
    if magnitude < 0x39800000u {
        return x;
    }
    let reduced = bp_reduce(bitcast<f32>(magnitude));
    let y = bp_at_quarter(reduced.turns, reduced.high, reduced.low);
    return bitcast<f32>(bitcast<u32>(y) ^ (bits & 0x80000000u));
}

fn bp_cos(x: f32) -> f32 {
    let magnitude = bitcast<u32>(x) & 0x7fffffffu;
    if magnitude >= 0x7f800000u {
        return bitcast<f32>(0x7fc00000u);
    }
    let reduced = bp_reduce(bitcast<f32>(magnitude));
    return bp_at_quarter(reduced.turns + 1u, reduced.high, reduced.low);
}
