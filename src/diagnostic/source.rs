//! Texts that a diagnostic can point into.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

/// Longest configuration file that is read: 1 MiB. Recipes are a few hundred bytes.
pub const FILE_BYTES_MAX: u64 = 1 << 20;

/// A named text. Cloning shares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The path as the user wrote it, or the flag that the text came from.
    pub name: Arc<str>,
    pub text: Arc<str>,
    /// Which line of the file the text begins with, from 1: an excerpt of a long file is no whole.
    first_line: usize,
}

/// Why a file could not become a [`Source`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    #[error("cannot read `{path}`: {error}")]
    Unreadable { path: String, error: std::io::Error },
    #[error("`{path}` is {bytes} bytes long; {} has at most {bytes_max}", kind(*.bytes_max))]
    TooLong {
        path: String,
        bytes: u64,
        bytes_max: u64,
    },
    #[error("`{path}` is not UTF-8: byte {offset} starts no character (line {line})")]
    NotText {
        path: String,
        offset: usize,
        /// From 1.
        line: usize,
    },
}

/// What a file of at most so many bytes is.
const fn kind(bytes_max: u64) -> &'static str {
    match bytes_max {
        FILE_BYTES_MAX => "a configuration file",
        _ => "a file that is imported",
    }
}

impl SourceError {
    /// Whether there is no such file: the name may be a slip.
    pub fn is_missing(&self) -> bool {
        matches!(self, SourceError::Unreadable { error, .. }
            if error.kind() == std::io::ErrorKind::NotFound)
    }
}

/// Opens a regular file for reading. Asked before it is opened: opening a pipe that nobody writes
/// to would wait for ever, and a device may have no end.
///
/// # Errors
/// What the system says, or that `path` is a directory, a pipe, a socket or a device.
pub fn open_regular(path: &Path) -> std::io::Result<std::fs::File> {
    let kind = std::fs::metadata(path)?.file_type();
    if kind.is_file() {
        return std::fs::File::open(path);
    }
    let what = if kind.is_dir() {
        "it is a directory"
    } else {
        "it is a pipe, a socket or a device"
    };
    let message = format!("{what}, and only regular files are read");
    Err(std::io::Error::new(
        std::io::ErrorKind::InvalidInput,
        message,
    ))
}

