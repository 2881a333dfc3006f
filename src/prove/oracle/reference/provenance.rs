//! Follows contributions through a run: what the backward writes is a contribution of its rank and
//! microbatch; the reduction copies, adds and scales; the optimizer's read is where it is judged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::engine::{ArenaId, Engine, EngineError, Span};
use crate::plan::Combine;
use crate::train::{Contributions, TrainOptions};
use crate::world::fold::{FoldJob, FoldLab, FoldNode, SlotsJob};
use crate::world::memory::Intervals;
use crate::world::{CopyNode, LaunchNode, Observer, Phase, Site, UploadNode};

use super::contribution::{Finding, Source, Terms};
use super::{FINDINGS_MAX, Provenances};

/// Values of words from the start of a span: (from, to, terms).
type Pieces = Vec<(u32, u32, Terms)>;

/// Observes one run.
pub(super) struct Provenance {
    options: Arc<TrainOptions>,
    words: BTreeMap<ArenaId, Intervals<Terms>>,
    /// What each rank's optimizer is to read, once it was asked.
    wanted: BTreeMap<u32, Arc<Vec<Contributions>>>,
    found: Provenances,
}

impl Provenance {
    pub fn new(options: Arc<TrainOptions>) -> Provenance {
        Provenance {
            options,
            words: BTreeMap::new(),
            wanted: BTreeMap::new(),
            found: Provenances::default(),
        }
    }

    pub fn end(self) -> Provenances {
        self.found
    }

    fn get(&self, span: Span) -> Pieces {
        let (from, to) = (span.offset_words, span.offset_words + span.words);
        let words = self.words.get(&span.arena);
        let pieces = words.map(|words| words.within(from, to)).into_iter();
        pieces
            .flatten()
            .map(|(start, end, terms)| (start - from, end - from, terms.clone()))
            .collect()
    }

    /// `span` becomes `pieces`, and constants between them.
    fn set(&mut self, span: Span, pieces: Pieces) {
        let words = self.words.entry(span.arena).or_default();
        let from = span.offset_words;
        words.take(from, from + span.words);
        for (start, end, terms) in pieces {
            words.set(from + start, from + end, terms);
        }
    }

    /// What the backward of a microbatch has written.
    fn contribute(&mut self, rank: u32, site: &Site, span: Span) {
        let pieces = match (site.phase, site.microbatch) {
            (Phase::Backward, Some(microbatch)) => {
                let step = site.step;
                let source = Source {
                    step,
                    rank,
                    microbatch,
                };
                vec![(0, span.words, Terms::of(source))]
            }
            _ => Vec::new(),
        };
        self.set(span, pieces);
    }

    fn launch_in_reduction(&mut self, node: &LaunchNode<'_>) {
        match (&*node.kernel.name, node.operands) {
            ("scale", [values]) => {
                let factor = f32::from_bits(node.params[1]);
                let pieces = self.get(*values).into_iter();
                let scaled = pieces.map(|(from, to, terms)| (from, to, terms.scaled(factor)));
                let scaled = scaled.collect();
                self.set(*values, scaled);
            }
            ("fill", [values]) => self.set(*values, Vec::new()),
            (name, _) => {
                self.found.unfollowed.insert(name.to_string());
                self.overwritten(node);
            }
        }
    }

    fn overwritten(&mut self, node: &LaunchNode<'_>) {
        for (operand, span) in node.kernel.operands.iter().zip(node.operands) {
            if operand.writes {
                self.set(*span, Vec::new());
            }
        }
    }

    fn sum(&mut self, node: &FoldNode, job: &SlotsJob) {
        let arithmetic = job.plan.arithmetic;
        if arithmetic.combine != Combine::Sum {
            self.found.unfollowed.insert(node.site.op.to_string());
        }
        let spans = job.accumulator.iter().chain(&job.addends);
        let factor = arithmetic.pre_multiply_bits.map(f32::from_bits);
        let addends: Vec<Pieces> = spans
            .map(|span| {
                let pieces = self.get(*span).into_iter();
                let scaled = pieces.map(|(from, to, terms)| match factor {
                    Some(factor) => (from, to, terms.scaled(factor)),
                    None => (from, to, terms),
                });
                scaled.collect()
            })
            .collect();
        let sums = summed(&addends);
        for (range, span) in &job.outs {
            let (from, to) = (range.start as u32, range.end as u32);
            let inside = sums.iter().filter_map(|(start, end, terms)| {
                let (start, end) = ((*start).max(from), (*end).min(to));
                (start < end).then(|| (start - from, end - from, terms.clone()))
            });
            let inside = inside.collect();
            self.set(*span, inside);
        }
    }

