//! Every rung against every order.

use std::cell::Cell;

use proptest::prelude::*;

use super::absorbed::l2_under;
use super::brute;
use super::cases::{Case, cases, find_case, runner};
use super::conditions::{Conditions, EXACT};
use super::exact::{l0_under, l1_under};
use super::min_max::l3_under;
use super::*;
use crate::numerics::Dtype;
use crate::numerics::bits::total_key;

const CLASSES: [OrderClass; 2] = [OrderClass::Chains, OrderClass::Trees];

/// Most addends whose orders are all tried: 5,040 permutations, 2,700 ways to merge six leaves.
fn within_reach(case: &Case, class: OrderClass) -> bool {
    match class {
        OrderClass::Chains => case.addends.len() <= 7,
        OrderClass::Trees => case.leaves() <= 6,
    }
}

/// Runs `proves` on many cases: where it says yes, all orders must agree. Returns how often it did
/// for sums of three addends or more.
fn soundness(case_count: u32, proves: impl Fn(&Sum, OrderClass) -> bool) -> u32 {
    let proved = Cell::new(0);
    let check = |case: Case| {
        let sum = case.sum();
        for class in CLASSES
            .into_iter()
            .filter(|&class| within_reach(&case, class))
        {
            if proves(&sum, class) {
                prop_assert!(brute::is_single(&sum, class), "{class:?} {:?}", sum);
                proved.set(proved.get() + u32::from(sum.addends.len() >= 3));
            }
        }
        Ok(())
    };
    runner(case_count).run(&cases(7), check).unwrap();
    proved.get()
}

#[test]
fn l0_is_sound() {
    soundness(60_000, |sum, _| l0(sum));
    let proved = Cell::new(0);
    let check = |case: Case| {
        proved.set(proved.get() + u32::from(l0(&case.sum())));
        Ok(())
    };
    runner(2_000).run(&cases(3), check).unwrap();
    assert!(proved.get() > 400, "{}", proved.get());
}

#[test]
fn l1_is_sound() {
    let proved = soundness(100_000, |sum, _| l1_exact(sum));
    assert!(proved > 20_000, "{proved}");
}

#[test]
fn l2_is_sound() {
    let proved = soundness(150_000, |sum, _| l2_absorbed(sum));
    assert!(proved > 5_000, "{proved}");
    let beyond_l1 = find_case(7, 5_000, |case| {
        l2_absorbed(&case.sum()) && !l1_exact(&case.sum())
    });
    assert!(beyond_l1.is_some());
}

#[test]
fn l3_is_exact() {
    let (single, several) = (Cell::new(0), Cell::new(0));
    let check = |case: Case| {
        let sum = case.sum();
        for class in CLASSES
            .into_iter()
            .filter(|&class| within_reach(&case, class))
        {
            let all = brute::results(&sum, class, usize::MAX);
            let Some(extremes) = l3_min_max(&sum, class) else {
                continue;
            };
            let key = |bits: &u32| total_key(f32::from_bits(*bits));
            let least = *all.iter().min_by_key(|bits| key(bits)).unwrap();
            let greatest = *all.iter().max_by_key(|bits| key(bits)).unwrap();
            prop_assert_eq!(
                [extremes.low.to_bits(), extremes.high.to_bits()],
                [least, greatest]
            );
            let low = sum.evaluate(&extremes.low_order).map(f32::to_bits);
            let high = sum.evaluate(&extremes.high_order).map(f32::to_bits);
            prop_assert_eq!([low, high], [Some(least), Some(greatest)]);
            let count = if extremes.is_single() {
                &single
            } else {
                &several
            };
            count.set(count.get() + u32::from(sum.addends.len() >= 3));
        }
        Ok(())
    };
    runner(12_000).run(&cases(7), check).unwrap();
    assert!(
        single.get() > 2_000 && several.get() > 1_000,
        "{} {}",
        single.get(),
        several.get()
    );
}

/// Values at which something changes: signed zeros, the ends of the range, one, its neighbours and
/// the halfway points beside it.
fn edges(dtype: Dtype) -> Vec<f32> {
    let (least, largest) = match dtype {
        Dtype::F16 => (2f32.powi(-24), 65_504.0),
        Dtype::Bf16 => (f32::from_bits(0x0001_0000), f32::from_bits(0x7f7f_0000)),
        Dtype::F32 | Dtype::U32 => (f32::from_bits(1), f32::MAX),
    };
    let ulp = 2f32.powi(1 - dtype.precision_bits() as i32);
    let positive = [
        0.0,
        least,
        3.0 * least,
        ulp / 2.0,
        1.0,
        1.0 + ulp,
        1.5,
        largest / 2.0,
        largest,
    ];
    positive.into_iter().flat_map(|x| [x, -x]).collect()
}

