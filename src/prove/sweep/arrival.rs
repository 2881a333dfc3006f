//! Points whose addends land in any order: a few orders on the whole tensor by the engine, then the
//! ladder element by element.

use std::sync::Arc;

use crate::engine::EngineError;
use crate::numerics::ladder::{Order, OrderClass, Rung, Start, Sum, Verdict, portfolio, prove};
use crate::plan::{Arithmetic, Init};
use crate::world::fold::{FoldJob, FoldLab, FoldNode, FoldOrder};

use super::witness::{self, Variable};
use super::{Outcome, SweepOptions};

/// Orders that the engine tries on the whole tensor before the ladder starts.
const ENGINE_ORDERS_MAX: usize = 8;
/// Single swaps of neighbours that are tried to make a witness small.
const SWAPS_MAX: u32 = 64;

pub(super) fn test(
    options: &SweepOptions,
    node: &FoldNode,
    shrink: bool,
    lab: &mut FoldLab<'_>,
) -> Result<Outcome, EngineError> {
    let writers = writers(node);
    let ascending: Arc<[u32]> = (0..writers).collect();
    let expected = lab.evaluate(node, &FoldOrder::Permutation(ascending.clone()))?;
    let mut tried = 0;
    for permutation in engine_orders(writers, options.seed) {
        tried += 1;
        let got = lab.evaluate(node, &FoldOrder::Permutation(permutation.clone()))?;
        if got != expected {
            return sensitive(options, node, shrink, &expected, permutation, lab);
        }
    }
    climb(options, node, tried, &expected, lab)
}

/// Addends (slots), or rows of the operand (segments): what arrives.
fn writers(node: &FoldNode) -> u32 {
    match &node.job {
        FoldJob::Slots(job) => job.addends.len() as u32,
        FoldJob::Segments(job) => job.rows.words / job.width,
    }
}

/// Orders without a look at the data: reverse, rotations, a few random ones.
fn engine_orders(writers: u32, seed: u64) -> Vec<Arc<[u32]>> {
    let blank = vec![0.0; writers as usize];
    let orders = portfolio(&blank, seed).into_iter().skip(1);
    let mut orders: Vec<Arc<[u32]>> = orders.map(Arc::from).collect();
    if orders.len() > ENGINE_ORDERS_MAX {
        // The portfolio ends with its random orders: keep both ends.
        orders.drain(ENGINE_ORDERS_MAX / 2..orders.len() - ENGINE_ORDERS_MAX / 2);
    }
    orders
}

/// A witness, with its order brought down to one swap of neighbours where one suffices.
fn sensitive(
    options: &SweepOptions,
    node: &FoldNode,
    shrink: bool,
    expected: &[u32],
    permutation: Arc<[u32]>,
    lab: &mut FoldLab<'_>,
) -> Result<Outcome, EngineError> {
    let mut permutation = permutation;
    let mut swap = None;
    let writers = permutation.len() as u32;
    if shrink {
        for place in 0..(writers.saturating_sub(1)).min(SWAPS_MAX) {
            let swapped = swapped_neighbours(writers, place);
            if lab.evaluate(node, &FoldOrder::Permutation(swapped.clone()))? != expected {
                (permutation, swap) = (swapped, Some(place));
                break;
            }
        }
    }
    let ascending: Arc<[u32]> = (0..writers).collect();
    let got = lab.evaluate(node, &FoldOrder::Permutation(permutation.clone()))?;
    let orders = (
        FoldOrder::Permutation(ascending),
        FoldOrder::Permutation(permutation.clone()),
    );
    let variable = Variable::Arrival { permutation, swap };
    let results = (expected.to_vec(), got);
    let finding = witness::finding(options, node, variable, orders, results, lab)?;
    Ok(Outcome::Sensitive(Box::new(finding)))
}

/// Ascending, but for the neighbours at `place` and `place + 1`.
pub(super) fn swapped_neighbours(writers: u32, place: u32) -> Arc<[u32]> {
    let mut order: Vec<u32> = (0..writers).collect();
    order.swap(place as usize, place as usize + 1);
    order.into()
}

