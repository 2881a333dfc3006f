//! Canonical hashes against brute force: equal exactly where a commutative sum without any other
//! law gives equal results.

use std::collections::BTreeSet;

use bitproof::numerics::Dtype;
use bitproof::plan::{
    Arithmetic, Combine, Init, Op, Piece, Plan, ScaleError, Tree, local, scaled_together,
};
use proptest::prelude::*;

#[path = "support/evaluate.rs"]
mod evaluate;
#[path = "support/symbols.rs"]
mod symbols;
use evaluate::{Build, evaluate};
use symbols::Symbols;

fn plan(tree: Tree, arithmetic: Arithmetic) -> Plan {
    let addend_count = tree.addend_count();
    Plan {
        addend_count,
        element_count: 1,
        arithmetic,
        pieces: vec![Piece { range: 0..1, tree }],
    }
}

/// A program for the addends in `order`, cut in two at each of `cuts` in turn.
fn program(order: &[u32], cuts: &mut impl Iterator<Item = usize>, ops: &mut Vec<Op>) {
    if let [only] = order {
        return ops.push(Op::Push(*only));
    }
    let cut = 1 + cuts.next().expect("cuts do not end") % (order.len() - 1);
    program(&order[..cut], cuts, ops);
    program(&order[cut..], cuts, ops);
    ops.push(Op::Combine);
}

/// Any tree over `addends` addends: a turn of a ring, or a program.
fn any_tree(addends: u32) -> impl Strategy<Value = Tree> {
    let order = Just((0..addends).collect::<Vec<_>>()).prop_shuffle();
    let cuts = prop::collection::vec(any::<usize>(), 8);
    (order, cuts, any::<bool>(), 0..addends).prop_map(|(order, cuts, chain, start)| {
        if chain {
            return Tree::Chain {
                ring: order.into(),
                start,
            };
        }
        let mut ops = Vec::new();
        program(&order, &mut cuts.into_iter().cycle(), &mut ops);
        Tree::Ops(ops.into())
    })
}

fn two_trees() -> impl Strategy<Value = (Tree, Tree)> {
    (1u32..=5).prop_flat_map(|addends| (any_tree(addends), any_tree(addends)))
}

fn symbol(tree: &Tree, symbols: &mut Symbols) -> u32 {
    tree.fold(|addend| addend, |a, b| symbols.add(a, b))
}

fn first_pushed(tree: &Tree) -> u32 {
    match tree {
        Tree::Chain { ring, start } => ring[*start as usize],
        Tree::Ops(ops) => match ops[0] {
            Op::Push(addend) => addend,
            Op::Combine => panic!("a program starts with a push"),
        },
    }
}

/// As `symbol`, with a start value (an addend of its own) before the first addend read.
fn symbol_from(tree: &Tree, symbols: &mut Symbols) -> u32 {
    let first = first_pushed(tree);
    let started = symbols.add(99, first);
    let leaf = |addend| if addend == first { started } else { addend };
    tree.fold(leaf, |a, b| symbols.add(a, b))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn hashes_agree_exactly_where_symbols_do((a, b) in two_trees()) {
        let sum = Arithmetic::sum(Dtype::Bf16, Dtype::Bf16, Dtype::Bf16);
        let mut symbols = Symbols::default();
        let same = symbol(&a, &mut symbols) == symbol(&b, &mut symbols);
        prop_assert_eq!(plan(a.clone(), sum).same_bits(&plan(b.clone(), sum)), same);
        let from_zero = Arithmetic { init: Init::Zero, ..sum };
        prop_assert_eq!(plan(a.clone(), from_zero).same_bits(&plan(b.clone(), from_zero)), same);
        let max = Arithmetic { combine: Combine::Max, ..sum };
        prop_assert!(plan(a.clone(), max).same_bits(&plan(b.clone(), max)));
        let first = plan(a, sum).first_difference(&plan(b, sum));
        prop_assert_eq!(first, if same { None } else { Some(0) });
    }

    #[test]
    fn a_start_value_is_an_addend_of_its_own((a, b) in two_trees()) {
        let sum = Arithmetic::sum(Dtype::F32, Dtype::F32, Dtype::F32);
        let onto = Arithmetic { init: Init::Accumulator, ..sum };
        let mut symbols = Symbols::default();
        let same = symbol_from(&a, &mut symbols) == symbol_from(&b, &mut symbols);
        prop_assert_eq!(plan(a, onto).same_bits(&plan(b, onto)), same);
    }

    #[test]
    fn a_turned_ring_is_the_same_ring(addends in 1u32..40, turn in 0u32..40, start in 0u32..40) {
        let sum = Arithmetic::sum(Dtype::F32, Dtype::F32, Dtype::F32);
        let (turn, start) = (turn % addends, start % addends);
        let ring: Vec<u32> = (0..addends).map(|at| at * 7 % 41 % addends).collect();
        let ring: Vec<u32> = if plan(Tree::Chain { ring: ring.clone().into(), start: 0 }, sum)
            .check().is_ok() { ring } else { (0..addends).collect() };
        let mut turned = ring.clone();
        turned.rotate_left(turn as usize);
        let here = Tree::Chain { ring: ring.into(), start };
        let there = Tree::Chain { ring: turned.into(), start: (start + addends - turn) % addends };
        let other = Tree::Chain {
            ring: there.order_for_chain().unwrap().into_iter().rev().collect(), start: 0,
        };
        prop_assert!(plan(here.clone(), sum).same_bits(&plan(there, sum)));
        prop_assert_eq!(plan(here, sum).same_bits(&plan(other, sum)), addends <= 2);
    }

    #[test]
    fn expressions_have_one_pair_of_parentheses_a_sum(
        tree in (1u32..=5).prop_flat_map(any_tree),
    ) {
        let text = tree.expression(&|addend| format!("x{addend}"));
        let depth = text.matches('(').count() as u32;
        prop_assert_eq!(depth, tree.addend_count() - 1);
        let by_fold = tree.fold(|addend| format!("x{addend}"), |a, b| format!("({a} + {b})"));
        prop_assert_eq!(text, by_fold);
    }
}

