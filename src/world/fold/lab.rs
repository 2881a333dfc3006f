//! Evaluates folds: to execute them, and to ask what another order would have given.

use std::borrow::Cow;
use std::sync::Arc;

use crate::engine::{ArenaId, CopyWords, Engine, EngineError, ProgramId, Span};
use crate::kernel::Kernel;
use crate::plan::{Arithmetic, Piece, Plan, Tree, local};

use super::parts::{self, FoldLimits};
use super::slots::{Layout, PieceResult, Request, part, word_count};
use super::{FoldJob, FoldNode, FoldOrder, SlotsJob, segments};

/// Words that scratch begins with.
const SCRATCH_WORDS: u32 = 64;

/// The programs and scratch memory that folds need.
#[derive(Clone, Debug)]
pub struct FoldPrograms {
    pub fold: ProgramId,
    pub segments: ProgramId,
    /// One for each of the engine's memories: a fold is computed where its first addend lies.
    pub memories: Arc<[FoldMemory]>,
    /// What is computed at once.
    pub limits: FoldLimits,
}

/// Arenas of one memory of the engine.
#[derive(Clone, Copy, Debug)]
pub struct FoldMemory {
    /// Addends and results.
    pub scratch: ArenaId,
    /// Index tables.
    pub tables: ArenaId,
    /// Alternative results of segment folds.
    pub results: ArenaId,
}

impl FoldPrograms {
    /// # Errors
    /// A kernel that the engine refuses, or no memory.
    pub fn new(
        engine: &mut dyn Engine,
        fold: &Kernel,
        segments: &Kernel,
    ) -> Result<FoldPrograms, EngineError> {
        let (fold, segments) = (engine.load(fold)?, engine.load(segments)?);
        let memories = (0..engine.shards()).map(|shard| {
            Ok(FoldMemory {
                scratch: engine.alloc_on(shard, SCRATCH_WORDS, 0)?,
                tables: engine.alloc_on(shard, SCRATCH_WORDS, 0)?,
                results: engine.alloc_on(shard, SCRATCH_WORDS, 0)?,
            })
        });
        let memories = memories.collect::<Result<Arc<[FoldMemory]>, EngineError>>()?;
        Ok(FoldPrograms {
            fold,
            segments,
            memories,
            limits: FoldLimits::of(engine),
        })
    }

    /// Scratch in the memory that `span` lies in.
    pub(super) fn memory(&self, engine: &dyn Engine, span: Span) -> FoldMemory {
        self.memories[engine.shard_of(span.arena) as usize]
    }

    /// Everything that `new` has allocated.
    pub fn arenas(&self) -> impl Iterator<Item = ArenaId> + '_ {
        let memories = self.memories.iter();
        memories.flat_map(|memory| [memory.scratch, memory.tables, memory.results])
    }
}

/// An engine with what folds need on it.
pub struct FoldLab<'a> {
    pub engine: &'a mut dyn Engine,
    pub programs: FoldPrograms,
}

