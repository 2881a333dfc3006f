//! One sum, the orders it may take, and its value in a given order.

use crate::numerics::Dtype;

/// What stands before the addends.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Start {
    /// Nothing: the first addend of the order is the first partial sum.
    First,
    /// A proven +0. Differs from `First` in the sign of a zero result.
    Zero,
    /// The value already in the accumulator, which counts as an addend.
    Base(f32),
}

/// The addends of one element, and the arithmetic that adds them.
///
/// An addend is taken as it is: only sums are rounded to `partial`. A node that rounds its addends
/// on the way in, or scales them, gives the values after that.
#[derive(Clone, Copy, Debug)]
pub struct Sum<'a> {
    /// Values of type `addend`, held exactly in f32.
    pub addends: &'a [f32],
    pub start: Start,
    pub addend: Dtype,
    /// The type every sum of two is rounded to.
    pub partial: Dtype,
    /// The type of the result, rounded to once at the end. L2 to L4 speak of the sum after that
    /// rounding: a fold that divides its finished sum first must give `partial` here.
    pub out: Dtype,
}

/// One order of a sum. Addends are named by their place in `Sum::addends`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Order {
    /// A left fold: the start, then the addends in this order.
    Chain(Vec<u32>),
    /// A stack program that leaves one value.
    Tree(Vec<TreeOp>),
}

/// One step of a stack program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TreeOp {
    /// Push addend `i`.
    Push(u32),
    /// Push what the sum starts from. Absent where it starts from its first addend.
    Start,
    /// Pop two values, push their rounded sum.
    Combine,
}

/// `a + b` in f32, rounded to `partial`: the only addition of the host that stands for a kernel's.
///
/// For bf16 and f16 operands this equals one correctly rounded addition in that type, as f32 has
/// more than twice their precision plus two bits (Figueroa, "When is double rounding innocuous?").
pub fn rounded_add(a: f32, b: f32, partial: Dtype) -> f32 {
    partial.round(a + b)
}

impl Sum<'_> {
    /// Number of values added: the addends, and the accumulator's where there is one.
    pub fn count(&self) -> usize {
        self.addends.len() + usize::from(self.base().is_some())
    }

    /// The accumulator's value.
    pub(super) fn base(&self) -> Option<f32> {
        match self.start {
            Start::Base(base) => Some(base),
            Start::First | Start::Zero => None,
        }
    }

    /// The value before the addends, if there is one.
    pub(super) fn start_value(&self) -> Option<f32> {
        match self.start {
            Start::First => None,
            Start::Zero => Some(0.0),
            Start::Base(base) => Some(base),
        }
    }

    /// The values that count: the accumulator's and the addends.
    pub(super) fn counted(&self) -> impl Iterator<Item = f32> + Clone + '_ {
        self.base().into_iter().chain(self.addends.iter().copied())
    }

    pub(super) fn add(&self, a: f32, b: f32) -> f32 {
        rounded_add(a, b, self.partial)
    }

    /// Whether all three types are floating-point: integers wrap, and need no ladder.
    pub(super) fn is_floating(&self) -> bool {
        ![self.addend, self.partial, self.out].contains(&Dtype::U32)
    }

    /// The result in `order`, rounded to `out`; NaNs are canonical. An empty sum is +0.
    ///
    /// `None` if the order does not name each addend (and, in a tree, the start) exactly once.
    pub fn evaluate(&self, order: &Order) -> Option<f32> {
        match order {
            Order::Chain(permutation) => {
                is_permutation(permutation, self.addends.len()).then(|| self.chain(permutation))
            }
            Order::Tree(ops) => self.tree(ops),
        }
    }

    /// The result of a left fold over `permutation`, which names each addend once.
    pub(super) fn chain(&self, permutation: &[u32]) -> f32 {
        let addends = permutation.iter().map(|&i| self.addends[i as usize]);
        let sum = match self.start_value() {
            Some(start) => addends.fold(start, |sum, x| self.add(sum, x)),
            None => addends.reduce(|sum, x| self.add(sum, x)).unwrap_or(0.0),
        };
        self.out.round(sum)
    }

    fn tree(&self, ops: &[TreeOp]) -> Option<f32> {
        let mut stack = Vec::new();
        let mut leaves = Vec::new();
        let mut starts = 0;
        for &op in ops {
            let value = match op {
                TreeOp::Push(i) => {
                    leaves.push(i);
                    *self.addends.get(i as usize)?
                }
                TreeOp::Start => {
                    starts += 1;
                    self.start_value()?
                }
                TreeOp::Combine => {
                    let right = stack.pop()?;
                    let left = stack.pop()?;
                    self.add(left, right)
                }
            };
            stack.push(value);
        }
        let complete = is_permutation(&leaves, self.addends.len())
            && starts == usize::from(self.start_value().is_some());
        match (stack[..].first(), stack.len()) {
            (Some(&root), 1) if complete => Some(self.out.round(root)),
            (None, _) if complete => Some(0.0),
            _ => None,
        }
    }
}

fn is_permutation(order: &[u32], count: usize) -> bool {
    let mut seen = vec![false; count];
    order.len() == count
        && order.iter().all(|&i| {
            seen.get_mut(i as usize)
                .is_some_and(|place| !std::mem::replace(place, true))
        })
}
