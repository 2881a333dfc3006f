//! Inputs that make an order visible: silence on the data at hand may be an accident of the data.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::exact::largest_finite;
use super::sum::Sum;

/// The addends of `sum`, repeated until there are `at_least`, on scales of their own: each is
/// brought to the binade of 1 and then multiplied by a power of two and a sign.
///
/// The second and third are about half an ulp of the first, in the type of the partial sums, and
/// the fourth is minus the first: whether the small ones are added to the large one or to each
/// other decides the result, and no narrower output type absorbs that. The others are smaller
/// still, their scales drawn from `seed`. Zeros and values that are not finite are taken as ones.
///
/// The values are of the sum's addend type and finite, and no partial sum of them overflows. They
/// answer whether the operation depends on its order, not whether this input shows it.
pub fn amplified(sum: &Sum, at_least: usize, seed: u64) -> Vec<f32> {
    let source = if sum.addends.is_empty() {
        &[1.0]
    } else {
        sum.addends
    };
    let count = sum.addends.len().max(at_least);
    let precision = sum.partial.precision_bits() as i32;
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    let mut value = |place: usize| {
        let own = near_one(source[place % source.len()]);
        let first = near_one(source[0]);
        match place {
            0 => first,
            1 | 2 => own.copysign(first) * power_of_two(-precision),
            3 => -first,
            _ => own * power_of_two(-precision - (generator.next_u32() % 12) as i32),
        }
    };
    let values: Vec<f64> = (0..count).map(&mut value).collect();
    let scale = power_of_two(precision / 2);
    let down = headroom(sum, values.iter().map(|x| x * scale));
    values
        .iter()
        .map(|x| sum.addend.round((x * scale * down) as f32))
        .collect()
}

/// `x` scaled by a power of two to a magnitude in [1, 2).
fn near_one(x: f32) -> f64 {
    let x = f64::from(x);
    if x == 0.0 || !x.is_finite() {
        return 1.0;
    }
    let fraction_and_sign = x.to_bits() & 0x800f_ffff_ffff_ffff;
    f64::from_bits(fraction_and_sign | 1.0f64.to_bits())
}

/// A power of two that brings the sum of magnitudes to half of the largest finite value, or 1.
fn headroom(sum: &Sum, values: impl Iterator<Item = f64>) -> f64 {
    let largest = [sum.addend, sum.partial, sum.out].map(largest_finite);
    let limit = largest
        .into_iter()
        .fold(f32::MAX, |a, b| if b < a { b } else { a });
    let mut magnitudes: f64 = values.map(f64::abs).sum();
    let mut down = 1.0;
    while magnitudes > f64::from(limit) / 2.0 {
        magnitudes /= 2.0;
        down /= 2.0;
    }
    down
}

fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numerics::Dtype;
    use crate::numerics::ladder::{OrderClass, Start, Verdict, l1_exact, prove};

    #[test]
    fn silent_sums_become_visible() {
        let silent: [&[f32]; 5] = [
            &[1.0; 2],
            &[0.0; 4],
            &[0.5, -0.5, 0.25],
            &[60_000.0; 4],
            &[-0.0, f32::INFINITY],
        ];
        let types = {
            use Dtype::{Bf16, F16, F32};
            [
                [Bf16, F32, F32],
                [Bf16, F32, Bf16],
                [F16, F32, F16],
                [Bf16; 3],
                [F16; 3],
                [F32; 3],
            ]
        };
        for addends in silent {
            for [addend, partial, out] in types {
                let addends: Vec<f32> = addends.iter().map(|&x| addend.round(x)).collect();
                let sum = Sum {
                    addends: &addends,
                    start: Start::First,
                    addend,
                    partial,
                    out,
                };
                let louder = amplified(&sum, 8, 3);
                assert_eq!(louder.len(), 8);
                assert!(
                    louder
                        .iter()
                        .all(|&x| x.is_finite() && addend.round(x) == x)
                );
                let louder = Sum {
                    addends: &louder,
                    ..sum
                };
                assert!(!l1_exact(&louder));
                let verdict = prove(&louder, OrderClass::Chains, 100_000, 1);
                assert!(
                    matches!(verdict, Verdict::Different(_)),
                    "{louder:?} {verdict:?}"
                );
            }
        }
    }
}
