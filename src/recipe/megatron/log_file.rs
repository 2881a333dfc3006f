//! Job logs are long: only their blocks of arguments are kept, at the lines where they stood.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use super::log;
use crate::diagnostic::{FILE_BYTES_MAX, Source, SourceError, open_regular};
use crate::recipe::limits::{LOG_BYTES_MAX, VALUE_BYTES_MAX};

/// Blocks are kept up to this many bytes in all.
const KEPT_BYTES_MAX: usize = 4 << 20;
/// A longer line is cut: no argument is that long.
const LINE_BYTES_MAX: u64 = 2 * VALUE_BYTES_MAX as u64;

/// Reads a file of another tool. A file that is too long for a configuration, or is no text as a
/// whole, is searched for blocks of arguments in its first [`LOG_BYTES_MAX`] bytes; every other
/// line of it is then empty.
///
/// # Errors
/// Those of [`Source::read`], when there is no block either.
pub fn open(path: &Path) -> Result<Source, SourceError> {
    let error = match Source::read(path) {
        Ok(source) => return Ok(source),
        Err(error @ (SourceError::TooLong { .. } | SourceError::NotText { .. })) => error,
        Err(error) => return Err(error),
    };
    let name = path.display().to_string();
    let unreadable = |error| SourceError::Unreadable {
        path: path.display().to_string(),
        error,
    };
    let file = open_regular(path).map_err(unreadable)?;
    match kept(BufReader::new(file.take(LOG_BYTES_MAX))).map_err(unreadable)? {
        Kept::Blocks(text) => Ok(Source::new(name, text)),
        Kept::Nothing => Err(error),
        Kept::NotText { offset, line } => Err(SourceError::NotText {
            path: name,
            offset,
            line,
        }),
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Kept {
    Blocks(String),
    Nothing,
    /// A block is no text.
    NotText {
        offset: usize,
        line: usize,
    },
}

fn kept(mut log: impl BufRead) -> std::io::Result<Kept> {
    let mut text = String::new();
    let (mut kept_bytes, mut offset) = (0, 0);
    let (mut is_inside, mut has_block) = (false, false);
    let mut line = Vec::new();
    while let Some(length) = next_line(&mut log, &mut line)? {
        let is_title = log::is_title(&line);
        if (is_title || is_inside) && kept_bytes + line.len() <= KEPT_BYTES_MAX {
            has_block = true;
            match std::str::from_utf8(&line) {
                Ok(line) => text.push_str(line.trim_end_matches(['\n', '\r'])),
                Err(error) => {
                    let offset = offset + error.valid_up_to();
                    let line = 1 + text.matches('\n').count();
                    return Ok(Kept::NotText { offset, line });
                }
            }
            kept_bytes += line.len();
            is_inside = !log::is_end(&line);
        }
        text.push('\n');
        offset += length;
    }
    Ok(match has_block {
        true => Kept::Blocks(text),
        false => Kept::Nothing,
    })
}

/// The next line, its first bytes only where it is long; its whole length, or `None` at the end.
fn next_line(log: &mut impl BufRead, line: &mut Vec<u8>) -> std::io::Result<Option<usize>> {
    line.clear();
    let mut length = log.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', line)?;
    let mut is_cut = length as u64 == LINE_BYTES_MAX && line.last() != Some(&b'\n');
    while is_cut {
        let buffer = log.fill_buf()?;
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let count = end.map_or(buffer.len(), |end| end + 1);
        log.consume(count);
        length += count;
        is_cut = end.is_none() && count > 0;
    }
    Ok((length > 0).then_some(length))
}

const _: () = assert!(FILE_BYTES_MAX < LOG_BYTES_MAX);
