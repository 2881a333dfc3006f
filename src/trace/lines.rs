//! The lines of a trace file, plain, gzip or zstd, one at a time in bounded memory.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::diagnostic::open_regular;

use super::damage::{Damage, Whereabouts};

/// Longest line: an op over thousands of tensors has some hundred kilobytes.
pub const LINE_BYTES_MAX: usize = 16 << 20;
/// Most text that one file may unpack to.
pub const FILE_TEXT_MAX: u64 = 1 << 40;
/// Beyond [`RATIO_FREE`] a file may not unpack to more than this many times its size; traces
/// reach 10 to 40. gzip itself ends near 1,000, zstd nowhere.
pub const RATIO_MAX: u64 = 500;
/// Text that any file may unpack to, whatever its size.
pub const RATIO_FREE: u64 = 64 << 20;
/// Window that a zstd frame may ask for: 128 MiB, as the `zstd` command has it. Level 19 asks for
/// 8 MiB.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
/// What is read at once.
const CHUNK: usize = 128 << 10;

/// How much a file may unpack to.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub line_bytes: usize,
    pub text_bytes: u64,
    pub ratio: u64,
    pub ratio_free: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            line_bytes: LINE_BYTES_MAX,
            text_bytes: FILE_TEXT_MAX,
            ratio: RATIO_MAX,
            ratio_free: RATIO_FREE,
        }
    }
}

/// One open file. [`Lines::ready`], then [`Lines::line`], then [`Lines::advance`].
pub struct Lines {
    file: Arc<str>,
    reader: Box<dyn Read + Send>,
    /// Bytes of the file itself that were read so far.
    packed: Arc<AtomicU64>,
    is_packed: bool,
    limits: Limits,
    buffer: Vec<u8>,
    /// Where the current line starts, and where the buffer is filled to.
    start: usize,
    filled: usize,
    /// Where the current line ends, if it is known.
    end: Option<usize>,
    is_last: bool,
    line: u64,
    offset: u64,
    unpacked: u64,
}

impl Lines {
    /// Opens a file; its ending says how it is packed.
    ///
    /// # Errors
    /// What cannot be opened.
    pub fn open(path: &Path) -> Result<Lines, Damage> {
        Lines::open_within(path, Limits::default())
    }

