//! What a device is told to do: dispatches are recorded, then submitted together, and the one flag
//! that they all share is read when the host has to wait anyway.

use std::sync::Arc;

use super::adapter::Device;
use super::heap::{self, WORD};
use crate::engine::launch::Signature;
use crate::engine::{EngineError, Ran};
use crate::kernel::{CUT_SHORT, MAX_OPERANDS, OUTSIDE_LOCAL};

/// Words of the table of one submission.
pub(super) const TABLE_WORDS: usize = 1 << 20;
/// Words that are written to arenas with one submission.
const UPLOAD_WORDS: usize = 1 << 20;
/// Words of one piece of a fill.
const FILL_WORDS: usize = 1 << 14;
/// What the flag holds when every access was inside.
const NO_FAULT: u32 = u32::MAX;
/// The flag holds block << 20 | launch << 4 | operand: the least of them is the first launch of the
/// first run. A block is 65,536 launches of one run.
const BLOCK_SHIFT: u32 = 20;
const LAUNCHES_OF_BLOCK: usize = 1 << 16;
/// Blocks between two waits; one less than the flag could tell, which is `NO_FAULT`'s.
const BLOCKS_MAX: usize = (u32::MAX >> BLOCK_SHIFT) as usize;
const _: () = assert!(MAX_OPERANDS <= OUTSIDE_LOCAL as usize && OUTSIDE_LOCAL < CUT_SHORT);

/// A dispatch ready to be encoded.
pub(super) struct Dispatch {
    pub pipeline: wgpu::ComputePipeline,
    pub group: wgpu::BindGroup,
    pub table: Vec<u32>,
    pub grid: [u32; 3],
    pub told: Told,
}

/// What an error about a dispatch says: its launches, in the order of its instances.
pub(super) struct Told {
    pub signature: Arc<Signature>,
    pub run: u64,
    pub launches: Vec<usize>,
    /// In elements, instance by instance.
    pub extents: Vec<u32>,
}

struct Recorded {
    pipeline: wgpu::ComputePipeline,
    group: wgpu::BindGroup,
    /// Where its table stands.
    immediates: [u32; 1],
    grid: [u32; 3],
}

pub(super) struct Stream {
    pub table: wgpu::Buffer,
    pub flag: wgpu::Buffer,
    flag_out: wgpu::Buffer,
    words: Vec<u32>,
    /// Words on their way to arenas: they reach the buffer before the submission does.
    upload: wgpu::Buffer,
    uploads: Vec<u32>,
    recorded: Vec<Recorded>,
    encoder: Option<wgpu::CommandEncoder>,
    /// Dispatches since the flag was last read.
    told: Vec<Told>,
    /// Runs since then, with the first launch of each block.
    blocks: Vec<(u64, usize)>,
    /// Something was submitted since the last wait.
    in_flight: bool,
    /// Submissions so far: what tests count.
    pub submissions: u64,
}

impl Stream {
    /// # Errors
    /// A device without a few megabytes.
    pub fn new(device: &Device) -> Result<Stream, EngineError> {
        let flag = heap::buffer(device, 4, false)?;
        device
            .queue
            .write_buffer(&flag, 0, bytemuck::bytes_of(&NO_FAULT));
        Ok(Stream {
            table: heap::buffer(device, TABLE_WORDS as u64, false)?,
            flag,
            flag_out: readback(device, 1),
            words: Vec::new(),
            upload: heap::buffer(device, UPLOAD_WORDS as u64, false)?,
            uploads: Vec::new(),
            recorded: Vec::new(),
            encoder: None,
            told: Vec::new(),
            blocks: Vec::new(),
            in_flight: false,
            submissions: 0,
        })
    }

    /// Whether a run of `launches` can be told apart from all since the last wait.
    pub fn has_codes(&self, launches: usize) -> bool {
        self.blocks.len() + launches.div_ceil(LAUNCHES_OF_BLOCK) <= BLOCKS_MAX
    }

    /// Begins a run of `launches`: the codes of each are known from here on.
    pub fn begin(&mut self, run: u64, launches: usize) {
        assert!(self.has_codes(launches), "the caller has waited");
        let firsts = (0..launches).step_by(LAUNCHES_OF_BLOCK);
        self.blocks.extend(firsts.map(|first| (run, first)));
    }