    /// The optimizer of `rank` is about to read `grads`.
    fn judge(&mut self, rank: u32, step: u32, grads: Span) {
        let options = self.options.clone();
        let wanted = self.wanted.entry(rank);
        let wanted = wanted.or_insert_with(|| Arc::new(options.contributions(rank)));
        for contributions in wanted.clone().iter() {
            let words = contributions.words.clone();
            let want = self.wanted_terms(contributions, step);
            self.found.words += u64::from(words.end - words.start);
            self.found.contributions += want.len() as u64;
            let have = self.get(Span {
                offset_words: grads.offset_words + words.start,
                words: words.end - words.start,
                ..grads
            });
            for (from, to, terms) in whole(have, words.end - words.start) {
                if terms != want {
                    self.keep(Finding {
                        step,
                        rank,
                        parameter: contributions.parameter.clone(),
                        words: (words.start + from, words.start + to),
                        faults: terms.faults(&want, step),
                    });
                }
            }
        }
    }

    fn wanted_terms(&self, contributions: &Contributions, step: u32) -> Terms {
        let microbatches = self.options.microbatches();
        let sources = contributions.ranks.iter().flat_map(|rank| {
            (0..microbatches).map(|microbatch| Source {
                step,
                rank: *rank,
                microbatch,
            })
        });
        Terms::each(sources, self.options.contribution_scale())
    }

    fn keep(&mut self, finding: Finding) {
        match self.found.findings.len() < FINDINGS_MAX {
            true => self.found.findings.push(finding),
            false => self.found.beyond += 1,
        }
    }
}

impl Observer for Provenance {
    fn on_fold(&mut self, node: &FoldNode, _: &mut FoldLab<'_>) -> Result<(), EngineError> {
        match (&node.job, node.site.phase) {
            (FoldJob::Slots(job), Phase::GradReduce) => self.sum(node, job),
            (FoldJob::Segments(job), Phase::GradReduce) => {
                self.found.unfollowed.insert(node.site.op.to_string());
                self.set(job.out, Vec::new());
            }
            (FoldJob::Segments(job), _) => self.contribute(node.ranks[0], &node.site, job.out),
            (FoldJob::Slots(job), _) => {
                for (place, (_, span)) in job.outs.iter().enumerate() {
                    let rank = node.ranks[place.min(node.ranks.len() - 1)];
                    self.contribute(rank, &node.site, *span);
                }
            }
        }
        Ok(())
    }

    fn on_launch(&mut self, node: &LaunchNode<'_>, _: &mut dyn Engine) -> Result<(), EngineError> {
        // Steps whose scaled gradients overflow have no update, but they have gradients.
        let reader = match self.options.loss_scale {
            Some(_) => "unscale",
            None => "adamw",
        };
        if &*node.kernel.name == reader {
            self.judge(node.rank, node.site.step, node.operands[0]);
        }
        match node.site.phase {
            Phase::GradReduce => self.launch_in_reduction(node),
            Phase::Backward => {
                for (operand, span) in node.kernel.operands.iter().zip(node.operands) {
                    if operand.writes {
                        self.contribute(node.rank, node.site, *span);
                    }
                }
            }
            _ => self.overwritten(node),
        }
        Ok(())
    }

    fn on_copies(
        &mut self,
        copies: &[CopyNode<'_>],
        _: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        let read = copies.iter().map(|node| self.get(node.copy.from));
        let read: Vec<Pieces> = read.collect();
        for (node, pieces) in copies.iter().zip(read) {
            self.set(node.copy.to, pieces);
        }
        Ok(())
    }

    fn on_upload(&mut self, node: &UploadNode<'_>, _: &mut dyn Engine) -> Result<(), EngineError> {
        self.set(node.span, Vec::new());
        Ok(())
    }
}

/// The sum of values over the same words.
fn summed(addends: &[Pieces]) -> Pieces {
    let edges: BTreeSet<u32> = addends
        .iter()
        .flatten()
        .flat_map(|(from, to, _)| [*from, *to])
        .collect();
    let edges: Vec<u32> = edges.into_iter().collect();
    let mut sums = vec![Terms::default(); edges.len().saturating_sub(1)];
    for (from, to, terms) in addends.iter().flatten() {
        let first = edges.partition_point(|edge| edge < from);
        let last = edges.partition_point(|edge| edge < to);
        for sum in &mut sums[first..last] {
            *sum = sum.add(terms);
        }
    }
    let places = edges.windows(2).map(|pair| (pair[0], pair[1]));
    places
        .zip(sums)
        .map(|((from, to), terms)| (from, to, terms))
        .collect()
}

/// Constants where `pieces` leave words of `0..words` out.
fn whole(pieces: Pieces, words: u32) -> Pieces {
    let mut all = Vec::with_capacity(pieces.len() + 1);
    let mut next = 0;
    for (from, to, terms) in pieces {
        if next < from {
            all.push((next, from, Terms::default()));
        }
        next = to;
        all.push((from, to, terms));
    }
    if next < words {
        all.push((next, words, Terms::default()));
    }
    all
}
