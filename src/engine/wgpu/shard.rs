//! One device with its heaps and programs. Where the driver lets the host map what kernels bind
//! (software adapters do), the host reads and writes arenas in place, once the device is idle;
//! elsewhere through copies in the device's own order.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::adapter::Device;
use super::heap::{Access, Heaps, Place, WORD};
use super::program::Program;
use super::stream::{self, Dispatch, Stream};
use crate::engine::{EngineError, ProgramId};
use crate::kernel::Kernel;

/// Words written to a buffer in one piece where they all are the same.
const PIECE: usize = 1 << 18;
/// Words read back in one piece.
const READBACK_WORDS: u64 = 1 << 24;

/// A run of words of a heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Words {
    pub heap: u32,
    pub start: u32,
    pub len: u32,
}

impl Words {
    fn range(self) -> Range<usize> {
        self.start as usize..self.start as usize + self.len as usize
    }

    fn bytes(self) -> Range<usize> {
        let Range { start, end } = self.range();
        start * WORD as usize..end * WORD as usize
    }
}

/// Words that are copied aside as they are, to be digested later.
#[derive(Default)]
struct Log {
    buffer: Option<wgpu::Buffer>,
    words: u64,
    /// What each was asked for by, and its length.
    entries: Vec<(usize, u32)>,
}

/// Words of a log.
const LOG_WORDS: u64 = 1 << 24;

pub(super) struct Shard {
    pub device: Device,
    heaps: Heaps,
    programs: Vec<Program>,
    /// Bind groups by program and heaps: heaps are never moved or given back.
    groups: BTreeMap<(u32, Vec<u32>), wgpu::BindGroup>,
    stream: Stream,
    log: Log,
    /// Where copies go that cannot be made in place, and their capacity in words.
    readback: Option<(wgpu::Buffer, u64)>,
    between: Option<(wgpu::Buffer, u64)>,
}

impl Shard {
    /// # Errors
    /// A device without a few megabytes.
    pub fn new(device: Device) -> Result<Shard, EngineError> {
        let stream = Stream::new(&device)?;
        Ok(Shard {
            device,
            heaps: Heaps::default(),
            programs: Vec::new(),
            groups: BTreeMap::new(),
            stream,
            log: Log::default(),
            readback: None,
            between: None,
        })
    }

    pub fn load(&mut self, kernel: &Kernel) -> Result<(), EngineError> {
        self.programs.push(Program::compile(&self.device, kernel)?);
        Ok(())
    }

    pub fn program(&self, program: ProgramId) -> &Program {
        &self.programs[program.0 as usize]
    }

    pub fn take(&mut self, words: u32) -> Result<Place, EngineError> {
        self.heaps.take(&self.device, words)
    }

    pub fn give(&mut self, place: Place) {
        self.heaps.give(place);
    }

    pub fn group(&mut self, program: ProgramId, heaps: &[u32]) -> wgpu::BindGroup {
        let key = (program.0, heaps.to_vec());
        if let Some(known) = self.groups.get(&key) {
            return known.clone();
        }
        let buffers = heaps
            .iter()
            .map(|heap| &self.heaps.heaps[*heap as usize].buffer);
        let entries: Vec<wgpu::BindGroupEntry> = buffers
            .chain([&self.stream.table, &self.stream.flag])
            .zip(0..)
            .map(|(buffer, binding)| wgpu::BindGroupEntry {
                binding,
                resource: buffer.as_entire_binding(),
            })
            .collect();
        let group = self
            .device
            .device
            .create_bind_group(&wgpu::BindGroupDescriptor {
                label: None,
                layout: &self.programs[program.0 as usize].layout,
                entries: &entries,
            });
        self.groups.insert(key, group.clone());
        group
    }

    /// Begins a run of `launches`.
    ///
    /// # Errors
    /// Earlier work that failed, where a wait for it was needed first.
    pub fn begin(&mut self, run: u64, launches: usize) -> Result<(), EngineError> {
        if !self.stream.has_codes(launches) {
            self.settle()?;
        }
        self.stream.begin(run, launches);
        Ok(())
    }

    /// What the flag holds where the first operand of a launch of the latest run is at fault.
    pub fn code(&self, run: u64, launch: usize) -> u32 {
        self.stream.code(run, launch)
    }

    pub fn record(&mut self, dispatch: Dispatch) {
        if !self.stream.has_room(dispatch.table.len()) {
            self.submit();
        }
        self.stream.record(dispatch);
    }

    /// Hands over what was recorded. Nothing may be mapped meanwhile.
    pub fn submit(&mut self) {
        if !self.stream.has_work() {
            return;
        }
        for heap in &mut self.heaps.heaps {
            if heap.access != Access::Device {
                heap.buffer.unmap();
                heap.access = Access::Device;
            }
        }
        self.stream.submit(&self.device);
    }

    /// Submissions so far.
    #[cfg(test)]
    pub fn submissions(&self) -> u64 {
        self.stream.submissions
    }

