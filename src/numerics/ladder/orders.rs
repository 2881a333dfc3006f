//! Orders to try: a portfolio that exposes most sums, and every order of a class by number.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use super::rung::OrderClass;
use super::sum::{Order, Start, Sum, TreeOp};
use crate::numerics::bits::total_key;

/// Ring rotations in a portfolio, spread evenly: all of them for up to this many addends.
const ROTATIONS: usize = 16;
/// Seeded random permutations in a portfolio: the draws that `sampling_bound` may count.
pub const RANDOM_ORDERS: u64 = 4;

/// Permutations of the addends worth trying, none twice: the reference order, its reverse, both
/// sign partitions, ring rotations, and a few random ones drawn by ChaCha8 from `seed`.
pub fn portfolio(addends: &[f32], seed: u64) -> Vec<Vec<u32>> {
    let reference: Vec<u32> = (0..addends.len() as u32).collect();
    let mut orders = vec![reference.clone(), reference.iter().rev().copied().collect()];
    orders.extend(sign_partition(addends));
    let rotations = addends.len().min(ROTATIONS);
    for turn in 1..rotations {
        let mut ring = reference.clone();
        ring.rotate_left(turn * addends.len() / rotations);
        orders.push(ring);
    }
    orders.extend((0..RANDOM_ORDERS).map(|draw| random_order(addends.len(), seed, draw)));
    without_repeats(orders)
}

fn without_repeats(orders: Vec<Vec<u32>>) -> Vec<Vec<u32>> {
    let mut distinct: Vec<Vec<u32>> = Vec::with_capacity(orders.len());
    for order in orders {
        if !distinct.contains(&order) {
            distinct.push(order);
        }
    }
    distinct
}

/// All positive addends descending, then the negative ones from the largest magnitude; and the
/// mirror image. They make partial sums, and so their rounding, as large as they get, and expose
/// nearly exact sums that random orders miss.
pub fn sign_partition(addends: &[f32]) -> [Vec<u32>; 2] {
    let magnitude_descending = |negative: bool| {
        let mut part: Vec<u32> = (0..addends.len() as u32)
            .filter(|&i| addends[i as usize].is_sign_negative() == negative)
            .collect();
        part.sort_by_key(|&i| std::cmp::Reverse(total_key(addends[i as usize].abs())));
        part
    };
    let [positive, negative] = [false, true].map(magnitude_descending);
    [
        [&positive[..], &negative].concat(),
        [&negative[..], &positive].concat(),
    ]
}

/// A permutation of `0..count`, each as likely but for a bias below `count` / 2^64 (Fisher-Yates).
pub fn random_order(count: usize, seed: u64, draw: u64) -> Vec<u32> {
    let mut generator = ChaCha8Rng::seed_from_u64(seed);
    generator.set_stream(draw);
    let mut order: Vec<u32> = (0..count as u32).collect();
    for end in (1..count).rev() {
        let place = (u128::from(generator.next_u64()) * (end as u128 + 1)) >> 64;
        order.swap(end, place as usize);
    }
    order
}

/// How many orders of a class a sum has, trees up to the order of operands; `None` above u64.
pub fn order_count(sum: &Sum, class: OrderClass) -> Option<u64> {
    match class {
        OrderClass::Chains => (1..=sum.addends.len() as u64).try_fold(1u64, u64::checked_mul),
        OrderClass::Trees => {
            let leaves = leaf_count(sum) as u64;
            (1..leaves).try_fold(1u64, |count, leaf| count.checked_mul(2 * leaf - 1))
        }
    }
}

fn leaf_count(sum: &Sum) -> usize {
    sum.addends.len() + usize::from(sum.start != Start::First)
}

/// Order `number` of a class, below `order_count`.
pub(super) fn nth_order(sum: &Sum, class: OrderClass, number: u64) -> Order {
    match class {
        OrderClass::Chains => Order::Chain(nth_permutation(sum.addends.len(), number)),
        OrderClass::Trees => Order::Tree(nth_tree(leaf_count(sum), sum.addends.len(), number)),
    }
}

/// `number` in the factorial number system picks each place from what is left.
fn nth_permutation(count: usize, mut number: u64) -> Vec<u32> {
    let mut left: Vec<u32> = (0..count as u32).collect();
    (0..count)
        .map(|_| {
            let choices = left.len() as u64;
            let pick = number % choices;
            number /= choices;
            left.remove(pick as usize)
        })
        .collect()
}

/// A tree with `k` leaves has `2k - 1` edges, the one above its root included; leaf `k` is put on
/// one of them. A digit of `number` for each leaf thus gives each tree once.
fn nth_tree(leaves: usize, addend_count: usize, mut number: u64) -> Vec<TreeOp> {
    let mut nodes: Vec<Node> = Vec::with_capacity(2 * leaves);
    let mut root = 0;
    for leaf in 0..leaves {
        let edges = nodes.len() as u64;
        nodes.push(Node::Leaf(leaf));
        if leaf == 0 {
            continue;
        }
        let below = (number % edges) as usize;
        number /= edges;
        let (new_leaf, inner) = (nodes.len() - 1, nodes.len());
        for node in &mut nodes {
            node.replace(below, inner);
        }
        nodes.push(Node::Inner(below, new_leaf));
        if below == root {
            root = inner;
        }
    }
    let mut program = Vec::with_capacity(nodes.len());
    if leaves > 0 {
        emit(&nodes, root, addend_count, &mut program);
    }
    program
}

