//! L0, by structure, and L1, no partial sum ever rounds.

use super::conditions::{Conditions, EXACT};
use super::sum::Sum;
use crate::numerics::Dtype;

/// L0: at most two values are added, by an addition that commutes, and the addends are already in
/// the type of the partial sums. Proves all inputs, in both order classes.
///
/// A proven +0 before the addends does not count: it changes no addend but the sign of a zero, and
/// that in the same way in either order.
pub fn l0(sum: &Sum) -> bool {
    l0_under(&EXACT, sum)
}

pub(super) fn l0_under(conditions: &Conditions, sum: &Sum) -> bool {
    let count = if conditions.count_base {
        sum.count()
    } else {
        sum.addends.len()
    };
    sum.is_floating()
        && count <= conditions.structural_count
        && (!conditions.structural_types || holds_every_value_of(sum.partial, sum.addend))
}

fn holds_every_value_of(wide: Dtype, narrow: Dtype) -> bool {
    wide == narrow || (wide == Dtype::F32 && narrow != Dtype::U32)
}

/// L1: no partial sum rounds, whatever the order or tree. Proves this input.
///
/// With q the largest power of two that divides every value, any partial sum is a multiple of q no
/// larger than the sum of magnitudes. It is representable if that sum is at most `2^p q` (p the
/// precision of `partial`) and within the largest finite value, and q is not below the least
/// subnormal. An exact sum that is zero is -0 where every leaf is -0, else +0: no order changes it.
pub fn l1_exact(sum: &Sum) -> bool {
    l1_under(&EXACT, sum)
}

pub(super) fn l1_under(conditions: &Conditions, sum: &Sum) -> bool {
    if !sum.is_floating() {
        return false;
    }
    if conditions.count_base {
        is_exact(conditions, sum.partial, sum.counted())
    } else {
        is_exact(conditions, sum.partial, sum.addends.iter().copied())
    }
}

fn is_exact(
    conditions: &Conditions,
    partial: Dtype,
    values: impl Iterator<Item = f32> + Clone,
) -> bool {
    let mut unit = i32::MAX;
    for x in values.clone() {
        if !x.is_finite() {
            return false;
        }
        if x != 0.0 {
            unit = unit.min(odd_part(x).1);
        }
    }
    if unit == i32::MAX {
        return true;
    }
    let precision = if conditions.narrowest_precision {
        partial
    } else {
        Dtype::F32
    };
    let limit = 1i64 << (precision.precision_bits() + conditions.precision_excess);
    let Some(total) = total_in_units(conditions, unit, limit, values) else {
        return false;
    };
    // At most 2^24 times a power of two within f64's range: exact.
    let total = total as f64 * power_of_two(unit);
    (!conditions.least_subnormal || unit >= least_subnormal_exponent(partial))
        && (!conditions.largest_finite || total <= f64::from(largest_finite(partial)))
}

/// The sum of magnitudes over `2^unit`, or `None` if it exceeds `limit`.
fn total_in_units(
    conditions: &Conditions,
    unit: i32,
    limit: i64,
    values: impl Iterator<Item = f32>,
) -> Option<i64> {
    let mut total = 0i64;
    for x in values.filter(|&x| x != 0.0) {
        let (odd, exponent) = odd_part(x);
        let shift = (exponent - unit) as u32;
        // The odd part is at least 1, so a longer shift alone exceeds the limit.
        if shift > limit.ilog2() {
            return None;
        }
        let magnitude = i64::from(odd) << shift;
        let signed = if conditions.magnitudes {
            magnitude
        } else {
            magnitude * signum(x)
        };
        total += signed;
        if magnitude > limit || total.abs() > limit {
            return None;
        }
    }
    Some(total.abs())
}

fn signum(x: f32) -> i64 {
    if x < 0.0 { -1 } else { 1 }
}

/// `(m, e)` with m odd and `|x| = m 2^e`, for a finite x other than zero.
fn odd_part(x: f32) -> (u32, i32) {
    let (significand, exponent) = significand(x);
    let shift = significand.trailing_zeros();
    (significand >> shift, exponent + shift as i32)
}

/// `(m, e)` with `|x| = m 2^e`, m below 2^24 and e at least -149, for a finite x.
pub(super) fn significand(x: f32) -> (u32, i32) {
    debug_assert!(x.is_finite());
    let biased = x.to_bits() >> 23 & 0xff;
    let fraction = x.to_bits() & 0x007f_ffff;
    match biased {
        0 => (fraction, -149),
        _ => (fraction | 0x0080_0000, biased as i32 - 150),
    }
}

/// `2^exponent` for exponents of f64's normal range.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

/// The exponent of the smallest positive value of a floating-point type.
fn least_subnormal_exponent(dtype: Dtype) -> i32 {
    match dtype {
        Dtype::F32 | Dtype::U32 => -149,
        Dtype::Bf16 => -133,
        Dtype::F16 => -24,
    }
}

pub(super) fn largest_finite(dtype: Dtype) -> f32 {
    match dtype {
        Dtype::F32 | Dtype::U32 => f32::MAX,
        Dtype::Bf16 => half::bf16::MAX.to_f32_const(),
        Dtype::F16 => half::f16::MAX.to_f32_const(),
    }
}