/// Arithmetics with everything that a hash may overlook.
fn any_arithmetic() -> impl Strategy<Value = Arithmetic> {
    let float = || prop::sample::select(vec![Dtype::F32, Dtype::Bf16, Dtype::F16]);
    let init = prop::sample::select(vec![Init::First, Init::Zero, Init::Accumulator]);
    let combine = prop::sample::select(vec![Combine::Sum, Combine::Sum, Combine::Max]);
    let factor = || prop::sample::select(vec![None, Some(1.0f32), Some(1.0 / 3.0)]);
    let factors = (factor(), factor(), any::<bool>());
    (float(), float(), float(), init, combine, factors).prop_map(
        |(addend, partial, out, init, combine, (multiply, divide, contraction_free))| Arithmetic {
            combine,
            init,
            addend,
            partial,
            out,
            pre_multiply_bits: multiply.map(f32::to_bits),
            contraction_free,
            post_divide_bits: divide.map(f32::to_bits),
        },
    )
}

/// Addends that round, cancel, vanish and differ in the sign of zero; nothing overflows.
fn any_addend() -> impl Strategy<Value = f32> {
    let picked = vec![
        0.0,
        -0.0,
        1.0,
        -1.0,
        1.0 / 3.0,
        -257.0,
        4097.0,
        1e-4,
        -6e-8,
        3e-39,
        -3e-39,
    ];
    prop_oneof![prop::sample::select(picked), -300f32..300f32]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(6000))]

    /// The one bug that must not exist: equal hashes, different bits.
    #[test]
    fn equal_hashes_give_equal_bits(
        ((a, b), a_arithmetic, b_arithmetic, other) in
            (two_trees(), any_arithmetic(), any_arithmetic(), prop::bool::weighted(0.2)),
        addends in prop::collection::vec(any_addend(), 5),
        start in any_addend(),
    ) {
        let b_arithmetic = if other { b_arithmetic } else { a_arithmetic };
        let same = plan(a.clone(), a_arithmetic).same_bits(&plan(b.clone(), b_arithmetic));
        for build in [Build::Plain, Build::RoundsAtPush, Build::Fused] {
            let a = evaluate(&a, &a_arithmetic, &addends, start, build);
            let b = evaluate(&b, &b_arithmetic, &addends, start, build);
            prop_assert!(!same || a == b, "{a:08x} {b:08x} {build:?}");
        }
    }
}