    /// Waits for the device.
    ///
    /// # Errors
    /// What of the work since the last wait went wrong.
    pub fn settle(&mut self) -> Result<(), EngineError> {
        self.submit();
        self.stream.settle(&self.device)
    }

    /// Lets the host reach a heap.
    fn open(&mut self, heap: u32, access: Access) -> Result<(), EngineError> {
        if !self.stream.is_settled() {
            self.settle()?;
        }
        let heap = &mut self.heaps.heaps[heap as usize];
        if heap.access == access {
            return Ok(());
        }
        if heap.access != Access::Device {
            heap.buffer.unmap();
            heap.access = Access::Device;
        }
        let mode = match access {
            Access::Write => wgpu::MapMode::Write,
            _ => wgpu::MapMode::Read,
        };
        stream::map(&self.device, &heap.buffer, mode)?;
        heap.access = access;
        Ok(())
    }

    /// Shows the words of each span to `look`, all at once.
    pub fn with_words<T>(
        &mut self,
        spans: &[Words],
        look: impl FnOnce(&[&[u32]]) -> T,
    ) -> Result<T, EngineError> {
        match self.device.mappable {
            true => self.with_mapped(spans, look),
            false => self.with_copied(spans, look),
        }
    }

    fn with_mapped<T>(
        &mut self,
        spans: &[Words],
        look: impl FnOnce(&[&[u32]]) -> T,
    ) -> Result<T, EngineError> {
        let mut views: BTreeMap<u32, wgpu::BufferView> = BTreeMap::new();
        let used = spans.iter().filter(|span| span.len > 0);
        let heaps: BTreeSet<u32> = used.map(|span| span.heap).collect();
        for heap in heaps {
            self.open(heap, Access::Read)?;
            let view = self.heaps.heaps[heap as usize].buffer.get_mapped_range(..);
            let view = view.map_err(|error| stream::failed(&self.device, error.to_string()))?;
            views.insert(heap, view);
        }
        let words = |span: &Words| -> &[u32] {
            match views.get(&span.heap) {
                Some(view) if span.len > 0 => bytemuck::cast_slice(&view[span.bytes()]),
                _ => &[],
            }
        };
        Ok(look(&spans.iter().map(words).collect::<Vec<_>>()))
    }

    fn with_copied<T>(
        &mut self,
        spans: &[Words],
        look: impl FnOnce(&[&[u32]]) -> T,
    ) -> Result<T, EngineError> {
        let mut copied: Vec<u32> = Vec::new();
        let mut rest: Vec<Words> = spans.to_vec();
        rest.reverse();
        while !rest.is_empty() {
            let mut piece = Vec::new();
            let mut total = 0;
            while let Some(span) = rest.pop() {
                let len = u64::from(span.len).min(READBACK_WORDS - total);
                let (heap, len) = (span.heap, len as u32);
                piece.push(Words { len, ..span });
                total += u64::from(len);
                if len < span.len {
                    let (start, len) = (span.start + len, span.len - len);
                    rest.push(Words { heap, start, len });
                    break;
                }
            }
            copied.extend(self.copied_out(&piece, total)?);
        }
        Ok(look(&parts(&copied, spans.iter().map(|span| span.len))))
    }

    /// The words of all spans, one after the other, through a buffer that can be mapped.
    fn copied_out(&mut self, spans: &[Words], total: u64) -> Result<Vec<u32>, EngineError> {
        if total == 0 {
            self.settle()?;
            return Ok(Vec::new());
        }
        if self.readback.as_ref().is_none_or(|(_, has)| *has < total) {
            let words = total.next_power_of_two();
            self.readback = Some((stream::readback(&self.device, words), words));
        }
        let (buffer, _) = self.readback.as_ref().expect("just made");
        let encoder = self.stream.encoder(&self.device);
        let mut at = 0;
        for span in spans.iter().filter(|span| span.len > 0) {
            let (from, bytes) = (u64::from(span.start) * WORD, u64::from(span.len) * WORD);
            let heap = &self.heaps.heaps[span.heap as usize].buffer;
            encoder.copy_buffer_to_buffer(heap, from, buffer, at, bytes);
            at += bytes;
        }
        let buffer = buffer.clone();
        self.settle()?;
        stream::read_back(&self.device, &buffer, total)
    }

    /// Whether `words` can be logged before the log must be read.
    pub fn has_room_to_log(&self, words: Words) -> bool {
        self.log.entries.is_empty() || self.log.words + u64::from(words.len) <= LOG_WORDS
    }

    /// Copies `words` aside, in the device's order. `place` comes back with them.
    pub fn log(&mut self, place: usize, words: Words) -> Result<(), EngineError> {
        let needed = LOG_WORDS.max(u64::from(words.len));
        let has = self.log.buffer.as_ref().map_or(0, wgpu::Buffer::size);
        if has < needed * WORD {
            assert!(self.log.entries.is_empty(), "the caller has read the log");
            self.log.buffer = Some(stream::readback(&self.device, needed));
        }
        let buffer = self.log.buffer.as_ref().expect("just made");
        if words.len > 0 {
            let heap = &self.heaps.heaps[words.heap as usize].buffer;
            let (from, bytes) = (u64::from(words.start) * WORD, u64::from(words.len) * WORD);
            let encoder = self.stream.encoder(&self.device);
            encoder.copy_buffer_to_buffer(heap, from, buffer, self.log.words * WORD, bytes);
        }
        self.log.words += u64::from(words.len);
        self.log.entries.push((place, words.len));
        Ok(())
    }

