//! Climbing the ladder: the cheapest proof, else two orders that part, else neither.

use super::absorbed::l2_absorbed;
use super::exact::{l0, l1_exact};
use super::min_max::{MIN_MAX_ADDENDS, MinMax, l3_min_max};
use super::orders::{chain_as_tree, nth_order, order_count, portfolio};
use super::rung::{OrderClass, Rung};
use super::sum::{Order, Start, Sum};

/// Two admissible orders whose results differ in their bits, and the results.
#[derive(Clone, Debug, PartialEq)]
pub struct Difference {
    pub a_order: Order,
    pub b_order: Order,
    pub a: f32,
    pub b: f32,
}

/// What is known of one sum over a class of orders.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// Every order of the class gives the same bits.
    Proved(Rung),
    Different(Difference),
    /// Neither, within the budget.
    Undecided,
}

/// The cheapest rung that proves `sum` over `class`, or a difference. L3 and L4 are tried while
/// their rounded additions are within `budget`; `seed` draws the random orders of the portfolio.
pub fn prove(sum: &Sum, class: OrderClass, budget: u64, seed: u64) -> Verdict {
    debug_assert!(
        sum.addends
            .iter()
            .all(|&x| x.is_nan() || sum.addend.round(x) == x)
    );
    if l0(sum) {
        return Verdict::Proved(Rung::L0);
    }
    if l1_exact(sum) {
        return Verdict::Proved(Rung::L1);
    }
    if l2_absorbed(sum) {
        return Verdict::Proved(Rung::L2);
    }
    if min_max_cost(sum, class).is_some_and(|cost| cost <= budget)
        && let Some(extremes) = l3_min_max(sum, class)
    {
        return of_extremes(extremes);
    }
    if let Some(difference) = find_difference(sum, class, seed) {
        return Verdict::Different(difference);
    }
    let additions = sum.addends.len() as u64;
    match order_count(sum, class).filter(|n| n.saturating_mul(additions) <= budget) {
        Some(orders) => enumerate(sum, class, orders),
        None => Verdict::Undecided,
    }
}

/// Rounded additions of L3; `None` beyond its largest sum.
fn min_max_cost(sum: &Sum, class: OrderClass) -> Option<u64> {
    let addends = sum.addends.len();
    let (values, cost) = match class {
        OrderClass::Chains => (addends, (addends as u64) << addends.min(MIN_MAX_ADDENDS)),
        OrderClass::Trees => {
            let leaves = addends + usize::from(sum.start != Start::First);
            (leaves, 3u64.pow(leaves.min(MIN_MAX_ADDENDS) as u32))
        }
    };
    (values <= MIN_MAX_ADDENDS).then_some(cost)
}

fn of_extremes(extremes: MinMax) -> Verdict {
    if extremes.is_single() {
        return Verdict::Proved(Rung::L3);
    }
    let MinMax {
        low,
        high,
        low_order,
        high_order,
    } = extremes;
    Verdict::Different(Difference {
        a_order: low_order,
        b_order: high_order,
        a: low,
        b: high,
    })
}

/// Two orders of the portfolio that part, the reference order first; `None` proves nothing.
pub fn find_difference(sum: &Sum, class: OrderClass, seed: u64) -> Option<Difference> {
    let mut orders = portfolio(sum.addends, seed).into_iter().map(|permutation| {
        let value = sum.chain(&permutation);
        (permutation, value)
    });
    let (reference, a) = orders.next()?;
    let (other, b) = orders.find(|(_, value)| value.to_bits() != a.to_bits())?;
    let [a_order, b_order] = [reference, other].map(|permutation| match class {
        OrderClass::Chains => Order::Chain(permutation),
        OrderClass::Trees => Order::Tree(chain_as_tree(sum, &permutation)),
    });
    Some(Difference {
        a_order,
        b_order,
        a,
        b,
    })
}

/// L4: every order evaluated.
fn enumerate(sum: &Sum, class: OrderClass, orders: u64) -> Verdict {
    let evaluated = |number| {
        let order = nth_order(sum, class, number);
        let value = sum
            .evaluate(&order)
            .expect("an enumerated order names each addend once");
        (order, value)
    };
    let (a_order, a) = evaluated(0);
    let other = (1..orders)
        .map(evaluated)
        .find(|(_, value)| value.to_bits() != a.to_bits());
    match other {
        Some((b_order, b)) => Verdict::Different(Difference {
            a_order,
            b_order,
            a,
            b,
        }),
        None => Verdict::Proved(Rung::L4),
    }
}

/// L5's bound: with confidence `1 - delta`, none of `points` choice points at which `samples`
/// orders each showed no difference differs with a higher probability under the distribution the
/// orders were drawn from: `ln(points / delta) / samples`, at most 1.
///
/// `delta` lies in (0, 1); without samples nothing is known.
pub fn sampling_bound(points: u64, samples: u64, delta: f64) -> f64 {
    assert!(
        delta > 0.0 && delta < 1.0,
        "delta {delta} is no probability"
    );
    if points == 0 || samples == 0 {
        return 1.0;
    }
    (natural_log(points as f64 / delta) / samples as f64).min(1.0)
}

/// ln x for x >= 1, to about 1e-14, from arithmetic alone: printed bounds depend on no libm.
fn natural_log(x: f64) -> f64 {
    debug_assert!(x >= 1.0 && x.is_finite());
    let (mut reduced, mut halvings) = (x, 0.0);
    while reduced > 1.5 {
        reduced /= 2.0;
        halvings += 1.0;
    }
    // ln r = 2 artanh((r - 1) / (r + 1)), with the argument within a fifth.
    let t = (reduced - 1.0) / (reduced + 1.0);
    let (mut power, mut series) = (t, 0.0);
    for odd in (1..42).step_by(2) {
        series += power / f64::from(odd);
        power *= t * t;
    }
    halvings * std::f64::consts::LN_2 + 2.0 * series
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logarithm_matches_the_library() {
        for x in [1.0, 1.2, 1.5, 1.6, 2.0, 20.0, 6e4, 1e12, 3e300] {
            let error = (natural_log(x) - f64::ln(x)).abs();
            assert!(error <= 1e-13 * f64::ln(x).max(1.0), "{x}: {error}");
        }
    }

    #[test]
    fn sampling_bound_is_the_rule_of_three() {
        assert!((sampling_bound(1, 100, 0.05) - 0.0299573).abs() < 1e-6);
        assert!((sampling_bound(1000, 200, 0.05) - 0.0495174).abs() < 1e-6);
        assert_eq!(sampling_bound(10, 0, 0.05), 1.0);
    }
}
