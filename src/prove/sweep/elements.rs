//! The addends of a fold, element by element, as the ladder wants them.

use std::collections::BTreeSet;

use crate::engine::EngineError;
use crate::numerics::ladder::{Start, Sum};
use crate::plan::{Arithmetic, Init};
use crate::world::fold::{FoldJob, FoldLab, FoldNode};

/// All values that meet in one fold.
pub(crate) struct Elements {
    pub count: usize,
    words: Vec<Vec<u32>>,
    accumulator: Option<Vec<u32>>,
    arithmetic: Arithmetic,
    /// Segments: the rows of each output row, and the row's width.
    segments: Option<(Vec<Vec<u32>>, usize)>,
}

impl Elements {
    pub fn read(node: &FoldNode, lab: &mut FoldLab<'_>) -> Result<Self, EngineError> {
        let segments = match &node.job {
            FoldJob::Slots(_) => None,
            FoldJob::Segments(job) => {
                let rows = 0..job.out_rows();
                let rows = rows.map(|row| job.segment(row, None)).collect();
                Some((rows, job.width as usize))
            }
        };
        Ok(Elements {
            count: node.elements() as usize,
            words: lab.addends(node)?,
            accumulator: lab.accumulator(node)?,
            arithmetic: node.arithmetic(),
            segments,
        })
    }

    /// Who adds something to an element.
    pub fn writers(&self, element: usize) -> Vec<u32> {
        match &self.segments {
            None => (0..self.words.len() as u32).collect(),
            Some((rows, width)) => rows[element / width].clone(),
        }
    }

    /// The values of an element's writers, as they arrive.
    pub fn arriving(&self, element: usize) -> Vec<f32> {
        let column = match &self.segments {
            None => element,
            Some((_, width)) => element % width,
        };
        let writers = self.writers(element).into_iter();
        writers
            .map(|writer| f32::from_bits(self.words[writer as usize][column]))
            .collect()
    }

    /// The same, multiplied where the fold says so.
    pub fn multiplied(&self, element: usize) -> Vec<f32> {
        let values = self.arriving(element).into_iter();
        values.map(|x| multiplied(&self.arithmetic, x)).collect()
    }

    /// What an element's accumulator holds before the first addend.
    pub fn held(&self, element: usize) -> Option<f32> {
        let held = self.accumulator.as_ref()?;
        Some(f32::from_bits(held[element]))
    }

    /// The sum of an element; `addends` are its values after any multiplication.
    pub fn sum<'a>(&self, element: usize, addends: &'a [f32]) -> Sum<'a> {
        sum_of(&self.arithmetic, self.held(element), addends)
    }

    /// Whether the sum has more orders than the node, or more results: a row that is added twice
    /// lands once, and a division may join what the sum told apart. Then two orders of the sum that
    /// part need not part the node.
    pub fn is_wider_than_node(&self, element: usize) -> bool {
        let writers = self.writers(element);
        let distinct: BTreeSet<&u32> = writers.iter().collect();
        distinct.len() < writers.len() || self.arithmetic.post_divide_bits.is_some()
    }
}

/// An addend after the multiplication that `arithmetic` begins with.
pub(crate) fn multiplied(arithmetic: &Arithmetic, x: f32) -> f32 {
    match arithmetic.pre_multiply_bits {
        None => x,
        Some(bits) => arithmetic.partial.round(x * f32::from_bits(bits)),
    }
}

/// The sum that `arithmetic` takes over `addends`, which have been multiplied. Where the finished
/// sum is divided, it ends before that, in the type of the partial sums: equal sums have equal
/// quotients.
pub(crate) fn sum_of<'a>(
    arithmetic: &Arithmetic,
    held: Option<f32>,
    addends: &'a [f32],
) -> Sum<'a> {
    let start = match arithmetic.init {
        Init::First => Start::First,
        Init::Zero => Start::Zero,
        Init::Accumulator => Start::Base(held.expect("an accumulator was read")),
    };
    let addend = match arithmetic.pre_multiply_bits {
        Some(_) => arithmetic.partial,
        None => arithmetic.addend,
    };
    let out = match arithmetic.post_divide_bits {
        Some(_) => arithmetic.partial,
        None => arithmetic.out,
    };
    Sum {
        addends,
        start,
        addend,
        partial: arithmetic.partial,
        out,
    }
}
