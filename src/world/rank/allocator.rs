//! A rank's memory map: a pure function of the rank's own program, so that offsets agree across
//! ranks of one role.

use std::collections::{BTreeMap, BTreeSet};

use crate::numerics::Dtype;
use crate::world::rank::{HOST, Handle, StreamId, Tensor};
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
    pub dtype: Dtype,
    pub live: bool,
    /// Whose pool it is of.
    pub stream: StreamId,
    /// Further streams that use it.
    pub users: BTreeSet<StreamId>,
    /// As a device holds it, in the allocator's blocks.
    bytes: u64,
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

/// What PyTorch's caching allocator rounds sizes to (`kMinBlockSize`, `c10/cuda`).
const BLOCK_BYTES: u64 = 512;

/// A block that may be handed out again, once its former users are done.
#[derive(Debug)]
struct FreeBlock {
    offset_words: u32,
    users: Vec<Handle>,
}

/// Bump allocation with free lists by size; a block is reused on the stream that it was allocated
/// on only, as PyTorch's caching allocator does.
#[derive(Debug)]
pub struct Allocator {
    allocations: Vec<Allocation>,
    vacant: Vec<u32>,
    next_words: u32,
    free: BTreeMap<(StreamId, u32), Vec<FreeBlock>>,
    live_bytes: u64,
    peak_bytes: u64,
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
            live_bytes: 0,
            peak_bytes: 0,
            occurrences: BTreeMap::new(),
        }
    }

    /// The memory, and what its stream has to wait for before it is used; `None` when the rank's
    /// limit would be passed.
    pub fn alloc(
        &mut self,
        name: &Name,
        dtype: Dtype,
        len: u32,
        stream: StreamId,
    ) -> Option<(Tensor, Vec<Handle>)> {
        let words = round_up(len.max(1));
        let reused = self.free.get_mut(&(stream, words)).and_then(Vec::pop);
        let (offset_words, users) = match reused {
            Some(block) => (block.offset_words, block.users),
            None => {
                let offset = self.next_words;
                self.next_words = offset
                    .checked_add(words)
                    .filter(|end| *end <= RANK_WORDS_MAX)?;
                (offset, Vec::new())
            }
        };
        let bytes = (u64::from(len) * dtype.wire_bytes()).next_multiple_of(BLOCK_BYTES);
        if stream != HOST {
            self.live_bytes += bytes;
            self.peak_bytes = self.peak_bytes.max(self.live_bytes);
        }
        let name = name.clone();
        let count = self.occurrences.entry(name.clone()).or_insert(0);
        let occurrence = *count;
        *count += 1;
        let allocation = Allocation {
            name,
            occurrence,
            offset_words,
            words,
            dtype,
            live: true,
            stream,
            users: BTreeSet::new(),
            bytes,
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
        let tensor = Tensor {
            buffer,
            start: offset_words,
            len,
            dtype,
        };
        Some((tensor, users))
    }

    /// The allocation that was freed, `None` when there is none of that number, or no longer. Its
    /// block is to be given back.
    pub fn free(&mut self, buffer: u32) -> Option<Allocation> {
        let allocation = self.allocations.get_mut(buffer as usize)?;
        if !allocation.live {
            return None;
        }
        allocation.live = false;
        self.vacant.push(buffer);
        if allocation.stream != HOST {
            self.live_bytes -= allocation.bytes;
        }
        Some(allocation.clone())
    }

    /// The block of `allocation` may be handed out again, after `users`.
    pub fn give_back(&mut self, allocation: &Allocation, users: Vec<Handle>) {
        let key = (allocation.stream, allocation.words);
        self.free.entry(key).or_default().push(FreeBlock {
            offset_words: allocation.offset_words,
            users,
        });
    }

    /// Another user of a buffer; false when that is free.
    pub fn record_stream(&mut self, buffer: u32, stream: StreamId) -> bool {
        let allocation = self.allocations.get_mut(buffer as usize);
        let allocation = allocation.filter(|allocation| allocation.live);
        let Some(allocation) = allocation else {
            return false;
        };
        if stream != allocation.stream {
            allocation.users.insert(stream);
        }
        true
    }

    /// The most that was allocated on the device at once, in bytes of the job's own types.
    pub fn peak_bytes(&self) -> u64 {
        self.peak_bytes
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
