//! Slot folds by `fold.wgsl`: addends are gathered side by side, one launch for each piece.

use std::ops::Range;
use std::sync::Arc;

use crate::engine::{CopyWords, Engine, EngineError, Launch, Span};
use crate::plan::{Arithmetic, Combine, Init, Op, Piece, Tree};

use super::{FoldPrograms, SlotsJob};

/// Ends a push in a stack program (`fold.wgsl`).
const COMBINE_WORD: u32 = u32::MAX;
/// Invocations of one workgroup of `fold.wgsl`, a vec4 of elements each.
pub(super) const WORKGROUP: u32 = 64;

/// A fold that is to be computed with the given pieces, into scratch.
pub(super) struct Request<'a> {
    pub job: &'a SlotsJob,
    pub arithmetic: Arithmetic,
    pub pieces: &'a [Piece],
    /// The result may go straight to where the job wants it.
    pub in_place: bool,
}

/// Where one piece's result lies in scratch.
pub(super) struct PieceResult {
    pub range: Range<u64>,
    pub span: Span,
}

/// Scratch memory that is laid out piece after piece.
pub(super) struct Layout {
    programs: FoldPrograms,
    /// One for each of the engine's memories.
    memories: Vec<Memory>,
    /// The memory that the present request is computed in.
    at: usize,
    copies: Vec<CopyWords>,
    writes: Vec<(Span, Vec<u32>)>,
    launches: Vec<Launch>,
}

/// What is laid out in one memory.
#[derive(Clone, Default)]
struct Memory {
    next_words: u32,
    /// The ring written last, and where: neighbours often share one.
    ring: Option<(Arc<[u32]>, Span)>,
}

impl Layout {
    pub fn new(engine: &dyn Engine, programs: &FoldPrograms) -> Self {
        Layout {
            programs: programs.clone(),
            memories: vec![Memory::default(); engine.shards() as usize],
            at: 0,
            copies: Vec::new(),
            writes: Vec::new(),
            launches: Vec::new(),
        }
    }

    /// Words that `request` takes at most, so that a caller can bound a batch.
    pub fn words_of(engine: &dyn Engine, request: &Request<'_>) -> u64 {
        let words = |piece: &Piece| match stands_ready(engine, request.job, piece) {
            // Only the result is laid out, if that.
            Some(_) => table_words(&piece.tree) + laid(length(piece)),
            None => piece_words(request.job, &piece.tree, length(piece)),
        };
        request.pieces.iter().map(words).sum()
    }

    /// Lays out `request` and returns where its pieces' results will be.
    ///
    /// # Errors
    /// More words than an arena has: the caller bounds them by `words_of`.
    pub fn add(
        &mut self,
        engine: &dyn Engine,
        request: &Request<'_>,
    ) -> Result<Vec<PieceResult>, EngineError> {
        self.at = memory_of(engine, request.job);
        let mut results = Vec::with_capacity(request.pieces.len());
        for piece in request.pieces {
            let table = match (&piece.tree, &self.memories[self.at].ring) {
                (Tree::Chain { ring, .. }, Some((known, span))) if Arc::ptr_eq(ring, known) => {
                    *span
                }
                (Tree::Chain { ring, .. }, _) => {
                    let span = self.table(ring.to_vec())?;
                    self.memories[self.at].ring = Some((ring.clone(), span));
                    span
                }
                (Tree::Ops(ops), _) => self.table(ops.iter().map(op_word).collect())?,
            };
            let span = match stands_ready(engine, request.job, piece) {
                Some(ready) => self.in_place(engine, request, piece, table, ready)?,
                None => self.gathered(request, piece, table)?,
            };
            results.push(PieceResult {
                range: piece.range.clone(),
                span,
            });
        }
        Ok(results)
    }

    /// A piece whose addends are one operand with its stride.
    fn in_place(
        &mut self,
        engine: &dyn Engine,
        request: &Request<'_>,
        piece: &Piece,
        table: Span,
        (addends, stride): (Span, u32),
    ) -> Result<Span, EngineError> {
        let (job, count) = (request.job, word_count(length(piece))?);
        let from = word_count(piece.range.start)?;
        let here = |span: &Span| engine.shard_of(span.arena) as usize == self.at;
        let place = match request.in_place {
            true => place_of(job, piece).filter(here),
            false => None,
        };
        let result = match place {
            Some(place) => place,
            None => self.take(u64::from(count))?,
        };
        let held = job.accumulator.map(|held| part(held, from, count));
        let n = job.addends.len() as u32;
        self.launches.push(Launch {
            program: self.programs.fold,
            grid: [(count / 4).div_ceil(WORKGROUP), 1, 1],
            operands: vec![addends, table, held.unwrap_or(result), result],
            params: params(request.arithmetic, &piece.tree, n, count / 4, stride / 4),
        });
        Ok(result)
    }

