//! A finding made small: the fewest addends of its element for which the two orders still differ.
//!
//! Nothing is run again for this. The element's addends are known, so its sum is evaluated in the
//! orders that the two sides induce on the addends kept. Three values are the least that can
//! differ: an addition commutes.

use crate::numerics::ladder::{Order, Start, Sum, TreeOp};
use crate::plan::{Combine, Op, Tree};
use crate::prove::sweep::{Finding, Side, multiplied, sum_of};

/// Evaluations that a search for the smallest set may cost.
const TRIALS_MAX: u64 = 100_000;

/// Some of a finding's addends, and what both sides make of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Shrunk {
    /// Places in `Finding::addends`, ascending.
    pub places: Vec<usize>,
    /// Over the places in `places`.
    pub sides: [Side; 2],
}

/// The smallest set of addends that still differs, the first of its size; `None` where that is all
/// of them. Where the sets of a size are too many to try, addends are left out one stretch after
/// the other, until none of those kept can be spared alone.
pub fn shrink(finding: &Finding) -> Option<Shrunk> {
    let n = finding.addends.len();
    let all: Vec<usize> = (0..n).collect();
    let sums = |side: &Side| side.arithmetic.combine == Combine::Sum;
    if !finding.sides.iter().all(sums) || kept(finding, &all).is_none() {
        return None;
    }
    // The accumulator's value is one of the three.
    let least = 3 - usize::from(finding.held.is_some());
    if let Some(found) = smallest(finding, &all, least) {
        return Some(found);
    }
    let places = spare_stretches(finding, all, least);
    if places.len() == n {
        return None;
    }
    smallest(finding, &places, least).or_else(|| kept(finding, &places))
}

/// Leaves out stretches of the addends, long ones first, as long as the sides differ.
fn spare_stretches(finding: &Finding, mut places: Vec<usize>, least: usize) -> Vec<usize> {
    let mut length = places.len() / 2;
    while length >= 1 {
        let mut from = 0;
        while from < places.len() {
            let mut fewer = places.clone();
            fewer.drain(from..(from + length).min(places.len()));
            if fewer.len() >= least && kept(finding, &fewer).is_some() {
                places = fewer;
            } else {
                from += length;
            }
        }
        length /= 2;
    }
    places
}

/// The smallest proper subset of `among` that differs, while all of a size can be tried.
fn smallest(finding: &Finding, among: &[usize], least: usize) -> Option<Shrunk> {
    let mut trials = TRIALS_MAX;
    for size in least..among.len() {
        trials = trials.checked_sub(combinations(among.len(), size))?;
        let mut chosen: Vec<usize> = (0..size).collect();
        loop {
            let places: Vec<usize> = chosen.iter().map(|place| among[*place]).collect();
            if let Some(found) = kept(finding, &places) {
                return Some(found);
            }
            if !advance(&mut chosen, among.len()) {
                break;
            }
        }
    }
    None
}

/// Sets of `size` out of `n`, as far as a `u64` counts them.
fn combinations(n: usize, size: usize) -> u64 {
    (0..size as u64).fold(1u64, |count, k| {
        count.saturating_mul(n as u64 - k) / (k + 1)
    })
}

/// The next set of places below `n` in lexicographic order; false after the last.
fn advance(chosen: &mut [usize], n: usize) -> bool {
    let size = chosen.len();
    let Some(place) = (0..size)
        .rev()
        .find(|place| chosen[*place] < n - size + place)
    else {
        return false;
    };
    chosen[place] += 1;
    for later in place + 1..size {
        chosen[later] = chosen[later - 1] + 1;
    }
    true
}

/// Both sides over the addends at `places`, if they differ.
fn kept(finding: &Finding, places: &[usize]) -> Option<Shrunk> {
    let sides = [0, 1].map(|side| restricted(finding, &finding.sides[side], places));
    let [a, b] = &sides;
    (a.result.to_bits() != b.result.to_bits()).then(|| Shrunk {
        places: places.to_vec(),
        sides,
    })
}

/// A side over some of the addends, its result evaluated.
fn restricted(finding: &Finding, side: &Side, places: &[usize]) -> Side {
    let arithmetic = side.arithmetic;
    let tree = induced(&side.tree, places);
    let values = places.iter().map(|place| finding.addends[*place].value);
    let values: Vec<f32> = values.map(|x| multiplied(&arithmetic, x)).collect();
    let sum = sum_of(&arithmetic, finding.held, &values);
    let total = sum.evaluate(&order_of(&sum, &tree));
    let total = total.expect("an induced order names each kept addend once");
    let result = match arithmetic.post_divide_bits {
        Some(bits) => arithmetic.out.round(total / f32::from_bits(bits)),
        None => total,
    };
    Side {
        arithmetic,
        tree,
        result,
    }
}

/// The order that `tree` induces on the addends at `places`, which it then numbers from 0.
fn induced(tree: &Tree, places: &[usize]) -> Tree {
    let number = |addend: u32| places.binary_search(&(addend as usize)).ok();
    match tree {
        Tree::Chain { ring, start } => {
            let (before, after) = ring.split_at(*start as usize);
            let order = after
                .iter()
                .chain(before)
                .filter_map(|addend| number(*addend));
            Tree::Chain {
                ring: order.map(|place| place as u32).collect(),
                start: 0,
            }
        }
        Tree::Ops(ops) => {
            let mut stack: Vec<Vec<Op>> = Vec::new();
            for op in ops.iter() {
                let made = match op {
                    Op::Push(addend) => number(*addend).map(|place| Op::Push(place as u32)),
                    Op::Combine => {
                        let right = stack.pop().expect("a program never pops an empty stack");
                        let left = stack
                            .last_mut()
                            .expect("a program never pops an empty stack");
                        let both = !left.is_empty() && !right.is_empty();
                        left.extend(right);
                        left.extend(both.then_some(Op::Combine));
                        continue;
                    }
                };
                stack.push(made.into_iter().collect());
            }
            Tree::Ops(stack.pop().expect("a program leaves one value").into())
        }
    }
}

/// As the ladder writes orders. `fold.wgsl` adds what a program starts from at its end.
fn order_of(sum: &Sum<'_>, tree: &Tree) -> Order {
    match tree {
        Tree::Chain { ring, .. } => Order::Chain(ring.to_vec()),
        Tree::Ops(ops) => {
            let starts = sum.start != Start::First;
            let op = |op: &Op| match op {
                Op::Push(addend) => TreeOp::Push(*addend),
                Op::Combine => TreeOp::Combine,
            };
            let start = starts.then_some(TreeOp::Start).into_iter();
            let end = starts.then_some(TreeOp::Combine);
            Order::Tree(start.chain(ops.iter().map(op)).chain(end).collect())
        }
    }
}

#[cfg(test)]
mod tests;
