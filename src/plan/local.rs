//! Folds inside one rank, in a fixed order: slots, parts and rows in ascending order.

use crate::plan::{Arithmetic, Piece, Plan, Tree};

/// A plan in which every element takes `tree`.
pub(crate) fn uniform(tree: Tree, elements: u64, arithmetic: Arithmetic) -> Plan {
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

/// A local fold in a given order (a permutation of `0..n`), at every element.
pub fn in_order(order: &[u32], elements: u64, arithmetic: Arithmetic) -> Plan {
    let plan = uniform(
        Tree::Chain {
            ring: order.into(),
            start: 0,
        },
        elements,
        arithmetic,
    );
    assert_eq!(plan.check(), Ok(()), "an order names every addend once");
    plan
}
