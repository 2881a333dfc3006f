//! The plan of a buffer whose elements travel in other buffers: in several, and in another order.

use std::ops::Range;
use std::sync::Arc;

use crate::plan::{Piece, Plan};

/// A buffer that elements travel in: its plan, and where its elements lie at home, range after
/// range.
pub type Carrier = (Arc<Plan>, Vec<Range<u64>>);

/// The plan for the `elements` at home. Elements that no carrier takes, padding, have the first
/// tree of all.
///
/// Panics without a carrier, where one is not as long as its plan, or where two take one element.
pub fn arranged(carriers: &[Carrier], elements: u64) -> Plan {
    let first = &carriers.first().expect("something is carried").0;
    let mut pieces = Vec::new();
    for (plan, ranges) in carriers {
        let mut travelled = 0;
        for range in ranges {
            let end = travelled + (range.end - range.start);
            for piece in &plan.pieces {
                let from = piece.range.start.max(travelled);
                let to = piece.range.end.min(end);
                if from < to {
                    let at = |word: u64| range.start + (word - travelled);
                    pieces.push(Piece {
                        range: at(from)..at(to),
                        tree: piece.tree.clone(),
                    });
                }
            }
            travelled = end;
        }
        assert_eq!(travelled, plan.element_count, "the plan of this buffer");
    }
    pieces.sort_by_key(|piece| piece.range.start);
    let mut whole: Vec<Piece> = Vec::with_capacity(pieces.len());
    let mut end = 0;
    let filling = first.pieces[0].tree.clone();
    let last = Piece {
        range: elements..elements,
        tree: filling.clone(),
    };
    for piece in pieces.into_iter().chain([last]) {
        assert!(end <= piece.range.start, "element {end} is carried twice");
        if end < piece.range.start {
            whole.push(Piece {
                range: end..piece.range.start,
                tree: filling.clone(),
            });
        }
        end = piece.range.end;
        if piece.range.start < piece.range.end {
            whole.push(piece);
        }
    }
    let plan = Plan {
        addend_count: first.addend_count,
        element_count: elements,
        arithmetic: first.arithmetic,
        pieces: whole,
    };
    plan.merged()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numerics::Dtype;
    use crate::plan::{Arithmetic, gloo};

    fn ring(elements: u64) -> Arc<Plan> {
        Arc::new(Plan {
            addend_count: 4,
            element_count: elements,
            arithmetic: Arithmetic::sum(Dtype::F32, Dtype::F32, Dtype::F32),
            pieces: gloo::all_reduce(4, elements, 4),
        })
    }

    /// Each element has the tree that it has where it travels.
    #[test]
    fn elements_keep_the_trees_of_their_places() {
        let (two, one) = (ring(40), ring(9));
        let carriers = [
            (two.clone(), vec![30..60, 0..10]),
            (one.clone(), vec![12..21]),
        ];
        let plan = arranged(&carriers, 64);
        let tree = |plan: &Plan, element: u64| {
            let piece = plan
                .pieces
                .iter()
                .find(|piece| piece.range.contains(&element));
            piece.expect("it is covered").tree.clone()
        };
        for element in 0..64 {
            let expected = match element {
                30..60 => tree(&two, element - 30),
                0..10 => tree(&two, element + 30),
                12..21 => tree(&one, element - 12),
                _ => tree(&two, 0),
            };
            assert_eq!(tree(&plan, element), expected, "{element}");
        }
        // Negative control: in its own order the buffer has other trees.
        let straight = arranged(&[(two.clone(), vec![0..40])], 40);
        assert_eq!(straight.classes(), two.classes());
        let turned = arranged(&[(two.clone(), vec![20..40, 0..20])], 40);
        assert_ne!(turned.classes(), two.classes());
    }
}