    /// A piece whose addends are copied side by side first.
    fn gathered(
        &mut self,
        request: &Request<'_>,
        piece: &Piece,
        table: Span,
    ) -> Result<Span, EngineError> {
        let (job, count) = (request.job, word_count(length(piece))?);
        let (from, padded) = (word_count(piece.range.start)?, padded(u64::from(count)));
        let n = job.addends.len() as u32;
        let gathered = self.take(padded * u64::from(n))?;
        let padded = word_count(padded)?;
        for (k, addend) in (0..).zip(&job.addends) {
            self.copies.push(CopyWords {
                from: part(*addend, from, count),
                to: part(gathered, k * padded, count),
            });
        }
        let result = self.take(u64::from(padded))?;
        let accumulator = match job.accumulator {
            Some(accumulator) => {
                let held = self.take(u64::from(padded))?;
                let copy = CopyWords {
                    from: part(accumulator, from, count),
                    to: part(held, 0, count),
                };
                self.copies.push(copy);
                held
            }
            None => result,
        };
        self.launches.push(Launch {
            program: self.programs.fold,
            grid: [(padded / 4).div_ceil(WORKGROUP), 1, 1],
            operands: vec![gathered, table, accumulator, result],
            params: params(request.arithmetic, &piece.tree, n, padded / 4, padded / 4),
        });
        Ok(part(result, 0, count))
    }

    fn table(&mut self, words: Vec<u32>) -> Result<Span, EngineError> {
        let span = self.take(words.len() as u64)?;
        self.writes.push((span, words));
        Ok(span)
    }

    fn take(&mut self, words: u64) -> Result<Span, EngineError> {
        let memory = &mut self.memories[self.at];
        let end = word_count(u64::from(memory.next_words) + laid(words))?;
        let span = Span {
            arena: self.programs.memories[self.at].scratch,
            offset_words: memory.next_words,
            // Fits, since the end does.
            words: words as u32,
        };
        memory.next_words = end;
        Ok(span)
    }

    /// Gathers and computes everything that was added.
    pub fn execute(self, engine: &mut dyn Engine) -> Result<(), EngineError> {
        for (held, laid) in self.programs.memories.iter().zip(&self.memories) {
            engine.grow(held.scratch, laid.next_words, 0)?;
        }
        engine.copy(&self.copies)?;
        for (span, words) in &self.writes {
            engine.write(*span, words)?;
        }
        engine.run(&self.launches)
    }
}

/// The memory that a job is computed in: that of its first addend.
fn memory_of(engine: &dyn Engine, job: &SlotsJob) -> usize {
    let first = job.addends.first();
    first.map_or(0, |span| engine.shard_of(span.arena) as usize)
}

/// Addends that a launch can read where they are, if they are: in the memory of the accumulator.
fn stands_ready(engine: &dyn Engine, job: &SlotsJob, piece: &Piece) -> Option<(Span, u32)> {
    let from = u32::try_from(piece.range.start).ok()?;
    let count = u32::try_from(length(piece)).ok()?;
    let at = memory_of(engine, job);
    let here = |span: &Span| engine.shard_of(span.arena) as usize == at;
    strided(job, from, count).filter(|_| job.accumulator.iter().all(here))
}

/// Elements `from..from + count` of all addends as one operand with its stride, where they already
/// stand as `fold.wgsl` reads them: in one arena, evenly apart, in whole vec4s.
pub(super) fn strided(job: &SlotsJob, from: u32, count: u32) -> Option<(Span, u32)> {
    let (first, second) = (job.addends.first()?, job.addends.get(1)?);
    let stride = second.offset_words.checked_sub(first.offset_words)?;
    let apart = job.addends.windows(2).all(|pair| {
        pair[0].arena == pair[1].arena
            && pair[0].offset_words.checked_add(stride) == Some(pair[1].offset_words)
    });
    let start = first.offset_words.checked_add(from)?;
    let held = match job.accumulator {
        Some(held) => held.offset_words.checked_add(from)?,
        None => 0,
    };
    let aligned = [start, stride, count, held]
        .iter()
        .all(|words| words.is_multiple_of(4));
    // A stride below the length would let addends overlap: an input of a fault, not of a fold.
    if !apart || !aligned || count == 0 || stride < first.words {
        return None;
    }
    let last = (job.addends.len() as u32 - 1).checked_mul(stride)?;
    let span = Span {
        arena: first.arena,
        offset_words: start,
        words: last.checked_add(count)?,
    };
    Some((span, stride))
}

