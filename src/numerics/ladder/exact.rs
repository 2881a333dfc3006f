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

/// L0 from a fold's shape alone: `count` values are added, the accumulator's counted unless it is
/// a proven +0. Not for a fold whose build may contract a multiplication into its additions.
pub fn l0_by_shape(count: usize, addend: Dtype, partial: Dtype) -> bool {
    l0_shape_under(&EXACT, count, addend, partial)
}

pub(super) fn l0_under(conditions: &Conditions, sum: &Sum) -> bool {
    let count = if conditions.count_base {
        sum.count()
    } else {
        sum.addends.len()
    };
    l0_shape_under(conditions, count, sum.addend, sum.partial) && sum.out != Dtype::U32
}

fn l0_shape_under(conditions: &Conditions, count: usize, addend: Dtype, partial: Dtype) -> bool {
    let floating = addend != Dtype::U32 && partial != Dtype::U32;
    let kept = partial == addend || partial == Dtype::F32 || !conditions.structural_types;
    floating && kept && count <= conditions.structural_count
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
        is_exact(conditions, sum.partial, sum.counted().map(f64::from))
    } else {
        is_exact(
            conditions,
            sum.partial,
            sum.addends.iter().map(|&x| f64::from(x)),
        )
    }
}

/// L1 for a sum of products `factor * addend` (NCCL's PreMulSum) that a build may or may not
/// contract into fused multiply-adds: decided on the exact products, which then need no rounding
/// of their own, so that fused and separate operations agree too. The accumulator is not scaled.
pub fn l1_exact_products(sum: &Sum, factor: f32) -> bool {
    let products = sum
        .addends
        .iter()
        .map(|&x| f64::from(x) * f64::from(factor));
    let terms = sum.base().map(f64::from).into_iter().chain(products);
    sum.is_floating() && is_exact(&EXACT, sum.partial, terms)
}

/// Most addends for which the sum of magnitudes below is exact.
const MOST_ADDENDS: u64 = 1 << 27;

/// L1 on exact values: f32 values, or products of two, which f64 holds exactly and as normals.
fn is_exact(conditions: &Conditions, partial: Dtype, values: impl Iterator<Item = f64>) -> bool {
    let (mut unit, mut largest, mut total, mut count) = (i32::MAX, 0.0, 0.0, 0);
    for x in values {
        if !x.is_finite() {
            return false;
        }
        if x != 0.0 {
            unit = unit.min(unit_exponent(x));
        }
        let magnitude = x.abs();
        largest = if magnitude > largest {
            magnitude
        } else {
            largest
        };
        total += if conditions.magnitudes { magnitude } else { x };
        count += 1;
    }
    if unit == i32::MAX {
        return true;
    }
    let precision = if conditions.narrowest_precision {
        partial
    } else {
        Dtype::F32
    };
    let bits = precision.precision_bits() + conditions.precision_excess;
    let limit = power_of_two(unit + bits as i32);
    // Once no value exceeds 2^25 units, 2^27 of them stay below 2^53 units: f64 rounded nothing.
    if largest > limit || count > MOST_ADDENDS {
        return false;
    }
    total.abs() <= limit
        && (!conditions.least_subnormal || unit >= least_subnormal_exponent(partial))
        && (!conditions.largest_finite || total.abs() <= f64::from(largest_finite(partial)))
}

/// The exponent of the largest power of two that divides a normal `x`.
fn unit_exponent(x: f64) -> i32 {
    let biased = (x.to_bits() >> 52 & 0x7ff) as i32;
    debug_assert!(biased > 0, "{x:e} is no product of two f32");
    let significand = x.to_bits() | 1 << 52;
    biased - 1075 + significand.trailing_zeros() as i32
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
