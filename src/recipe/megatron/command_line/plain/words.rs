//! Words of a plain script: characters that mean themselves, quotes, and variables.

use std::ops::Range;

use super::super::super::launch::is_variable_name;
use super::names::is_readable;
use super::{Beyond, Kind, Scan};

/// What quotes may hold in a word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Quotes {
    /// Any text: nothing reads it again.
    Any,
    /// The value of a variable: without quotes, `$NAME` would make file names of `*`.
    Value,
    /// As [`Quotes::Value`], and `[name]=` at its start is the index of an array.
    Element,
    /// As [`Quotes::Value`]; the name and the `=` stand before it.
    Export,
    /// No variable: the text is a list of words.
    Literal,
}

/// Commands that print something of the machine or of a path, and change nothing.
const QUESTIONS: [&str; 6] = ["date", "pwd", "hostname", "whoami", "dirname", "basename"];

/// Whether a command only asks: what it prints is not known.
fn is_question(command: &str) -> bool {
    let mut words = command.split(' ').filter(|word| !word.is_empty());
    let is_plain = |c: char| {
        c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':' | ',' | '+' | '%')
    };
    let is_asked = words.next().is_some_and(|first| QUESTIONS.contains(&first));
    is_asked && words.all(|word| matches!(word, "$0" | "\"$0\"") || word.chars().all(is_plain))
}

