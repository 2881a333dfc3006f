//! A rank's memory map: a pure function of the rank's own program, so that offsets agree across
//! ranks of one role.

use std::collections::BTreeMap;

use crate::numerics::Dtype;
use crate::world::rank::{StreamId, Tensor};
use crate::world::site::Name;

/// Allocations start at multiples of this many words (256 bytes, as CUDA's allocator and wgpu ask).
const ALIGN_WORDS: u32 = 64;

/// The most memory one rank may ask for: 4 GiB.
const RANK_WORDS_MAX: u32 = 1 << 30;

/// One allocation. The numbers of freed ones are used again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocation {
    pub name: Name,
    /// How many allocations of this name the rank made before: tells scratch of one name apart.
    pub occurrence: u32,
    pub offset_words: u32,
    pub words: u32,
    pub live: bool,
}

impl Allocation {
    /// The whole block, as a tensor of `part`'s buffer and type.
    pub(crate) fn block(&self, part: Tensor) -> Tensor {
        Tensor {
            start: self.offset_words,
            len: self.words,
            ..part
        }
    }
}

/// Bump allocation with free lists by size; a block freed on a stream is reused on that stream
/// only.
#[derive(Debug)]
pub struct Allocator {
    allocations: Vec<Allocation>,
    vacant: Vec<u32>,
    next_words: u32,
    free: BTreeMap<(StreamId, u32), Vec<u32>>,
    occurrences: BTreeMap<Name, u32>,
}

impl Allocator {
    /// `base_words` shifts every offset: the second run of a check lies elsewhere in memory.
    pub fn new(base_words: u32) -> Self {
        Allocator {
            allocations: Vec::new(),
            vacant: Vec::new(),
            next_words: round_up(base_words),
            free: BTreeMap::new(),
            occurrences: BTreeMap::new(),
        }
    }

    /// `None` when the rank's limit would be passed.
    pub fn alloc(
        &mut self,
        name: &Name,
        dtype: Dtype,
        len: u32,
        stream: StreamId,
    ) -> Option<Tensor> {
        let words = round_up(len.max(1));
        let reused = self.free.get_mut(&(stream, words)).and_then(Vec::pop);
        let offset_words = match reused {
            Some(offset) => offset,
            None => {
                let offset = self.next_words;
                self.next_words = offset
                    .checked_add(words)
                    .filter(|end| *end <= RANK_WORDS_MAX)?;
                offset
            }
        };
        let name = name.clone();
        let count = self.occurrences.entry(name.clone()).or_insert(0);
        let occurrence = *count;
        *count += 1;
        let allocation = Allocation {
            name,
            occurrence,
            offset_words,
            words,
            live: true,
        };
        let buffer = match self.vacant.pop() {
            Some(buffer) => {
                self.allocations[buffer as usize] = allocation;
                buffer
            }
            None => {
                self.allocations.push(allocation);
                self.allocations.len() as u32 - 1
            }
        };
        Some(Tensor {
            buffer,
            start: offset_words,
            len,
            dtype,
        })
    }

    /// The allocation that was freed, `None` when there is none of that number, or no longer.
    pub fn free(&mut self, buffer: u32, stream: StreamId) -> Option<&Allocation> {
        let allocation = self.allocations.get_mut(buffer as usize)?;
        if !allocation.live {
            return None;
        }
        allocation.live = false;
        self.vacant.push(buffer);
        self.free
            .entry((stream, allocation.words))
            .or_default()
            .push(allocation.offset_words);
        Some(&self.allocations[buffer as usize])
    }

    /// The allocation that `buffer` stands for now.
    pub fn get(&self, buffer: u32) -> &Allocation {
        &self.allocations[buffer as usize]
    }

    pub fn live(&self) -> impl Iterator<Item = &Allocation> {
        self.allocations.iter().filter(|allocation| allocation.live)
    }

    /// Words the rank's arena must have.
    pub fn extent_words(&self) -> u32 {
        self.next_words
    }
}

fn round_up(words: u32) -> u32 {
    words.div_ceil(ALIGN_WORDS) * ALIGN_WORDS
}
