//! Plans in which every element takes the same tree, such as folds inside one rank: slots, parts
//! and rows in ascending order.

use std::sync::Arc;

use crate::plan::{Arithmetic, Piece, Plan, Tree};

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
    fn no_elements_need_no_pieces() {
        let plan = ascending(3, 0, SUM);
        assert_eq!((plan.addend_count, plan.pieces.len()), (3, 0));
        assert_eq!(plan.check(), Ok(()));
    }
}
