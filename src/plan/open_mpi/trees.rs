//! The trees of Open MPI's `coll/base` algorithms, in closed form (equal up to the operands of an
//! addition, which commute).
//!
//! `v[i]` is rank `(root + i) mod n`.

use std::sync::Arc;

use crate::plan::Tree;
use crate::plan::shape::Shape;

/// `x[0] + (x[1] + (... + x[n-1]))`, whatever the root.
pub(super) fn linear(ranks: u32) -> Tree {
    Tree::Chain {
        ring: (0..ranks).rev().collect(),
        start: 0,
    }
}

/// The same on `v`.
pub(super) fn pipeline(ranks: u32, root: u32) -> Tree {
    let v = (0..ranks).rev().map(|place| (root + place) % ranks);
    Tree::Chain {
        ring: v.collect(),
        start: 0,
    }
}

/// A ring that starts at `start` and goes up.
pub(super) fn turn(ranks: u32, start: u32) -> Tree {
    let ring: Arc<[u32]> = (0..ranks).collect();
    Tree::Chain { ring, start }
}

/// The ranks but the root, in `fanout` chains of neighbours in `v`, longer ones first, each folded
/// from its tail to its head; the root adds them in order to its own value.
pub(super) fn chains(ranks: u32, root: u32, fanout: u32) -> Tree {
    let mut shape = Shape::new();
    let mut sum = shape.leaf(root);
    let fanout = fanout.max(1).min(ranks - 1);
    let mut place = 1;
    for chain in 0..fanout {
        let length = (ranks - 1) / fanout + u32::from(chain < (ranks - 1) % fanout);
        let mut below = None;
        for place in (place..place + length).rev() {
            let own = shape.leaf((root + place) % ranks);
            below = Some(match below {
                Some(below) => shape.pair(own, below),
                None => own,
            });
        }
        let below = below.expect("no chain is empty");
        sum = shape.pair(sum, below);
        place += length;
    }
    shape.into_tree()
}

/// Node s of level l of `v` has children `s + 2^l` and `s + 2 * 2^l`; own + child + child.
pub(super) fn binary(ranks: u32, root: u32) -> Tree {
    let mut shape = Shape::new();
    let children = |node: u32| {
        let level = 1 << (node + 1).ilog2();
        [node + level, node + 2 * level]
    };
    rooted(&mut shape, ranks, root, |node, list| {
        list.extend(children(node).into_iter().filter(|child| *child < ranks));
    });
    shape.into_tree()
}

/// Node s of `v` has children `s + 1`, `s + 2`, `s + 4`, ... below its lowest set bit; own, then
/// the nearest child first.
pub(super) fn binomial(ranks: u32, root: u32) -> Tree {
    let mut shape = Shape::new();
    rooted(&mut shape, ranks, root, |node, list| {
        let steps = (0..u32::BITS).map(|bit| 1u32 << bit);
        let steps = steps.take_while(|step| node == 0 || *step < (1 << node.trailing_zeros()));
        let within = steps.take_while(|step| node + step < ranks);
        list.extend(within.map(|step| node + step));
    });
    shape.into_tree()
}

/// Folds a tree on `v` whose root is 0: each node its own value, then its children in order.
/// Children have greater numbers than their parents.
fn rooted(shape: &mut Shape, ranks: u32, root: u32, children: impl Fn(u32, &mut Vec<u32>)) {
    let mut sums = vec![0; ranks as usize];
    let mut list = Vec::new();
    for node in (0..ranks).rev() {
        list.clear();
        children(node, &mut list);
        let mut sum = shape.leaf((root + node) % ranks);
        for child in &list {
            sum = shape.pair(sum, sums[*child as usize]);
        }
        sums[node as usize] = sum;
    }
}

/// Ranks `[a, a + m)`: the last one on top, the left child over the upper half of the others, the
/// right child over `[a, a + m/2)`; (own + left) + right, whatever the root.
pub(super) fn in_order_binary(ranks: u32) -> Tree {
    let mut shape = Shape::new();
    in_order(&mut shape, 0, ranks);
    shape.into_tree()
}

fn in_order(shape: &mut Shape, first: u32, count: u32) -> u32 {
    if count == 1 {
        return shape.leaf(first);
    }
    let half = match count {
        // A left child alone.
        2 => 0,
        count => count / 2,
    };
    let left = in_order(shape, first + half, count - 1 - half);
    let own = shape.leaf(first + count - 1);
    let sum = shape.pair(own, left);
    match half {
        0 => sum,
        half => {
            let right = in_order(shape, first, half);
            shape.pair(sum, right)
        }
    }
}

/// Ranks (0, 1), (2, 3), ... of those beyond the largest power of two are added first; then pairs
/// at distance 1, 2, 4, ...
pub(super) fn doubling(ranks: u32) -> Tree {
    let mut shape = Shape::new();
    let mut values = folded(&mut shape, ranks);
    while values.len() > 1 {
        let pairs = values.chunks(2);
        values = pairs.map(|pair| shape.pair(pair[0], pair[1])).collect();
    }
    shape.into_tree()
}

/// The same, the greatest distance first.
pub(super) fn halving(ranks: u32) -> Tree {
    let mut shape = Shape::new();
    let mut values = folded(&mut shape, ranks);
    while values.len() > 1 {
        let (near, far) = values.split_at(values.len() / 2);
        let pairs = near.iter().zip(far);
        values = pairs.map(|(near, far)| shape.pair(*near, *far)).collect();
    }
    shape.into_tree()
}

/// A power of two of values.
fn folded(shape: &mut Shape, ranks: u32) -> Vec<u32> {
    let rest = ranks - (1 << ranks.ilog2());
    let mut values = Vec::new();
    for pair in 0..rest {
        let (even, odd) = (shape.leaf(2 * pair), shape.leaf(2 * pair + 1));
        values.push(shape.pair(even, odd));
    }
    values.extend((2 * rest..ranks).map(|rank| shape.leaf(rank)));
    values
}
