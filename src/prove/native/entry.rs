//! A fold as a race: which writer adds what where, and whether it can be one.

use crate::engine::EngineError;
use crate::numerics::Dtype;
use crate::plan::{Arithmetic, Combine, Init};
use crate::world::fold::{FoldJob, FoldLab, FoldNode, SegmentsJob};

/// Writers of one fold at most, and words of all their addends.
const WRITERS_MAX: usize = 4_096;
const WORDS_MAX: usize = 1 << 22;
/// Words of one row: drivers end loops that are very long.
const WIDTH_MAX: usize = 1 << 19;

/// A fold's writers and accumulators.
pub(super) struct Entry {
    pub addends: Vec<u32>,
    pub width: u32,
    pub targets: Vec<u32>,
    pub start: Vec<u32>,
    /// The writers, by the numbers that the fold's orders use.
    numbers: Vec<u32>,
}

impl Entry {
    /// The fold's race, or why it has none.
    pub fn of(
        node: &FoldNode,
        lab: &mut FoldLab<'_>,
    ) -> Result<Result<Entry, String>, EngineError> {
        if let Err(reason) = is_plain(&node.arithmetic()) {
            return Ok(Err(reason.to_owned()));
        }
        let rows = node.permuted() as usize;
        let width = match &node.job {
            FoldJob::Slots(_) => node.elements() as usize,
            FoldJob::Segments(job) => job.width as usize,
        };
        if rows > WRITERS_MAX || rows * width > WORDS_MAX || width > WIDTH_MAX {
            return Ok(Err(format!(
                "more than {WRITERS_MAX} writers, {WIDTH_MAX} elements or {WORDS_MAX} words in all"
            )));
        }
        let elements = node.elements() as usize;
        let start = match node.arithmetic().init {
            // -0 leaves every first addend as it is, as +0 does not.
            Init::First => vec![(-0.0f32).to_bits(); elements],
            Init::Zero => vec![0; elements],
            Init::Accumulator => lab.accumulator(node)?.expect("an accumulator is held"),
        };
        let landings = match &node.job {
            FoldJob::Slots(_) => vec![Some(0); rows],
            FoldJob::Segments(job) => match landings(job, rows) {
                Some(landings) => landings,
                None => return Ok(Err("a row lands in more than one place".to_owned())),
            },
        };
        let held = lab.addends(node)?;
        let mut entry = Entry {
            addends: Vec::with_capacity(rows * width),
            width: width as u32,
            targets: Vec::new(),
            start,
            numbers: Vec::new(),
        };
        for (number, (row, landing)) in (0..).zip(held.iter().zip(landings)) {
            if let Some(target) = landing {
                entry.addends.extend(row);
                entry.targets.push(target);
                entry.numbers.push(number);
            }
        }
        Ok(Ok(entry))
    }

    /// An order of the fold's as one of the writers.
    pub fn writers_in(&self, order: &[u32]) -> Vec<u32> {
        let place = |number: &u32| self.numbers.binary_search(number).ok();
        let writers = order.iter().filter_map(place);
        writers.map(|writer| writer as u32).collect()
    }
}

/// Whether a fold is a plain f32 sum, which is what the kernel adds.
fn is_plain(arithmetic: &Arithmetic) -> Result<(), &'static str> {
    if arithmetic.combine != Combine::Sum {
        return Err("no sum");
    }
    if arithmetic.partial != Dtype::F32 || arithmetic.addend == Dtype::U32 {
        return Err("its accumulator is not f32");
    }
    if arithmetic.pre_multiply_bits.is_some() || arithmetic.post_divide_bits.is_some() {
        return Err("it multiplies or divides, which the kernel does not");
    }
    Ok(())
}

/// The accumulator that each row begins at; `None` within for a row that lands nowhere.
fn landings(job: &SegmentsJob, rows: usize) -> Option<Vec<Option<u32>>> {
    let mut landings = vec![None; rows];
    for out_row in 0..job.out_rows() {
        for row in job.segment(out_row, None) {
            let place = &mut landings[row as usize];
            if place.replace(out_row * job.width).is_some() {
                return None;
            }
        }
    }
    Some(landings)
}
