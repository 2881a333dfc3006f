//! Segment folds by `fold_segments.wgsl`.

use std::collections::BTreeMap;

use crate::engine::{ArenaId, Engine, EngineError, Launch, Span};

use super::slots::{WORKGROUP, part, word_count};
use super::{FoldPrograms, SegmentsJob};

/// One job with each row's addends in the order that `permutation` gives, into `out`.
pub(super) struct Request<'a> {
    pub job: &'a SegmentsJob,
    pub permutation: Option<&'a [u32]>,
    pub out: Span,
}

/// Computes all requests, none of which reads what another writes, in as few runs of the engine as
/// their index tables allow. Those are written to the scratch of the memory that the rows lie in.
pub(super) fn run(
    engine: &mut dyn Engine,
    programs: &FoldPrograms,
    requests: &[Request<'_>],
) -> Result<(), EngineError> {
    let mut rest = requests;
    while !rest.is_empty() {
        let mut words = 0;
        let fit = rest.iter().take_while(|request| {
            words += table_words(request.job);
            words <= programs.limits.words
        });
        // One that is too large on its own is the engine's to refuse.
        let fit = fit.count().max(1);
        run_batch(engine, programs, &rest[..fit])?;
        rest = &rest[fit..];
    }
    Ok(())
}

fn table_words(job: &SegmentsJob) -> u64 {
    let (pointers, indices) = (&job.segments.pointers, &job.segments.indices);
    (pointers.len().max(1) + indices.len().max(1)) as u64
}

fn run_batch(
    engine: &mut dyn Engine,
    programs: &FoldPrograms,
    requests: &[Request<'_>],
) -> Result<(), EngineError> {
    let mut of: BTreeMap<ArenaId, Vec<u32>> = BTreeMap::new();
    let mut launches = Vec::with_capacity(requests.len());
    for request in requests {
        let job = request.job;
        let tables = programs.memory(engine, job.rows).tables;
        let words = of.entry(tables).or_default();
        let pointers = table(words, tables, job.segments.pointers.iter().copied())?;
        let indices = match request.permutation {
            None => table(words, tables, job.segments.indices.iter().copied())?,
            Some(permutation) => {
                let permuted = job.permuted_indices(permutation);
                table(words, tables, permuted.into_iter())?
            }
        };
        launches.extend(launches_of(programs, request, pointers, indices));
    }
    for (tables, words) in of {
        let whole = tables.first(word_count(words.len() as u64)?);
        engine.grow(tables, whole.words, 0)?;
        engine.write(whole, &words)?;
    }
    engine.run(&launches)
}

/// One launch, or as many as its output rows need. Pointers count from the first index, so those
/// of some rows are a part of the table.
fn launches_of(
    programs: &FoldPrograms,
    request: &Request<'_>,
    pointers: Span,
    indices: Span,
) -> Vec<Launch> {
    let job = request.job;
    let width4 = job.width / 4;
    let most = (WORKGROUP.saturating_mul(programs.limits.workgroups) / width4.max(1)).max(1);
    let rows = job.out_rows();
    let mut launches = Vec::new();
    let mut from = 0;
    while from < rows {
        let count = most.min(rows - from);
        let out = part(request.out, from * job.width, count * job.width);
        launches.push(Launch {
            program: programs.segments,
            grid: [(count * width4).div_ceil(WORKGROUP), 1, 1],
            operands: vec![job.rows, part(pointers, from, count + 1), indices, out],
            params: vec![count, width4, job.out_dtype.code()],
        });
        from += count;
    }
    launches
}

/// Appends a table of at least one word.
fn table(
    words: &mut Vec<u32>,
    arena: ArenaId,
    rows: impl Iterator<Item = u32>,
) -> Result<Span, EngineError> {
    let start = words.len();
    words.extend(rows);
    if words.len() == start {
        words.push(0);
    }
    let all = arena.first(word_count(words.len() as u64)?);
    Ok(part(all, start as u32, all.words - start as u32))
}
