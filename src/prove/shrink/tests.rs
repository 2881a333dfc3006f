//! Shrinking against all subsets, and by hand.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::numerics::Dtype;
use crate::plan::{Arithmetic, Init};
use crate::prove::sweep::{FoundAddend, Variable};
use crate::world::{Family, NodeId, Owner, Phase, Site};

fn chain(ring: &[u32]) -> Tree {
    Tree::Chain {
        ring: ring.into(),
        start: 0,
    }
}

/// A finding over `values`, its results evaluated.
fn finding(values: &[f32], held: Option<f32>, sides: [(Arithmetic, Tree); 2]) -> Finding {
    let addends = values.iter().enumerate().map(|(place, value)| FoundAddend {
        name: format!("x{place}"),
        value: *value,
    });
    let sides = sides.map(|(arithmetic, tree)| Side {
        arithmetic,
        tree,
        result: 0.0,
    });
    let mut made = Finding {
        node: NodeId {
            step: 1,
            owner: Owner::Rank(0),
            ordinal: 0,
        },
        wave: 0,
        site: Arc::new(Site {
            step: 1,
            microbatch: None,
            phase: Phase::Backward,
            module: "layer".into(),
            op: "fold".into(),
        }),
        family: Family::WgradSplitK,
        group: None,
        ranks: Arc::new([0]),
        variable: Variable::Placement { value: 1 },
        element: 0,
        addends: addends.collect(),
        held,
        sides,
        differing_elements: 1,
        elements: 1,
        ulp_max: Some(1),
        nodes_before: 0,
    };
    let all: Vec<usize> = (0..values.len()).collect();
    made.sides = [0, 1].map(|side| restricted(&made, &made.sides[side], &all));
    made
}

fn chains(arithmetic: Arithmetic, a: &[u32], b: &[u32]) -> [(Arithmetic, Tree); 2] {
    [(arithmetic, chain(a)), (arithmetic, chain(b))]
}

fn f32_sum() -> Arithmetic {
    Arithmetic::sum(Dtype::F32, Dtype::F32, Dtype::F32)
}

#[test]
fn idle_addends_are_left_out() {
    let ulp = 2f32.powi(-24);
    let values = [0.0, 1.0, 0.0, ulp, 0.0, ulp, 0.0];
    let order = [0, 1, 2, 3, 4, 5, 6];
    let reverse = [6, 5, 4, 3, 2, 1, 0];
    let made = finding(&values, None, chains(f32_sum(), &order, &reverse));
    let found = shrink(&made).unwrap();
    assert_eq!(found.places, [1, 3, 5]);
    let [a, b] = &found.sides;
    assert_eq!((a.result, b.result), (1.0, 1.0 + 2.0 * ulp));
    let kept: Vec<FoundAddend> = found
        .places
        .iter()
        .map(|at| made.addends[*at].clone())
        .collect();
    assert_eq!(a.expression(&kept), "((x1 + x3) + x5)");
    assert_eq!(b.expression(&kept), "((x5 + x3) + x1)");
}

#[test]
fn three_addends_are_the_least() {
    let values = [1.0, 2f32.powi(-24), 2f32.powi(-24)];
    let made = finding(&values, None, chains(f32_sum(), &[0, 1, 2], &[1, 2, 0]));
    assert_ne!(made.sides[0].result, made.sides[1].result);
    assert_eq!(shrink(&made), None, "there is nothing to leave out");
}

#[test]
fn the_accumulator_is_one_of_the_three() {
    let arithmetic = Arithmetic {
        init: Init::Accumulator,
        ..f32_sum()
    };
    let ulp = 2f32.powi(-24);
    let values = [ulp, 0.0, ulp, -1.0];
    let sides = chains(arithmetic, &[0, 1, 2, 3], &[3, 1, 2, 0]);
    let made = finding(&values, Some(1.0), sides);
    let found = shrink(&made).unwrap();
    assert_eq!(found.places, [0, 3], "1 + u - 1 is 0, 1 - 1 + u is u");
}

