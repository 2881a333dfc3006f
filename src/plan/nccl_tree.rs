//! NCCL's tree all-reduce: a double binary tree over nodes, a chain inside each node.
//!
//! Read in NCCL 2.30.7 (`graph/trees.cc`, `graph/connect.cc`, `device/all_reduce.h`). A rank folds
//! its own value, then what comes up from its children, in the order of its slots: the next rank of
//! the node's chain first, then other nodes. Chunk sizes and arrival play no part.
//!
//! For averages only a rank's own value can be fused with the first value that comes up. The tree
//! alone does not tell it from a single-rank child's value that comes up later, so a fused average
//! is exact for nodes of several ranks, and for nodes of one rank up to that choice.

use std::collections::BTreeSet;

use crate::plan::Tree;
use crate::plan::shape::Shape;
use crate::topology::TreePattern;

/// Which of the two trees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Half {
    First,
    Second,
}

/// The children of `node` in one of the two trees over `nodes` nodes, child 0 first.
///
/// The second tree is the first one mirrored where the count is even, shifted by one where odd.
pub fn children(node: u32, nodes: u32, half: Half) -> [Option<u32>; 2] {
    assert!(node < nodes, "node {node} of {nodes}");
    match half {
        Half::First => binary_tree(node, nodes),
        Half::Second if nodes.is_multiple_of(2) => {
            binary_tree(nodes - 1 - node, nodes).map(|child| child.map(|child| nodes - 1 - child))
        }
        Half::Second => binary_tree((node + nodes - 1) % nodes, nodes)
            .map(|child| child.map(|child| (child + 1) % nodes)),
    }
}

/// The root of one of the two trees.
pub fn root(nodes: u32, half: Half) -> u32 {
    match half {
        Half::First => 0,
        Half::Second if nodes.is_multiple_of(2) => nodes - 1,
        Half::Second => 1 % nodes,
    }
}

/// `ncclGetBtree`: the lowest set bit of a node is its height.
fn binary_tree(node: u32, nodes: u32) -> [Option<u32>; 2] {
    if node == 0 {
        let highest_below = (nodes > 1).then(|| 1 << (nodes - 1).ilog2());
        return [None, highest_below];
    }
    let mut step = (1 << node.trailing_zeros()) >> 1;
    if step == 0 {
        return [None, None];
    }
    let first = Some(node - step);
    while step > 0 && node + step >= nodes {
        step >>= 1;
    }
    [first, (step > 0).then(|| node + step)]
}

/// One channel's tree. `chains[k]` is node k's chain of group-local ranks, head first; `pattern`
/// says for each node where its children attach.
pub fn all_reduce(chains: &[Vec<u32>], pattern: TreePattern, half: Half) -> Tree {
    let nodes = chains.len() as u32;
    assert!(
        nodes >= 1 && chains.iter().all(|chain| !chain.is_empty()),
        "no node is empty"
    );
    let mut shape = Shape::new();
    // Children before parents: partial sums of nodes, by node.
    let mut partial = vec![0; chains.len()];
    for node in bottom_up(nodes, half) {
        let sums = children(node, nodes, half).map(|child| child.map(|c| partial[c as usize]));
        partial[node as usize] = fold_node(&mut shape, &chains[node as usize], sums, pattern);
    }
    shape.into_tree()
}

/// A tree whose links are known: the children of each rank, in the order of its slots. A rank adds
/// what comes up from them to its own value, in that order.
pub fn recorded(children: &[Vec<u32>]) -> Tree {
    let has_parent: BTreeSet<u32> = children.iter().flatten().copied().collect();
    let ranks = children.len() as u32;
    let root = (0..ranks).find(|rank| !has_parent.contains(rank));
    let mut order = vec![root.expect("a tree has a root")];
    let mut next = 0;
    while next < order.len() {
        order.extend(&children[order[next] as usize]);
        next += 1;
    }
    assert_eq!(
        order.len(),
        children.len(),
        "a tree reaches every rank once"
    );
    let mut shape = Shape::new();
    let mut sums = vec![0; children.len()];
    for rank in order.into_iter().rev() {
        let own = shape.leaf(rank);
        let below = children[rank as usize].iter();
        let mut values = below.map(|child| sums[*child as usize]);
        // The own value stands right of the first: that is the pair that a build may fuse.
        let first = values.next().map_or(own, |first| shape.pair(first, own));
        sums[rank as usize] = values.fold(first, |sum, child| shape.pair(sum, child));
    }
    shape.into_tree()
}

/// Every node after its children.
fn bottom_up(nodes: u32, half: Half) -> Vec<u32> {
    let mut order = vec![root(nodes, half)];
    let mut next = 0;
    while next < order.len() {
        order.extend(children(order[next], nodes, half).into_iter().flatten());
        next += 1;
    }
    assert_eq!(
        order.len(),
        nodes as usize,
        "a tree reaches every node once"
    );
    order.reverse();
    order
}

/// A node's chain from its tail up, with the sums of its child nodes where they attach.
fn fold_node(
    shape: &mut Shape,
    chain: &[u32],
    sums: [Option<u32>; 2],
    pattern: TreePattern,
) -> u32 {
    let second = 1.min(chain.len() - 1);
    let attach = match pattern {
        TreePattern::Balanced => [second, 0],
        TreePattern::Split => [second, second],
        TreePattern::Tree => [0, 0],
    };
    let mut below = None;
    for (place, rank) in chain.iter().enumerate().rev() {
        // The right operand of two leaves is the one that a fused build multiplies: the own value.
        let mut sum = match below {
            None => shape.leaf(*rank),
            Some(below) => {
                let own = shape.leaf(*rank);
                shape.pair(below, own)
            }
        };
        let here = (0..2)
            .filter(|child| attach[*child] == place)
            .filter_map(|child| sums[child]);
        for child in here {
            sum = match below {
                Some(_) => shape.pair(sum, child),
                None => shape.pair(child, sum),
            };
        }
        below = Some(sum);
    }
    below.expect("a chain has a head")
}
