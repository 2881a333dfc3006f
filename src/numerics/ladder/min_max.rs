//! L3: the least and the greatest sum over every order of a class, by dynamic programming over
//! subsets, with the two orders that reach them.

use super::conditions::{Conditions, EXACT};
use super::rung::OrderClass;
use super::sum::{Order, Start, Sum, TreeOp};
use crate::numerics::Dtype;
use crate::numerics::bits::total_key;

/// Most values that may be permuted: 12 take 2^12 subsets in chains, 3^12 / 2 splits in trees.
pub const MIN_MAX_ADDENDS: usize = 12;

/// The least and the greatest result over a class of orders, in total order (-0 < +0), as values
/// of the sum's output type. Equal bits prove that every order of the class gives them.
#[derive(Clone, Debug, PartialEq)]
pub struct MinMax {
    pub low: f32,
    pub high: f32,
    pub low_order: Order,
    pub high_order: Order,
}

impl MinMax {
    pub fn is_single(&self) -> bool {
        self.low.to_bits() == self.high.to_bits()
    }
}

/// L3: rounding to nearest is monotone, so addition after rounding is monotone in both operands,
/// and the extreme sum of a set is an extreme of extreme sums of its parts.
///
/// `None` where that does not hold or costs too much: more than 12 values to permute, a value that
/// is not finite, a partial sum that may be infinite in some order.
pub fn l3_min_max(sum: &Sum, class: OrderClass) -> Option<MinMax> {
    l3_under(&EXACT, sum, class)
}

pub(super) fn l3_under(conditions: &Conditions, sum: &Sum, class: OrderClass) -> Option<MinMax> {
    let values = sum.addends.iter().copied().chain(sum.start_value());
    if !sum.is_floating() || !values.clone().all(f32::is_finite) {
        return None;
    }
    let (extremes, low_order, high_order) = match class {
        OrderClass::Chains => {
            let table = Table::of_chains(conditions, sum)?;
            let [low, high] = table.last_addends().map(Order::Chain);
            (table.whole(), low, high)
        }
        OrderClass::Trees => {
            let leaves: Vec<f32> = values.collect();
            let table = Table::of_trees(conditions, sum.partial, &leaves)?;
            let [low, high] = table.splits(sum.addends.len()).map(Order::Tree);
            (table.whole(), low, high)
        }
    };
    let [low, high] = extremes.map(|value| sum.out.round(value));
    Some(MinMax {
        low,
        high,
        low_order,
        high_order,
    })
}

/// What is known of one subset, once for its least and once for its greatest partial sum.
#[derive(Clone, Copy, Debug)]
struct Extreme {
    value: f32,
    /// Chains: the place of the addend added last. Trees: the subset of one operand.
    made_by: u32,
}

/// Extreme partial sums of every subset of the values; bit i of an index stands for value i.
struct Table {
    count: usize,
    low: Vec<Extreme>,
    high: Vec<Extreme>,
}

impl Table {
    fn new(count: usize) -> Option<Table> {
        let empty = Extreme {
            value: 0.0,
            made_by: 0,
        };
        let subsets = 1usize << count.min(MIN_MAX_ADDENDS);
        (count <= MIN_MAX_ADDENDS).then(|| Table {
            count,
            low: vec![empty; subsets],
            high: vec![empty; subsets],
        })
    }

    fn of_chains(conditions: &Conditions, sum: &Sum) -> Option<Table> {
        let mut table = Table::new(sum.addends.len())?;
        if let Some(value) = sum.start_value() {
            (table.low[0].value, table.high[0].value) = (value, value);
        }
        let begins_alone = sum.start == Start::First;
        for subset in 1..table.low.len() {
            let mut span = Span::none(conditions);
            for (last, &x) in sum.addends.iter().enumerate() {
                let before = subset & !(1 << last);
                if before == subset {
                    continue;
                }
                let (low, high) = if before == 0 && begins_alone {
                    (x, x)
                } else {
                    let (low, high) = (table.low[before].value, table.high[before].value);
                    (sum.add(low, x), sum.add(high, x))
                };
                span.include(low, high, last as u32);
            }
            table.set(subset, span)?;
        }
        Some(table)
    }

