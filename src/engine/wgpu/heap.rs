//! Arenas in buffers. Many arenas share a heap, so that launches of many ranks bind alike and
//! become one dispatch. Places and lengths in words.

use std::collections::BTreeMap;

use super::adapter::Device;
use crate::engine::EngineError;

pub(super) const WORD: u64 = 4;
/// Arenas begin at multiples of this: whole elements of every kind, and lines of a cache.
const ALIGN_WORDS: u32 = 64;
/// The first heap; each further one is twice as large, up to what can be bound.
const FIRST_HEAP_WORDS: u32 = 1 << 21;
/// The largest heap: 128 MiB, the least that adapters offer for a binding (lavapipe, and the
/// default of WebGPU).
const HEAP_WORDS_MAX: u32 = 1 << 25;

/// Where an arena lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub heap: u32,
    pub start: u32,
    /// What it may hold: a multiple of `ALIGN_WORDS`.
    pub words: u32,
}

/// How the host reaches a heap just now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Not at all: kernels may use it.
    Device,
    Read,
    Write,
}

pub(super) struct Heap {
    pub buffer: wgpu::Buffer,
    pub access: Access,
    gaps: Gaps,
}

#[derive(Default)]
pub(super) struct Heaps {
    pub heaps: Vec<Heap>,
}

/// The most words that an arena can have on a device.
pub(super) fn arena_words_max(device: &Device) -> u32 {
    let bound = device.limits.max_storage_buffer_binding_size;
    let words = bound.min(device.limits.max_buffer_size) / WORD;
    let words = u32::try_from(words).unwrap_or(u32::MAX).min(HEAP_WORDS_MAX);
    words / ALIGN_WORDS * ALIGN_WORDS - ALIGN_WORDS
}

impl Heaps {
    /// Room for `words`, in a new heap if no other has it.
    ///
    /// # Errors
    /// More than the adapter binds, or than it has.
    pub fn take(&mut self, device: &Device, words: u32) -> Result<Place, EngineError> {
        let most = arena_words_max(device);
        if words > most {
            let reason = format!("the adapter binds {most} words at most");
            let words = u64::from(words);
            return Err(EngineError::OutOfMemory { words, reason });
        }
        let words = words.max(1).next_multiple_of(ALIGN_WORDS);
        for (heap, place) in (0..).zip(&mut self.heaps) {
            if let Some(start) = place.gaps.take(words) {
                return Ok(Place { heap, start, words });
            }
        }
        let size = heap_words(self.heaps.len()).min(most).max(words);
        // A load outside an operand of no elements at the very end still meets the buffer.
        let buffer = buffer(device, u64::from(size + ALIGN_WORDS), device.mappable)?;
        let (access, mut gaps) = (Access::Device, Gaps::whole(size));
        let start = gaps.take(words);
        let start = start.expect("a new heap is at least as large");
        self.heaps.push(Heap {
            buffer,
            access,
            gaps,
        });
        let heap = self.heaps.len() as u32 - 1;
        Ok(Place { heap, start, words })
    }

    pub fn give(&mut self, place: Place) {
        self.heaps[place.heap as usize]
            .gaps
            .give(place.start, place.words);
    }
}

/// Words of the heap that is made after `heaps` others.
fn heap_words(heaps: usize) -> u32 {
    let doublings = (HEAP_WORDS_MAX / FIRST_HEAP_WORDS).trailing_zeros();
    FIRST_HEAP_WORDS << doublings.min(heaps as u32)
}

/// A storage buffer that kernels bind.
///
/// # Errors
/// A device without so much memory.
pub(super) fn buffer(
    device: &Device,
    words: u64,
    mappable: bool,
) -> Result<wgpu::Buffer, EngineError> {
    let mut usage =
        wgpu::BufferUsages::STORAGE | wgpu::BufferUsages::COPY_SRC | wgpu::BufferUsages::COPY_DST;
    if mappable {
        usage |= wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::MAP_WRITE;
    }
    let scope = device
        .device
        .push_error_scope(wgpu::ErrorFilter::OutOfMemory);
    let buffer = device.device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("bitproof"),
        size: words * WORD,
        usage,
        mapped_at_creation: false,
    });
    match pollster::block_on(scope.pop()) {
        None => Ok(buffer),
        Some(error) => {
            let reason = error.to_string();
            Err(EngineError::OutOfMemory { words, reason })
        }
    }
}

/// What is free of a heap: starts and lengths, none touching the next.
struct Gaps(BTreeMap<u32, u32>);

impl Gaps {
    fn whole(words: u32) -> Gaps {
        Gaps(BTreeMap::from([(0, words)]))
    }

    /// The first gap that is large enough.
    fn take(&mut self, words: u32) -> Option<u32> {
        let found = self.0.iter().find(|(_, length)| **length >= words);
        let (start, length) = found.map(|(start, length)| (*start, *length))?;
        self.0.remove(&start);
        if length > words {
            self.0.insert(start + words, length - words);
        }
        Some(start)
    }

    fn give(&mut self, start: u32, words: u32) {
        let (mut start, mut words) = (start, words);
        if let Some((before, length)) = self.0.range(..start).next_back()
            && before + length == start
        {
            (start, words) = (*before, words + length);
        }
        if let Some(after) = self.0.remove(&(start + words)) {
            words += after;
        }
        self.0.insert(start, words);
    }
}

#[cfg(test)]
mod tests {
    use super::{FIRST_HEAP_WORDS, Gaps, HEAP_WORDS_MAX, heap_words};
    use proptest::prelude::*;

    #[test]
    fn heaps_double_up_to_the_largest_and_stay_there() {
        assert_eq!(heap_words(0), FIRST_HEAP_WORDS);
        assert_eq!(heap_words(1), 2 * FIRST_HEAP_WORDS);
        for heaps in [4, 11, 12, 31, 32, 33, 1000] {
            assert_eq!(heap_words(heaps), HEAP_WORDS_MAX, "after {heaps}");
        }
    }

    /// Takes so many words, or gives one of the places held back.
    fn a_move() -> impl Strategy<Value = (bool, u32, prop::sample::Index)> {
        (any::<bool>(), 1u32..9, any::<prop::sample::Index>())
    }

    proptest! {
        /// Against a map of which word belongs to whom.
        #[test]
        fn places_never_overlap_and_all_comes_back(
            moves in prop::collection::vec(a_move(), 0..60)
        ) {
            let mut gaps = Gaps::whole(64);
            let mut held: Vec<(u32, u32)> = Vec::new();
            let mut owned = [false; 64];
            for (takes, words, which) in moves {
                if takes {
                    let free_run = owned.split(|word| *word).map(<[bool]>::len).max();
                    let start = gaps.take(words);
                    prop_assert_eq!(start.is_some(), free_run >= Some(words as usize));
                    let Some(start) = start else { continue };
                    for word in &mut owned[start as usize..(start + words) as usize] {
                        prop_assert!(!std::mem::replace(word, true));
                    }
                    held.push((start, words));
                } else if !held.is_empty() {
                    let (start, words) = held.swap_remove(which.index(held.len()));
                    owned[start as usize..(start + words) as usize].fill(false);
                    gaps.give(start, words);
                }
            }
            for (start, words) in held {
                gaps.give(start, words);
            }
            prop_assert_eq!(gaps.0.into_iter().collect::<Vec<_>>(), [(0, 64)]);
        }
    }
}