/// The ladder on every element; the worst rung is the point's.
fn climb(
    options: &SweepOptions,
    node: &FoldNode,
    tried: u64,
    expected: &[u32],
    lab: &mut FoldLab<'_>,
) -> Result<Outcome, EngineError> {
    let elements = Elements::read(node, lab)?;
    let mut worst = Rung::L0;
    for element in 0..elements.count {
        let (rows, addends) = elements.addends(element);
        let sum = elements.sum(element, &addends);
        match prove(
            &sum,
            OrderClass::Chains,
            options.element_budget,
            options.seed,
        ) {
            Verdict::Proved(rung) => worst = worst.max(rung),
            Verdict::Undecided => worst = Rung::L5,
            Verdict::Different(difference) => {
                for order in [difference.a_order, difference.b_order] {
                    let permutation = whole(&rows, &order, writers(node));
                    let evaluated = FoldOrder::Permutation(permutation.clone());
                    if lab.evaluate(node, &evaluated)? != expected {
                        return sensitive(options, node, true, expected, permutation, lab);
                    }
                }
                unreachable!("the ladder adds as fold.wgsl does, so one of two orders parts");
            }
        }
    }
    Ok(match worst {
        Rung::L5 => Outcome::Sampled { orders: tried },
        rung => Outcome::Proved(rung),
    })
}

/// One element's order as an order of all writers: its own first, in that order.
fn whole(rows: &[u32], order: &Order, writers: u32) -> Arc<[u32]> {
    let Order::Chain(places) = order else {
        unreachable!("chains were asked for")
    };
    let own = places.iter().map(|place| rows[*place as usize]);
    own.chain((0..writers).filter(|row| !rows.contains(row)))
        .collect()
}

/// The addends of each element of a fold.
pub(super) struct Elements {
    pub count: usize,
    words: Vec<Vec<u32>>,
    accumulator: Option<Vec<u32>>,
    arithmetic: Arithmetic,
    /// Segments: the rows of each output row, and the row's width.
    segments: Option<(Vec<Vec<u32>>, usize)>,
}

impl Elements {
    pub fn read(node: &FoldNode, lab: &FoldLab<'_>) -> Result<Self, EngineError> {
        let segments = match &node.job {
            FoldJob::Slots(_) => None,
            FoldJob::Segments(job) => {
                let rows = (0..job.out_rows())
                    .map(|row| job.segment(row, None))
                    .collect();
                Some((rows, job.width as usize))
            }
        };
        Ok(Elements {
            count: node.elements() as usize,
            words: lab.addends(node)?,
            accumulator: lab.accumulator(node)?,
            arithmetic: node.arithmetic(),
            segments,
        })
    }

    /// The writers of an element and their values.
    pub fn addends(&self, element: usize) -> (Vec<u32>, Vec<f32>) {
        let (writers, column): (Vec<u32>, usize) = match &self.segments {
            None => ((0..self.words.len() as u32).collect(), element),
            Some((rows, width)) => (rows[element / width].clone(), element % width),
        };
        let value = |writer: &u32| {
            let x = f32::from_bits(self.words[*writer as usize][column]);
            match self.arithmetic.pre_multiply_bits {
                None => x,
                Some(bits) => self.arithmetic.partial.round(x * f32::from_bits(bits)),
            }
        };
        let values = writers.iter().map(value).collect();
        (writers, values)
    }

    pub fn sum<'a>(&self, element: usize, addends: &'a [f32]) -> Sum<'a> {
        let start = match self.arithmetic.init {
            Init::First => Start::First,
            Init::Zero => Start::Zero,
            Init::Accumulator => {
                let held = self.accumulator.as_ref().expect("an accumulator was read");
                Start::Base(f32::from_bits(held[element]))
            }
        };
        let Arithmetic {
            addend,
            partial,
            out,
            ..
        } = self.arithmetic;
        let addend = if self.arithmetic.pre_multiply_bits.is_some() {
            partial
        } else {
            addend
        };
        Sum {
            addends,
            start,
            addend,
            partial,
            out,
        }
    }
}