    fn of_trees(conditions: &Conditions, partial: Dtype, leaves: &[f32]) -> Option<Table> {
        let mut table = Table::new(leaves.len())?;
        for subset in 1..table.low.len() {
            let mut span = Span::none(conditions);
            let lowest = subset & subset.wrapping_neg();
            if subset == lowest {
                let leaf = leaves[subset.trailing_zeros() as usize];
                span.include(leaf, leaf, 0);
            }
            // Addition commutes: the operand that holds the lowest value stands for both orders.
            let rest = subset ^ lowest;
            let mut right = rest;
            while right != 0 {
                let left = subset ^ right;
                let add = |side: &[Extreme]| {
                    super::sum::rounded_add(side[left].value, side[right].value, partial)
                };
                span.include(add(&table.low), add(&table.high), right as u32);
                right = (right - 1) & rest;
            }
            table.set(subset, span)?;
        }
        Some(table)
    }

    /// Records the extremes of one subset; `None` if either is infinite, as then is some partial
    /// sum, and infinities of both signs would meet in a NaN.
    fn set(&mut self, subset: usize, span: Span) -> Option<()> {
        (self.low[subset], self.high[subset]) = (span.low?, span.high?);
        let finite = self.low[subset].value.is_finite() && self.high[subset].value.is_finite();
        finite.then_some(())
    }

    fn whole(&self) -> [f32; 2] {
        [&self.low, &self.high].map(|side| side.last().expect("the empty subset is there").value)
    }

    /// Of a table of chains: the permutations that reach the least and the greatest sum.
    fn last_addends(&self) -> [Vec<u32>; 2] {
        [&self.low, &self.high].map(|side| {
            let mut subset = side.len() - 1;
            let mut order = Vec::with_capacity(self.count);
            while subset != 0 {
                let last = side[subset].made_by;
                order.push(last);
                subset ^= 1 << last;
            }
            order.reverse();
            order
        })
    }

    /// Of a table of trees: the programs that reach the least and the greatest sum. Leaf
    /// `addend_count`, where there is one, is the start.
    fn splits(&self, addend_count: usize) -> [Vec<TreeOp>; 2] {
        [&self.low, &self.high].map(|side| {
            let mut program = Vec::with_capacity(2 * self.count);
            if self.count > 0 {
                emit(side, side.len() - 1, addend_count, &mut program);
            }
            program
        })
    }
}

/// Appends the program of `subset`'s tree: the operand with more leaves first, so that the stack
/// stays at most log2 n + 1 deep.
fn emit(side: &[Extreme], subset: usize, addend_count: usize, program: &mut Vec<TreeOp>) {
    if subset.is_power_of_two() {
        let leaf = subset.trailing_zeros();
        let is_start = leaf as usize == addend_count;
        program.push(if is_start {
            TreeOp::Start
        } else {
            TreeOp::Push(leaf)
        });
        return;
    }
    let right = side[subset].made_by as usize;
    let left = subset ^ right;
    let larger_first = if left.count_ones() >= right.count_ones() {
        [left, right]
    } else {
        [right, left]
    };
    for operand in larger_first {
        emit(side, operand, addend_count, program);
    }
    program.push(TreeOp::Combine);
}

/// The extremes of one subset while its ways are gone through.
struct Span {
    total_order: bool,
    low: Option<Extreme>,
    high: Option<Extreme>,
}

impl Span {
    fn none(conditions: &Conditions) -> Span {
        Span {
            total_order: conditions.total_order,
            low: None,
            high: None,
        }
    }

    fn include(&mut self, low: f32, high: f32, made_by: u32) {
        if self.low.is_none_or(|least| self.less(low, least.value)) {
            self.low = Some(Extreme {
                value: low,
                made_by,
            });
        }
        if self
            .high
            .is_none_or(|greatest| self.less(greatest.value, high))
        {
            self.high = Some(Extreme {
                value: high,
                made_by,
            });
        }
    }

    fn less(&self, a: f32, b: f32) -> bool {
        if self.total_order {
            total_key(a) < total_key(b)
        } else {
            a < b
        }
    }
}
