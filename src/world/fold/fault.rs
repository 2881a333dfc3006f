//! Faults that can be planted in a fold, to see whether a check would catch them.

use std::sync::Arc;

use crate::engine::{Engine, EngineError};
use crate::numerics::Dtype;
use crate::plan::{Arithmetic, Plan, local};

use super::{FoldJob, FoldNode, FoldOrder, SlotsJob};

/// What goes wrong in one fold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoldFault {
    /// Addends meet in this order on every element, whatever the plan says.
    Order(Arc<[u32]>),
    /// One addend never arrives: another is taken twice in its place.
    DuplicateAddend { lost: u32, twice: u32 },
    /// Partial sums are rounded to a narrower type.
    NarrowPartial(Dtype),
    /// The last bit of one element of the result is flipped, everywhere.
    FlipLastBit { element: u64 },
    /// One destination keeps what it held before: a missing wait.
    StaleDestination { destination: u32 },
    /// One destination gets one element with its last bit flipped: copies drift.
    DriftingDestination { destination: u32 },
    /// The last element is not written: off by one.
    SkipLastElement,
    /// The first two neighbours from `element` on that differ change places: a wrong offset.
    SwapElements { element: u64 },
}

impl FoldFault {
    /// Whether there is anything in `node` that the fault could strike.
    pub(crate) fn applies(&self, node: &FoldNode) -> bool {
        if let FoldFault::Order(order) = self {
            return order.len() as u32 == node.permuted();
        }
        let FoldJob::Slots(job) = &node.job else {
            return false;
        };
        let addends = job.addends.len();
        let elements = job.plan.element_count;
        match self {
            FoldFault::Order(_) => unreachable!("orders were judged above"),
            FoldFault::DuplicateAddend { lost, twice } => {
                lost != twice && (*lost.max(twice) as usize) < addends
            }
            FoldFault::NarrowPartial(dtype) => *dtype != job.plan.arithmetic.partial,
            FoldFault::FlipLastBit { element } => *element < elements,
            FoldFault::SwapElements { element } => job
                .outs
                .iter()
                .any(|(range, _)| range.contains(element) && range.contains(&(element + 1))),
            FoldFault::StaleDestination { destination }
            | FoldFault::DriftingDestination { destination } => {
                let out = job.outs.get(*destination as usize);
                out.is_some_and(|(range, _)| !range.is_empty())
            }
            FoldFault::SkipLastElement => elements > 0,
        }
    }

    /// Changes how `node` runs. What cannot be done before the run is left to `after`.
    pub(crate) fn before(&self, node: &mut FoldNode, order: &mut FoldOrder) {
        match (self, &mut node.job) {
            (FoldFault::Order(permutation), _) => {
                *order = FoldOrder::Permutation(permutation.clone())
            }
            (FoldFault::DuplicateAddend { lost, twice }, FoldJob::Slots(job)) => {
                job.addends[*lost as usize] = job.addends[*twice as usize];
            }
            (FoldFault::NarrowPartial(dtype), FoldJob::Slots(job)) => {
                *order = FoldOrder::Plan(Arc::new(narrowed(job, order, *dtype)));
            }
            (FoldFault::StaleDestination { destination }, FoldJob::Slots(job)) => {
                // Still listed, so that what it holds is digested; no element reaches it.
                job.outs[*destination as usize].0 = 0..0;
            }
            (FoldFault::SkipLastElement, FoldJob::Slots(job)) => {
                let end = job.plan.element_count;
                for (range, _) in &mut job.outs {
                    if range.end == end && !range.is_empty() {
                        range.end -= 1;
                    }
                }
            }
            _ => {}
        }
    }

    /// Changes the delivered result of `node`.
    pub(crate) fn after(
        &self,
        node: &FoldNode,
        engine: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        let FoldJob::Slots(job) = &node.job else {
            return Ok(());
        };
        for (place, (range, span)) in job.outs.iter().enumerate() {
            let element = match self {
                FoldFault::FlipLastBit { element } | FoldFault::SwapElements { element } => {
                    *element
                }
                FoldFault::DriftingDestination { destination }
                    if *destination as usize == place =>
                {
                    range.start
                }
                _ => continue,
            };
            if !range.contains(&element) {
                continue;
            }
            let mut words = engine.read(*span)?;
            let at = (element - range.start) as usize;
            match self {
                FoldFault::SwapElements { .. } => swap_unequal(&mut words, at),
                _ => words[at] ^= 1 << lowest_bit(job.plan.arithmetic.out),
            }
            engine.write(*span, &words)?;
        }
        Ok(())
    }
}

/// Swaps two unequal neighbours, the first from `from` on or, failing that, the first of all:
/// swapping equal ones is no fault.
fn swap_unequal(words: &mut [u32], from: usize) {
    let unequal = |start: usize| {
        let mut pairs = words.windows(2).skip(start);
        pairs
            .position(|pair| pair[0] != pair[1])
            .map(|place| start + place)
    };
    if let Some(place) = unequal(from).or_else(|| unequal(0)) {
        words.swap(place, place + 1);
    }
}

fn narrowed(job: &SlotsJob, order: &FoldOrder, partial: Dtype) -> Plan {
    let plan = match order {
        FoldOrder::Plan(plan) => plan.as_ref().clone(),
        FoldOrder::Permutation(order) => {
            local::in_order(order, job.plan.element_count, job.plan.arithmetic)
        }
    };
    let arithmetic = Arithmetic {
        partial,
        ..plan.arithmetic
    };
    Plan { arithmetic, ..plan }
}

/// The lowest bit that a value of the type can have set in its `f32` word.
fn lowest_bit(dtype: Dtype) -> u32 {
    match dtype {
        Dtype::F32 | Dtype::U32 => 0,
        Dtype::Bf16 => 16,
        Dtype::F16 => 13,
    }
}