/// Where the whole piece goes, if it goes to one place only, that no addend of another element
/// lies in. Folds of one batch are of different ranks where they read and write one arena, so
/// nobody else looks.
fn place_of(job: &SlotsJob, piece: &Piece) -> Option<Span> {
    let [(wanted, span)] = &job.outs[..] else {
        return None;
    };
    let covers = wanted.start <= piece.range.start && piece.range.end <= wanted.end;
    if !covers || job.addends.iter().any(|addend| addend.meets(span)) {
        return None;
    }
    let from = (piece.range.start - wanted.start) as u32;
    let place = part(*span, from, (piece.range.end - piece.range.start) as u32);
    let held_elsewhere = job
        .accumulator
        .is_some_and(|held| held != *span && held.meets(span));
    (place.offset_words.is_multiple_of(4) && !held_elsewhere).then_some(place)
}

/// The params of `fold.wgsl`.
pub(super) fn params(
    arithmetic: Arithmetic,
    tree: &Tree,
    addend_count: u32,
    vec4_count: u32,
    stride4: u32,
) -> Vec<u32> {
    let (kind, start, program_len) = match tree {
        Tree::Chain { ring, start } => (0, *start, ring.len() as u32),
        Tree::Ops(ops) => (1, 0, ops.len() as u32),
    };
    let init = match arithmetic.init {
        Init::First => 0,
        Init::Zero => 1,
        Init::Accumulator => 2,
    };
    vec![
        vec4_count,
        addend_count,
        stride4,
        kind,
        start,
        program_len,
        init,
        u32::from(arithmetic.combine == Combine::Max),
        arithmetic.partial.code(),
        arithmetic.out.code(),
        arithmetic.pre_multiply_bits.unwrap_or(0),
        arithmetic.post_divide_bits.unwrap_or(0),
    ]
}

pub(super) fn op_word(op: &Op) -> u32 {
    match op {
        Op::Push(addend) => *addend,
        Op::Combine => COMBINE_WORD,
    }
}

fn length(piece: &Piece) -> u64 {
    piece.range.end - piece.range.start
}

/// Whole vec4s.
fn padded(words: u64) -> u64 {
    words.div_ceil(4) * 4
}

/// What a span of so many words takes of scratch: spans begin at lines of a cache.
fn laid(words: u64) -> u64 {
    words.div_ceil(64) * 64
}

fn table_words(tree: &Tree) -> u64 {
    match tree {
        Tree::Chain { ring, .. } => laid(ring.len() as u64),
        Tree::Ops(ops) => laid(ops.len() as u64),
    }
}

/// Words that `elements` of a tree take where their addends are gathered.
pub(super) fn piece_words(job: &SlotsJob, tree: &Tree, elements: u64) -> u64 {
    let (n, padded) = (job.addends.len() as u64, padded(elements));
    table_words(tree) + laid(padded.saturating_mul(n)) + 2 * laid(padded)
}

/// Elements of a tree that fit into `words`: the inverse of `piece_words`, whole vec4s.
pub(super) fn elements_within(job: &SlotsJob, tree: &Tree, words: u64) -> u64 {
    let fixed = table_words(tree) + 3 * 63;
    let each = job.addends.len() as u64 + 2;
    words.saturating_sub(fixed) / each / 4 * 4
}

/// A count of words as spans have it.
///
/// # Errors
/// More than an arena can have.
pub(super) fn word_count(words: u64) -> Result<u32, EngineError> {
    u32::try_from(words).map_err(|_| EngineError::OutOfMemory {
        words,
        reason: "an arena has less than 2^32".to_owned(),
    })
}

/// Words `from..from + words` of a span.
pub(crate) fn part(span: Span, from: u32, words: u32) -> Span {
    assert!(
        u64::from(from) + u64::from(words) <= u64::from(span.words),
        "part {from}+{words} of a span of {}",
        span.words
    );
    // A span that ends behind every arena is the engine's to refuse.
    Span {
        offset_words: span.offset_words.saturating_add(from),
        words,
        ..span
    }
}
