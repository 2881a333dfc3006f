//! Values over ranges of words: disjoint, ascending, each range with one value.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// Start -> (end, value). Ranges never overlap; equal neighbours are not joined.
#[derive(Clone, Debug)]
pub(crate) struct Intervals<T>(BTreeMap<u32, (u32, T)>);

impl<T> Default for Intervals<T> {
    fn default() -> Self {
        Intervals(BTreeMap::new())
    }
}

impl<T: Clone> Intervals<T> {
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Removes what lies in `from..to`, clipped to it, and returns it in ascending order.
    pub fn take(&mut self, from: u32, to: u32) -> Vec<(u32, u32, T)> {
        if from >= to {
            return Vec::new();
        }
        // Most accesses are of the words of the one before.
        if let Entry::Occupied(whole) = self.0.entry(from)
            && whole.get().0 == to
        {
            return vec![(from, to, whole.remove().1)];
        }
        self.cut(from);
        self.cut(to);
        let starts: Vec<u32> = self.0.range(from..to).map(|(start, _)| *start).collect();
        starts
            .into_iter()
            .filter_map(|start| {
                self.0
                    .remove(&start)
                    .map(|(end, value)| (start, end, value))
            })
            .collect()
    }

    /// `from..to` takes `value`, whatever was there.
    pub fn set(&mut self, from: u32, to: u32, value: T) {
        if from >= to {
            return;
        }
        match self.0.entry(from) {
            Entry::Occupied(mut whole) if whole.get().0 == to => whole.get_mut().1 = value,
            _ => {
                self.take(from, to);
                self.0.insert(from, (to, value));
            }
        }
    }

    /// The value of a range that is just this one.
    pub fn get_mut(&mut self, from: u32, to: u32) -> Option<&mut T> {
        let (end, value) = self.0.get_mut(&from)?;
        (*end == to).then_some(value)
    }

    /// What lies in `from..to`, clipped to it, in ascending order.
    pub fn within(&self, from: u32, to: u32) -> impl Iterator<Item = (u32, u32, &T)> {
        let first = self.0.range(..=from).next_back();
        let first = first.map_or(from, |(start, _)| *start);
        self.0
            .range(first..to.max(first))
            .map(move |(start, (end, value))| ((*start).max(from), (*end).min(to), value))
            .filter(|(start, end, _)| start < end)
    }

    /// Keeps the ranges of which `keep`, which may change the value, says so.
    pub fn retain(&mut self, mut keep: impl FnMut(&mut T) -> bool) {
        self.0.retain(|_, (_, value)| keep(value));
    }

    pub fn values(&self) -> impl Iterator<Item = &T> {
        self.0.values().map(|(_, value)| value)
    }

    /// Splits the range that `at` lies inside of.
    fn cut(&mut self, at: u32) {
        if let Some((start, (end, value))) = self.0.range_mut(..at).next_back()
            && *end > at
        {
            debug_assert!(*start < at);
            let rest = (std::mem::replace(end, at), value.clone());
            self.0.insert(at, rest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Intervals;
    use proptest::prelude::*;

    proptest! {
        /// Against one value a word.
        #[test]
        fn intervals_are_a_map_of_words(
            sets in prop::collection::vec((0u32..60, 0u32..12, 0u8..4, any::<bool>()), 0..16),
            window in (0u32..60, 0u32..30),
        ) {
            let mut intervals = Intervals::default();
            let mut words = [None; 100];
            for (from, len, value, take) in sets {
                let range = from as usize..(from + len) as usize;
                if take {
                    for (start, end, value) in intervals.take(from, from + len) {
                        for word in start..end {
                            prop_assert_eq!(words[word as usize].take(), Some(value));
                        }
                    }
                    prop_assert!(words[range].iter().all(Option::is_none));
                } else {
                    intervals.set(from, from + len, value);
                    words[range].fill(Some(value));
                }
            }
            let mut seen = [None; 100];
            for (from, to, value) in intervals.within(window.0, window.0 + window.1) {
                seen[from as usize..to as usize].fill(Some(*value));
            }
            for word in window.0..window.0 + window.1 {
                prop_assert_eq!(seen[word as usize], words[word as usize]);
            }
        }
    }
}
