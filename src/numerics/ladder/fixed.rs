//! A fixed-point number wide enough to add any f32 values without rounding: Kulisch's accumulator.

use std::cmp::Ordering;

use super::exact::significand;

const LIMBS: usize = 6;
/// The least bit is 2^-173: f32's least subnormal, and 24 bits more so that an error bound of
/// 2^-24 times a sum is exact too. 384 bits then leave 82 above f32's largest value.
const LEAST_EXPONENT: i32 = -173;

/// A two's-complement fixed-point number of 384 bits, least limb first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fixed([u64; LIMBS]);

impl Fixed {
    pub const ZERO: Fixed = Fixed([0; LIMBS]);

    /// The exact value of a finite `x`.
    pub fn from_f32(x: f32) -> Fixed {
        let (significand, exponent) = significand(x);
        let shift = (exponent - LEAST_EXPONENT) as u32;
        let (limb, bit) = ((shift / 64) as usize, shift % 64);
        let wide = u128::from(significand) << bit;
        let mut limbs = [0; LIMBS];
        limbs[limb] = wide as u64;
        limbs[limb + 1] = (wide >> 64) as u64;
        if x < 0.0 {
            Fixed(limbs).negated()
        } else {
            Fixed(limbs)
        }
    }

    pub fn plus(self, other: Fixed) -> Fixed {
        let mut limbs = [0; LIMBS];
        let mut carry = false;
        for (place, limb) in limbs.iter_mut().enumerate() {
            let (partial, first) = self.0[place].overflowing_add(other.0[place]);
            let (full, second) = partial.overflowing_add(u64::from(carry));
            (*limb, carry) = (full, first | second);
        }
        Fixed(limbs)
    }

    pub fn minus(self, other: Fixed) -> Fixed {
        self.plus(other.negated())
    }

    fn negated(self) -> Fixed {
        let mut limbs = self.0.map(|limb| !limb);
        for limb in &mut limbs {
            let (sum, carry) = limb.overflowing_add(1);
            *limb = sum;
            if !carry {
                break;
            }
        }
        Fixed(limbs)
    }

    /// `self * factor * 2^-24` for a sum of f32 magnitudes below 2^128: exact, as such a sum has no
    /// bit below 2^-149.
    pub fn times_unit_roundoff(self, factor: u32) -> Fixed {
        debug_assert_eq!(self.0[0] & 0x00ff_ffff, 0);
        debug_assert!(self.0[LIMBS - 1] as i64 >= 0);
        let mut limbs = [0; LIMBS];
        let mut carry = 0;
        for (place, limb) in limbs.iter_mut().enumerate() {
            let above = self.0.get(place + 1).copied().unwrap_or(0);
            let shifted = self.0[place] >> 24 | above << 40;
            let product = u128::from(shifted) * u128::from(factor) + carry;
            *limb = product as u64;
            carry = product >> 64;
        }
        Fixed(limbs)
    }
}

impl PartialOrd for Fixed {
    fn partial_cmp(&self, other: &Fixed) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Fixed {
    fn cmp(&self, other: &Fixed) -> Ordering {
        let top = |x: &Fixed| x.0[LIMBS - 1] as i64;
        top(self)
            .cmp(&top(other))
            .then_with(|| self.0.iter().rev().cmp(other.0.iter().rev()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values whose sums i128 can hold: multiples of 2^-40, below 2^40.
    fn small(seed: u32) -> (f32, i128) {
        let mixed = u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let significand = (mixed >> 40) as i128 - (1 << 23);
        let shift = (mixed >> 8) as u32 % 50;
        let scale = 2f64.powi(shift as i32 - 40);
        ((significand as f64 * scale) as f32, significand << shift)
    }

    #[test]
    fn agrees_with_integers() {
        for seed in (0..30_000).step_by(3) {
            let [(a, ai), (b, bi), (c, ci)] = [seed, seed + 1, seed + 2].map(small);
            let [a, b, c] = [a, b, c].map(Fixed::from_f32);
            assert_eq!(a.cmp(&b), ai.cmp(&bi));
            assert_eq!(a.plus(b).cmp(&c), (ai + bi).cmp(&ci));
            assert_eq!(a.minus(b).cmp(&c), (ai - bi).cmp(&ci));
            assert_eq!(a.minus(a), Fixed::ZERO);
            assert_eq!(a.plus(b).minus(b), a);
        }
    }

    #[test]
    fn extremes_fit() {
        let [largest, least] = [f32::MAX, f32::from_bits(1)].map(Fixed::from_f32);
        let sum = (0..1000)
            .fold(Fixed::ZERO, |sum, _| sum.plus(largest))
            .plus(least);
        assert!(sum > largest && sum.negated() < Fixed::ZERO);
        assert_eq!((0..1000).fold(sum, |sum, _| sum.minus(largest)), least);
        assert!(Fixed::from_f32(-f32::MAX) < Fixed::from_f32(f32::MAX));
        assert_eq!(Fixed::from_f32(-0.0), Fixed::ZERO);
    }

    #[test]
    fn unit_roundoff_is_exact() {
        let u = 2f32.powi(-24);
        for x in [1.0, 3.5, 2f32.powi(-100), f32::MAX] {
            let scaled = Fixed::from_f32(x).times_unit_roundoff(3);
            let third = Fixed::from_f32(x * u);
            assert_eq!(scaled, third.plus(third).plus(third));
        }
        let least = Fixed::from_f32(f32::from_bits(1)).times_unit_roundoff(1 << 24);
        assert_eq!(least, Fixed::from_f32(f32::from_bits(1)));
    }
}
