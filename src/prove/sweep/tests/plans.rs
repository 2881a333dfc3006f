//! Points whose plan may vary, and points where a build may fuse.

use super::*;

#[test]
fn plans_of_other_allocations_are_compared_one_by_one() {
    let plans = |rings: &[&[u32]]| -> Vec<Plan> {
        rings.iter().map(|ring| chain(ring, f32_sum())).collect()
    };
    let test = |values: &[f32], rings: &[&[u32]]| {
        let sweep = reduced(values, Dtype::F32, &plans(rings), options(1 << 12, 0));
        (rung(&sweep), sweep)
    };
    let rough = [1.0, HALF_ULP, HALF_ULP];
    assert_eq!(test(&rough, &[&[0, 1, 2], &[1, 0, 2]]).0, Some(Rung::Plan));
    assert_eq!(
        test(&[1.0, 2.0, 4.0], &[&[0, 1, 2], &[2, 1, 0]]).0,
        Some(Rung::L4)
    );
    assert_eq!(test(&[0.1, 0.7], &[&[0, 1], &[1, 0]]).0, Some(Rung::L0));
    let (found, sweep) = test(&rough, &[&[0, 1, 2], &[1, 0, 2], &[2, 1, 0]]);
    assert_eq!(found, None);
    let finding = &sweep.first[&Reach::Across];
    assert_eq!(finding.variable, Variable::Placement { value: 2 });
    assert_eq!(finding.addends[1].name, "rank1");
    assert_eq!(evaluated(finding), [1.0, 1.0 + f32::EPSILON]);
}

#[test]
fn two_addends_can_differ_where_allocations_differ_in_arithmetic() {
    let narrow = Arithmetic::sum(Dtype::F32, Dtype::Bf16, Dtype::F32);
    let plans = [chain(&[0, 1], f32_sum()), chain(&[0, 1], narrow)];
    let sweep = reduced(&[1.0, 0.001], Dtype::F32, &plans, options(1 << 12, 0));
    assert_eq!(rung(&sweep), None);
    let finding = &sweep.first[&Reach::Across];
    assert_eq!(
        (finding.sides[0].result, finding.sides[1].result),
        (1.001, 1.0)
    );
}

#[test]
fn a_free_contraction_is_proved_only_on_exact_products() {
    let scaled = |factor: f32, contraction_free| {
        let arithmetic = Arithmetic {
            pre_multiply_bits: Some(factor.to_bits()),
            contraction_free,
            ..f32_sum()
        };
        vec![chain(&[0, 1, 2], arithmetic)]
    };
    let test = |values: &[f32], plans: &[Plan]| {
        rung(&reduced(values, Dtype::F32, plans, options(1 << 12, 0)))
    };
    let (exact, rough) = ([1.0, 2.0, 5.0], [1.0, 0.1, 0.7]);
    assert_eq!(test(&exact, &scaled(0.25, true)), Some(Rung::L1));
    assert_eq!(test(&rough, &scaled(0.1, true)), Some(Rung::L5));
    assert_eq!(test(&exact, &scaled(0.1, true)), Some(Rung::L5));
    assert_eq!(test(&rough, &scaled(0.1, false)), Some(Rung::Plan));
    // Two products: addition commutes, but which one is fused does not.
    let two = [Plan {
        addend_count: 2,
        ..chain(&[0, 1], scaled(0.1, true)[0].arithmetic)
    }];
    assert_eq!(test(&[1.0, 0.7], &two), Some(Rung::L5));
    let [there, here] =
        [&[2, 1, 0], &[0, 1, 2]].map(|ring| chain(ring, scaled(0.1, true)[0].arithmetic));
    // Products of 1e8, 4 and 4: the small ones must meet first to count.
    let parting = [1e9, 40.0, 40.0];
    assert_eq!(test(&parting, &[here, there]), None);
}

#[test]
fn a_fold_that_divides_is_judged_before_it_does() {
    let mean = Arithmetic {
        out: Dtype::Bf16,
        post_divide_bits: Some(3f32.to_bits()),
        ..f32_sum()
    };
    let values = [1.0, 2.0, 3.0];
    assert_eq!(sum_of(&mean, None, &values).out, Dtype::F32);
    assert_eq!(
        sum_of(
            &Arithmetic {
                post_divide_bits: None,
                ..mean
            },
            None,
            &values
        )
        .out,
        Dtype::Bf16
    );
}