enum Node {
    Leaf(usize),
    Inner(usize, usize),
}

impl Node {
    fn replace(&mut self, old: usize, new: usize) {
        if let Node::Inner(left, right) = self {
            for operand in [left, right] {
                if *operand == old {
                    *operand = new;
                }
            }
        }
    }
}

fn emit(nodes: &[Node], node: usize, addend_count: usize, program: &mut Vec<TreeOp>) {
    match nodes[node] {
        Node::Leaf(leaf) if leaf == addend_count => program.push(TreeOp::Start),
        Node::Leaf(leaf) => program.push(TreeOp::Push(leaf as u32)),
        Node::Inner(left, right) => {
            emit(nodes, left, addend_count, program);
            emit(nodes, right, addend_count, program);
            program.push(TreeOp::Combine);
        }
    }
}

/// A left fold over `permutation` as a stack program.
pub(super) fn chain_as_tree(sum: &Sum, permutation: &[u32]) -> Vec<TreeOp> {
    let start = (sum.start != Start::First).then_some(TreeOp::Start);
    let mut program = Vec::with_capacity(2 * permutation.len() + 1);
    for leaf in start
        .into_iter()
        .chain(permutation.iter().map(|&i| TreeOp::Push(i)))
    {
        program.push(leaf);
        if program.len() > 1 {
            program.push(TreeOp::Combine);
        }
    }
    program
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::numerics::Dtype;

    fn sum(addends: &[f32], start: Start) -> Sum<'_> {
        Sum {
            addends,
            start,
            addend: Dtype::F32,
            partial: Dtype::F32,
            out: Dtype::F32,
        }
    }

    #[test]
    fn every_number_is_another_order() {
        let addends = [1.0, 2.0, 3.0, 4.0, 5.0];
        for (start, trees) in [
            (Start::First, 105),
            (Start::Base(1.0), 945),
            (Start::Zero, 945),
        ] {
            let sum = sum(&addends, start);
            for (class, expected) in [(OrderClass::Chains, 120), (OrderClass::Trees, trees)] {
                let count = order_count(&sum, class).unwrap();
                assert_eq!(count, expected);
                let orders: Vec<Order> = (0..count).map(|k| nth_order(&sum, class, k)).collect();
                assert!(orders.iter().all(|order| sum.evaluate(order).is_some()));
                let distinct: BTreeSet<String> = orders.iter().map(shape).collect();
                assert_eq!(distinct.len() as u64, count);
            }
        }
    }

    /// A chain, or a tree with the operands of each addition sorted.
    fn shape(order: &Order) -> String {
        let Order::Tree(ops) = order else {
            return format!("{order:?}");
        };
        let mut stack: Vec<String> = Vec::new();
        for op in ops {
            let text = match op {
                TreeOp::Combine => {
                    let mut pair = [stack.pop().unwrap(), stack.pop().unwrap()];
                    pair.sort();
                    format!("({} {})", pair[0], pair[1])
                }
                leaf => format!("{leaf:?}"),
            };
            stack.push(text);
        }
        stack.concat()
    }

    #[test]
    fn portfolio_holds_the_named_orders() {
        let addends = [1.0, -2.0, 3.0, -4.0, 5.0];
        let orders = portfolio(&addends, 7);
        assert_eq!(orders[0], [0, 1, 2, 3, 4]);
        assert_eq!(orders[1], [4, 3, 2, 1, 0]);
        assert_eq!(orders[2], [4, 2, 0, 3, 1]);
        assert_eq!(orders[3], [3, 1, 4, 2, 0]);
        assert!((1..5).all(|turn| {
            let ring: Vec<u32> = (0..5).map(|i| (i + turn) % 5).collect();
            orders.contains(&ring)
        }));
        assert!(orders.len() > 8 && orders.len() <= 12);
        assert_eq!(orders, portfolio(&addends, 7));
        assert_ne!(orders, portfolio(&addends, 8));
        for order in &orders {
            assert!(
                sum(&addends, Start::First)
                    .evaluate(&Order::Chain(order.clone()))
                    .is_some()
            );
        }
    }

    #[test]
    fn portfolios_of_few_and_of_many() {
        assert_eq!(portfolio(&[], 0), [Vec::<u32>::new()]);
        assert_eq!(portfolio(&[1.0], 0), [vec![0]]);
        let many = vec![1.0; 2432];
        assert!(portfolio(&many, 0).len() <= 4 + ROTATIONS + RANDOM_ORDERS as usize);
    }
}
