//! Points that hold only for want of data, or of addends.

use super::*;

#[test]
fn a_maximum_is_ordered_and_never_silent() {
    let values = [f32::NAN, -0.0, 0.0, 7.5];
    let plans = [[0, 1, 2, 3], [3, 2, 1, 0]].map(|ring| chain(&ring, Arithmetic::max(Dtype::F32)));
    let sweep = reduced(&values, Dtype::F32, &plans, options(1 << 12, 64));
    assert_eq!(rung(&sweep), Some(Rung::L0));
    assert!(sweep.silent.is_empty());
    let two = plans.map(|_| chain(&[0, 1], Arithmetic::max(Dtype::F32)));
    let sweep = reduced(&values[..2], Dtype::F32, &two, options(1 << 12, 64));
    assert_eq!(rung(&sweep), Some(Rung::L0));
    assert!(
        sweep.silent.is_empty(),
        "the retest has no order to find either"
    );
}

#[test]
fn a_sum_that_holds_by_luck_is_reported_as_silent() {
    // bf16 values of one scale in an f32 sum: exact here, and not where scales spread.
    let tame = Slots {
        addend: Dtype::Bf16,
        ..Slots::arrival(&[1.0, 1.25, 0.75, 1.5])
    };
    let sweep = tame.swept(options(1 << 12, 4));
    assert_eq!(rung(&sweep), Some(Rung::L1));
    assert_eq!(sweep.input_point_count, 1);
    let point = &sweep.silent[&(Family::WgradSplitK, Reach::Within)];
    assert_eq!(
        (point.rung, point.here, point.full, point.points),
        (Rung::L1, 4, 4, 1)
    );
}

#[test]
fn two_addends_are_silent_only_where_full_size_has_more() {
    for order in [LocalOrder::Ordered, LocalOrder::Arrival] {
        let two = Slots {
            order,
            ..Slots::arrival(&[1.0, 0.1])
        };
        let silent = |full| !two.swept(options(1 << 12, full)).silent.is_empty();
        assert_eq!((silent(2), silent(3)), (false, true));
    }
    let three = Slots {
        order: LocalOrder::Ordered,
        ..Slots::arrival(&[1.0, 0.1, 0.7])
    };
    let sweep = three.swept(options(1 << 12, 64));
    assert!(sweep.silent.is_empty(), "one plan holds for all inputs");
}
