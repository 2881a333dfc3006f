//! Real atomics: additions that race on an adapter, to be compared with the model of them.

use super::{EngineError, EngineIdentity};

/// Writers that add into shared f32 accumulators, again and again from the same start.
#[derive(Clone, Copy, Debug)]
pub struct Race<'a> {
    /// Bits of f32, `width` of them a writer.
    pub addends: &'a [u32],
    pub width: u32,
    /// The first accumulator that each writer adds to.
    pub targets: &'a [u32],
    /// What the accumulators hold before.
    pub start: &'a [u32],
    /// One repeat each: writers in the order of their tickets.
    pub permutations: &'a [Vec<u32>],
    /// Writers add in the order of their tickets; else as soon as they run.
    pub is_ticketed: bool,
}

impl Race<'_> {
    pub fn writers(&self) -> u32 {
        self.targets.len() as u32
    }

    /// # Panics
    /// Writers, accumulators or permutations that do not go together: a fault of the caller.
    pub fn assert_sound(&self) {
        let (writers, width) = (self.targets.len(), self.width as usize);
        assert_eq!(self.addends.len(), writers * width, "a row a writer");
        let ends = self.targets.iter().map(|first| *first as usize + width);
        assert!(ends.max().unwrap_or(0) <= self.start.len(), "a row fits");
        for permutation in self.permutations {
            let mut seen = vec![false; writers];
            assert_eq!(permutation.len(), writers, "each writer once");
            for writer in permutation {
                assert!(!std::mem::replace(&mut seen[*writer as usize], true));
            }
        }
    }
}

/// What can run a race.
pub trait NativeAtomics {
    fn identity(&self) -> EngineIdentity;

    /// Ticketed repeats so far that were run with each writer alone, because turns did not come.
    fn repeats_apart(&self) -> u64 {
        0
    }

    /// The bits of the accumulators after each repeat.
    ///
    /// # Errors
    /// More than the adapter binds, or a device that fails or does not end.
    fn race(&mut self, race: &Race<'_>) -> Result<Vec<Vec<u32>>, EngineError>;
}