/// A second addend that is added unrounded, or fused, cannot change places with the first.
#[test]
fn operands_are_not_swapped_where_that_would_change_bits() {
    let there = Tree::Chain {
        ring: vec![0, 1, 2].into(),
        start: 0,
    };
    let back = Tree::Chain {
        ring: vec![1, 0, 2].into(),
        start: 0,
    };
    let same =
        |arithmetic| plan(there.clone(), arithmetic).same_bits(&plan(back.clone(), arithmetic));
    let bf16 = Arithmetic::sum(Dtype::Bf16, Dtype::Bf16, Dtype::Bf16);
    assert!(same(bf16));
    assert!(!same(Arithmetic::sum(Dtype::F32, Dtype::Bf16, Dtype::Bf16)));
    let third = Some((1.0f32 / 3.0).to_bits());
    let fused = Arithmetic {
        pre_multiply_bits: third,
        contraction_free: true,
        ..bf16
    };
    assert!(!same(fused));
    assert!(same(Arithmetic {
        contraction_free: false,
        ..fused
    }));
    // A factor of one is no factor.
    let one = Arithmetic {
        pre_multiply_bits: Some(1f32.to_bits()),
        ..fused
    };
    assert_eq!(
        plan(there.clone(), one).hash(),
        plan(there.clone(), bf16).hash()
    );
}

#[test]
fn arithmetic_is_part_of_the_hash() {
    let tree = Tree::ascending(3);
    let wide = Arithmetic::sum(Dtype::Bf16, Dtype::F32, Dtype::Bf16);
    let each = Arithmetic::sum(Dtype::Bf16, Dtype::Bf16, Dtype::Bf16);
    assert!(!plan(tree.clone(), wide).same_bits(&plan(tree.clone(), each)));
    let zero = Arithmetic {
        init: Init::Zero,
        ..each
    };
    assert!(!plan(tree.clone(), zero).same_bits(&plan(tree, each)));
}

#[test]
fn rounding_points_show_in_expressions() {
    let name = |addend: u32| format!("x{addend}");
    let tree = Tree::ascending(3);
    let each = Arithmetic::sum(Dtype::Bf16, Dtype::Bf16, Dtype::Bf16);
    assert_eq!(each.expression(&tree, &name), "bf16(bf16(x0 + x1) + x2)");
    let once = Arithmetic::sum(Dtype::Bf16, Dtype::F32, Dtype::Bf16);
    assert_eq!(once.expression(&tree, &name), "bf16(((x0 + x1) + x2))");
    let from = Arithmetic {
        init: Init::Accumulator,
        ..each
    };
    assert_eq!(
        from.expression(&tree, &name),
        "bf16(bf16(bf16(out + x0) + x1) + x2)"
    );
    assert_eq!(
        Arithmetic::max(Dtype::F32).expression(&tree, &name),
        "max(max(x0, x1), x2)"
    );
}

#[test]
fn broken_trees_are_refused() {
    let ops = |ops: &[Op]| Tree::Ops(ops.into());
    let broken = [
        Tree::Chain {
            ring: vec![0, 0].into(),
            start: 0,
        },
        Tree::Chain {
            ring: vec![0, 2].into(),
            start: 0,
        },
        Tree::Chain {
            ring: vec![0, 1].into(),
            start: 2,
        },
        Tree::Chain {
            ring: vec![0].into(),
            start: 0,
        },
        ops(&[Op::Push(0), Op::Push(1)]),
        ops(&[Op::Push(0), Op::Combine, Op::Push(1)]),
        ops(&[]),
    ];
    for tree in broken {
        assert!(tree.check(2).is_err(), "{tree:?}");
    }
    let mut deep: Vec<Op> = (0..64).map(Op::Push).collect();
    deep.extend([Op::Combine; 63]);
    assert!(ops(&deep).check(64).is_err());
}

proptest! {
    #[test]
    fn a_scaled_plan_hits_every_class(
        lengths in prop::collection::vec((1u64..50, 0usize..6), 1..12),
        elements in 1u64..40,
    ) {
        let sum = Arithmetic::sum(Dtype::F32, Dtype::F32, Dtype::F32);
        let mut at = 0;
        let mut pieces = Vec::new();
        for (length, start) in lengths {
            let tree = Tree::Chain { ring: (0..6).collect(), start: start as u32 };
            pieces.push(Piece { range: at..at + length, tree });
            at += length;
        }
        let full = Plan { addend_count: 6, element_count: at, arithmetic: sum, pieces };
        let classes = full.class_sizes();
        match full.scaled_to(elements) {
            Err(ScaleError::TooFewElements { classes: needed, .. }) => {
                prop_assert_eq!(needed, classes.len() as u64);
                prop_assert!(needed > elements);
            }
            Err(other) => prop_assert!(false, "{}", other),
            Ok(small) => {
                prop_assert_eq!(small.check(), Ok(()));
                prop_assert!(small.class_sizes().keys().eq(classes.keys()));
                let moved = (0..elements).filter(|element| {
                    let twin = element * at / elements;
                    local_class(&small, *element) != local_class(&full, twin)
                });
                // Elements move only to make room for classes that proportion leaves out.
                prop_assert!(moved.count() < classes.len());
            }
        }
    }
}