#[test]
fn three_edge_values_in_every_order() {
    let types = [Dtype::F32, Dtype::Bf16, Dtype::F16].map(|dtype| [dtype, dtype, dtype]);
    let once = [Dtype::Bf16, Dtype::F16].map(|dtype| [dtype, Dtype::F32, dtype]);
    let mut proved = [0; 3];
    for [addend, partial, out] in types.into_iter().chain(once) {
        let edges = edges(addend);
        let base = [
            Start::First,
            Start::Zero,
            Start::Base(-0.0),
            Start::Base(edges[2]),
        ];
        let places = 0..edges.len().pow(3);
        for (place, start) in places.flat_map(|place| base.map(|start| (place, start))) {
            let addends =
                [1, edges.len(), edges.len().pow(2)].map(|step| edges[place / step % edges.len()]);
            let sum = Sum {
                addends: &addends,
                start,
                addend,
                partial,
                out,
            };
            for class in CLASSES {
                let claims = [
                    l1_exact(&sum),
                    l2_absorbed(&sum),
                    l3_min_max(&sum, class).is_some_and(|extremes| extremes.is_single()),
                ];
                if claims.contains(&true) {
                    assert!(
                        brute::is_single(&sum, class),
                        "{claims:?} {class:?} {sum:?}"
                    );
                }
                claims
                    .iter()
                    .zip(&mut proved)
                    .for_each(|(claim, n)| *n += u32::from(*claim));
            }
        }
    }
    assert!(proved.iter().all(|&count| count > 1_000), "{proved:?}");
}

#[test]
fn l3_refuses_what_it_cannot_decide() {
    let f32_sum = |addends| {
        let dtype = Dtype::F32;
        Sum {
            addends,
            start: Start::First,
            addend: dtype,
            partial: dtype,
            out: dtype,
        }
    };
    let refused: [&[f32]; 4] = [
        &[f32::NAN, 1.0, 2.0],
        &[f32::INFINITY, 1.0, 2.0],
        &[f32::MAX, f32::MAX, -f32::MAX, -f32::MAX],
        &[1.0; MIN_MAX_ADDENDS + 1],
    ];
    for addends in refused {
        for class in CLASSES {
            assert_eq!(l3_min_max(&f32_sum(addends), class), None, "{addends:?}");
        }
    }
    let twelve = [
        1e8, -1e8, 1.0, 3.0, 0.1, 0.2, 0.3, 5e-5, 7e3, -9.0, 11.0, 0.7,
    ];
    for class in CLASSES {
        let extremes = l3_min_max(&f32_sum(&twelve), class).unwrap();
        assert!(!extremes.is_single());
    }
}

#[test]
fn l3_programs_need_little_stack() {
    let case = find_case(12, 1_000, |case| case.leaves() == 12).unwrap();
    let extremes = l3_min_max(&case.sum(), OrderClass::Trees).unwrap();
    for order in [extremes.low_order, extremes.high_order] {
        let Order::Tree(ops) = order else {
            panic!("a tree was asked for")
        };
        let depths = ops.iter().scan(0u32, |depth, op| {
            *depth = if *op == TreeOp::Combine {
                *depth - 1
            } else {
                *depth + 1
            };
            Some(*depth)
        });
        assert!(depths.max().unwrap() <= 4 + 1);
    }
}

