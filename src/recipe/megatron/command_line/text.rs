//! Text whose every character knows where in the file it was written, through quotes, variables
//! and arrays.

use std::ops::Range;

/// A character and the byte offset at which it stands.
pub(super) type Char = (char, u32);

/// Stands for a character where there is none: no text has it.
pub(super) const NO_CHAR: Char = ('\0', 0);

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Text(pub Vec<Char>);

impl Text {
    /// The whole of a file but a byte order mark. Files are limited far below 4 GiB.
    pub fn of_file(text: &str) -> Text {
        let at = |(offset, c): (usize, char)| (c, offset as u32);
        let is_mark = |&(offset, c): &(usize, char)| offset == 0 && c == '\u{feff}';
        Text(text.char_indices().skip_while(is_mark).map(at).collect())
    }

    pub fn string(&self) -> String {
        self.0.iter().map(|(c, _)| *c).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether part of it is not known: a variable, or what a command prints.
    pub fn is_open(&self) -> bool {
        self.0.iter().any(|(c, _)| matches!(c, '$' | '`'))
    }

    pub fn push_all(&mut self, other: &[Char]) {
        self.0.extend_from_slice(other);
    }

    pub fn starts_with(&self, prefix: &str) -> bool {
        let mut chars = self.0.iter().map(|(c, _)| *c);
        prefix.chars().all(|wanted| chars.next() == Some(wanted))
    }

    /// Where it was written: as far as it stands in one piece.
    pub fn span(&self) -> Range<usize> {
        span_of(&self.0)
    }

    /// The parts before and behind the first `mark`.
    pub fn split_once(&self, mark: char) -> Option<(Text, Text)> {
        let at = self.0.iter().position(|(c, _)| *c == mark)?;
        Some((Text(self.0[..at].to_vec()), Text(self.0[at + 1..].to_vec())))
    }
}

pub(super) fn span_of(chars: &[Char]) -> Range<usize> {
    let Some(&(first, start)) = chars.first() else {
        return 0..0;
    };
    if first == NO_CHAR.0 {
        return 0..0;
    }
    let mut end = start as usize + first.len_utf8();
    for &(c, offset) in &chars[1..] {
        // A quote or a backslash may have stood between.
        if !(end..=end + 2).contains(&(offset as usize)) {
            break;
        }
        end = offset as usize + c.len_utf8();
    }
    start as usize..end
}
