//! Reading a tree: its addends, its validity, its order, its expression.

use std::borrow::Cow;
use std::fmt::Write;

use crate::numerics::Dtype;
use crate::plan::shape::{Node, Shape};
use crate::plan::{Arithmetic, Combine, Init, Op, Plan, Tree};

/// Why a tree or plan does not describe a reduction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidPlan {
    #[error("addend {addend} is used twice")]
    Twice { addend: u32 },
    #[error("{used} of {expected} addends are used")]
    Missing { used: u32, expected: u32 },
    #[error("addend {addend} of a tree of {expected}")]
    OutOfRange { addend: u32, expected: u32 },
    #[error("a program that pops an empty stack or leaves more than one value")]
    BrokenProgram,
    #[error("a stack of {depth} where {limit} suffice")]
    TooDeep { depth: u32, limit: u32 },
    #[error("a chain that starts at position {start} of {len}")]
    BadStart { start: u32, len: u32 },
    #[error("pieces leave a gap, overlap or do not end at element {elements}")]
    BadCover { elements: u64 },
}

impl Tree {
    /// A left fold over addends `0..count` in ascending order.
    pub fn ascending(count: u32) -> Tree {
        Tree::Chain {
            ring: (0..count).collect(),
            start: 0,
        }
    }

    /// How many addends the tree has.
    pub fn addend_count(&self) -> u32 {
        match self {
            Tree::Chain { ring, .. } => ring.len() as u32,
            Tree::Ops(ops) => ops.iter().filter(|op| matches!(op, Op::Push(_))).count() as u32,
        }
    }

    /// Folds the tree in any algebra: `leaf` gives an addend's value, `combine` joins two in the
    /// tree's order. Panics on an invalid tree (`check` finds those).
    pub fn fold<T>(&self, mut leaf: impl FnMut(u32) -> T, mut combine: impl FnMut(T, T) -> T) -> T {
        match self {
            Tree::Chain { ring, start } => {
                let (before, from) = ring.split_at(*start as usize);
                let mut order = from.iter().chain(before).copied();
                let first = leaf(order.next().expect("a tree has at least one addend"));
                order.fold(first, |partial, addend| combine(partial, leaf(addend)))
            }
            Tree::Ops(ops) => {
                let mut stack = Vec::new();
                for op in ops.iter() {
                    let value = match *op {
                        Op::Push(addend) => leaf(addend),
                        Op::Combine => {
                            let right = stack.pop().expect("two values to combine");
                            let left = stack.pop().expect("two values to combine");
                            combine(left, right)
                        }
                    };
                    stack.push(value);
                }
                stack.pop().expect("a program leaves one value")
            }
        }
    }

    /// The order of the left fold that the tree is, up to commuted operands; `None` for a tree
    /// in which two partial sums meet.
    pub fn order_for_chain(&self) -> Option<Vec<u32>> {
        match self {
            Tree::Chain { ring, start } => {
                let (before, from) = ring.split_at(*start as usize);
                Some([from, before].concat())
            }
            Tree::Ops(ops) => Shape::of_program(ops).chain_order(),
        }
    }

    /// Each of `addends` exactly once, in a program whose stack stays within log2 n + 2.
    pub fn check(&self, addends: u32) -> Result<(), InvalidPlan> {
        let mut seen = vec![false; addends as usize];
        let mut used = 0;
        let mut see = |addend: u32| match seen.get_mut(addend as usize) {
            None => Err(InvalidPlan::OutOfRange {
                addend,
                expected: addends,
            }),
            Some(true) => Err(InvalidPlan::Twice { addend }),
            Some(unseen) => {
                *unseen = true;
                used += 1;
                Ok(())
            }
        };
        match self {
            Tree::Chain { ring, start } => {
                let len = ring.len() as u32;
                if *start >= len {
                    return Err(InvalidPlan::BadStart { start: *start, len });
                }
                ring.iter().try_for_each(|addend| see(*addend))?;
            }
            Tree::Ops(ops) => check_program(ops, addends, &mut see)?,
        }
        if used != addends {
            return Err(InvalidPlan::Missing {
                used,
                expected: addends,
            });
        }
        Ok(())
    }

    /// The tree in parentheses, one pair for each rounded partial result.
    pub fn expression(&self, name: &dyn Fn(u32) -> String) -> String {
        render(self, name, "", " + ")
    }
}

fn check_program(
    ops: &[Op],
    addends: u32,
    see: &mut impl FnMut(u32) -> Result<(), InvalidPlan>,
) -> Result<(), InvalidPlan> {
    let limit = addends.max(1).ilog2() + 2;
    let mut depth = 0u32;
    let mut deepest = 0;
    for op in ops {
        match *op {
            Op::Push(addend) => {
                see(addend)?;
                depth += 1;
                deepest = deepest.max(depth);
            }
            Op::Combine if depth < 2 => return Err(InvalidPlan::BrokenProgram),
            Op::Combine => depth -= 1,
        }
    }
    if depth != 1 {
        return Err(InvalidPlan::BrokenProgram);
    }
    if deepest > limit {
        return Err(InvalidPlan::TooDeep {
            depth: deepest,
            limit,
        });
    }
    Ok(())
}