    /// What the flag holds where the first operand of a launch of the latest run is at fault.
    pub fn code(&self, run: u64, launch: usize) -> u32 {
        let first = launch / LAUNCHES_OF_BLOCK * LAUNCHES_OF_BLOCK;
        let block = self.blocks.iter().rposition(|block| *block == (run, first));
        let block = block.expect("the run was begun") as u32;
        block << BLOCK_SHIFT | ((launch - first) as u32) << 4
    }

    /// Whether a table of `words` has room before a submission.
    pub fn has_room(&self, words: usize) -> bool {
        self.words.len() + words <= TABLE_WORDS
    }

    pub fn record(&mut self, dispatch: Dispatch) {
        let immediates = [self.words.len() as u32];
        self.words.extend(dispatch.table);
        assert!(self.words.len() <= TABLE_WORDS, "the caller has submitted");
        self.told.push(dispatch.told);
        self.recorded.push(Recorded {
            pipeline: dispatch.pipeline,
            group: dispatch.group,
            immediates,
            grid: dispatch.grid,
        });
    }

    /// The encoder, with every dispatch recorded so far in it.
    pub fn encoder(&mut self, device: &Device) -> &mut wgpu::CommandEncoder {
        let new = || device.device.create_command_encoder(&Default::default());
        let encoder = self.encoder.get_or_insert_with(new);
        if !self.recorded.is_empty() {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            for dispatch in self.recorded.drain(..) {
                pass.set_pipeline(&dispatch.pipeline);
                pass.set_bind_group(0, &dispatch.group, &[]);
                pass.set_immediates(0, bytemuck::cast_slice(&dispatch.immediates));
                let [x, y, z] = dispatch.grid;
                pass.dispatch_workgroups(x, y, z);
            }
        }
        encoder
    }

    /// Writes words to a buffer, after everything told before and before everything told later.
    pub fn write(&mut self, device: &Device, to: &wgpu::Buffer, at: u32, words: &[u32]) {
        let at = u64::from(at) * WORD;
        if !self.has_work() {
            let bytes = bytemuck::cast_slice(words);
            device.queue.write_buffer(to, at, bytes);
            return;
        }
        for (place, piece) in words.chunks(UPLOAD_WORDS).enumerate() {
            if self.uploads.len() + piece.len() > UPLOAD_WORDS {
                self.submit(device);
            }
            let from = self.uploads.len() as u64 * WORD;
            self.uploads.extend(piece);
            let to_at = at + (place * UPLOAD_WORDS) as u64 * WORD;
            let bytes = piece.len() as u64 * WORD;
            let upload = self.upload.clone();
            let encoder = self.encoder(device);
            encoder.copy_buffer_to_buffer(&upload, from, to, to_at, bytes);
        }
    }

    /// Writes one word all over a run of words, in the same order. One piece is uploaded.
    pub fn fill(&mut self, device: &Device, to: &wgpu::Buffer, at: u32, len: u32, word: u32) {
        let piece = (len as usize).min(FILL_WORDS);
        if self.uploads.len() + piece > UPLOAD_WORDS {
            self.submit(device);
        }
        let from = self.uploads.len() as u64 * WORD;
        self.uploads.resize(self.uploads.len() + piece, word);
        let upload = self.upload.clone();
        let encoder = self.encoder(device);
        for begin in (0..len as usize).step_by(FILL_WORDS) {
            let bytes = (len as usize - begin).min(piece) as u64 * WORD;
            let to_at = u64::from(at) * WORD + begin as u64 * WORD;
            encoder.copy_buffer_to_buffer(&upload, from, to, to_at, bytes);
        }
    }

    /// Whether anything waits to be submitted.
    pub fn has_work(&self) -> bool {
        self.encoder.is_some() || !self.recorded.is_empty()
    }

    /// Whether the device may still be busy, or a flag unread.
    pub fn is_settled(&self) -> bool {
        !self.has_work() && !self.in_flight
    }

    /// Hands the device everything recorded so far, in one submission, and does not wait.
    pub fn submit(&mut self, device: &Device) {
        if !self.has_work() {
            return;
        }
        if !self.words.is_empty() {
            let words = bytemuck::cast_slice(&self.words);
            device.queue.write_buffer(&self.table, 0, words);
        }
        if !self.uploads.is_empty() {
            let words = bytemuck::cast_slice(&self.uploads);
            device.queue.write_buffer(&self.upload, 0, words);
        }
        self.encoder(device);
        let mut encoder = self.encoder.take().expect("just made");
        encoder.copy_buffer_to_buffer(&self.flag, 0, &self.flag_out, 0, WORD);
        device.queue.submit([encoder.finish()]);
        self.words.clear();
        self.uploads.clear();
        self.submissions += 1;
        self.in_flight = true;
    }

