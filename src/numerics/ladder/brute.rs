//! Ground truth for the rungs: every order, evaluated the plain way.

use std::collections::BTreeSet;

use super::rung::OrderClass;
use super::sum::{Start, Sum, rounded_add};

/// The bits of every result over a class of orders; stops at `enough` distinct ones.
///
/// Chains: all permutations, depth first. Trees: all ways of replacing two values by their sum
/// until one is left.
pub(super) fn results(sum: &Sum, class: OrderClass, enough: usize) -> BTreeSet<u32> {
    let mut search = Search {
        sum,
        enough,
        found: BTreeSet::new(),
    };
    match (class, sum.start) {
        (OrderClass::Chains, Start::First) => search.chains(None, &mut sum.addends.to_vec(), 0),
        (OrderClass::Chains, Start::Zero) => search.chains(Some(0.0), &mut sum.addends.to_vec(), 0),
        (OrderClass::Chains, Start::Base(base)) => {
            search.chains(Some(base), &mut sum.addends.to_vec(), 0)
        }
        (OrderClass::Trees, start) => {
            let mut values = sum.addends.to_vec();
            match start {
                Start::First => (),
                Start::Zero => values.push(0.0),
                Start::Base(base) => values.push(base),
            }
            search.trees(&values);
        }
    }
    search.found
}

/// Whether every order gives the same bits.
pub(super) fn is_single(sum: &Sum, class: OrderClass) -> bool {
    results(sum, class, 2).len() == 1
}

struct Search<'a> {
    sum: &'a Sum<'a>,
    enough: usize,
    found: BTreeSet<u32>,
}

impl Search<'_> {
    fn finish(&mut self, value: f32) {
        self.found.insert(self.sum.out.round(value).to_bits());
    }

    fn chains(&mut self, partial: Option<f32>, addends: &mut [f32], done: usize) {
        if self.found.len() >= self.enough {
            return;
        }
        if done == addends.len() {
            return self.finish(partial.unwrap_or(0.0));
        }
        for next in done..addends.len() {
            addends.swap(done, next);
            let x = addends[done];
            let sum = partial.map_or(x, |partial| rounded_add(partial, x, self.sum.partial));
            self.chains(Some(sum), addends, done + 1);
            addends.swap(done, next);
        }
    }

    fn trees(&mut self, values: &[f32]) {
        if self.found.len() >= self.enough {
            return;
        }
        if values.len() <= 1 {
            return self.finish(values.first().copied().unwrap_or(0.0));
        }
        for right in 1..values.len() {
            for left in 0..right {
                let mut rest = values.to_vec();
                let (b, a) = (rest.remove(right), rest.remove(left));
                rest.push(rounded_add(a, b, self.sum.partial));
                self.trees(&rest);
            }
        }
    }
}
