//! The plans that a random program's collectives may take.

use std::sync::Arc;

use bitproof::numerics::Dtype;
use bitproof::plan::{Arithmetic, Combine, Op, Piece, Plan, Tree};
use bitproof::world::{CollectiveShape, PlanSource};

use crate::program::Case;
use crate::values::Random;

impl PlanSource for Case {
    fn plans(&self, shape: CollectiveShape) -> Result<Arc<[Arc<Plan>]>, String> {
        let plan = |value| Arc::new(self.plan(shape, value));
        Ok((0..self.plan_count).map(plan).collect())
    }
}

impl Case {
    /// A ring in blocks, a chain in a random order, or a tree; by value and by what is reduced.
    fn plan(&self, shape: CollectiveShape, value: u32) -> Plan {
        let (n, elements) = (self.ranks, shape.elements);
        let sum = |partial| Arithmetic::sum(self.dtype, partial, self.dtype);
        let arithmetic = match bitproof::world::order::combine_of(shape.kind) {
            Some(Combine::Max) => Arithmetic::max(self.dtype),
            _ if self.mixed && value > 0 => sum(Dtype::Bf16),
            _ => sum(self.partial),
        };
        let seed = u64::from(value) << 8 | u64::from(shape.group.0);
        let mut random = Random::new(self.seed ^ seed);
        let mut ring: Vec<u32> = (0..n).collect();
        for place in 0..n {
            ring.swap(place as usize, random.below(n) as usize);
        }
        let pieces = match random.below(3) {
            0 => blocks(&ring.into(), elements),
            1 => whole(
                Tree::Chain {
                    ring: ring.into(),
                    start: 0,
                },
                elements,
            ),
            _ => whole(pairs(&ring), elements),
        };
        Plan {
            addend_count: n,
            element_count: elements,
            arithmetic,
            pieces,
        }
    }
}

fn whole(tree: Tree, elements: u64) -> Vec<Piece> {
    let range = 0..elements;
    vec![Piece { range, tree }]
}

/// Each block starts at another place of the ring.
fn blocks(ring: &Arc<[u32]>, elements: u64) -> Vec<Piece> {
    let n = ring.len() as u64;
    let block = elements / n;
    let piece = |k: u64| Piece {
        range: k * block..(k + 1) * block,
        tree: Tree::Chain {
            ring: ring.clone(),
            start: k as u32,
        },
    };
    (0..n).map(piece).collect()
}

/// Neighbours meet first.
fn pairs(order: &[u32]) -> Tree {
    let mut ops = Vec::new();
    for (place, addend) in order.iter().enumerate() {
        ops.push(Op::Push(*addend));
        if place % 2 == 1 {
            ops.push(Op::Combine);
        }
    }
    let left = order.len().div_ceil(2) - 1;
    ops.extend(vec![Op::Combine; left]);
    Tree::Ops(ops.into())
}
