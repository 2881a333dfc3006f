//! The value of a tree on given addends: by the ladder, which a test ties to `fold.wgsl`.

use crate::numerics::ladder::{Order, Start, Sum, TreeOp};
use crate::plan::{Arithmetic, Combine, Init, Op, Tree};

/// A tree that can be evaluated.
#[derive(Clone, Debug)]
pub struct Folded {
    order: Order,
    arithmetic: Arithmetic,
}

impl Folded {
    /// `None` for what is no plain sum: a maximum, a scaled or divided one.
    pub fn new(tree: &Tree, arithmetic: Arithmetic) -> Option<Folded> {
        let is_plain = arithmetic.combine == Combine::Sum
            && arithmetic.init == Init::First
            && arithmetic.pre_multiply_bits.is_none()
            && arithmetic.post_divide_bits.is_none();
        is_plain.then(|| Folded {
            order: order(tree),
            arithmetic,
        })
    }

    /// What is added, whatever the order.
    pub fn sum<'a>(&self, addends: &'a [f32]) -> Sum<'a> {
        Sum {
            addends,
            start: Start::First,
            addend: self.arithmetic.addend,
            partial: self.arithmetic.partial,
            out: self.arithmetic.out,
        }
    }

    /// Each partial sum meets one addend.
    pub fn is_chain(&self) -> bool {
        matches!(self.order, Order::Chain(_))
    }

    /// The bits of the result, as an f32 of the output's type.
    pub fn value(&self, addends: &[f32]) -> u32 {
        let value = self.sum(addends).evaluate(&self.order);
        value.expect("a tree names each addend once").to_bits()
    }
}

fn order(tree: &Tree) -> Order {
    match tree {
        Tree::Chain { .. } => Order::Chain(tree.order_for_chain().expect("a chain has an order")),
        Tree::Ops(ops) => {
            let op = |op: &Op| match *op {
                Op::Push(addend) => TreeOp::Push(addend),
                Op::Combine => TreeOp::Combine,
            };
            Order::Tree(ops.iter().map(op).collect())
        }
    }
}
