// Rounds an f32 to the type that a buffer is tagged with, to nearest, ties to even, and gives it
// back as an f32: codes 0 f32, 1 bf16, 2 f16. Integer arithmetic on the bits only. Every NaN
// becomes 0x7fc00000, too large a magnitude becomes an infinity, f16 subnormals are exact.

fn round_bits_bf16(magnitude: u32) -> u32 {
    // Half of the last kept place, less one where that place is even; a carry into the exponent
    // is the right answer, up to infinity.
    return (magnitude + 0x7fffu + ((magnitude >> 16u) & 1u)) & 0xffff0000u;
}

fn round_bits_f16(magnitude: u32) -> u32 {
    if magnitude >= 0x477ff000u {
        // 65520 and above: nearer to 2^16 than to 65504, the largest f16.
        return 0x7f800000u;
    }
    if magnitude < 0x33000001u {
        // Up to 2^-25, half of the least subnormal: ties go to the even 0.
        return 0u;
    }
    // Places dropped: 13 for a normal f16, one more for each binade below 2^-14.
    let exponent = magnitude >> 23u;
    var dropped = 13u;
    if exponent < 113u {
        dropped = 126u - exponent;
    }
    if dropped < 24u {
        let half = (1u << (dropped - 1u)) - 1u;
        let odd = (magnitude >> dropped) & 1u;
        return ((magnitude + half + odd) >> dropped) << dropped;
    }
    // 2^-25 to 2^-24, exclusive: all of the fraction goes and the value is above the tie.
    return 0x33800000u;
}

fn round_to(x: f32, code: u32) -> f32 {
    let bits = bitcast<u32>(x);
    let magnitude = bits & 0x7fffffffu;
    if magnitude > 0x7f800000u {
        return bitcast<f32>(0x7fc00000u);
    }
    var rounded = magnitude;
    if code == 1u {
        rounded = round_bits_bf16(magnitude);
    } else if code == 2u {
        rounded = round_bits_f16(magnitude);
    }
    return bitcast<f32>((bits & 0x80000000u) | rounded);
}

fn round_to4(x: vec4<f32>, code: u32) -> vec4<f32> {
    return vec4<f32>(
        round_to(x.x, code),
        round_to(x.y, code),
        round_to(x.z, code),
        round_to(x.w, code),
    );
}
