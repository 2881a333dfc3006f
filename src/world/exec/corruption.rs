//! Bits that change by themselves: in what a node wrote, or in memory between two steps.

use crate::engine::{Engine, EngineError, Span};
use crate::fault::{BitFlip, FlipTarget};
use crate::world::error::WorldError;
use crate::world::rank::Allocation;

use super::PlantedFault;
use super::coordinator::{Coordinator, Written, at};

impl Coordinator<'_> {
    /// Flips what is to flip in the output of one of the nodes that have just run.
    pub(super) fn corrupt_nodes(&mut self, written: &[Written]) -> Result<(), WorldError> {
        for flip in flips(&self.options.faults) {
            let FlipTarget::Node(node) = &flip.at else {
                continue;
            };
            let is_there = |written: &&Written| {
                let here = (written.rank, written.site.step) == (flip.rank, flip.step);
                here && written.site.node() == *node
            };
            if self.record.flips_met.contains(flip) {
                continue;
            }
            if let Some(written) = written.iter().find(is_there) {
                let flipped = flip_in(self.engine, written.span, flip);
                let met = flipped.map_err(|source| {
                    at(&flip.rank.to_string(), &written.site.to_string(), source)
                })?;
                self.note_flip(flip, met);
            }
        }
        Ok(())
    }

    /// Flips what is to flip in `rank`'s memory after `step`.
    pub(super) fn corrupt_memory(
        &mut self,
        rank: u32,
        step: u32,
        live: &[Allocation],
    ) -> Result<(), EngineError> {
        for flip in flips(&self.options.faults) {
            if (flip.rank, flip.step) != (rank, step) {
                continue;
            }
            let state = &self.ranks[rank as usize];
            let span = match &flip.at {
                FlipTarget::Node(_) => None,
                FlipTarget::Buffer(name) => {
                    let buffer = live.iter().find(|allocation| *allocation.name == **name);
                    buffer.map(|allocation| state.memory.allocation(allocation))
                }
                FlipTarget::Component(component) => {
                    let mut tensors = state.persisted.iter();
                    let tensor = tensors.find(|((of, _), _)| of == component);
                    tensor.map(|(_, tensor)| state.memory.span(*tensor))
                }
            };
            if let Some(span) = span {
                let met = flip_in(self.engine, span, flip)?;
                self.note_flip(flip, met);
            }
        }
        Ok(())
    }

    fn note_flip(&mut self, flip: &BitFlip, met: bool) {
        if met {
            self.record.flips_met.insert(flip.clone());
        }
    }
}

fn flips(faults: &[PlantedFault]) -> impl Iterator<Item = &BitFlip> {
    faults.iter().filter_map(|fault| match fault {
        PlantedFault::Flip(flip) => Some(flip),
        _ => None,
    })
}

/// False where there is no such bit.
fn flip_in(engine: &mut dyn Engine, span: Span, flip: &BitFlip) -> Result<bool, EngineError> {
    let mut words = engine.read(span)?;
    let Some(word) = words.get_mut((flip.bit / 32) as usize) else {
        return Ok(false);
    };
    *word ^= 1 << (flip.bit % 32);
    engine.write(span, &words)?;
    Ok(true)
}
