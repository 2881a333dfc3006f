//! Slot folds by `fold.wgsl`: addends are gathered side by side, one launch for each piece.

use std::ops::Range;
use std::sync::Arc;

use crate::engine::{ArenaId, CopyWords, Engine, EngineError, Launch, ProgramId, Span};
use crate::plan::{Arithmetic, Combine, Init, Op, Piece, Tree};

use super::SlotsJob;

/// Ends a push in a stack program (`fold.wgsl`).
const COMBINE_WORD: u32 = u32::MAX;

/// A fold that is to be computed with the given pieces, into scratch.
pub(super) struct Request<'a> {
    pub job: &'a SlotsJob,
    pub arithmetic: Arithmetic,
    pub pieces: &'a [Piece],
}

/// Where one piece's result lies in scratch.
pub(super) struct PieceResult {
    pub range: Range<u64>,
    pub span: Span,
}

/// Scratch memory that is laid out piece after piece.
pub(super) struct Layout {
    scratch: ArenaId,
    next_words: u32,
    copies: Vec<CopyWords>,
    writes: Vec<(Span, Vec<u32>)>,
    launches: Vec<Launch>,
}

impl Layout {
    pub fn new(scratch: ArenaId) -> Self {
        let (copies, writes, launches) = (Vec::new(), Vec::new(), Vec::new());
        Layout {
            scratch,
            next_words: 0,
            copies,
            writes,
            launches,
        }
    }

    /// Words that `request` will need, so that a caller can bound a batch.
    pub fn words_of(request: &Request<'_>) -> u64 {
        let n = request.job.addends.len() as u64 + 2;
        let elements = request.job.plan.element_count + 4 * request.pieces.len() as u64;
        n * elements
            + 64 * (request.pieces.len() as u64 + 4)
            + request
                .pieces
                .iter()
                .map(|piece| program_words(&piece.tree))
                .sum::<u64>()
    }

    /// Lays out `request` and returns where its pieces' results will be.
    pub fn add(&mut self, program: ProgramId, request: &Request<'_>) -> Vec<PieceResult> {
        let mut results = Vec::with_capacity(request.pieces.len());
        let mut ring_words: Option<(Arc<[u32]>, Span)> = None;
        for piece in request.pieces {
            let table = match (&piece.tree, &ring_words) {
                (Tree::Chain { ring, .. }, Some((known, span))) if Arc::ptr_eq(ring, known) => {
                    *span
                }
                (Tree::Chain { ring, .. }, _) => {
                    let span = self.table(ring.to_vec());
                    ring_words = Some((ring.clone(), span));
                    span
                }
                (Tree::Ops(ops), _) => self.table(ops.iter().map(op_word).collect()),
            };
            let span = self.piece(program, request, piece, table);
            results.push(PieceResult {
                range: piece.range.clone(),
                span,
            });
        }
        results
    }

    fn piece(
        &mut self,
        program: ProgramId,
        request: &Request<'_>,
        piece: &Piece,
        table: Span,
    ) -> Span {
        let count =
            u32::try_from(piece.range.end - piece.range.start).expect("piece fits an arena");
        let padded = count.div_ceil(4) * 4;
        let from = u32::try_from(piece.range.start).expect("piece fits an arena");
        let n = request.job.addends.len() as u32;
        let gathered = self.take(padded * n);
        for (k, addend) in request.job.addends.iter().enumerate() {
            let to = part(gathered, k as u32 * padded, count);
            self.copies.push(CopyWords {
                from: part(*addend, from, count),
                to,
            });
        }
        let result = self.take(padded);
        let accumulator = match request.job.accumulator {
            Some(accumulator) => {
                let held = self.take(padded);
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
            program,
            grid: [(padded / 4).div_ceil(64), 1, 1],
            operands: vec![gathered, table, accumulator, result],
            params: params(request.arithmetic, &piece.tree, n, padded / 4, padded / 4),
        });
        part(result, 0, count)
    }

    fn table(&mut self, words: Vec<u32>) -> Span {
        let span = self.take(words.len() as u32);
        self.writes.push((span, words));
        span
    }

    fn take(&mut self, words: u32) -> Span {
        let span = Span {
            arena: self.scratch,
            offset_words: self.next_words,
            words,
        };
        self.next_words += words.div_ceil(64) * 64;
        span
    }

    /// Gathers and computes everything that was added.
    pub fn execute(self, engine: &mut dyn Engine) -> Result<(), EngineError> {
        engine.grow(self.scratch, self.next_words, 0)?;
        engine.copy(&self.copies)?;
        for (span, words) in &self.writes {
            engine.write(*span, words)?;
        }
        engine.run(&self.launches)
    }
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

fn program_words(tree: &Tree) -> u64 {
    match tree {
        Tree::Chain { ring, .. } => ring.len() as u64 + 64,
        Tree::Ops(ops) => ops.len() as u64 + 64,
    }
}

/// Words `from..from + words` of a span.
pub(crate) fn part(span: Span, from: u32, words: u32) -> Span {
    assert!(
        from + words <= span.words,
        "part {from}+{words} of a span of {}",
        span.words
    );
    Span {
        offset_words: span.offset_words + from,
        words,
        ..span
    }
}