#[test]
fn equal_sides_and_maxima_are_not_shrunk() {
    let values = [1.0, 2.0, 3.0, 4.0];
    let (a, b) = ([0, 1, 2, 3], [3, 2, 1, 0]);
    let equal = finding(&values, None, chains(f32_sum(), &a, &b));
    assert_eq!(shrink(&equal), None);
    let maximum = finding(&values, None, chains(Arithmetic::max(Dtype::F32), &a, &b));
    assert_eq!(shrink(&maximum), None);
}

#[test]
fn a_long_sum_is_shrunk_without_trying_every_set() {
    let mut values = vec![0.0; 600];
    (values[17], values[300], values[599]) = (1.0, 2f32.powi(-24), 2f32.powi(-24));
    let forward: Vec<u32> = (0..600).collect();
    let reverse: Vec<u32> = (0..600).rev().collect();
    let made = finding(&values, None, chains(f32_sum(), &forward, &reverse));
    assert_eq!(shrink(&made).unwrap().places, [17, 300, 599]);
}

#[test]
fn a_tree_keeps_its_shape_on_what_is_left() {
    use Op::{Combine as C, Push as P};
    let tree = Tree::Ops([P(0), P(1), C, P(2), P(3), C, C].into());
    let left = |places: &[usize]| induced(&tree, places);
    assert_eq!(left(&[0, 2, 3]), Tree::Ops([P(0), P(1), P(2), C, C].into()));
    assert_eq!(left(&[0, 1, 3]), Tree::Ops([P(0), P(1), C, P(2), C].into()));
    assert_eq!(left(&[1]), Tree::Ops([P(0)].into()));
    let ring = Tree::Chain {
        ring: [3, 0, 2, 1].into(),
        start: 2,
    };
    assert_eq!(induced(&ring, &[0, 1, 3]), chain(&[1, 2, 0]));
}

/// Sizes of the sets that differ, by trying all of them with an evaluator of its own.
fn least_by_brute_force(values: &[f32], orders: [&[u32]; 2]) -> Option<usize> {
    let sum = |order: &[u32], set: u32| {
        let kept = order.iter().filter(|place| set >> **place & 1 == 1);
        let addends = kept.map(|place| values[*place as usize]);
        addends.reduce(|sum, x| half::bf16::from_f32(sum + x).to_f32())
    };
    let differs = |set: &u32| {
        let [a, b] = orders.map(|order| sum(order, *set).map(f32::to_bits));
        a != b
    };
    let sets = (0..1u32 << values.len()).filter(differs);
    sets.map(|set| set.count_ones() as usize).min()
}

proptest! {
    #[test]
    fn no_smaller_set_differs(
        raw in proptest::collection::vec((-8i8..8, -6i32..6), 3..8),
        keys in proptest::collection::vec(any::<u32>(), 8),
    ) {
        let values: Vec<f32> = raw.iter().map(|(m, e)| f32::from(*m) * 2f32.powi(*e)).collect();
        let n = values.len() as u32;
        let forward: Vec<u32> = (0..n).collect();
        let mut other = forward.clone();
        other.sort_by_key(|place| keys[*place as usize]);
        let arithmetic = Arithmetic::sum(Dtype::Bf16, Dtype::Bf16, Dtype::Bf16);
        let made = finding(&values, None, chains(arithmetic, &forward, &other));
        let differs = made.sides[0].result.to_bits() != made.sides[1].result.to_bits();
        let least = least_by_brute_force(&values, [&forward, &other]);
        match shrink(&made) {
            Some(found) => {
                prop_assert!(differs);
                prop_assert_eq!(Some(found.places.len()), least);
                prop_assert!(found.places.len() >= 3);
            }
            None => prop_assert!(!differs || least == Some(n as usize)),
        }
    }
}
