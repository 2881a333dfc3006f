//! A tree as linked nodes: what builders assemble, and what hashes and expressions walk.

use std::sync::Arc;

use crate::plan::{Op, Tree};

/// A node; the numbers of a pair are those of its operands, both lower than its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Node {
    Leaf(u32),
    Pair(u32, u32),
}

/// The nodes of one tree, operands before results. The last one is the root.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shape {
    nodes: Vec<Node>,
}

impl Shape {
    pub(crate) fn new() -> Shape {
        Shape::default()
    }

    pub(crate) fn leaf(&mut self, addend: u32) -> u32 {
        self.push(Node::Leaf(addend))
    }

    pub(crate) fn pair(&mut self, left: u32, right: u32) -> u32 {
        let made = self.nodes.len() as u32;
        assert!(
            left < made && right < made,
            "operands come before their result"
        );
        self.push(Node::Pair(left, right))
    }

    fn push(&mut self, node: Node) -> u32 {
        self.nodes.push(node);
        self.nodes.len() as u32 - 1
    }

    /// The nodes of a program. The program must be valid (`Tree::check`).
    pub(crate) fn of_program(ops: &[Op]) -> Shape {
        let mut shape = Shape::new();
        let mut stack = Vec::new();
        for op in ops {
            let node = match *op {
                Op::Push(addend) => shape.leaf(addend),
                Op::Combine => {
                    let right = stack.pop().expect("a program never pops an empty stack");
                    let left = stack.pop().expect("a program never pops an empty stack");
                    shape.pair(left, right)
                }
            };
            stack.push(node);
        }
        assert_eq!(stack.len(), 1, "a program leaves one value");
        shape
    }

    pub(crate) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    pub(crate) fn root(&self) -> u32 {
        assert!(!self.nodes.is_empty(), "a tree has at least one addend");
        self.nodes.len() as u32 - 1
    }

    fn is_leaf(&self, node: u32) -> bool {
        matches!(self.nodes[node as usize], Node::Leaf(_))
    }

    /// The order of a left fold that is the same tree up to commuted operands, if there is one:
    /// every pair must have a leaf. Of a pair of two leaves the left one comes first.
    pub(crate) fn chain_order(&self) -> Option<Vec<u32>> {
        let mut order = Vec::new();
        let mut at = self.root();
        loop {
            match self.nodes[at as usize] {
                Node::Leaf(addend) => {
                    order.push(addend);
                    order.reverse();
                    return Some(order);
                }
                Node::Pair(left, right) => {
                    let (rest, last) = match (self.is_leaf(left), self.is_leaf(right)) {
                        (_, true) => (left, right),
                        (true, false) => (right, left),
                        (false, false) => return None,
                    };
                    let Node::Leaf(addend) = self.nodes[last as usize] else {
                        unreachable!()
                    };
                    order.push(addend);
                    at = rest;
                }
            }
        }
    }

    /// The tree: a chain where that is possible, else a program of least depth.
    ///
    /// Operands are swapped where that saves stack (Sethi and Ullman, 1970): the depth is at most
    /// floor(log2 n) + 1. Two leaves that meet keep their order.
    pub(crate) fn into_tree(self) -> Tree {
        match self.chain_order() {
            Some(order) => Tree::Chain {
                ring: order.into(),
                start: 0,
            },
            None => Tree::Ops(self.program()),
        }
    }

    fn program(&self) -> Arc<[Op]> {
        let need = self.stack_need();
        let mut ops = Vec::with_capacity(self.nodes.len());
        let mut open = vec![(self.root(), false)];
        while let Some((at, operands_done)) = open.pop() {
            match self.nodes[at as usize] {
                Node::Leaf(addend) => ops.push(Op::Push(addend)),
                Node::Pair(..) if operands_done => ops.push(Op::Combine),
                Node::Pair(left, right) => {
                    open.push((at, true));
                    let right_first = need[right as usize] > need[left as usize];
                    let (first, second) = if right_first {
                        (right, left)
                    } else {
                        (left, right)
                    };
                    open.push((second, false));
                    open.push((first, false));
                }
            }
        }
        ops.into()
    }

    /// Stack words that each node's evaluation needs when the needier operand goes first.
    fn stack_need(&self) -> Vec<u32> {
        let mut need: Vec<u32> = Vec::with_capacity(self.nodes.len());
        for node in &self.nodes {
            need.push(match *node {
                Node::Leaf(_) => 1,
                Node::Pair(left, right) => {
                    let (left, right) = (need[left as usize], need[right as usize]);
                    if left == right {
                        left + 1
                    } else {
                        left.max(right)
                    }
                }
            });
        }
        need
    }
}