    /// Waits for everything and says what went wrong, if anything did.
    pub fn settle(&mut self, device: &Device) -> Result<(), EngineError> {
        // A device that has failed once is not waited for again.
        complaints(device)?;
        self.submit(device);
        if !self.in_flight {
            return Ok(());
        }
        let flag = read_back(device, &self.flag_out, 1)?;
        self.in_flight = false;
        complaints(device)?;
        let told = std::mem::take(&mut self.told);
        let blocks = std::mem::take(&mut self.blocks);
        if flag[0] == NO_FAULT {
            return Ok(());
        }
        device
            .queue
            .write_buffer(&self.flag, 0, bytemuck::bytes_of(&NO_FAULT));
        Err(fault(&told, &blocks, flag[0]))
    }
}

/// A buffer that the host reads results from.
pub(super) fn readback(device: &Device, words: u64) -> wgpu::Buffer {
    device.device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("readback"),
        size: words.next_multiple_of(2) * WORD,
        usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
        mapped_at_creation: false,
    })
}

/// Maps a buffer once the device has reached this point.
pub(super) fn map(
    device: &Device,
    buffer: &wgpu::Buffer,
    mode: wgpu::MapMode,
) -> Result<(), EngineError> {
    let (sent, mapped) = std::sync::mpsc::channel();
    buffer.map_async(mode, .., move |result| {
        // Nobody listens any more if the wait below has failed.
        let _ = sent.send(result);
    });
    wait(device)?;
    let outcome = mapped.try_recv();
    match outcome {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(failed(device, error.to_string())),
        Err(error) => Err(failed(device, error.to_string())),
    }
}

/// Words of a readback buffer that a submission has filled.
pub(super) fn read_back(
    device: &Device,
    buffer: &wgpu::Buffer,
    words: u64,
) -> Result<Vec<u32>, EngineError> {
    map(device, buffer, wgpu::MapMode::Read)?;
    let view = buffer
        .get_mapped_range(..words.next_multiple_of(2) * WORD)
        .map_err(|error| failed(device, error.to_string()))?;
    let mut held: Vec<u32> = bytemuck::pod_collect_to_vec(&view);
    held.truncate(words as usize);
    drop(view);
    buffer.unmap();
    Ok(held)
}

fn wait(device: &Device) -> Result<(), EngineError> {
    let poll = wgpu::PollType::Wait {
        submission_index: None,
        timeout: Some(device.patience),
    };
    match device.device.poll(poll) {
        Ok(_) => Ok(()),
        Err(wgpu::PollError::Timeout) => {
            let seconds = device.patience.as_secs();
            let timeout = EngineError::Timeout { seconds };
            device.complain(timeout.to_string());
            Err(timeout)
        }
        Err(error) => Err(failed(device, error.to_string())),
    }
}

/// What the driver said of its own accord is the better reason.
pub(super) fn failed(device: &Device, reason: String) -> EngineError {
    let reason = device.complaint().unwrap_or(reason);
    EngineError::Device { reason }
}

pub(super) fn complaints(device: &Device) -> Result<(), EngineError> {
    match device.complaint() {
        Some(reason) => Err(EngineError::Device { reason }),
        None => Ok(()),
    }
}

fn fault(told: &[Told], blocks: &[(u64, usize)], flag: u32) -> EngineError {
    let (run, first) = blocks[(flag >> BLOCK_SHIFT) as usize];
    let launch = first + (flag >> 4) as usize % LAUNCHES_OF_BLOCK;
    let operand = (flag & 15) as usize;
    let place = |told: &Told| told.launches.iter().position(|number| *number == launch);
    let mut of_run = told.iter().filter(|told| told.run == run);
    let found = of_run.find_map(|told| Some((told, place(told)?)));
    let (told, instance) = found.expect("only what was told can fail");
    let (kernel, at) = (told.signature.name.clone(), Ran { run, launch });
    match operand as u32 {
        CUT_SHORT => EngineError::CutShort { kernel, at },
        OUTSIDE_LOCAL => EngineError::OutsideLocal { kernel, at },
        _ => EngineError::OutOfExtent {
            kernel,
            operand: told.signature.operands[operand].name.clone(),
            extent: told.extents[instance * told.signature.operands.len() + operand],
            at,
        },
    }
}