/// The trees that some plans have at one element of theirs.
fn joint_class(plans: &[&Plan], element: u64) -> Vec<[u8; 32]> {
    plans
        .iter()
        .map(|plan| local_class(plan, element))
        .collect()
}

proptest! {
    /// Two buffers, each with a plan on two allocations, on one small buffer: what the allocations
    /// have side by side at full size, no more and no less, they have side by side here.
    #[test]
    fn plans_scaled_together_keep_every_pair_of_trees(
        (a, b) in (any_pieces(), any_pieces()),
        (c, d) in (any_pieces(), any_pieces()),
        elements in 1u64..40,
    ) {
        let twins: [&[&Plan]; 2] = [&[&a, &b], &[&c, &d]];
        let full: BTreeSet<_> = twins
            .iter()
            .flat_map(|plans| (0..31).map(|element| joint_class(plans, element)))
            .collect();
        match scaled_together(&twins, elements) {
            Err(ScaleError::TooFewElements { classes, .. }) => {
                prop_assert_eq!(classes, full.len() as u64);
                prop_assert!(classes > elements);
            }
            Err(other) => prop_assert!(false, "{}", other),
            Ok(small) => {
                let small: Vec<&Plan> = small.iter().collect();
                prop_assert!(small.iter().all(|plan| plan.check().is_ok()));
                let here: BTreeSet<_> =
                    (0..elements).map(|element| joint_class(&small, element)).collect();
                prop_assert_eq!(&here, &full);
                let alike = a.same_bits(&b) && c.same_bits(&d);
                prop_assert_eq!(small[0].same_bits(small[1]), alike);
            }
        }
    }
}

/// A plan of a few pieces, each a turn of one ring of three.
fn any_pieces() -> impl Strategy<Value = Plan> {
    prop::collection::vec((1u64..9, 0u32..3), 6).prop_map(|lengths| {
        let mut at = 0;
        let mut pieces = Vec::new();
        for (length, start) in lengths {
            let range = at..(at + length).min(30);
            at = range.end;
            pieces.push(Piece {
                range,
                tree: Tree::Chain {
                    ring: (0..3).collect(),
                    start,
                },
            });
        }
        pieces.retain(|piece| !piece.range.is_empty());
        pieces.push(Piece {
            range: at..31,
            tree: Tree::ascending(3),
        });
        let arithmetic = Arithmetic::sum(Dtype::F32, Dtype::F32, Dtype::F32);
        Plan {
            addend_count: 3,
            element_count: 31,
            arithmetic,
            pieces,
        }
    })
}

proptest! {
    #[test]
    fn differing_ranges_are_those_of_the_elements((a, b) in (any_pieces(), any_pieces())) {
        let ranges = a.differing_ranges(&b);
        let by_element: Vec<u64> =
            (0..31).filter(|at| local_class(&a, *at) != local_class(&b, *at)).collect();
        prop_assert!(ranges.iter().cloned().flatten().eq(by_element));
        prop_assert!(ranges.windows(2).all(|pair| pair[0].end < pair[1].start));
        prop_assert_eq!(ranges.is_empty(), a.same_bits(&b));
        let merged = a.clone().merged();
        prop_assert!(merged.same_bits(&a) && merged.check().is_ok());
    }
}

fn local_class(plan: &Plan, element: u64) -> [u8; 32] {
    let tree = plan.tree_at(element).clone();
    let one = vec![Piece { range: 0..1, tree }];
    Plan {
        element_count: 1,
        pieces: one,
        ..plan.clone()
    }
    .hash()
}

#[test]
fn thousands_of_ranks_hash_at_once() {
    let ring: std::sync::Arc<[u32]> = (0..2432).collect();
    let pieces = (0..2432u64).map(|start| Piece {
        range: start * 10..start * 10 + 10,
        tree: Tree::Chain {
            ring: ring.clone(),
            start: start as u32,
        },
    });
    let arithmetic = Arithmetic::sum(Dtype::Bf16, Dtype::Bf16, Dtype::Bf16);
    let plan = Plan {
        addend_count: 2432,
        element_count: 24_320,
        arithmetic,
        pieces: pieces.collect(),
    };
    assert_eq!(plan.class_sizes().len(), 2432);
    assert!(!plan.same_bits(&local::ascending(2432, 24_320, arithmetic)));
}