    /// Shows what was logged, with the places that it was logged for, and empties the log.
    pub fn with_logged(
        &mut self,
        look: impl FnOnce(&[usize], &[&[u32]]),
    ) -> Result<(), EngineError> {
        let entries = std::mem::take(&mut self.log.entries);
        let total = std::mem::take(&mut self.log.words);
        if entries.is_empty() {
            return Ok(());
        }
        self.settle()?;
        let buffer = self.log.buffer.as_ref().expect("it holds entries");
        let words = match total {
            0 => Vec::new(),
            _ => stream::read_back(&self.device, buffer, total)?,
        };
        let places: Vec<usize> = entries.iter().map(|(place, _)| *place).collect();
        look(&places, &parts(&words, entries.iter().map(|(_, len)| *len)));
        Ok(())
    }

    /// Writes all pieces, none of which overlaps another.
    pub fn write(&mut self, pieces: &[(Words, &[u32])]) -> Result<(), EngineError> {
        if !self.device.mappable {
            for (to, words) in pieces {
                let buffer = &self.heaps.heaps[to.heap as usize].buffer;
                self.stream.write(&self.device, buffer, to.start, words);
            }
            return Ok(());
        }
        let mut of_heap: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (place, (to, words)) in pieces.iter().enumerate() {
            assert_eq!(to.len as usize, words.len(), "a piece has its words");
            of_heap.entry(to.heap).or_default().push(place);
        }
        for (heap, places) in of_heap {
            self.open(heap, Access::Write)?;
            let buffer = &self.heaps.heaps[heap as usize].buffer;
            let view = buffer.get_mapped_range_mut(..);
            let mut view = view.map_err(|error| stream::failed(&self.device, error.to_string()))?;
            for (to, words) in places.into_iter().map(|place| pieces[place]) {
                let bytes = bytemuck::cast_slice(words);
                view.slice(to.bytes()).copy_from_slice(bytes);
            }
        }
        Ok(())
    }

    /// Brings an arena's words to its new place.
    pub fn moved(&mut self, from: Words, to: Words) -> Result<(), EngineError> {
        if !self.device.mappable {
            return self.copy(&[(from, to)]);
        }
        let held = self.with_words(&[from], |held| held[0].to_vec())?;
        self.write(&[(to, &held)])
    }

    pub fn fill(&mut self, to: Words, word: u32) -> Result<(), EngineError> {
        if !self.device.mappable {
            let buffer = &self.heaps.heaps[to.heap as usize].buffer;
            self.stream
                .fill(&self.device, buffer, to.start, to.len, word);
            return Ok(());
        }
        let piece = vec![word; PIECE.min(to.len as usize)];
        let mut at = 0;
        while at < to.len {
            let (start, len) = (to.start + at, (to.len - at).min(PIECE as u32));
            let words = Words { start, len, ..to };
            self.write(&[(words, &piece[..len as usize])])?;
            at += len;
        }
        Ok(())
    }

    /// Copies within the device, in order; only where arenas are not mapped.
    pub fn copy(&mut self, copies: &[(Words, Words)]) -> Result<(), EngineError> {
        let same = copies.iter().filter(|(from, to)| from.heap == to.heap);
        let needed = same.map(|(from, _)| u64::from(from.len)).max().unwrap_or(0);
        if needed > 0 && self.between.as_ref().is_none_or(|(_, has)| *has < needed) {
            let words = needed.next_power_of_two();
            self.between = Some((super::heap::buffer(&self.device, words, false)?, words));
        }
        let encoder = self.stream.encoder(&self.device);
        for (from, to) in copies.iter().filter(|(from, _)| from.len > 0) {
            let buffer = |words: &Words| &self.heaps.heaps[words.heap as usize].buffer;
            let at = |words: &Words| u64::from(words.start) * WORD;
            let bytes = u64::from(from.len) * WORD;
            match &self.between {
                // WebGPU copies only between two buffers.
                Some((between, _)) if from.heap == to.heap => {
                    encoder.copy_buffer_to_buffer(buffer(from), at(from), between, 0, bytes);
                    encoder.copy_buffer_to_buffer(between, 0, buffer(to), at(to), bytes);
                }
                _ => {
                    encoder.copy_buffer_to_buffer(buffer(from), at(from), buffer(to), at(to), bytes)
                }
            }
        }
        Ok(())
    }
}

/// Words one after the other as the runs that they are made of.
fn parts(words: &[u32], lengths: impl Iterator<Item = u32>) -> Vec<&[u32]> {
    let mut rest = words;
    let mut part = |length: u32| {
        let (part, after) = rest.split_at(length as usize);
        rest = after;
        part
    };
    lengths.map(&mut part).collect()
}
