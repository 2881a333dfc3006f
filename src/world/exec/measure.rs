//! Measures what a launch writes, instead of believing its signature.
//!
//! An operand that a kernel only writes counts as written whole. Where that is measured, its words
//! are first set to a mark that no store of a float leaves behind (a NaN with a payload: stores
//! make NaNs canonical), and what still bears the mark afterwards was not written and gets its old
//! word back. An integer store could leave the mark by chance, and would then count as unwritten.

use crate::engine::Span;
use crate::world::error::WorldError;
use crate::world::rank::Tensor;
use crate::world::site::Site;

use super::coordinator::{Coordinator, at};

/// A signalling NaN with a payload.
const MARK: u32 = 0x7fa5_5a5a;

/// An operand under measurement.
pub(super) struct Marked {
    rank: u32,
    tensor: Tensor,
    span: Span,
    before: Vec<u32>,
}

impl Coordinator<'_> {
    /// Whether anything would be learnt from measuring `rank`'s launches now.
    pub fn measures(&self, rank: u32) -> bool {
        self.options.measure_writes && self.ranks[rank as usize].follows_accesses()
    }

    /// Marks the words of a write-only operand.
    pub fn mark(&mut self, rank: u32, site: &Site, tensor: Tensor) -> Result<Marked, WorldError> {
        let span = self.ranks[rank as usize].memory.span(tensor);
        let failed = |source| at(&rank.to_string(), &site.to_string(), source);
        let before = self.engine.read(span).map_err(failed)?;
        if self.marks.len() < before.len() {
            self.marks.resize(before.len(), MARK);
        }
        let marks = &self.marks[..before.len()];
        self.engine.write(span, marks).map_err(failed)?;
        Ok(Marked {
            rank,
            tensor,
            span,
            before,
        })
    }

    /// Notes what was written, and restores what was not.
    pub fn unmark(&mut self, marked: Vec<Marked>) -> Result<(), WorldError> {
        for Marked {
            rank,
            tensor,
            span,
            before,
        } in marked
        {
            let failed = |source| at(&rank.to_string(), "measured writes", source);
            let mut words = self.engine.read(span).map_err(failed)?;
            // Most kernels write their outputs whole.
            if !words.contains(&MARK) {
                self.on_write(rank, tensor);
                continue;
            }
            for (from, to) in written_ranges(&words) {
                self.on_write(rank, tensor.slice(from, to - from));
            }
            for (word, old) in words.iter_mut().zip(before) {
                if *word == MARK {
                    *word = old;
                }
            }
            self.engine.write(span, &words).map_err(failed)?;
        }
        Ok(())
    }
}

/// Maximal runs of words that do not bear the mark.
fn written_ranges(words: &[u32]) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = Vec::new();
    for (place, _) in (0..).zip(words).filter(|(_, word)| **word != MARK) {
        match ranges.last_mut() {
            Some((_, end)) if *end == place => *end += 1,
            _ => ranges.push((place, place + 1)),
        }
    }
    ranges
}

/// Whether two tensors of one rank share words.
pub(super) fn overlap(a: &Tensor, b: &Tensor) -> bool {
    a.start < b.start + b.len && b.start < a.start + a.len
}

#[cfg(test)]
mod tests {
    use super::{MARK, written_ranges};

    #[test]
    fn ranges_are_maximal() {
        let words = [1, MARK, 2, 3, MARK, MARK, 4];
        assert_eq!(written_ranges(&words), [(0, 1), (2, 4), (6, 7)]);
        assert_eq!(written_ranges(&[MARK; 3]), []);
        assert_eq!(written_ranges(&[]), []);
    }
}
