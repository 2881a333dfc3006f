//! The live-in set of a cut: every word that is read after it but was written before it.
//!
//! Two runs that agree on these words, and whose later points are insensitive, agree ever after.
//! So the set finds state that no checkpoint holds, at linear cost.

use std::collections::BTreeMap;

use crate::engine::{Engine, EngineError};
use crate::world::rank::{Allocation, Tensor};

use super::RankMemory;

/// Live-in words of one buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveInWords {
    /// The buffer's words as they were at the cut.
    pub words: Vec<u32>,
    /// Which of them are read later, ascending and disjoint, as (from, to).
    pub ranges: Vec<(u32, u32)>,
}

/// The live-in set by (rank, buffer name, occurrence).
pub type LiveIn = BTreeMap<(u32, String, u32), LiveInWords>;

/// Follows one rank's accesses after the cut.
#[derive(Debug, Default)]
pub(crate) struct LiveInTracker {
    buffers: Vec<(Allocation, Vec<u32>)>,
    written: Ranges,
    read: Ranges,
}

impl LiveInTracker {
    /// Keeps the words of every live buffer.
    pub fn start(
        engine: &mut dyn Engine,
        memory: &RankMemory,
        live: &[Allocation],
    ) -> Result<Self, EngineError> {
        let buffers = live
            .iter()
            .map(|allocation| {
                Ok((
                    allocation.clone(),
                    engine.read(memory.allocation(allocation))?,
                ))
            })
            .collect::<Result<_, EngineError>>()?;
        Ok(LiveInTracker {
            buffers,
            ..LiveInTracker::default()
        })
    }

    pub fn on_read(&mut self, tensor: Tensor) {
        let (from, to) = (tensor.start, tensor.start + tensor.len);
        for (from, to) in self.written.gaps(from, to) {
            self.read.insert(from, to);
        }
    }

    pub fn on_write(&mut self, tensor: Tensor) {
        self.written.insert(tensor.start, tensor.start + tensor.len);
    }

    pub fn finish(self, rank: u32, into: &mut LiveIn) {
        for (allocation, words) in self.buffers {
            let start = allocation.offset_words;
            let ranges: Vec<(u32, u32)> = self
                .read
                .within(start, start + allocation.words)
                .map(|(from, to)| (from - start, to - start))
                .collect();
            if !ranges.is_empty() {
                let key = (rank, allocation.name.to_string(), allocation.occurrence);
                into.insert(key, LiveInWords { words, ranges });
            }
        }
    }
}

/// A set of words as disjoint, ascending, never touching ranges: start -> end.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
struct Ranges(BTreeMap<u32, u32>);

impl Ranges {
    fn insert(&mut self, from: u32, to: u32) {
        if from >= to {
            return;
        }
        let (mut from, mut to) = (from, to);
        let touching: Vec<u32> = self
            .0
            .range(..=to)
            .rev()
            .take_while(|(_, end)| **end >= from)
            .map(|(start, _)| *start)
            .collect();
        for start in touching {
            let end = self.0.remove(&start).expect("just seen");
            from = from.min(start);
            to = to.max(end);
        }
        self.0.insert(from, to);
    }

    /// The parts of `from..to` that are in the set.
    fn within(&self, from: u32, to: u32) -> impl Iterator<Item = (u32, u32)> {
        let first = self
            .0
            .range(..=from)
            .next_back()
            .map_or(from, |(start, _)| *start);
        self.0
            .range(first..to.max(first))
            .map(move |(start, end)| ((*start).max(from), (*end).min(to)))
            .filter(|(start, end)| start < end)
    }

    /// The parts of `from..to` that are not in the set.
    fn gaps(&self, from: u32, to: u32) -> Vec<(u32, u32)> {
        let mut gaps = Vec::new();
        let mut next = from;
        for (start, end) in self.within(from, to) {
            if next < start {
                gaps.push((next, start));
            }
            next = end;
        }
        if next < to {
            gaps.push((next, to));
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::Ranges;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn ranges_are_a_set_of_words(
            inserts in prop::collection::vec((0u32..60, 0u32..12), 0..12),
            window in (0u32..60, 0u32..30),
        ) {
            let mut ranges = Ranges::default();
            let mut words = [false; 100];
            for (from, len) in inserts {
                ranges.insert(from, from + len);
                words[from as usize..(from + len) as usize].fill(true);
            }
            let (from, to) = (window.0, window.0 + window.1);
            let mut seen = [false; 100];
            for (from, to) in ranges.within(from, to) {
                seen[from as usize..to as usize].fill(true);
            }
            let mut missing = [false; 100];
            for (from, to) in ranges.gaps(from, to) {
                missing[from as usize..to as usize].fill(true);
            }
            for word in from..to {
                prop_assert_eq!(seen[word as usize], words[word as usize]);
                prop_assert_eq!(missing[word as usize], !words[word as usize]);
            }
            for (a, b) in ranges.0.iter().zip(ranges.0.iter().skip(1)) {
                prop_assert!(a.1 < b.0, "{:?} touches {:?}", a, b);
            }
        }
    }
}