fn bytes_of(path: &Path, bytes_max: u64) -> Result<Vec<u8>, SourceError> {
    use std::io::Read;
    let name = path.display().to_string();
    let unreadable = |error| SourceError::Unreadable {
        path: name.clone(),
        error,
    };
    let file = open_regular(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    // Taken, not asked for: a file may grow while it is read.
    file.take(bytes_max + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > bytes_max {
        let length = std::fs::metadata(path).map_or(bytes.len() as u64, |data| data.len());
        return Err(SourceError::TooLong {
            path: name,
            bytes: length,
            bytes_max,
        });
    }
    Ok(bytes)
}

impl Source {
    pub fn new(name: impl Into<Arc<str>>, text: impl Into<Arc<str>>) -> Self {
        Source {
            name: name.into(),
            text: text.into(),
            first_line: 1,
        }
    }

    /// Lines out of a file that is too long to be kept, from line `first_line` (from 1) on.
    pub fn excerpt(name: impl Into<Arc<str>>, text: impl Into<Arc<str>>, line: u64) -> Self {
        Source {
            first_line: usize::try_from(line).unwrap_or(usize::MAX).max(1),
            ..Source::new(name, text)
        }
    }

    /// The number of the first line of the text.
    pub(super) fn first_line(&self) -> usize {
        self.first_line
    }

    /// Whether a span says only which file, and no place in it.
    pub(super) fn is_whole(&self, span: &Range<usize>) -> bool {
        *span == (0..self.text.len()) && self.first_line == 1
    }

    /// Whether the name is a path; else a flag, or `<something>` made in a program.
    pub fn is_file(&self) -> bool {
        !self.name.starts_with("--") && !self.name.starts_with('<')
    }

    /// Reads a configuration file of at most [`FILE_BYTES_MAX`] bytes.
    pub fn read(path: &Path) -> Result<Source, SourceError> {
        let name = path.display().to_string();
        match String::from_utf8(bytes_of(path, FILE_BYTES_MAX)?) {
            Ok(text) => Ok(Source::new(name, text)),
            Err(error) => {
                let offset = error.utf8_error().valid_up_to();
                let before = &error.as_bytes()[..offset];
                let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
                Err(SourceError::NotText {
                    path: name,
                    offset,
                    line,
                })
            }
        }
    }

    /// Reads a file of another tool of at most `bytes_max` bytes. What is no UTF-8 is replaced;
    /// lines stay where they are.
    pub fn read_lossy(path: &Path, bytes_max: u64) -> Result<Source, SourceError> {
        let bytes = bytes_of(path, bytes_max)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        Ok(Source::new(path.display().to_string(), text))
    }

    /// Line and column of byte `offset`, both from 1; the column counts characters.
    pub fn line_column(&self, offset: usize) -> (usize, usize) {
        let offset = self.boundary_at_or_before(offset);
        let before = &self.text[..offset];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.matches('\n').count() + self.first_line;
        (line, before[line_start..].chars().count() + 1)
    }

    /// A range that lies in the text and cuts no character, whatever was asked for.
    pub(super) fn clamp(&self, span: &Range<usize>) -> Range<usize> {
        let start = self.boundary_at_or_before(span.start);
        let end = self.boundary_at_or_before(span.end.max(start));
        start..end.max(start)
    }

    fn boundary_at_or_before(&self, offset: usize) -> usize {
        let mut offset = offset.min(self.text.len());
        while !self.text.is_char_boundary(offset) {
            offset -= 1;
        }
        offset
    }
}

/// A range of bytes in a source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub source: Source,
    pub span: Range<usize>,
}

impl Place {
    pub fn new(source: &Source, span: Range<usize>) -> Self {
        Place {
            source: source.clone(),
            span,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_characters_from_one() {
        let source = Source::new("a.toml", "x = 1\nname = \"gr\u{f6}\u{df}e\" # y\n");
        assert_eq!(source.line_column(0), (1, 1));
        assert_eq!(source.line_column(6), (2, 1));
        let y = source.text.find("y\n").unwrap();
        assert_eq!(source.line_column(y), (2, 18));
        assert_eq!(source.line_column(usize::MAX), (3, 1));
    }

    #[test]
    fn an_excerpt_counts_the_lines_before_it() {
        let source = Source::excerpt("a.jsonl", "x\ny", 41);
        assert_eq!(source.line_column(0), (41, 1));
        assert_eq!(source.line_column(2), (42, 1));
        assert!(!source.is_whole(&(0..3)) && Source::new("a", "x").is_whole(&(0..1)));
        assert_eq!(Source::excerpt("a", "x", 0).line_column(0), (1, 1));
    }

    #[test]
    fn a_span_that_cuts_a_character_is_widened_to_its_start() {
        let source = Source::new("a", "\u{f6}\u{f6}");
        assert_eq!(source.clamp(&(1..3)), 0..2);
        assert_eq!(source.clamp(&(9..12)), 4..4);
    }

    #[test]
    fn a_file_that_is_too_long_or_not_text_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let long = folder.path().join("long.toml");
        std::fs::write(&long, vec![b'#'; FILE_BYTES_MAX as usize + 1]).unwrap();
        assert!(matches!(
            Source::read(&long),
            Err(SourceError::TooLong { .. })
        ));
        let binary = folder.path().join("binary.toml");
        std::fs::write(&binary, b"o\n\xff").unwrap();
        assert!(matches!(
            Source::read(&binary),
            Err(SourceError::NotText {
                offset: 2,
                line: 2,
                ..
            })
        ));
        let missing = folder.path().join("missing.toml");
        assert!(matches!(
            Source::read(&missing),
            Err(SourceError::Unreadable { .. })
        ));
        assert!(Source::read(&missing).unwrap_err().is_missing());
    }

    #[test]
    fn only_regular_files_are_opened() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("a.toml");
        std::fs::write(&file, "x = 1").unwrap();
        assert!(open_regular(&file).is_ok());
        let refused = open_regular(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("a directory"), "{refused}");
        assert!(!Source::read(folder.path()).unwrap_err().is_missing());
        #[cfg(unix)]
        {
            let refused = open_regular(Path::new("/dev/zero"))
                .unwrap_err()
                .to_string();
            assert!(refused.contains("a device"), "{refused}");
        }
    }
}