impl Scan<'_> {
    /// A word: never empty, but for a pair of quotes.
    pub(super) fn word(&mut self, quotes: Quotes) -> Result<Range<usize>, Beyond> {
        let start = self.at;
        while let Some(c) = self.peek() {
            match c {
                ' ' | '\t' | '\n' | ';' => break,
                ')' if quotes == Quotes::Element => break,
                // Between words only, and what is behind it is looked at there.
                '\\' if self.text[self.at..].starts_with("\\\n") => break,
                '\'' => self.single(quotes)?,
                '"' => self.double(quotes)?,
                '$' => self.dollar(quotes, matches!(quotes, Quotes::Any | Quotes::Element))?,
                'a'..='z' | 'A'..='Z' | '0'..='9' => self.at += 1,
                '-' | '_' | '.' | '/' | ':' | ',' | '=' | '+' | '%' | '@' | '^' => self.at += 1,
                // `5>log` is no word of its own.
                _ => return Err(self.here()),
            }
        }
        match self.at > start {
            true => Ok(start..self.at),
            false => Err(self.here()),
        }
    }

    fn single(&mut self, quotes: Quotes) -> Result<(), Beyond> {
        let open = self.here();
        self.at += 1;
        loop {
            match self.peek() {
                None => return Err(open),
                Some('\'') => break,
                Some('$' | '`' | '\\') => return Err(self.here()),
                Some(c) => self.quoted(c, quotes)?,
            }
        }
        self.at += 1;
        Ok(())
    }

    fn double(&mut self, quotes: Quotes) -> Result<(), Beyond> {
        let open = self.here();
        self.at += 1;
        loop {
            match self.peek() {
                None => return Err(open),
                Some('"') => break,
                Some('`') => return Err(self.here()),
                Some('$') => self.dollar(quotes, false)?,
                Some('\\') if self.take("\\\n") => {}
                Some('\\') => return Err(self.here()),
                Some(c) => self.quoted(c, quotes)?,
            }
        }
        self.at += 1;
        Ok(())
    }

    /// A character between quotes.
    fn quoted(&mut self, c: char, quotes: Quotes) -> Result<(), Beyond> {
        let is_printed = c.is_ascii_graphic() || matches!(c, ' ' | '\t' | '\n');
        let is_pattern = matches!(c, '*' | '?' | '[' | ']');
        if !is_printed || (is_pattern && quotes != Quotes::Any && quotes != Quotes::Literal) {
            return Err(self.here());
        }
        self.at += 1;
        Ok(())
    }

    /// `$NAME`, `${NAME}`, `${NAME[@]}` of an array, `${NAME:-word}`, `$1`.
    /// `is_split`: what it puts in may become several words.
    fn dollar(&mut self, quotes: Quotes, is_split: bool) -> Result<(), Beyond> {
        let start = self.at;
        self.at += 1;
        if quotes == Quotes::Literal {
            return Err(start..self.at);
        }
        let rest = &self.text[self.at..];
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        match rest.chars().next() {
            Some('(') => self.bracket(start, is_split),
            Some('{') => {
                let length = rest.find('}').ok_or(start..self.at + 1)?;
                let inside = &rest[1..length];
                self.at += length + 1;
                match self.is_plain_expansion(inside) {
                    true => Ok(()),
                    false => Err(start..self.at),
                }
            }
            // As many words as the caller gives.
            Some('@' | '*') => Err(start..self.at + 1),
            Some('0'..='9') => {
                self.at += 1;
                // `$0` is the script's own name.
                match rest.starts_with('0') {
                    true => Err(start..self.at),
                    false => Ok(()),
                }
            }
            Some(c) if is_word(c) => {
                let length = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
                self.at += length;
                let name = &rest[..length];
                match is_readable(name) && !self.is_array(name) {
                    true => Ok(()),
                    false => Err(start..self.at),
                }
            }
            _ => {
                let end = rest.chars().next().map_or(0, char::len_utf8);
                Err(start..self.at + end)
            }
        }
    }

    /// `$((NAME * 2))` of small numbers, `$(date +%F)`.
    fn bracket(&mut self, start: usize, is_split: bool) -> Result<(), Beyond> {
        let rest = &self.text[self.at..];
        let beyond = start..self.at + 1;
        if let Some(inside) = rest.strip_prefix("((") {
            let length = inside.find("))").ok_or(beyond.clone())?;
            if !self.is_plain_expression(&inside[..length]) {
                return Err(beyond);
            }
            self.at += length + 4;
            return Ok(());
        }
        let length = rest.find(')').ok_or(beyond.clone())?;
        if is_split || !is_question(&rest[1..length]) {
            return Err(beyond);
        }
        self.at += length + 1;
        Ok(())
    }

    /// At most three small numbers, added, subtracted or multiplied.
    fn is_plain_expression(&self, text: &str) -> bool {
        let is_operator = |c: char| matches!(c, '+' | '-' | '*');
        let operands: Vec<&str> = text.split(is_operator).map(str::trim).collect();
        let is_number = |operand: &&str| {
            let braced = operand
                .strip_prefix("${")
                .and_then(|rest| rest.strip_suffix('}'));
            let name = braced
                .or_else(|| operand.strip_prefix('$'))
                .unwrap_or(operand);
            let is_literal = Kind::of(operand) == Kind::Number;
            is_literal || self.names.get(name) == Some(&Kind::Number)
        };
        operands.len() <= 3 && operands.iter().all(is_number)
    }

    /// Whether the name was assigned an array. Without an index it means the first element, which
    /// there may be or not.
    fn is_array(&self, name: &str) -> bool {
        self.names.get(name) == Some(&Kind::Array)
    }

    /// What stands in `${...}`.
    fn is_plain_expansion(&self, inside: &str) -> bool {
        let all = ["[@]", "[*]"]
            .iter()
            .find_map(|all| inside.strip_suffix(all));
        if let Some(name) = all {
            return self.is_bash && self.is_array(name);
        }
        let (name, word) = match inside.split_once('-') {
            Some((name, word)) => (name.strip_suffix(':').unwrap_or(name), word),
            None => (inside, ""),
        };
        let is_number = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        let is_position = is_number && !name.starts_with('0');
        let is_name = is_variable_name(name) && is_readable(name) && !self.is_array(name);
        let is_plain = |c: char| {
            c.is_ascii_alphanumeric()
                || matches!(c, '-' | '_' | '.' | '/' | ':' | ',' | '=' | '+' | '%' | '@')
        };
        (is_name || is_position) && word.chars().all(is_plain)
    }
}
