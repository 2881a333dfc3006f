//! Folds that are larger than an arena or a launch: cut by elements, which are independent of each
//! other. A piece that is cut keeps the order of its elements, and they their places.

use crate::engine::{Engine, EngineError};
use crate::plan::Piece;

use super::SlotsJob;
use super::slots::{WORKGROUP, elements_within, piece_words};

/// Scratch words of one batch: bounds memory, not results.
const BATCH_WORDS_MAX: u64 = 1 << 25;
/// Workgroups along an axis: the least that adapters offer (the default of WebGPU).
const WORKGROUPS_MAX: u32 = 65_535;

/// What is computed at once. Results do not depend on it.
#[derive(Clone, Copy, Debug)]
pub struct FoldLimits {
    /// Words of scratch of one batch.
    pub words: u64,
    /// Workgroups of one launch.
    pub workgroups: u32,
}

impl FoldLimits {
    pub(super) fn of(engine: &dyn Engine) -> FoldLimits {
        FoldLimits {
            words: BATCH_WORDS_MAX.min(u64::from(engine.arena_words_max())),
            workgroups: WORKGROUPS_MAX,
        }
    }

    /// Elements of one launch.
    pub(super) fn elements(&self) -> u64 {
        4 * u64::from(WORKGROUP) * u64::from(self.workgroups)
    }
}

/// The pieces with those that have more than `most` elements cut; `None` where none has.
pub(super) fn cut(pieces: &[Piece], most: u64) -> Option<Vec<Piece>> {
    let is_long = |piece: &Piece| piece.range.end - piece.range.start > most;
    if !pieces.iter().any(is_long) {
        return None;
    }
    let mut cut = Vec::new();
    for piece in pieces {
        let mut rest = piece.range.clone();
        while rest.end - rest.start > most {
            cut.push(part_of(piece, rest.start, rest.start + most));
            rest.start += most;
        }
        cut.push(part_of(piece, rest.start, rest.end));
    }
    Some(cut)
}

/// The pieces in runs, ascending, each of which takes `most` words of scratch at most.
///
/// # Errors
/// So many addends that not even four elements fit.
pub(super) fn parts(
    job: &SlotsJob,
    pieces: &[Piece],
    most: u64,
) -> Result<Vec<Vec<Piece>>, EngineError> {
    let mut parts = Vec::new();
    let mut part: Vec<Piece> = Vec::new();
    let mut words = 0;
    for piece in pieces {
        let mut rest = piece.range.clone();
        while !rest.is_empty() {
            let fit = elements_within(job, &piece.tree, most - words);
            if fit == 0 && part.is_empty() {
                return Err(EngineError::OutOfMemory {
                    words: piece_words(job, &piece.tree, 4),
                    reason: format!("{} addends, in {most} words", job.addends.len()),
                });
            }
            if fit == 0 {
                parts.push(std::mem::take(&mut part));
                words = 0;
                continue;
            }
            let end = rest.end.min(rest.start + fit);
            words += piece_words(job, &piece.tree, end - rest.start);
            assert!(words <= most, "{words} words laid out, {most} at most");
            part.push(part_of(piece, rest.start, end));
            rest.start = end;
        }
    }
    parts.push(part);
    Ok(parts)
}

fn part_of(piece: &Piece, start: u64, end: u64) -> Piece {
    Piece {
        range: start..end,
        tree: piece.tree.clone(),
    }
}
