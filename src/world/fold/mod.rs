//! Folds: the only nodes whose arithmetic has an order. Host code adds nothing here: every sum is
//! computed by `fold.wgsl` or `fold_segments.wgsl`, whoever asks for it.

mod fault;
mod lab;
mod parts;
mod segments;
mod slots;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;

use crate::engine::Span;
use crate::numerics::Dtype;
use crate::plan::{Arithmetic, Plan};
use crate::world::order::{Choice, CollectiveShape, NodeId, TuneKey};
use crate::world::rank::{GroupId, Segments, StreamId};
use crate::world::site::{Family, Site};

pub use fault::FoldFault;
pub use lab::{FoldLab, FoldMemory, FoldPrograms};
pub use parts::FoldLimits;
pub(crate) use slots::part;

/// One fold of a run, before it is executed.
#[derive(Clone, Debug)]
pub struct FoldNode {
    pub id: NodeId,
    /// Wave of the canonical schedule, counted within the step.
    pub wave: u32,
    pub site: Arc<Site>,
    /// The stream it was issued on; a collective's members call it on the same one.
    pub stream: StreamId,
    pub family: Family,
    pub group: Option<GroupId>,
    /// Global ranks that hold the addends of a collective in the group's order, or the one rank.
    pub ranks: Arc<[u32]>,
    pub choice: Choice,
    /// What its plans follow from, for a collective.
    pub shape: Option<CollectiveShape>,
    pub job: FoldJob,
}

#[derive(Clone, Debug)]
pub enum FoldJob {
    Slots(SlotsJob),
    Segments(SegmentsJob),
}

/// Addends of equal length, one span each.
#[derive(Clone, Debug)]
pub struct SlotsJob {
    pub addends: Vec<Span>,
    /// Holds the partial result before the first addend, when `Init::Accumulator` says so.
    pub accumulator: Option<Span>,
    pub plan: Arc<Plan>,
    /// Where which elements of the result go.
    pub outs: Vec<(Range<u64>, Span)>,
}

/// Rows that are added into rows.
#[derive(Clone, Debug)]
pub struct SegmentsJob {
    pub rows: Span,
    pub width: u32,
    pub segments: Segments,
    pub out: Span,
    pub out_dtype: Dtype,
}

/// The order in which a fold is evaluated.
#[derive(Clone, Debug)]
pub enum FoldOrder {
    Plan(Arc<Plan>),
    /// Addend numbers in the order in which they land; for segments, row numbers.
    Permutation(Arc<[u32]>),
}

impl FoldNode {
    /// Addends of an element, the most of any, without the accumulator.
    pub fn addend_count(&self) -> u32 {
        match &self.job {
            FoldJob::Slots(job) => job.addends.len() as u32,
            FoldJob::Segments(job) => job.longest_segment(),
        }
    }

    /// What the node's rank would keep a configuration by.
    pub fn tune_key(&self) -> TuneKey {
        TuneKey {
            rank: self.ranks[0],
            family: self.family,
            addends: self.addend_count(),
            elements: self.elements(),
        }
    }

    /// What a permutation of the node numbers: its addends (slots) or its rows (segments).
    pub fn permuted(&self) -> u32 {
        match &self.job {
            FoldJob::Slots(job) => job.addends.len() as u32,
            FoldJob::Segments(job) => job.rows.words / job.width,
        }
    }

    pub fn elements(&self) -> u64 {
        match &self.job {
            FoldJob::Slots(job) => job.plan.element_count,
            FoldJob::Segments(job) => u64::from(job.out.words),
        }
    }

    pub fn arithmetic(&self) -> Arithmetic {
        match &self.job {
            FoldJob::Slots(job) => job.plan.arithmetic,
            FoldJob::Segments(job) => Arithmetic {
                init: crate::plan::Init::Zero,
                ..Arithmetic::sum(Dtype::F32, Dtype::F32, job.out_dtype)
            },
        }
    }
}

impl SegmentsJob {
    pub fn out_rows(&self) -> u32 {
        self.segments.pointers.len() as u32 - 1
    }

    pub fn longest_segment(&self) -> u32 {
        self.segments
            .pointers
            .windows(2)
            .map(|pair| pair[1] - pair[0])
            .max()
            .unwrap_or(0)
    }

    /// The rows of output row `row`, in the order that `permutation` (row numbers) gives them.
    pub fn segment(&self, row: u32, permutation: Option<&[u32]>) -> Vec<u32> {
        let pointers = &self.segments.pointers;
        let (from, to) = (
            pointers[row as usize] as usize,
            pointers[row as usize + 1] as usize,
        );
        let mut rows = self.segments.indices[from..to].to_vec();
        if let Some(permutation) = permutation {
            let arrival = arrivals(permutation);
            rows.sort_by_key(|row| arrival[*row as usize]);
        }
        rows
    }

    /// `indices` with the rows of each segment in the order that `permutation` gives them.
    fn permuted_indices(&self, permutation: &[u32]) -> Vec<u32> {
        let arrival = arrivals(permutation);
        let mut indices = self.segments.indices.to_vec();
        for pair in self.segments.pointers.windows(2) {
            let rows = &mut indices[pair[0] as usize..pair[1] as usize];
            rows.sort_by_key(|row| arrival[*row as usize]);
        }
        indices
    }
}

/// When each row arrives.
fn arrivals(permutation: &[u32]) -> Vec<u32> {
    let mut arrival = vec![0; permutation.len()];
    for (position, row) in (0..).zip(permutation) {
        arrival[*row as usize] = position;
    }
    arrival
}
