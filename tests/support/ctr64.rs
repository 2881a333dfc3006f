//! The generator of golden files' inputs ("ctr64"), and how values are written.

/// An element type's layout, for the input generator.
#[derive(Clone, Copy)]
pub struct Format {
    pub bytes: u64,
    mantissa: u32,
    bias: u64,
    exponents: (i64, i64),
}

pub fn format(name: &str) -> Format {
    let (bytes, mantissa, bias, exponents) = match name {
        "float32" => (4, 23, 127, (-12, 12)),
        "float64" => (8, 52, 1023, (-20, 20)),
        "float16" => (2, 10, 15, (-6, 6)),
        "bfloat16" => (2, 7, 127, (-6, 6)),
        other => panic!("unknown type {other}"),
    };
    Format {
        bytes,
        mantissa,
        bias,
        exponents,
    }
}

/// SplitMix64 at a counter of rank and element, shaped into the bits of a float ("ctr64").
#[inline]
pub fn input(seed: u64, rank: u32, element: u64, format: &Format, edge: Option<&[u64]>) -> u64 {
    let counter = (u64::from(rank) << 40) + element + 1;
    let s = seed.wrapping_add(counter.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let z = (s ^ (s >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    let z = z ^ (z >> 31);
    if let Some(table) = edge {
        return table[(z % 12) as usize];
    }
    let (lo, hi) = format.exponents;
    let exponent = ((z >> 52) & 0x7FF) % ((hi - lo + 1) as u64);
    let biased = format.bias.wrapping_add_signed(lo) + exponent;
    ((z >> 63) << (format.bytes * 8 - 1))
        | (biased << format.mantissa)
        | (z & ((1 << format.mantissa) - 1))
}

pub fn hex(values: &[u64], bytes: u64) -> String {
    values
        .iter()
        .map(|value| format!("{value:0width$x}", width = bytes as usize * 2))
        .collect()
}
