//! Bit patterns of floating-point values: their total order, their distance, and how a report
//! prints them.

use std::fmt;

use half::{bf16, f16};

use super::Dtype;

/// The place of `x` in the total order of IEEE 754-2019 section 5.10: `-0 < +0`, a negative NaN
/// below everything, a positive one above everything. Equal keys mean equal bits.
pub fn total_key(x: f32) -> i32 {
    let bits = x.to_bits() as i32;
    if bits < 0 { bits ^ i32::MAX } else { bits }
}

/// Steps of `dtype` between two of its values: how often one moves to the next representable value
/// to get from `a` to `b`.
///
/// `-0` and `+0` are one step apart, so that values whose bits differ never have distance 0; the
/// largest finite value and infinity are one step apart too. `None` if either is a NaN.
pub fn ulp_distance(dtype: Dtype, a: f32, b: f32) -> Option<u64> {
    if a.is_nan() || b.is_nan() {
        return None;
    }
    Some(step_key(dtype, a).abs_diff(step_key(dtype, b)))
}

/// `total_key` in the packed bits of `dtype`, so that neighbours differ by 1.
fn step_key(dtype: Dtype, x: f32) -> i64 {
    let packed = match dtype {
        Dtype::F32 | Dtype::U32 => return i64::from(total_key(x)),
        Dtype::Bf16 => bf16::from_f32(x).to_bits(),
        Dtype::F16 => f16::from_f32(x).to_bits(),
    } as i16;
    i64::from(if packed < 0 {
        packed ^ i16::MAX
    } else {
        packed
    })
}

/// Prints an `f32` so that nothing is lost: the shortest decimal that reads back to the same bits,
/// the hexadecimal value as C's `%a` writes it, and the bits.
///
/// ```
/// use bitproof::numerics::bits::Exact;
/// assert_eq!(Exact(0.1).to_string(), "0.1 (0x1.99999ap-4, bits 3dcccccd)");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exact(pub f32);

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:?} ({}, bits {:08x})",
            self.0,
            hexadecimal(self.0),
            self.0.to_bits()
        )
    }
}

/// `x` in hexadecimal, as C's `%a` prints it: trailing zeros dropped, subnormals with a leading 0
/// digit and the exponent -126.
pub fn hexadecimal(x: f32) -> String {
    let sign = if x.is_sign_negative() { "-" } else { "" };
    if x.is_nan() {
        return "nan".to_string();
    }
    if x.is_infinite() {
        return format!("{sign}inf");
    }
    let biased = (x.to_bits() >> 23 & 0xff) as i32;
    let fraction = x.to_bits() & 0x007f_ffff;
    if biased == 0 && fraction == 0 {
        return format!("{sign}0x0p+0");
    }
    let (lead, exponent) = if biased == 0 {
        (0, -126)
    } else {
        (1, biased - 127)
    };
    let digits = format!("{:06x}", fraction << 1);
    let digits = digits.trim_end_matches('0');
    let point = if digits.is_empty() { "" } else { "." };
    format!("{sign}0x{lead}{point}{digits}p{exponent:+}")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every class of value, ascending in total order.
    fn ladder_of_values() -> Vec<f32> {
        let positive = [
            0.0,
            f32::from_bits(1),
            f32::MIN_POSITIVE,
            1.0,
            f32::MAX,
            f32::INFINITY,
        ];
        let mut all: Vec<f32> = positive.iter().rev().map(|x| -x).collect();
        all.extend(positive);
        all
    }

    #[test]
    fn total_order_is_strict() {
        let all = ladder_of_values();
        assert!(
            all.windows(2)
                .all(|pair| total_key(pair[0]) < total_key(pair[1]))
        );
        assert!(
            all.windows(2)
                .all(|pair| pair[0].total_cmp(&pair[1]).is_lt())
        );
    }

    #[test]
    fn neighbours_are_one_step_apart() {
        for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
            assert_eq!(ulp_distance(dtype, -0.0, 0.0), Some(1));
            assert_eq!(ulp_distance(dtype, 1.5, 1.5), Some(0));
            assert_eq!(ulp_distance(dtype, f32::NAN, 1.5), None);
        }
        assert_eq!(
            ulp_distance(Dtype::F32, 1.0, f32::from_bits(0x3f80_0003)),
            Some(3)
        );
        assert_eq!(ulp_distance(Dtype::Bf16, 1.0, 1.0 + 1.0 / 64.0), Some(2));
        assert_eq!(ulp_distance(Dtype::F16, 1.0, 1.0 + 1.0 / 512.0), Some(2));
        assert_eq!(ulp_distance(Dtype::F16, 65504.0, f32::INFINITY), Some(1));
        // 1 to -1 in bf16: twice the 0x3f80 steps to zero, and the one between the zeros.
        assert_eq!(ulp_distance(Dtype::Bf16, 1.0, -1.0), Some(2 * 0x3f80 + 1));
    }

    #[test]
    fn decimal_and_hexadecimal_read_back() {
        for case in 0..200_000u32 {
            let x = f32::from_bits(case.wrapping_mul(0x9e37_79b9));
            if x.is_nan() {
                continue;
            }
            let decimal: f32 = format!("{x:?}").parse().unwrap();
            assert_eq!(decimal.to_bits(), x.to_bits());
            if x.is_finite() {
                assert_eq!(
                    read_hexadecimal(&hexadecimal(x)).to_bits(),
                    x.to_bits(),
                    "{x:?}"
                );
            }
        }
    }

    /// An independent reader of C's `%a`.
    fn read_hexadecimal(text: &str) -> f32 {
        let (sign, text) = text
            .strip_prefix('-')
            .map_or((1.0, text), |rest| (-1.0, rest));
        let (digits, exponent) = text.strip_prefix("0x").unwrap().split_once('p').unwrap();
        let (lead, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let mut significand = f64::from(u8::from_str_radix(lead, 16).unwrap());
        let mut weight = 1.0;
        for digit in fraction.chars() {
            weight /= 16.0;
            significand += weight * f64::from(digit.to_digit(16).unwrap());
        }
        (sign * significand * 2f64.powi(exponent.parse().unwrap())) as f32
    }

    #[test]
    fn reports_show_value_and_bits() {
        assert_eq!(Exact(-0.0).to_string(), "-0.0 (-0x0p+0, bits 80000000)");
        assert_eq!(Exact(1.5).to_string(), "1.5 (0x1.8p+0, bits 3fc00000)");
        assert_eq!(
            Exact(f32::from_bits(3)).to_string(),
            "4e-45 (0x0.000006p-126, bits 00000003)"
        );
        assert_eq!(
            Exact(f32::NEG_INFINITY).to_string(),
            "-inf (-inf, bits ff800000)"
        );
    }
}