    /// Opens a file under limits of one's own.
    ///
    /// # Errors
    /// What cannot be opened.
    pub fn open_within(path: &Path, limits: Limits) -> Result<Lines, Damage> {
        let name: Arc<str> = path.display().to_string().into();
        let unreadable = |error: io::Error| {
            Damage::of_file("unreadable-file", &name, format!("cannot read it: {error}"))
        };
        let file = open_regular(path).map_err(unreadable)?;
        let packed = Arc::new(AtomicU64::new(0));
        let counted = Counted {
            file,
            count: packed.clone(),
        };
        let packing = Packing::of(path);
        let reader: Box<dyn Read + Send> = match packing {
            Packing::Plain => Box::new(counted),
            Packing::Gzip => {
                let buffered = io::BufReader::with_capacity(CHUNK, counted);
                Box::new(flate2::bufread::MultiGzDecoder::new(buffered))
            }
            Packing::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::new(counted).map_err(unreadable)?;
                let windowed = decoder.window_log_max(ZSTD_WINDOW_LOG_MAX);
                windowed.map_err(unreadable)?;
                Box::new(decoder)
            }
        };
        Ok(Lines::over(
            name,
            reader,
            packed,
            packing != Packing::Plain,
            limits,
        ))
    }

    /// Lines of bytes in memory.
    pub fn of_bytes(name: &str, bytes: Vec<u8>, limits: Limits) -> Lines {
        let reader = Box::new(io::Cursor::new(bytes));
        let packed = Arc::new(AtomicU64::new(0));
        Lines::over(Arc::from(name), reader, packed, false, limits)
    }

    fn over(
        file: Arc<str>,
        reader: Box<dyn Read + Send>,
        packed: Arc<AtomicU64>,
        is_packed: bool,
        limits: Limits,
    ) -> Lines {
        Lines {
            file,
            reader,
            packed,
            is_packed,
            limits,
            buffer: Vec::new(),
            start: 0,
            filled: 0,
            end: None,
            is_last: false,
            line: 1,
            offset: 0,
            unpacked: 0,
        }
    }

    pub fn name(&self) -> &Arc<str> {
        &self.file
    }

    /// Number of the current line, from 1.
    pub fn number(&self) -> u64 {
        self.line
    }

    /// Whether there is a current line, which is read if need be.
    ///
    /// # Errors
    /// A line or file beyond the limits, and packed data that is damaged or cut.
    pub fn ready(&mut self) -> Result<bool, Damage> {
        let mut searched = self.start;
        while self.end.is_none() {
            let fresh = &self.buffer[searched..self.filled];
            if let Some(at) = memchr::memchr(b'\n', fresh) {
                self.end = Some(searched + at);
            } else if self.is_last {
                self.end = (self.filled > self.start).then_some(self.filled);
                break;
            } else {
                let seen = self.filled - self.start;
                self.fill()?;
                searched = self.start + seen;
            }
        }
        let length = self.end.map_or(0, |end| end - self.start);
        match length > self.limits.line_bytes {
            true => Err(self.too_long()),
            false => Ok(self.end.is_some()),
        }
    }

    fn too_long(&self) -> Damage {
        let most = self.limits.line_bytes;
        let message = format!("a line of more than {most} bytes");
        self.here(&[])
            .damage("long-line", 0, message)
            .expecting("one record a line")
    }

    /// The current line, without its end. After `ready` only.
    pub fn line(&self) -> &[u8] {
        let end = self.end.expect("a line was made ready");
        &self.buffer[self.start..end]
    }

    /// Where the current line stands.
    pub fn whereabouts(&self) -> Whereabouts<'_> {
        self.here(self.end.map_or(&[], |end| &self.buffer[self.start..end]))
    }

    fn here<'a>(&'a self, bytes: &'a [u8]) -> Whereabouts<'a> {
        Whereabouts {
            file: &self.file,
            line: self.line,
            offset: self.offset,
            bytes,
        }
    }

    /// Whether the current line has its end; a writer that was killed leaves one without.
    pub fn is_closed(&self) -> bool {
        self.end.is_some_and(|end| end < self.filled)
    }

    /// Whether the buffer goes on with `line` and its end: then that is the current line, and
    /// nothing of it needs to be searched.
    pub fn is_next(&mut self, line: &[u8]) -> bool {
        let end = self.start + line.len();
        let is_same =
            end < self.filled && self.buffer[end] == b'\n' && self.buffer[self.start..end] == *line;
        if is_same {
            self.end = Some(end);
        }
        is_same
    }

    /// Goes to the next line.
    pub fn advance(&mut self) {
        let end = self.end.take().expect("a line was made ready");
        let next = (end + 1).min(self.filled);
        self.offset += (next - self.start) as u64;
        self.start = next;
        self.line += 1;
    }

    fn fill(&mut self) -> Result<(), Damage> {
        self.buffer.copy_within(self.start..self.filled, 0);
        self.filled -= self.start;
        self.start = 0;
        if self.filled > self.limits.line_bytes {
            return Err(self.too_long());
        }
        if self.buffer.len() < self.filled + CHUNK {
            // At most twice the longest line: its length was asked above.
            let size = (2 * self.buffer.len()).max(self.filled + CHUNK);
            self.buffer
                .resize(size.min(self.filled + self.limits.line_bytes + CHUNK), 0);
        }
        // A packed file is unpacked a piece at a time: one that bursts is seen before it does.
        match self.reader.read(&mut self.buffer[self.filled..]) {
            Ok(0) => self.is_last = true,
            Ok(count) => {
                self.filled += count;
                self.unpacked += count as u64;
                self.within_limits()?;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(self.unreadable(&error)),
        }
        Ok(())
    }

    fn within_limits(&self) -> Result<(), Damage> {
        let packed = self.packed.load(Ordering::Relaxed);
        let by_ratio = packed
            .saturating_mul(self.limits.ratio)
            .max(self.limits.ratio_free);
        let most = match self.is_packed {
            true => by_ratio.min(self.limits.text_bytes),
            false => self.limits.text_bytes,
        };
        if self.unpacked <= most {
            return Ok(());
        }
        let message = format!("{packed} packed bytes became more than {most}");
        Err(Damage::of_file("unpacks-too-large", &self.file, message)
            .expecting("traces unpack to 10 to 40 times their size"))
    }

    fn unreadable(&self, error: &io::Error) -> Damage {
        let (code, message) = match (self.is_packed, error.kind()) {
            (true, ErrorKind::UnexpectedEof) => {
                ("cut-file", "the compressed data end too early".to_string())
            }
            (true, _) => (
                "damaged-file",
                format!("the compressed data are damaged: {error}"),
            ),
            (false, _) => ("unreadable-file", format!("cannot read on: {error}")),
        };
        let tail = &self.buffer[self.start..self.filled];
        self.here(tail).damage(code, tail.len(), message)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Packing {
    Plain,
    Gzip,
    Zstd,
}

impl Packing {
    fn of(path: &Path) -> Packing {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("gz") => Packing::Gzip,
            Some("zst") => Packing::Zstd,
            _ => Packing::Plain,
        }
    }
}

/// A file that counts what is read of it.
struct Counted {
    file: File,
    count: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(into)?;
        self.count.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

#[cfg(test)]
mod tests;
