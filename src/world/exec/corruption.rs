//! Bits that change by themselves: in what a node wrote, or in memory between two steps.

use crate::engine::{Engine, EngineError, Span};
use crate::fault::{BitFlip, FlipTarget};
use crate::numerics::Dtype;
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
                let place = (written.span, written.dtype);
                let flipped = flip_in(self.engine, place, flip);
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
            let place = match &flip.at {
                FlipTarget::Node(_) => None,
                FlipTarget::Buffer(name) => {
                    let buffer = live.iter().find(|allocation| *allocation.name == **name);
                    buffer.map(|found| (state.memory.allocation(found), found.dtype))
                }
                FlipTarget::Component(component) => {
                    let mut tensors = state.persisted.iter();
                    let tensor = tensors.find(|((of, _), _)| of == component);
                    tensor.map(|(_, tensor)| (state.memory.span(*tensor), tensor.dtype))
                }
            };
            if let Some(place) = place {
                let met = flip_in(self.engine, place, flip)?;
                self.note_flip(flip, met);
            }
        }
        Ok(())
    }

    fn note_flip(&mut self, flip: &BitFlip, met: Flipped) {
        match met {
            Flipped::There => {
                self.record.flips_met.insert(flip.clone());
            }
            Flipped::Unheld => {
                self.record.flips_unheld.insert(flip.clone());
            }
            Flipped::Outside => {}
        }
    }
}

fn flips(faults: &[PlantedFault]) -> impl Iterator<Item = &BitFlip> {
    faults.iter().filter_map(|fault| match fault {
        PlantedFault::Flip(flip) => Some(flip),
        _ => None,
    })
}

/// What became of a bit.
enum Flipped {
    There,
    /// The words hold fewer.
    Outside,
    /// No value of the type has it: a machine's memory has no such bit.
    Unheld,
}

fn flip_in(
    engine: &mut dyn Engine,
    (span, dtype): (Span, Dtype),
    flip: &BitFlip,
) -> Result<Flipped, EngineError> {
    let (place, bit) = ((flip.bit / 32) as usize, flip.bit % 32);
    if bit < unheld_bits(dtype) {
        return Ok(Flipped::Unheld);
    }
    let mut words = engine.read(span)?;
    let Some(word) = words.get_mut(place) else {
        return Ok(Flipped::Outside);
    };
    *word ^= 1 << bit;
    engine.write(span, &words)?;
    Ok(Flipped::There)
}

/// Low bits of a word that a value of the type, held as the f32 that it is, never sets.
fn unheld_bits(dtype: Dtype) -> u32 {
    match dtype {
        Dtype::Bf16 => 16,
        Dtype::F16 => 13,
        _ => 0,
    }
}
