//! Segment folds by `fold_segments.wgsl`.

use std::collections::BTreeMap;

use crate::engine::{ArenaId, Engine, EngineError, Launch, Span};

use super::{FoldPrograms, SegmentsJob};

/// One job with each row's addends in the order that `permutation` gives, into `out`.
pub(super) struct Request<'a> {
    pub job: &'a SegmentsJob,
    pub permutation: Option<&'a [u32]>,
    pub out: Span,
}

/// Computes all requests, none of which reads what another writes, in one run of the engine.
/// Index tables are written to the scratch of the memory that the rows lie in.
pub(super) fn run(
    engine: &mut dyn Engine,
    programs: &FoldPrograms,
    requests: &[Request<'_>],
) -> Result<(), EngineError> {
    if requests.is_empty() {
        return Ok(());
    }
    let mut of: BTreeMap<ArenaId, Vec<u32>> = BTreeMap::new();
    let mut launches = Vec::with_capacity(requests.len());
    for request in requests {
        let job = request.job;
        let rows = job.out_rows();
        let tables = programs.memory(engine, job.rows).tables;
        let words = of.entry(tables).or_default();
        let pointers = table(words, tables, job.segments.pointers.iter().copied());
        let indices = match request.permutation {
            None => table(words, tables, job.segments.indices.iter().copied()),
            Some(permutation) => {
                let permuted = job.permuted_indices(permutation);
                table(words, tables, permuted.into_iter())
            }
        };
        launches.push(Launch {
            program: programs.segments,
            grid: [(rows * job.width / 4).div_ceil(64), 1, 1],
            operands: vec![job.rows, pointers, indices, request.out],
            params: vec![rows, job.width / 4, job.out_dtype.code()],
        });
    }
    for (tables, words) in of {
        let whole = Span {
            arena: tables,
            offset_words: 0,
            words: words.len() as u32,
        };
        engine.grow(tables, whole.words, 0)?;
        engine.write(whole, &words)?;
    }
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
