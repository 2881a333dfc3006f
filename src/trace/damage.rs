//! What is wrong in a trace: file, line and byte, and what was expected there.

use std::sync::Arc;

use crate::diagnostic::{Diagnostic, Place, Source};

/// Bytes after the damaged one that are shown.
const SHOWN_AFTER: usize = 60;
/// A line is shown up to its damaged byte if that is no further in than this.
const SHOWN_BEFORE: usize = 4096;

/// A file that is not what its format says, or that could not be read on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// A stable slug, such as `cut-line`.
    pub code: &'static str,
    pub message: String,
    pub file: Arc<str>,
    /// From 1; nothing where the whole file is meant.
    pub line: Option<u64>,
    /// Byte in the line, from 1.
    pub byte: u64,
    /// Byte in the file's decompressed text, from 0.
    pub offset: u64,
    /// What was expected.
    pub expected: Arc<str>,
    /// The line up to a little after that byte.
    excerpt: Arc<str>,
}

impl Damage {
    /// A file that is wrong as a whole.
    pub fn of_file(code: &'static str, file: &Arc<str>, message: impl Into<String>) -> Damage {
        Damage {
            code,
            message: message.into(),
            file: file.clone(),
            line: None,
            byte: 0,
            offset: 0,
            expected: Arc::from(""),
            excerpt: Arc::from(""),
        }
    }

    /// Adds what was expected.
    #[must_use]
    pub fn expecting(mut self, expected: impl Into<Arc<str>>) -> Damage {
        self.expected = expected.into();
        self
    }

    /// One finding, with the place drawn where the line is not too long for it.
    pub fn to_diagnostic(&self) -> Diagnostic {
        let Some(line) = self.line else {
            let source = Source::new(self.file.clone(), "");
            let finding = Diagnostic::error(self.code, self.message.clone());
            return finding.at(&Place::new(&source, 0..0), &*self.expected);
        };
        let byte = self.byte;
        let message = format!("{} (line {line}, byte {byte})", self.message);
        let source = Source::excerpt(self.file.clone(), self.excerpt.clone(), line);
        let start = (byte.max(1) - 1) as usize;
        let finding = Diagnostic::error(self.code, message);
        finding.at(&Place::new(&source, start..start + 1), &*self.expected)
    }
}

/// Where a line stands, for what may be wrong with it.
#[derive(Clone, Copy, Debug)]
pub struct Whereabouts<'a> {
    pub file: &'a Arc<str>,
    /// From 1.
    pub line: u64,
    /// Byte of the line's start in the decompressed text.
    pub offset: u64,
    pub bytes: &'a [u8],
}

impl Whereabouts<'_> {
    /// Damage at byte `at` (from 0) of the line.
    pub fn damage(&self, code: &'static str, at: usize, message: impl Into<String>) -> Damage {
        let at = at.min(self.bytes.len());
        Damage {
            code,
            message: message.into(),
            file: self.file.clone(),
            line: Some(self.line),
            byte: at as u64 + 1,
            offset: self.offset + at as u64,
            expected: Arc::from(""),
            excerpt: self.excerpt(at).into(),
        }
    }

    /// The line up to a little after byte `at`; nothing where that would be long. The bytes before
    /// stay where they are, so that the place can be pointed at.
    fn excerpt(&self, at: usize) -> String {
        if at > SHOWN_BEFORE {
            return String::new();
        }
        let shown = &self.bytes[..self.bytes.len().min(at + SHOWN_AFTER)];
        match std::str::from_utf8(shown) {
            Ok(text) => text.to_string(),
            Err(error) => {
                let valid = &shown[..error.valid_up_to()];
                String::from_utf8_lossy(valid).into_owned() + "\u{fffd}"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_in_a_long_file_is_drawn_with_its_line() {
        let file: Arc<str> = Arc::from("rank_000003.jsonl.gz");
        let at = Whereabouts {
            file: &file,
            line: 41_000,
            offset: 9_000_000,
            bytes: b"{\"seq\":NaN}",
        };
        let damage = at.damage("nan-literal", 7, "`NaN` is no JSON");
        let finding = damage
            .clone()
            .expecting("expected a number")
            .to_diagnostic();
        let drawn = finding.to_plain();
        assert!(drawn.contains("(line 41000, byte 8)"), "{drawn}");
        assert!(drawn.contains("rank_000003.jsonl.gz:41000:8"), "{drawn}");
        assert!(drawn.contains("expected a number"), "{drawn}");
        assert_eq!(damage.offset, 9_000_007);
        assert_eq!(finding.to_json()["line"], 41_000);
    }

    #[test]
    fn hostile_lines_do_not_panic() {
        let file: Arc<str> = Arc::from("a");
        let long = vec![0xffu8; 10_000];
        for bytes in [&b"\xff\xfe"[..], &long, b"", "\u{f6}".as_bytes()] {
            for at in [0, 1, 5_000, usize::MAX] {
                let place = Whereabouts {
                    file: &file,
                    line: u64::MAX,
                    offset: 0,
                    bytes,
                };
                place.damage("x", at, "y").to_diagnostic().to_plain();
            }
        }
        Damage::of_file("x", &file, "y").to_diagnostic().to_plain();
    }
}
