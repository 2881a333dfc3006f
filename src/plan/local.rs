//! Plans in which every element takes the same tree, such as folds inside one rank: slots, parts
//! and rows in ascending order.

use std::sync::Arc;

use crate::plan::{Arithmetic, Op, Piece, Plan, Tree};

/// A plan in which every element takes `tree`. Of no elements, there are no pieces.
pub fn uniform(tree: Tree, elements: u64, arithmetic: Arithmetic) -> Plan {
    let addend_count = tree.addend_count();
    let pieces = match elements {
        0 => Vec::new(),
        _ => vec![Piece {
            range: 0..elements,
            tree,
        }],
    };
    Plan {
        addend_count,
        element_count: elements,
        arithmetic,
        pieces,
    }
}

/// Addends `0, 1, ..., addends - 1`, one after the other, at every element.
pub fn ascending(addends: u32, elements: u64, arithmetic: Arithmetic) -> Plan {
    assert!(addends >= 1, "a fold has at least one addend");
    uniform(Tree::ascending(addends), elements, arithmetic)
}

/// Addends one after the other in a given order, a permutation of all of them, at every element.
pub fn in_order(order: &Arc<[u32]>, elements: u64, arithmetic: Arithmetic) -> Plan {
    let (ring, start) = (Arc::clone(order), 0);
    let plan = uniform(Tree::Chain { ring, start }, elements, arithmetic);
    debug_assert_eq!(plan.check(), Ok(()), "an order names every addend once");
    plan
}

/// Addends that a block takes, in each configuration in which a tuned kernel can sum so many: the
/// first takes all of them in one block, and no two have one order.
pub fn block_sizes(addends: u32) -> Vec<u32> {
    let powers = (1..32).map(|power| 1 << power);
    // Of one block and a rest of one addend, the order is that of one block.
    let smaller = powers.take_while(|block: &u32| addends >= 2 && *block <= addends - 2);
    std::iter::once(addends).chain(smaller).collect()
}

/// Blocks of neighbours, each summed in ascending order, and then their sums in ascending order:
/// what a kernel does that gives each block to a program.
pub fn in_blocks(addends: u32, block: u32, elements: u64, arithmetic: Arithmetic) -> Plan {
    assert!(
        addends >= 1 && block >= 1,
        "{addends} addends in blocks of {block}"
    );
    if block >= addends {
        return ascending(addends, elements, arithmetic);
    }
    let mut ops = Vec::with_capacity(2 * addends as usize - 1);
    for addend in 0..addends {
        ops.push(Op::Push(addend));
        if addend % block != 0 {
            ops.push(Op::Combine);
        }
        let ends = addend % block == block - 1 || addend == addends - 1;
        if ends && addend >= block {
            ops.push(Op::Combine);
        }
    }
    uniform(Tree::Ops(ops.into()), elements, arithmetic)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numerics::Dtype;

    const SUM: Arithmetic = Arithmetic::sum(Dtype::Bf16, Dtype::F32, Dtype::F32);

    #[test]
    fn every_element_takes_the_order_given() {
        let plan = in_order(&[2, 0, 1].into(), 5, SUM);
        assert_eq!(plan.check(), Ok(()));
        for element in 0..5 {
            let tree = plan.tree_at(element);
            let met = tree.fold(|addend| addend.to_string(), |a, b| format!("({a} + {b})"));
            assert_eq!(met, "((2 + 0) + 1)");
        }
        assert!(!plan.same_bits(&ascending(3, 5, SUM)));
        assert!(in_order(&[0, 1, 2].into(), 5, SUM).same_bits(&ascending(3, 5, SUM)));
    }

    #[test]
    fn blocks_are_summed_first() {
        let plan = in_blocks(7, 3, 5, SUM);
        assert_eq!(plan.check(), Ok(()));
        let tree = plan.tree_at(4);
        let met = tree.fold(|addend| addend.to_string(), |a, b| format!("({a} + {b})"));
        assert_eq!(met, "((((0 + 1) + 2) + ((3 + 4) + 5)) + 6)");
    }

    #[test]
    fn no_two_configurations_have_one_order() {
        assert_eq!(block_sizes(1), [1]);
        assert_eq!(block_sizes(3), [3]);
        assert_eq!(block_sizes(4), [4, 2]);
        assert_eq!(block_sizes(10), [10, 2, 4, 8]);
        for addends in 1..40 {
            let sizes = block_sizes(addends);
            let plans: Vec<Plan> = sizes
                .iter()
                .map(|block| in_blocks(addends, *block, 3, SUM))
                .collect();
            for (place, plan) in plans.iter().enumerate() {
                assert_eq!(plan.check(), Ok(()), "{addends} in {}", sizes[place]);
                let same = |other: &&Plan| other.same_bits(plan);
                assert_eq!(plans.iter().filter(same).count(), 1, "{addends}");
            }
        }
    }

    #[test]
    fn no_elements_need_no_pieces() {
        let plan = ascending(3, 0, SUM);
        assert_eq!((plan.addend_count, plan.pieces.len()), (3, 0));
        assert_eq!(plan.check(), Ok(()));
    }
}
