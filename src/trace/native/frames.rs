//! Frames of a file: packed text, and the skippable frames around it (RFC 8878, 3.1.2).

use std::io;

/// The first of the sixteen magic numbers of skippable frames.
const HEADER_MAGIC: u32 = 0x184d_2a50;
/// The last of them.
const END_MAGIC: u32 = 0x184d_2a5f;
/// Longest header that is read.
pub(super) const HEADER_BYTES_MAX: usize = 64 << 10;
/// Bytes of what ends a file, its magic number and length counted.
pub(super) const END_BYTES: usize = 8 + END_TEXT;
const END_TEXT: usize = 56;

/// Packs frames one after another with what it keeps.
pub(super) struct Packer(zstd::bulk::Compressor<'static>);

impl Packer {
    /// # Errors
    /// No memory for it.
    pub fn new() -> io::Result<Packer> {
        // The fastest level: digests do not shrink at any.
        let mut packer = zstd::bulk::Compressor::new(1)?;
        packer.include_checksum(true)?;
        Ok(Packer(packer))
    }

    /// # Errors
    /// No memory for it.
    pub fn frame(&mut self, text: &[u8]) -> io::Result<Vec<u8>> {
        self.0.compress(text)
    }
}

fn skippable(magic: u32, content: &[u8]) -> Vec<u8> {
    let length = u32::try_from(content.len()).expect("headers are short");
    let parts: [&[u8]; 3] = [&magic.to_le_bytes(), &length.to_le_bytes(), content];
    parts.concat()
}

pub(super) fn header(text: &str) -> Vec<u8> {
    skippable(HEADER_MAGIC, text.as_bytes())
}

/// What ends a file of so many records. Its length is always the same, so that it is found from
/// the end.
pub(super) fn end(records: u64) -> Vec<u8> {
    let text = format!("{{\"end\":true,\"records\":{records}}}");
    skippable(END_MAGIC, format!("{text:<END_TEXT$}").as_bytes())
}

/// The text of the header that `start`, the first bytes of a file, begins with.
pub(super) fn header_of(start: &[u8]) -> Option<&str> {
    let rest = start.strip_prefix(&HEADER_MAGIC.to_le_bytes())?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length) as usize;
    let text = rest.get(..length.min(HEADER_BYTES_MAX + 1))?;
    std::str::from_utf8(text)
        .ok()
        .filter(|_| length <= HEADER_BYTES_MAX)
}

/// The number of records that the last bytes of a file speak of, if it was ended.
pub(super) fn records_of(last: &[u8]) -> Option<u64> {
    #[derive(serde::Deserialize)]
    struct End {
        end: bool,
        records: u64,
    }
    let text = last.strip_prefix(&END_MAGIC.to_le_bytes()[..])?;
    let text = text.strip_prefix(&(END_TEXT as u32).to_le_bytes()[..])?;
    let end: End = serde_json::from_slice(text).ok()?;
    end.end.then_some(end.records)
}
