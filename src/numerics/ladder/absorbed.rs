//! L2: every rounding error of the additions is absorbed by the output's rounding.

use super::conditions::{Conditions, EXACT};
use super::exact::largest_finite;
use super::fixed::Fixed;
use super::sum::Sum;
use crate::numerics::Dtype;

/// L2: all additions happen in f32, only the sum rounded once to a narrower type leaves the node,
/// and every sum that any order or tree can give rounds to the same bits. Proves this input.
///
/// In any order the computed sum is within `b = (n - 1) 2^-24 M` of the exact sum s, M the sum of
/// magnitudes (Jeannerod and Rump, "Improved error bounds for inner products in floating-point
/// arithmetic", 2013; Lange and Rump 2017), if nothing overflows. No partial sum exceeds `M + b`,
/// so `M + b` below the largest f32 rules overflow out. All of `[s - b, s + b]` must lie strictly
/// between the midpoints around one finite output value other than zero; both ends, and the
/// midpoints, are compared exactly.
pub fn l2_absorbed(sum: &Sum) -> bool {
    l2_under(&EXACT, sum)
}

/// Whether `result` lies in the interval that L2 knows of every order's sum: an order that gives
/// it need not exist, but none gives a result outside.
///
/// `None` where the bound says nothing: sums that are not of f32 throughout, values that are not
/// finite, partial sums that might not be.
pub fn within_any_order(sum: &Sum, result: f32) -> Option<bool> {
    if [sum.partial, sum.out] != [Dtype::F32; 2] || !sum.is_floating() {
        return None;
    }
    let interval = Interval::of(&EXACT, sum)?;
    if !result.is_finite() {
        return Some(false);
    }
    let result = Fixed::from_f32(result);
    Some(interval.low <= result && result <= interval.high)
}

pub(super) fn l2_under(conditions: &Conditions, sum: &Sum) -> bool {
    let wide = sum.partial == Dtype::F32 || !conditions.wide_partial;
    let narrow_out = matches!(sum.out, Dtype::Bf16 | Dtype::F16);
    if !(sum.is_floating() && wide && narrow_out) {
        return false;
    }
    let Some(interval) = Interval::of(conditions, sum) else {
        return false;
    };
    let candidate = sum.out.round(interval.rough_middle);
    // A zero has two bit patterns, and the largest finite value no finite midpoint above it.
    if candidate == 0.0 || candidate.abs() >= largest_finite(sum.out) {
        return false;
    }
    let [below, above] = midpoints_around(sum.out, candidate).map(Fixed::from_f32);
    below < interval.low && interval.high < above
}

/// What every order's f32 sum lies in.
struct Interval {
    low: Fixed,
    high: Fixed,
    /// Close to the middle: good enough to guess the output, which is then checked exactly.
    rough_middle: f32,
}

impl Interval {
    /// `None` if a value is not finite, or a partial sum might not be.
    fn of(conditions: &Conditions, sum: &Sum) -> Option<Interval> {
        let mut exact = Fixed::ZERO;
        let mut magnitudes = Fixed::ZERO;
        let mut rough_middle = 0.0f64;
        let skipped = if conditions.count_base {
            0
        } else {
            sum.count() - sum.addends.len()
        };
        for x in sum.counted().skip(skipped) {
            if !x.is_finite() {
                return None;
            }
            exact = exact.plus(Fixed::from_f32(x));
            magnitudes = magnitudes.plus(Fixed::from_f32(x.abs()));
            rough_middle += f64::from(x);
        }
        if !conditions.magnitudes {
            magnitudes = if exact < Fixed::ZERO {
                Fixed::ZERO.minus(exact)
            } else {
                exact
            };
        }
        let additions = u32::try_from(sum.count().saturating_sub(1)).ok()?;
        let largest = Fixed::from_f32(f32::MAX);
        if conditions.largest_finite && magnitudes >= largest {
            return None;
        }
        let mut error = magnitudes.times_unit_roundoff(additions);
        if conditions.largest_finite && magnitudes.plus(error) >= largest {
            return None;
        }
        if !conditions.error_bound {
            error = Fixed::ZERO;
        }
        let (low, high) = (exact.minus(error), exact.plus(error));
        Some(Interval {
            low,
            high,
            rough_middle: rough_middle as f32,
        })
    }
}

/// The values halfway between `x`, finite and not the largest, and its neighbours in bf16 or f16,
/// the lesser first. f32 holds them exactly: they need one bit more than the type has.
fn midpoints_around(dtype: Dtype, x: f32) -> [f32; 2] {
    let neighbours = match dtype {
        Dtype::Bf16 => neighbours(half::bf16::from_f32(x).to_bits())
            .map(|bits| half::bf16::from_bits(bits).to_f32()),
        Dtype::F16 => neighbours(half::f16::from_f32(x).to_bits())
            .map(|bits| half::f16::from_bits(bits).to_f32()),
        Dtype::F32 | Dtype::U32 => unreachable!("the output of L2 is narrower than f32"),
    };
    let [inner, outer] = neighbours.map(|other| ((f64::from(x) + f64::from(other)) / 2.0) as f32);
    if x > 0.0 {
        [inner, outer]
    } else {
        [outer, inner]
    }
}

/// The bits of the neighbours of a value other than zero: towards zero, then away from it.
fn neighbours(bits: u16) -> [u16; 2] {
    [bits - 1, bits + 1]
}
