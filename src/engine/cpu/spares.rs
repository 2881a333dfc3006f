//! Memory of released arenas, for the next ones: a check runs one world many times, and pages that
//! are given back to the system come back cold.

use std::collections::BTreeMap;

/// Arenas of fewer words are not worth keeping, of more too much to keep.
const WORDS: std::ops::RangeInclusive<usize> = 1 << 10..=1 << 20;

/// Empty vectors by capacity in words.
#[derive(Default)]
pub(super) struct Spares(BTreeMap<usize, Vec<Vec<u32>>>);

impl Spares {
    pub fn give(&mut self, mut words: Vec<u32>) {
        if WORDS.contains(&words.capacity()) {
            words.clear();
            self.0.entry(words.capacity()).or_default().push(words);
        }
    }

    /// An empty vector with room for `words`, and for not more than twice as many.
    pub fn take(&mut self, words: usize) -> Option<Vec<u32>> {
        let (capacity, stack) = self.0.range_mut(words..=words.saturating_mul(2)).next()?;
        let capacity = *capacity;
        let spare = stack.pop();
        if stack.is_empty() {
            self.0.remove(&capacity);
        }
        spare
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spare_fits_and_is_empty() {
        let mut spares = Spares::default();
        let mut words = Vec::with_capacity(5_000);
        words.resize(4_000, 7);
        spares.give(words);
        spares.give(Vec::with_capacity(16));
        spares.give(Vec::with_capacity(1 << 21));
        assert!(spares.take(8).is_none(), "a small one was kept");
        assert!(spares.take(1 << 21).is_none(), "a large one was kept");
        assert!(spares.take(6_000).is_none(), "too large a need");
        assert!(spares.take(2_000).is_none(), "too small a need");
        let spare = spares.take(4_500).expect("it fits");
        assert!(spare.is_empty() && spare.capacity() >= 4_500);
        assert!(spares.take(4_500).is_none(), "given twice");
    }
}
