//! Segment folds by `fold_segments.wgsl`.

use crate::engine::{ArenaId, Engine, EngineError, Launch, ProgramId, Span};

use super::SegmentsJob;

/// One job with each row's addends in the order that `permutation` gives, into `out`.
pub(super) struct Request<'a> {
    pub job: &'a SegmentsJob,
    pub permutation: Option<&'a [u32]>,
    pub out: Span,
}

/// Computes all requests, none of which reads what another writes, in one run of the engine.
/// The index tables are written to `tables`, an arena of the caller's.
pub(super) fn run(
    engine: &mut dyn Engine,
    program: ProgramId,
    tables: ArenaId,
    requests: &[Request<'_>],
) -> Result<(), EngineError> {
    if requests.is_empty() {
        return Ok(());
    }
    let mut words: Vec<u32> = Vec::new();
    let mut launches = Vec::with_capacity(requests.len());
    for request in requests {
        let job = request.job;
        let rows = job.out_rows();
        let pointers = table(&mut words, tables, job.segments.pointers.iter().copied());
        let indices = match request.permutation {
            None => table(&mut words, tables, job.segments.indices.iter().copied()),
            Some(permutation) => {
                let permuted = job.permuted_indices(permutation);
                table(&mut words, tables, permuted.into_iter())
            }
        };
        launches.push(Launch {
            program,
            grid: [(rows * job.width / 4).div_ceil(64), 1, 1],
            operands: vec![job.rows, pointers, indices, request.out],
            params: vec![rows, job.width / 4, job.out_dtype.code()],
        });
    }
    let whole = Span {
        arena: tables,
        offset_words: 0,
        words: words.len() as u32,
    };
    engine.grow(tables, whole.words, 0)?;
    engine.write(whole, &words)?;
    engine.run(&launches)
}

/// Appends a table of at least one word.
fn table(words: &mut Vec<u32>, arena: ArenaId, rows: impl Iterator<Item = u32>) -> Span {
    let start = words.len();
    words.extend(rows);
    if words.len() == start {
        words.push(0);
    }
    Span {
        arena,
        offset_words: start as u32,
        words: (words.len() - start) as u32,
    }
}