#[test]
fn verdicts_agree_with_all_orders() {
    let rungs = std::cell::RefCell::new(std::collections::BTreeMap::new());
    let check = |case: Case| {
        let sum = case.sum();
        for class in CLASSES
            .into_iter()
            .filter(|&class| within_reach(&case, class))
        {
            let verdict = prove(&sum, class, 100_000, 1);
            let single = brute::is_single(&sum, class);
            match &verdict {
                Verdict::Proved(rung) => {
                    *rungs.borrow_mut().entry(*rung).or_insert(0) += 1;
                    prop_assert!(single, "{rung} {:?}", sum);
                }
                Verdict::Different(Difference {
                    a_order,
                    b_order,
                    a,
                    b,
                }) => {
                    prop_assert!(!single && a.to_bits() != b.to_bits());
                    let values = [a_order, b_order].map(|order| sum.evaluate(order));
                    prop_assert_eq!(
                        values.map(|v| v.map(f32::to_bits)),
                        [Some(a.to_bits()), Some(b.to_bits())]
                    );
                }
                Verdict::Undecided => prop_assert!(false, "the budget covers every order"),
            }
        }
        Ok(())
    };
    runner(20_000).run(&cases(7), check).unwrap();
    let rungs = rungs.into_inner();
    assert_eq!(
        rungs.keys().copied().collect::<Vec<_>>(),
        Rung::ALL[1..6],
        "{rungs:?}"
    );
}

#[test]
fn large_sums_are_decided_or_said_not_to_be() {
    let sum = |addends, start| Sum {
        addends,
        start,
        addend: Dtype::F32,
        partial: Dtype::F32,
        out: Dtype::F32,
    };
    let ones = vec![1.0; 5_000];
    let proved = prove(&sum(&ones, Start::First), OrderClass::Chains, 1_000, 1);
    assert_eq!(proved, Verdict::Proved(Rung::L1));
    let tenths = vec![0.1; 100];
    let silent = prove(&sum(&tenths, Start::First), OrderClass::Chains, 1_000, 1);
    assert_eq!(silent, Verdict::Undecided);
    let mut nearly: Vec<f32> = (0..64)
        .map(|i| if i % 2 == 0 { 1.0 } else { -1.0 })
        .collect();
    nearly.extend([524_288.06, -524_288.06]);
    nearly[0] = 0.001;
    for class in CLASSES {
        let verdict = prove(&sum(&nearly, Start::First), class, 1_000, 1);
        let Verdict::Different(found) = verdict else {
            panic!("{verdict:?}")
        };
        let values = [found.a_order, found.b_order]
            .map(|order| sum(&nearly, Start::First).evaluate(&order).unwrap());
        assert_eq!(values, [found.a, found.b]);
    }
}

#[test]
fn not_a_number_is_left_to_enumeration() {
    let addends = [
        f32::INFINITY,
        1.0,
        f32::NEG_INFINITY,
        f32::from_bits(0xffc0_1234),
    ];
    let dtype = Dtype::F32;
    let sum = Sum {
        addends: &addends,
        start: Start::First,
        addend: dtype,
        partial: dtype,
        out: dtype,
    };
    for class in CLASSES {
        assert!(!l1_exact(&sum) && !l2_absorbed(&sum) && l3_min_max(&sum, class).is_none());
        assert_eq!(prove(&sum, class, 1_000, 1), Verdict::Proved(Rung::L4));
    }
}

/// A rung with one condition switched off, and what it then claims.
struct Mutant {
    name: &'static str,
    conditions: Conditions,
    claims: Claim,
}

fn l3_claims(conditions: &Conditions, sum: &Sum) -> bool {
    l3_under(conditions, sum, OrderClass::Chains).is_some_and(|extremes| extremes.is_single())
}

type Switch = fn(&mut Conditions);
type Claim = fn(&Conditions, &Sum) -> bool;

fn mutants() -> Vec<Mutant> {
    let list: [(&str, Switch, Claim); 15] = [
        ("L0 of three values", |c| c.structural_count = 3, l0_under),
        (
            "L0 without the accumulator",
            |c| c.count_base = false,
            l0_under,
        ),
        ("L0 of any types", |c| c.structural_types = false, l0_under),
        ("L1 with one bit more", |c| c.precision_excess = 1, l1_under),
        (
            "L1 with f32's precision",
            |c| c.narrowest_precision = false,
            l1_under,
        ),
        ("L1 of the signed sum", |c| c.magnitudes = false, l1_under),
        (
            "L1 without the accumulator",
            |c| c.count_base = false,
            l1_under,
        ),
        (
            "L1 below the least subnormal",
            |c| c.least_subnormal = false,
            l1_under,
        ),
        (
            "L1 above the largest finite",
            |c| c.largest_finite = false,
            l1_under,
        ),
        ("L2 of the signed sum", |c| c.magnitudes = false, l2_under),
        (
            "L2 of narrow partial sums",
            |c| c.wide_partial = false,
            l2_under,
        ),
        (
            "L2 above the largest finite",
            |c| c.largest_finite = false,
            l2_under,
        ),
        (
            "L2 without an error bound",
            |c| c.error_bound = false,
            l2_under,
        ),
        (
            "L2 without the accumulator",
            |c| c.count_base = false,
            l2_under,
        ),
        ("L3 with equal zeros", |c| c.total_order = false, l3_claims),
    ];
    let mutant = |(name, switch, claims): (_, Switch, _)| {
        let mut conditions = EXACT;
        switch(&mut conditions);
        Mutant {
            name,
            conditions,
            claims,
        }
    };
    list.into_iter().map(mutant).collect()
}

