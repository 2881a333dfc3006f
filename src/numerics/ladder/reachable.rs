//! Every sum that some chain of additions gives, by dynamic programming over subsets: where L3
//! keeps the least and the greatest partial sum of a subset, this keeps all of them.

use std::collections::BTreeSet;

use super::sum::{Start, Sum};
use crate::numerics::bits::total_key;

/// Most addends: 8 take 1,024 unions of sets of partial sums.
pub const REACHABLE_ADDENDS: usize = 8;

/// Partial sums that are kept of one sum at most.
const PARTIAL_SUMS_MAX: usize = 1 << 14;

/// The bits of the result in every chain: no more, and no fewer. Values that are not finite are
/// no exception.
///
/// `None` for more than [`REACHABLE_ADDENDS`] addends, or too many different partial sums.
pub fn reachable(sum: &Sum) -> Option<BTreeSet<u32>> {
    let count = sum.addends.len();
    if count > REACHABLE_ADDENDS || !sum.is_floating() {
        return None;
    }
    let mut partial: Vec<Vec<f32>> = vec![Vec::new(); 1 << count];
    partial[0].extend(sum.start_value());
    let begins_alone = sum.start == Start::First;
    let mut kept = 0;
    for subset in 1..partial.len() {
        let mut sums = Vec::new();
        for (last, &x) in sum.addends.iter().enumerate() {
            let before = subset & !(1 << last);
            if before == subset {
                continue;
            }
            match before == 0 && begins_alone {
                true => sums.push(x),
                false => sums.extend(partial[before].iter().map(|&held| sum.add(held, x))),
            }
        }
        sums.sort_unstable_by_key(|x| total_key(*x));
        sums.dedup_by_key(|x| x.to_bits());
        kept += sums.len();
        if kept > PARTIAL_SUMS_MAX {
            return None;
        }
        partial[subset] = sums;
    }
    let mut whole = partial.pop().unwrap_or_default();
    if whole.is_empty() {
        // A sum of nothing.
        whole.push(0.0);
    }
    Some(
        whole
            .into_iter()
            .map(|x| sum.out.round(x).to_bits())
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use rand_chacha::ChaCha8Rng;
    use rand_chacha::rand_core::{Rng, SeedableRng};

    use super::*;
    use crate::numerics::Dtype;
    use crate::numerics::ladder::orders::nth_order;
    use crate::numerics::ladder::{Order, OrderClass, l3_min_max, order_count, within_any_order};

    /// Values that meet often and part often, with zeros of both signs, subnormals, infinities.
    fn value(random: &mut ChaCha8Rng) -> f32 {
        let word = random.next_u32();
        match word % 16 {
            0 => 0.0,
            1 => -0.0,
            2 => f32::from_bits(word >> 30),
            3 if word >> 28 == 0 => f32::INFINITY,
            3 if word >> 28 == 1 => f32::NEG_INFINITY,
            4 if word >> 28 == 0 => f32::NAN,
            // Whole significands, whose sums round.
            _ => f32::from_bits(random.next_u32() & 0x807f_ffff | (120 + (word >> 8) % 8) << 23),
        }
    }

    fn starts(random: &mut ChaCha8Rng) -> Start {
        match random.next_u32() % 3 {
            0 => Start::First,
            1 => Start::Zero,
            _ => Start::Base(value(random)),
        }
    }

    /// Each order, evaluated: what the model allows, found without the programme above.
    fn brute(sum: &Sum) -> BTreeSet<u32> {
        let orders = order_count(sum, OrderClass::Chains).expect("few addends");
        (0..orders)
            .map(|number| nth_order(sum, OrderClass::Chains, number))
            .map(|order: Order| sum.evaluate(&order).expect("an order").to_bits())
            .collect()
    }

    #[test]
    fn the_set_is_that_of_all_orders() {
        let mut random = ChaCha8Rng::seed_from_u64(11);
        let outs = [Dtype::F32, Dtype::Bf16, Dtype::F16];
        let mut parted = 0;
        for case in 0..600 {
            let count = random.next_u32() as usize % 7;
            let addends: Vec<f32> = (0..count).map(|_| value(&mut random)).collect();
            let sum = Sum {
                addends: &addends,
                start: starts(&mut random),
                addend: Dtype::F32,
                partial: Dtype::F32,
                out: outs[case % 3],
            };
            let all = brute(&sum);
            assert_eq!(reachable(&sum), Some(all.clone()), "{sum:?}");
            parted += usize::from(all.len() > 1);
            // What the two coarser tests refuse is reached by no order.
            if let Some(range) = l3_min_max(&sum, OrderClass::Chains) {
                let keys = total_key(range.low)..=total_key(range.high);
                assert!(
                    all.iter()
                        .all(|bits| keys.contains(&total_key(f32::from_bits(*bits))))
                );
            }
            for bits in &all {
                assert_ne!(
                    within_any_order(&sum, f32::from_bits(*bits)),
                    Some(false),
                    "{sum:?}"
                );
            }
        }
        assert!(parted > 50, "{parted} sums of 600 depend on the order");
    }

    #[test]
    fn what_no_order_gives_is_outside() {
        let addends = [1.0f32, 1e8, -1e8, 0.5, 3.0];
        let sum = Sum {
            addends: &addends,
            start: Start::First,
            addend: Dtype::F32,
            partial: Dtype::F32,
            out: Dtype::F32,
        };
        let all = reachable(&sum).expect("five addends");
        assert_eq!(all, brute(&sum));
        let neighbours = all.iter().flat_map(|bits| [bits - 1, bits + 1]);
        let outside = neighbours.filter(|bits| !all.contains(bits)).count();
        assert!(all.len() > 1 && outside > 0);
        // Without one addend, or with one twice.
        for tampered in [vec![1.0, 1e8, -1e8, 0.5], [&addends[..], &[3.0]].concat()] {
            let other = Sum {
                addends: &tampered,
                ..sum
            };
            assert_ne!(reachable(&other), Some(all.clone()));
        }
        assert_eq!(within_any_order(&sum, 100.0), Some(false));
        assert_eq!(within_any_order(&sum, f32::INFINITY), Some(false));
        assert_eq!(within_any_order(&sum, 4.5), Some(true));
        assert_eq!(
            reachable(&Sum {
                addends: &[1.0; 9],
                ..sum
            }),
            None
        );
        let overflows = [f32::MAX, f32::MAX, 1.0];
        assert_eq!(
            within_any_order(
                &Sum {
                    addends: &overflows,
                    ..sum
                },
                1.0
            ),
            None
        );
    }
}
