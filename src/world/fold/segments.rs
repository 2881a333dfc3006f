//! Segment folds by `fold_segments.wgsl`.

use crate::engine::{ArenaId, Engine, EngineError, Launch, ProgramId, Span};

use super::SegmentsJob;

/// Computes `job` with each row's addends in the order that `permutation` gives, into `out`.
/// The index tables are written to `tables`, an arena of the caller's.
pub(super) fn run(
    engine: &mut dyn Engine,
    program: ProgramId,
    tables: ArenaId,
    job: &SegmentsJob,
    permutation: Option<&[u32]>,
    out: Span,
) -> Result<(), EngineError> {
    let rows = job.out_rows();
    let indices: Vec<u32> = match permutation {
        None => job.segments.indices.to_vec(),
        Some(permutation) => job.permuted_indices(permutation),
    };
    let pointer_words = job.segments.pointers.len() as u32;
    let index_words = (indices.len() as u32).max(1);
    engine.grow(tables, pointer_words + index_words, 0)?;
    let pointers = Span {
        arena: tables,
        offset_words: 0,
        words: pointer_words,
    };
    let index_span = Span {
        arena: tables,
        offset_words: pointer_words,
        words: index_words,
    };
    engine.write(pointers, &job.segments.pointers)?;
    if !indices.is_empty() {
        engine.write(
            Span {
                words: indices.len() as u32,
                ..index_span
            },
            &indices,
        )?;
    }
    engine.run(&[Launch {
        program,
        grid: [(rows * job.width / 4).div_ceil(64), 1, 1],
        operands: vec![job.rows, pointers, index_span, out],
        params: vec![rows, job.width / 4, job.out_dtype.code()],
    }])
}
