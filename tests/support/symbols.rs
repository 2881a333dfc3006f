//! A sum in which operands commute and nothing else holds: equal symbols, equal bits.

use std::collections::BTreeMap;

/// Interned expressions. Symbols below the addend count are the addends themselves.
#[derive(Default)]
pub struct Symbols {
    pairs: BTreeMap<(u32, u32), u32>,
}

const FIRST_PAIR: u32 = 1 << 20;

impl Symbols {
    pub fn add(&mut self, a: u32, b: u32) -> u32 {
        self.ordered(a.min(b), a.max(b))
    }

    /// A pair whose operands keep their places.
    pub fn ordered(&mut self, a: u32, b: u32) -> u32 {
        let next = FIRST_PAIR + self.pairs.len() as u32;
        *self.pairs.entry((a, b)).or_insert(next)
    }
}