impl FoldLab<'_> {
    /// Executes each node in the given order; results go where the node says.
    pub fn execute(&mut self, folds: &[(&FoldNode, FoldOrder)]) -> Result<(), EngineError> {
        let mut slots = Vec::new();
        let mut segmented = Vec::new();
        for (node, order) in folds {
            match &node.job {
                FoldJob::Slots(job) => slots.push((job, order)),
                FoldJob::Segments(job) => segmented.push(segments::Request {
                    job,
                    permutation: permutation_of(order),
                    out: job.out,
                }),
            }
        }
        self.run_segments(&segmented)?;
        self.execute_slots(&slots)
    }

    fn run_segments(&mut self, requests: &[segments::Request<'_>]) -> Result<(), EngineError> {
        segments::run(self.engine, &self.programs, requests)
    }

    fn execute_slots(&mut self, folds: &[(&SlotsJob, &FoldOrder)]) -> Result<(), EngineError> {
        let mut rest = folds;
        while let Some(((job, order), later)) = rest.split_first() {
            match self.execute_batch(rest)? {
                // Larger than a batch on its own.
                0 => {
                    self.execute_in_parts(job, order)?;
                    rest = later;
                }
                computed => rest = &rest[computed..],
            }
        }
        Ok(())
    }

    /// Executes as many of the folds, from the first on, as a batch holds, and says how many.
    fn execute_batch(&mut self, folds: &[(&SlotsJob, &FoldOrder)]) -> Result<usize, EngineError> {
        let mut layout = Layout::new(self.engine, &self.programs);
        let mut words = 0;
        let mut results: Vec<(&SlotsJob, Vec<PieceResult>)> = Vec::new();
        for (job, order) in folds {
            let request = Request {
                job,
                arithmetic: plan_of(job, order).arithmetic,
                pieces: &self.pieces(job, order),
                in_place: true,
            };
            words += Layout::words_of(self.engine, &request);
            if words > self.programs.limits.words {
                break;
            }
            results.push((*job, layout.add(self.engine, &request)?));
        }
        layout.execute(self.engine)?;
        let copies: Vec<CopyWords> = results
            .iter()
            .flat_map(|(job, pieces)| {
                pieces
                    .iter()
                    .flat_map(|piece| deliveries(job, piece.range.clone(), piece.span))
            })
            .filter(|copy| copy.from != copy.to)
            .collect();
        self.engine.copy(&copies)?;
        Ok(results.len())
    }

    /// A fold that is too large for one batch. Its elements are independent of each other, but
    /// where they go may be where others' addends lie: nothing is delivered before all are known.
    fn execute_in_parts(&mut self, job: &SlotsJob, order: &FoldOrder) -> Result<(), EngineError> {
        let words = self.evaluate_slots(job, order)?;
        for (wanted, span) in &job.outs {
            // Faults leave the range empty, or one shorter than the span.
            let [start, end] = [wanted.start, wanted.end].map(|at| at.min(words.len() as u64));
            let elements = start as usize..end as usize;
            let to = part(*span, 0, elements.len() as u32);
            self.engine.write(to, &words[elements])?;
        }
        Ok(())
    }

    /// The result's words of `node` in another order; nothing that the run sees is written.
    pub fn evaluate(
        &mut self,
        node: &FoldNode,
        order: &FoldOrder,
    ) -> Result<Vec<u32>, EngineError> {
        match &node.job {
            FoldJob::Slots(job) => self.evaluate_slots(job, order),
            FoldJob::Segments(job) => {
                let out = Span {
                    arena: self.programs.memory(self.engine, job.rows).results,
                    offset_words: 0,
                    words: job.out.words,
                };
                self.engine.grow(out.arena, out.words, 0)?;
                self.run_segments(&[segments::Request {
                    job,
                    permutation: permutation_of(order),
                    out,
                }])?;
                self.engine.read(out)
            }
        }
    }

    /// The result of `arithmetic` over given addends in the order of `tree`: for what-if questions.
    pub fn evaluate_values(
        &mut self,
        arithmetic: Arithmetic,
        addends: &[Vec<u32>],
        tree: &Tree,
    ) -> Result<Vec<u32>, EngineError> {
        let elements = addends[0].len() as u32;
        let arena = self.programs.memories[0].results;
        let words = u64::from(elements) * addends.len() as u64;
        self.engine.grow(arena, word_count(words)?, 0)?;
        let all = arena.first(words as u32);
        let mut spans = Vec::with_capacity(addends.len());
        for (k, words) in (0..).zip(addends) {
            let span = part(all, k * elements, elements);
            self.engine.write(span, words)?;
            spans.push(span);
        }
        let plan = local::uniform(tree.clone(), u64::from(elements), arithmetic);
        assert_eq!(plan.addend_count as usize, addends.len());
        let plan = Arc::new(plan);
        let job = SlotsJob {
            addends: spans,
            accumulator: None,
            plan: plan.clone(),
            outs: Vec::new(),
        };
        self.evaluate_slots(&job, &FoldOrder::Plan(plan))
    }

    fn evaluate_slots(
        &mut self,
        job: &SlotsJob,
        order: &FoldOrder,
    ) -> Result<Vec<u32>, EngineError> {
        let arithmetic = plan_of(job, order).arithmetic;
        let pieces = self.pieces(job, order);
        let whole = Request {
            job,
            arithmetic,
            pieces: &pieces,
            in_place: false,
        };
        let limits = self.programs.limits;
        if Layout::words_of(self.engine, &whole) <= limits.words {
            return self.evaluate_request(&whole);
        }
        let mut words = Vec::with_capacity(job.plan.element_count as usize);
        for pieces in &parts::parts(job, &pieces, limits.words)? {
            words.extend(self.evaluate_request(&Request { pieces, ..whole })?);
        }
        Ok(words)
    }

    fn evaluate_request(&mut self, request: &Request<'_>) -> Result<Vec<u32>, EngineError> {
        let mut layout = Layout::new(self.engine, &self.programs);
        let results = layout.add(self.engine, request)?;
        layout.execute(self.engine)?;
        let mut words = Vec::new();
        for piece in results {
            words.extend(self.engine.read(piece.span)?);
        }
        Ok(words)
    }

    /// The pieces of the plan that `order` means, none longer than a launch can be.
    fn pieces<'a>(&self, job: &SlotsJob, order: &'a FoldOrder) -> Cow<'a, [Piece]> {
        let pieces = pieces(job, order);
        match parts::cut(&pieces, self.programs.limits.elements()) {
            Some(cut) => Cow::Owned(cut),
            None => pieces,
        }
    }

    /// The addends' words: one vector for each addend (slots) or row (segments).
    pub fn addends(&mut self, node: &FoldNode) -> Result<Vec<Vec<u32>>, EngineError> {
        match &node.job {
            FoldJob::Slots(job) => job
                .addends
                .iter()
                .map(|span| self.engine.read(*span))
                .collect(),
            FoldJob::Segments(job) => {
                let words = self.engine.read(job.rows)?;
                Ok(words
                    .chunks(job.width as usize)
                    .map(<[u32]>::to_vec)
                    .collect())
            }
        }
    }

    /// What stands in the accumulator before the first addend.
    pub fn accumulator(&mut self, node: &FoldNode) -> Result<Option<Vec<u32>>, EngineError> {
        match &node.job {
            FoldJob::Slots(job) => job
                .accumulator
                .map(|span| self.engine.read(span))
                .transpose(),
            FoldJob::Segments(_) => Ok(None),
        }
    }
}

