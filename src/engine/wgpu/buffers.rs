//! Buffers: arenas, staging, and moves between them and the host. Offsets and lengths in words.

use std::ops::Range;

use super::adapter::Device;
use crate::engine::EngineError;

const WORD: u64 = 4;
/// Words written to a buffer in one piece.
const PIECE: u32 = 1 << 20;

/// A read-write storage buffer at place `binding`.
pub(super) fn binding(binding: u32) -> wgpu::BindGroupLayoutEntry {
    wgpu::BindGroupLayoutEntry {
        binding,
        visibility: wgpu::ShaderStages::COMPUTE,
        ty: wgpu::BindingType::Buffer {
            ty: wgpu::BufferBindingType::Storage { read_only: false },
            has_dynamic_offset: false,
            min_binding_size: None,
        },
        count: None,
    }
}

/// A storage buffer; never empty, since an empty one cannot be bound.
pub(super) fn storage(device: &Device, words: u64) -> wgpu::Buffer {
    device.device.create_buffer(&wgpu::BufferDescriptor {
        label: None,
        size: words.max(4) * WORD,
        usage: wgpu::BufferUsages::STORAGE
            | wgpu::BufferUsages::COPY_SRC
            | wgpu::BufferUsages::COPY_DST,
        mapped_at_creation: false,
    })
}

/// # Errors
/// More than the adapter can bind, or than it has.
pub(super) fn arena(device: &Device, words: u32) -> Result<wgpu::Buffer, EngineError> {
    let words = u64::from(words);
    let most = device.limits.max_storage_buffer_binding_size / WORD;
    if words > most {
        let reason = format!("the adapter binds {most} words at most");
        return Err(EngineError::OutOfMemory { words, reason });
    }
    let scope = device
        .device
        .push_error_scope(wgpu::ErrorFilter::OutOfMemory);
    let buffer = storage(device, words);
    match pollster::block_on(scope.pop()) {
        Some(error) => Err(EngineError::OutOfMemory {
            words,
            reason: error.to_string(),
        }),
        None => Ok(buffer),
    }
}

pub(super) fn write(device: &Device, buffer: &wgpu::Buffer, at: u32, words: &[u32]) {
    for (place, piece) in words.chunks(PIECE as usize).enumerate() {
        let offset = (u64::from(at) + place as u64 * u64::from(PIECE)) * WORD;
        device
            .queue
            .write_buffer(buffer, offset, bytemuck::cast_slice(piece));
    }
}

pub(super) fn fill(device: &Device, buffer: &wgpu::Buffer, range: Range<u32>, value: u32) {
    let piece = vec![value; range.len().min(PIECE as usize)];
    let mut at = range.start;
    while at < range.end {
        let count = (range.end - at).min(PIECE);
        write(device, buffer, at, &piece[..count as usize]);
        at += count;
    }
}

/// Copies between buffers: (from, its offset, to, its offset, words).
pub(super) fn copy(device: &Device, copies: &[(&wgpu::Buffer, u32, &wgpu::Buffer, u32, u32)]) {
    let mut encoder = device.device.create_command_encoder(&Default::default());
    for (from, from_at, to, to_at, words) in copies {
        let (from_at, to_at) = (u64::from(*from_at) * WORD, u64::from(*to_at) * WORD);
        encoder.copy_buffer_to_buffer(from, from_at, to, to_at, u64::from(*words) * WORD);
    }
    device.queue.submit([encoder.finish()]);
}

/// Waits for everything submitted and reads words back.
///
/// # Errors
/// A device that was lost.
pub(super) fn read(
    device: &Device,
    buffer: &wgpu::Buffer,
    at: u32,
    words: u32,
) -> Result<Vec<u32>, EngineError> {
    if words == 0 {
        return Ok(Vec::new());
    }
    let staging = device.device.create_buffer(&wgpu::BufferDescriptor {
        label: Some("staging"),
        size: u64::from(words) * WORD,
        usage: wgpu::BufferUsages::COPY_DST | wgpu::BufferUsages::MAP_READ,
        mapped_at_creation: false,
    });
    copy(device, &[(buffer, at, &staging, 0, words)]);
    let (sent, mapped) = std::sync::mpsc::channel();
    staging.map_async(wgpu::MapMode::Read, .., move |result| {
        // Nobody listens any more if the wait below has failed.
        let _ = sent.send(result);
    });
    let failed = |reason: String| EngineError::Device { reason };
    let wait = wgpu::PollType::wait_indefinitely();
    device
        .device
        .poll(wait)
        .map_err(|error| failed(error.to_string()))?;
    let mapped = mapped.recv().map_err(|error| failed(error.to_string()))?;
    mapped.map_err(|error| failed(error.to_string()))?;
    let view = staging
        .get_mapped_range(..)
        .map_err(|error| failed(error.to_string()))?;
    Ok(bytemuck::pod_collect_to_vec(&view))
}
