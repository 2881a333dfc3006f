//! The nodes of a run as they are shown, each with the words that it reads and writes, in one form
//! whatever the node is. Two runs of one program show the same nodes in the same order.

use std::sync::Arc;

use crate::engine::{Engine, EngineError, Span};
use crate::numerics::Digest;
use crate::world::fold::{FoldJob, FoldLab, FoldNode, SegmentsJob, SlotsJob};
use crate::world::{CopyNode, Drift, LaunchNode, Observer, Site, UploadNode};

/// What a node does, as far as it can differ between ranks by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Launch {
        kernel: String,
        params: Vec<u32>,
    },
    /// Each element is the sum of the same element of every addend.
    Sum,
    /// Rows added into rows, as these segments say.
    Rows(Digest),
    Copy,
    Upload(Digest),
}

/// Words that a node reads.
#[derive(Clone, Debug)]
pub(super) struct Operand {
    pub rank: u32,
    pub span: Span,
    pub name: String,
    /// What an output held before: words that the node leaves alone stay so.
    pub is_old: bool,
}

/// Words that a node writes.
#[derive(Clone, Debug)]
pub(super) struct Output {
    pub rank: u32,
    pub span: Span,
    /// The element of a sum that its first word is.
    pub first: u32,
}

/// One node.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub site: Arc<Site>,
    pub work: Work,
    pub reads: Vec<Operand>,
    pub writes: Vec<Output>,
}

/// Who is told of nodes.
pub(super) trait Sees {
    /// A node is about to run.
    fn node(&mut self, node: Shown, engine: &mut dyn Engine) -> Result<(), EngineError>;

    /// All nodes so far have run.
    fn ran(&mut self, _engine: &mut dyn Engine) -> Result<(), EngineError> {
        Ok(())
    }

    /// Copies were compared, and differ.
    fn drift(
        &mut self,
        drift: &Drift,
        spans: (Span, Span),
        engine: &mut dyn Engine,
    ) -> Result<(), EngineError>;
}

/// Watches a run from a step on.
pub(super) struct Watch<'a, S> {
    pub from_step: u32,
    pub sees: &'a mut S,
}

impl<S: Sees> Watch<'_, S> {
    fn show(&mut self, node: Shown, engine: &mut dyn Engine) -> Result<(), EngineError> {
        match node.site.step >= self.from_step {
            true => self.sees.node(node, engine),
            false => Ok(()),
        }
    }
}

impl<S: Sees> Observer for Watch<'_, S> {
    fn on_fold(&mut self, node: &FoldNode, lab: &mut FoldLab<'_>) -> Result<(), EngineError> {
        let shown = match &node.job {
            FoldJob::Slots(job) => sum(node, job),
            FoldJob::Segments(job) => rows(node, job),
        };
        self.show(shown, lab.engine)
    }

    fn on_launch(
        &mut self,
        node: &LaunchNode<'_>,
        engine: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        self.show(launch(node), engine)
    }

    fn on_copies(
        &mut self,
        copies: &[CopyNode<'_>],
        engine: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        for node in copies {
            let shown = Shown {
                site: node.site.clone(),
                work: Work::Copy,
                reads: vec![operand(node.from, node.copy.from, "source")],
                writes: vec![output(node.to, node.copy.to)],
            };
            self.show(shown, engine)?;
        }
        Ok(())
    }

    fn on_upload(
        &mut self,
        node: &UploadNode<'_>,
        engine: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        let shown = Shown {
            site: node.site.clone(),
            work: Work::Upload(Digest::of_words(node.words)),
            reads: Vec::new(),
            writes: vec![output(node.rank, node.span)],
        };
        self.show(shown, engine)
    }

    fn on_ran(&mut self, engine: &mut dyn Engine) -> Result<(), EngineError> {
        self.sees.ran(engine)
    }

    fn on_drift(
        &mut self,
        drift: &Drift,
        spans: (Span, Span),
        engine: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        self.sees.drift(drift, spans, engine)
    }
}

fn operand(rank: u32, span: Span, name: &str) -> Operand {
    Operand {
        rank,
        span,
        name: name.to_string(),
        is_old: false,
    }
}

fn output(rank: u32, span: Span) -> Output {
    Output {
        rank,
        span,
        first: 0,
    }
}

fn launch(node: &LaunchNode<'_>) -> Shown {
    let operands = || node.kernel.operands.iter().zip(node.operands);
    let read = operands().filter(|(operand, _)| operand.reads);
    let mut reads: Vec<Operand> = read
        .map(|(of, span)| operand(node.rank, *span, &of.name))
        .collect();
    let old = operands().filter(|(operand, _)| operand.writes && !operand.reads);
    reads.extend(old.map(|(of, span)| Operand {
        is_old: true,
        ..operand(node.rank, *span, &of.name)
    }));
    let written = operands().filter(|(operand, _)| operand.writes);
    Shown {
        site: node.site.clone(),
        work: Work::Launch {
            kernel: node.kernel.name.clone(),
            params: node.params.to_vec(),
        },
        reads,
        writes: written.map(|(_, span)| output(node.rank, *span)).collect(),
    }
}

/// A sum over ranks, or over the slots of one.
fn sum(node: &FoldNode, job: &SlotsJob) -> Shown {
    let rank_of = |place: usize| node.ranks[place.min(node.ranks.len() - 1)];
    let addends = job.addends.iter().enumerate();
    let addends = addends.map(|(place, span)| operand(rank_of(place), *span, "addend"));
    let base = job.accumulator.iter();
    let base = base.map(|span| operand(node.ranks[0], *span, "accumulator"));
    let outs = job.outs.iter().enumerate();
    let outs = outs.map(|(place, (range, span))| Output {
        first: range.start as u32,
        ..output(rank_of(place), *span)
    });
    Shown {
        site: node.site.clone(),
        work: Work::Sum,
        reads: addends.chain(base).collect(),
        writes: outs.collect(),
    }
}

fn rows(node: &FoldNode, job: &SegmentsJob) -> Shown {
    let segments = [&*job.segments.pointers, &*job.segments.indices].concat();
    Shown {
        site: node.site.clone(),
        work: Work::Rows(Digest::of_words(&segments)),
        reads: vec![operand(node.ranks[0], job.rows, "rows")],
        writes: vec![output(node.ranks[0], job.out)],
    }
}