fn plan_of<'a>(job: &'a SlotsJob, order: &'a FoldOrder) -> &'a Plan {
    match order {
        FoldOrder::Plan(plan) => plan,
        FoldOrder::Permutation(_) => &job.plan,
    }
}

fn pieces<'a>(job: &SlotsJob, order: &'a FoldOrder) -> Cow<'a, [Piece]> {
    match order {
        FoldOrder::Plan(plan) => Cow::Borrowed(&plan.pieces),
        FoldOrder::Permutation(permutation) => {
            let plan = &job.plan;
            let plan = local::in_order(permutation, plan.element_count, plan.arithmetic);
            Cow::Owned(plan.pieces)
        }
    }
}

fn permutation_of(order: &FoldOrder) -> Option<&[u32]> {
    match order {
        FoldOrder::Permutation(permutation) => Some(permutation),
        FoldOrder::Plan(_) => None,
    }
}

/// Copies that bring the result of elements `range` to wherever the job wants them.
fn deliveries(job: &SlotsJob, range: std::ops::Range<u64>, result: Span) -> Vec<CopyWords> {
    let mut copies = Vec::new();
    for (wanted, span) in &job.outs {
        let from = wanted.start.max(range.start);
        let to = wanted.end.min(range.end);
        if from < to {
            let words = (to - from) as u32;
            copies.push(CopyWords {
                from: part(result, (from - range.start) as u32, words),
                to: part(*span, (from - wanted.start) as u32, words),
            });
        }
    }
    copies
}