#[test]
fn every_mutant_is_caught() {
    for Mutant {
        name,
        conditions,
        claims,
    } in mutants()
    {
        let refutes = |conditions: &Conditions, case: &Case| {
            let sum = case.sum();
            claims(conditions, &sum) && !brute::is_single(&sum, OrderClass::Chains)
        };
        let caught = find_case(5, 60_000, |case| refutes(&conditions, case));
        let case = caught.unwrap_or_else(|| panic!("no case refutes: {name}"));
        assert!(
            !refutes(&EXACT, &case),
            "{name}: the rung itself is wrong on {case:?}"
        );
    }
}

/// Every product either rounded first or fused into its addition, in every permutation.
fn contracted_results(sum: &Sum, factor: f32) -> std::collections::BTreeSet<u32> {
    let mut found = std::collections::BTreeSet::new();
    let count = order_count(sum, OrderClass::Chains).unwrap();
    for number in 0..count {
        let Order::Chain(order) = super::orders::nth_order(sum, OrderClass::Chains, number) else {
            panic!("a chain was asked for");
        };
        for fused in 0..1u32 << order.len() {
            let mut partial = sum.start_value();
            for (place, &i) in order.iter().enumerate() {
                let x = sum.addends[i as usize];
                let product = sum.partial.round(x * factor);
                partial = Some(match partial {
                    None => product,
                    Some(partial) if fused >> place & 1 == 1 => {
                        sum.partial.round(x.mul_add(factor, partial))
                    }
                    Some(partial) => rounded_add(partial, product, sum.partial),
                });
            }
            found.insert(sum.out.round(partial.unwrap_or(0.0)).to_bits());
        }
    }
    found
}

#[test]
fn l1_of_products_covers_contraction() {
    let (proved, differing) = (Cell::new(0), Cell::new(0));
    let factors = [1.0, 0.5, -0.25, 3.0, 0.1, 1.0 / 3.0, 2f32.powi(-20), 7.0];
    let check = |(case, factor): (Case, usize)| {
        let (sum, factor) = (case.sum(), factors[factor]);
        let results = contracted_results(&sum, factor);
        if l1_exact_products(&sum, factor) {
            prop_assert!(results.len() == 1, "{factor} {:?}", sum);
            proved.set(proved.get() + u32::from(sum.addends.len() >= 3));
        }
        differing.set(differing.get() + u32::from(results.len() > 1));
        Ok(())
    };
    runner(20_000)
        .run(&(cases(4), 0..factors.len()), check)
        .unwrap();
    assert!(
        proved.get() > 1_000 && differing.get() > 1_000,
        "{proved:?} {differing:?}"
    );
}

#[test]
fn rounded_add_is_one_correct_rounding() {
    for step in 0..400_000u32 {
        let [a, b] = [
            step.wrapping_mul(0x9e37_79b9),
            step.wrapping_mul(0x85eb_ca6b) ^ 0x1234,
        ];
        let [a16, b16] = [a, b].map(|bits| half::f16::from_bits((bits >> 16) as u16).to_f32());
        // Sums of two f16, and of two bf16 less than 2^40 apart, are exact in f64.
        let exact = f64::from(a16) + f64::from(b16);
        let once = Dtype::F16.round(half::f16::from_f64(exact).to_f32());
        assert_eq!(rounded_add(a16, b16, Dtype::F16).to_bits(), once.to_bits());
        let near = (b & 0x8fff_0000) | (a & 0x7000_0000);
        let [a16, b16] = [a & 0xffff_0000, near].map(f32::from_bits);
        let exact = f64::from(a16) + f64::from(b16);
        let once = Dtype::Bf16.round(half::bf16::from_f64(exact).to_f32());
        assert_eq!(rounded_add(a16, b16, Dtype::Bf16).to_bits(), once.to_bits());
    }
}