impl Arithmetic {
    /// `tree` with every rounding point by name: `bf16(bf16(x0 + x1) + x2)`.
    ///
    /// Partial results in `f32` are bare parentheses. A pre-multiply shows at each addend, a start
    /// value and a post-divide where they act.
    pub fn expression(&self, tree: &Tree, name: &dyn Fn(u32) -> String) -> String {
        let addend = |index: u32| match self.pre_multiply_bits {
            None => Cow::from(name(index)),
            Some(bits) => format!("({} * {:?})", name(index), f32::from_bits(bits)).into(),
        };
        let first = first_addend(tree);
        let start = match self.init {
            Init::First => None,
            Init::Zero => Some("+0"),
            Init::Accumulator => Some("out"),
        };
        let rounding = match self.partial {
            Dtype::F32 => String::new(),
            other => other.to_string(),
        };
        let (round, join) = match self.combine {
            Combine::Sum => (rounding, " + "),
            Combine::Max => ("max".to_owned(), ", "),
        };
        let leaf = |index: u32| match start {
            Some(start) if index == first => {
                format!("{round}({start}{join}{})", addend(index))
            }
            _ => addend(index).into_owned(),
        };
        let mut text = render(tree, &leaf, &round, join);
        if let Some(bits) = self.post_divide_bits {
            text = format!("{text} / {:?}", f32::from_bits(bits));
        }
        let rounds_again = self.out != self.partial || self.post_divide_bits.is_some();
        if rounds_again && self.out != Dtype::F32 {
            text = format!("{}({text})", self.out);
        }
        text
    }
}

/// The addend that a fold reads first, and that a start value stands before.
pub(crate) fn first_addend(tree: &Tree) -> u32 {
    match tree {
        Tree::Chain { ring, start } => ring[*start as usize],
        Tree::Ops(ops) => match ops[0] {
            Op::Push(addend) => addend,
            Op::Combine => unreachable!("a program starts with a push"),
        },
    }
}

/// Writes the tree without recursion: a chain of thousands is as deep as it is long.
fn render(tree: &Tree, name: &dyn Fn(u32) -> String, round: &str, join: &str) -> String {
    let mut text = String::new();
    match tree {
        Tree::Chain { .. } => {
            let order = tree.order_for_chain().expect("a chain has an order");
            for _ in 1..order.len() {
                text.push_str(round);
                text.push('(');
            }
            text.push_str(&name(order[0]));
            for addend in &order[1..] {
                write!(text, "{join}{})", name(*addend)).expect("a String takes all text");
            }
        }
        Tree::Ops(ops) => {
            let shape = Shape::of_program(ops);
            let mut open = vec![Part::Node(shape.root())];
            while let Some(part) = open.pop() {
                match part {
                    Part::Text(piece) => text.push_str(piece),
                    Part::Node(at) => match shape.nodes()[at as usize] {
                        Node::Leaf(addend) => text.push_str(&name(addend)),
                        Node::Pair(left, right) => {
                            text.push_str(round);
                            text.push('(');
                            open.push(Part::Text(")"));
                            open.push(Part::Node(right));
                            open.push(Part::Text(join));
                            open.push(Part::Node(left));
                        }
                    },
                }
            }
        }
    }
    text
}

enum Part<'a> {
    Text(&'a str),
    Node(u32),
}

impl Plan {
    /// The tree of one element. Panics where `element` is not below `element_count`.
    pub fn tree_at(&self, element: u64) -> &Tree {
        assert!(
            element < self.element_count,
            "element {element} of {}",
            self.element_count
        );
        let after = self
            .pieces
            .partition_point(|piece| piece.range.end <= element);
        &self.pieces[after].tree
    }

    /// One element's expression with its rounding points.
    pub fn expression_at(&self, element: u64, name: &dyn Fn(u32) -> String) -> String {
        self.arithmetic.expression(self.tree_at(element), name)
    }

    /// Pieces cover the elements once and in order, and each tree is valid.
    pub fn check(&self) -> Result<(), InvalidPlan> {
        let broken = InvalidPlan::BadCover {
            elements: self.element_count,
        };
        let mut end = 0;
        for piece in &self.pieces {
            if piece.range.start != end || piece.range.is_empty() {
                return Err(broken);
            }
            end = piece.range.end;
            piece.tree.check(self.addend_count)?;
        }
        if end == self.element_count {
            Ok(())
        } else {
            Err(broken)
        }
    }
}
