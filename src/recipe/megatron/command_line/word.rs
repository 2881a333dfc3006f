//! One word of a shell: quotes, escapes, variables.

use super::text::{Char, Text, span_of};
use crate::recipe::limits::SCRIPT_DEPTH_MAX;

/// Part of a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// As it stands; quotes are gone. What a shell would compute (`$(...)`) is kept as written.
    Literal {
        text: Text,
        is_quoted: bool,
    },
    Variable(Variable),
    /// `$((expression))`: variables are put in before it is reckoned.
    Arithmetic {
        expression: Vec<Piece>,
        is_quoted: bool,
        /// As written.
        text: Text,
    },
}

/// `$NAME`, `${NAME}`, `${NAME[@]}`, `${NAME:-word}`, `$1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Variable {
    pub name: String,
    pub is_quoted: bool,
    /// `[@]` is true, `[*]` false, no index `None`.
    pub all: Option<bool>,
    /// `[index]`: one element.
    pub index: Option<String>,
    /// The word of `:-` or `-`, and whether an empty value counts as none.
    pub default: Option<(Vec<Piece>, bool)>,
    /// `:=` or `=`: the word is assigned, too.
    pub assigns: bool,
    /// `:?` or `?`: the script ends where there is no value.
    pub requires: bool,
    /// As written.
    pub text: Text,
}

pub(super) type Word = Vec<Piece>;

/// Why a script cannot be read, and the characters that say so.
#[derive(Clone, Debug)]
pub(super) struct LexError {
    pub message: String,
    pub at: Vec<Char>,
}

impl LexError {
    pub fn span(&self) -> std::ops::Range<usize> {
        span_of(&self.at)
    }
}

/// The word at `at`, up to a blank or an operator, and where it ends; it may be empty.
pub(super) fn word_at(text: &[Char], at: usize) -> Result<(Word, usize), LexError> {
    let mut reader = WordReader::new(text, at, 0);
    reader.read(Until::Blank)?;
    Ok((reader.pieces, reader.at))
}

/// The text of a here-document: quotes are none, variables are put in.
pub(super) fn document(text: &[Char]) -> Result<Word, LexError> {
    let mut reader = WordReader::new(text, 0, 0);
    reader.in_document = true;
    reader.read(Until::DocumentEnd)?;
    Ok(reader.pieces)
}

/// A word without quotes and variables, as keywords are written.
pub(super) fn plain_word(word: &Word) -> Option<String> {
    let is_plain = |piece: &Piece| {
        matches!(
            piece,
            Piece::Literal {
                is_quoted: false,
                ..
            }
        )
    };
    literal_word(word).filter(|_| word.iter().all(is_plain))
}

/// `{a,b}`, `{1..4}`: a shell makes several words of it.
pub(super) fn has_braces(word: &Word) -> bool {
    let plain = word.iter().map(|piece| match piece {
        Piece::Literal {
            text,
            is_quoted: false,
        } => text.string(),
        _ => "x".to_string(),
    });
    let text: String = plain.collect();
    let inside = text
        .split_once('{')
        .and_then(|(_, rest)| rest.rsplit_once('}'));
    inside.is_some_and(|(inside, _)| inside.contains(',') || inside.contains(".."))
}

/// A word without variables, as text.
pub(super) fn literal_word(word: &Word) -> Option<String> {
    let mut text = String::new();
    for piece in word {
        match piece {
            Piece::Literal { text: literal, .. } => text += &literal.string(),
            Piece::Variable(_) | Piece::Arithmetic { .. } => return None,
        }
    }
    Some(text)
}

/// The names that `${NAME:=word}` assigns in a text that is left as it is written.
pub(super) fn assigned_in(text: &str) -> Vec<&str> {
    let of_part = |part: &'_ str| {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = part.find(|c| !is_word(c)).unwrap_or(part.len());
        let rest = &part[length..];
        // Of an element, too.
        let rest = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((_, rest)) => rest,
            None => rest,
        };
        let assigns = rest.starts_with('=') || rest.starts_with(":=");
        (assigns && length > 0).then_some(length)
    };
    let parts = text.split("${").skip(1);
    parts
        .filter_map(|part| of_part(part).map(|length| &part[..length]))
        .collect()
}

/// Whether single quotes hold `${`, `$(` or a back quote with a blank before its end, as no shell
/// would leave it.
pub(super) fn hides_blanks(written: &[Char]) -> bool {
    let mut quote = None;
    let mut part = String::new();
    let mut before = ' ';
    for (c, _) in written {
        match (quote, c) {
            (None, '\'' | '"') if before != '\\' => quote = Some(*c),
            (Some('\''), '\'') => {
                quote = None;
                if has_open_blank(&std::mem::take(&mut part)) {
                    return true;
                }
            }
            (Some('\''), c) => part.push(*c),
            (Some('"'), '"') if before != '\\' => quote = None,
            _ => {}
        }
        before = *c;
    }
    false
}

fn has_open_blank(text: &str) -> bool {
    let (mut depth, mut is_back_quoted, mut before) = (0usize, false, ' ');
    for c in text.chars() {
        match c {
            '(' | '{' if before == '$' || depth > 0 => depth += 1,
            ')' | '}' => depth = depth.saturating_sub(1),
            '`' => is_back_quoted = !is_back_quoted,
            c if c.is_whitespace() && (depth > 0 || is_back_quoted) => return true,
            _ => {}
        }
        before = c;
    }
    false
}

/// Whether an odd number of backslashes stands before a character.
fn is_escaped(text: &[Char], at: usize) -> bool {
    let before = text[..at].iter().rev();
    before.take_while(|(c, _)| *c == '\\').count() % 2 == 1
}

/// The index of `[index]`, a number or a name.
fn index_of(text: &str) -> Option<String> {
    let inside = text.strip_prefix('[')?.strip_suffix(']')?;
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_index = !inside.is_empty() && inside.chars().all(is_word);
    is_index.then(|| inside.to_string())
}

pub(super) fn error(text: &[Char], message: impl Into<String>, at: usize) -> LexError {
    LexError {
        message: message.into(),
        at: text.get(at).copied().into_iter().collect(),
    }
}

/// The index of the bracket that closes the one at `open`; quotes hide brackets.
pub(super) fn closing_of(
    text: &[Char],
    open: usize,
    opening: char,
    closing: char,
) -> Result<usize, LexError> {
    closing_between(text, open, (opening, closing), None)
}

/// As [`closing_of`], within a quote: a single one is none there.
fn closing_between(
    text: &[Char],
    open: usize,
    (opening, closing): (char, char),
    around: Option<char>,
) -> Result<usize, LexError> {
    let mut depth = 0usize;
    let mut quote = None;
    let mut at = open;
    while let Some(&(c, _)) = text.get(at) {
        match (quote, c) {
            (Some('\''), '\'') => quote = None,
            (Some('\''), _) => {}
            (_, '\\') => at += 1,
            (Some('"'), '"') => quote = None,
            (None, '\'') if around.is_some() => {}
            (None, '\'' | '"') => quote = Some(c),
            (None, c) if c == opening => depth += 1,
            (None, c) if c == closing => {
                depth -= 1;
                if depth == 0 {
                    return Ok(at);
                }
            }
            _ => {}
        }
        at += 1;
    }
    Err(error(text, format!("this `{opening}` is not closed"), open))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Until {
    /// A blank or an operator of the shell.
    Blank,
    /// The end of the text; blanks are part of the word.
    End,
    /// As [`Until::End`], and quotes stand for themselves.
    DocumentEnd,
}

/// Reads one word into pieces.
struct WordReader<'a> {
    text: &'a [Char],
    at: usize,
    depth: usize,
    /// Whether the text is a here-document's.
    in_document: bool,
    pieces: Vec<Piece>,
}

impl<'a> WordReader<'a> {
    fn new(text: &'a [Char], at: usize, depth: usize) -> Self {
        WordReader {
            text,
            at,
            depth,
            in_document: false,
            pieces: Vec::new(),
        }
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.text.get(self.at + ahead).map(|(c, _)| *c)
    }

    fn read(&mut self, until: Until) -> Result<(), LexError> {
        let start = self.at;
        while let Some(c) = self.peek(0) {
            let is_end = matches!(
                c,
                ' ' | '\t' | '\n' | ';' | '&' | '|' | '<' | '>' | '(' | ')'
            );
            match c {
                // A pattern, `@(a|b)`, is one word.
                '(' if until == Until::Blank && self.follows_pattern_mark(start) => {
                    let end = closing_of(self.text, self.at, '(', ')')? + 1;
                    self.literal(self.at..end, true);
                }
                _ if is_end && until == Until::Blank => break,
                '\'' | '"' if until == Until::DocumentEnd => {
                    self.literal(self.at..self.at + 1, true);
                }
                '\'' => self.single_quoted()?,
                '"' => self.double_quoted()?,
                '\\' => self.escaped(),
                '$' => self.dollar(false)?,
                '`' => self.backquoted()?,
                '~' if until != Until::DocumentEnd && self.is_home(start) => {
                    let at = self.text[self.at].1;
                    self.pieces.push(Piece::Literal {
                        text: Text("$HOME".chars().map(|c| (c, at)).collect()),
                        is_quoted: true,
                    });
                    self.at += 1;
                }
                _ => self.literal(self.at..self.at + 1, false),
            }
        }
        Ok(())
    }

    /// Whether a `~` is somebody's folder: at the start of a word, or of a path in a list.
    fn is_home(&self, start: usize) -> bool {
        let before = self.text[start..self.at].last().map(|(c, _)| *c);
        before.is_none() || (matches!(before, Some(':' | '=')) && self.at > start + 1)
    }

    fn follows_pattern_mark(&self, start: usize) -> bool {
        let before = self.text[start..self.at].last();
        before.is_some_and(|(c, _)| matches!(c, '?' | '*' | '+' | '@'))
    }

    /// Adds characters as they stand, and goes past them.
    fn literal(&mut self, range: std::ops::Range<usize>, is_quoted: bool) {
        let chars = &self.text[range.start.min(self.text.len())..range.end.min(self.text.len())];
        self.at = range.end;
        match self.pieces.last_mut() {
            Some(Piece::Literal { text, is_quoted: q }) if *q == is_quoted => text.push_all(chars),
            _ => self.pieces.push(Piece::Literal {
                text: Text(chars.to_vec()),
                is_quoted,
            }),
        }
    }

    fn escaped(&mut self) {
        match (self.peek(1), self.peek(2)) {
            (Some('\n'), _) => self.at += 2,
            // There a backslash takes these only.
            (Some(c), _) if self.in_document && !matches!(c, '$' | '`' | '\\') => {
                self.literal(self.at..self.at + 1, true);
            }
            (Some(_), _) => self.literal(self.at + 1..self.at + 2, true),
            (None, _) => self.literal(self.at..self.at + 1, false),
        }
    }

    fn single_quoted(&mut self) -> Result<(), LexError> {
        let open = self.at;
        let rest = &self.text[open + 1..];
        match rest.iter().position(|(c, _)| *c == '\'') {
            Some(length) => {
                self.literal(open + 1..open + 1 + length, true);
                self.at += 1;
                Ok(())
            }
            None => Err(error(self.text, "this quote is not closed", open)),
        }
    }

    /// `$'...'`: a backslash takes a quote or a backslash. With any other, it is kept as written.
    fn dollar_quoted(&mut self) -> Result<(), LexError> {
        let (start, open) = (self.at, self.at + 1);
        self.at = open + 1;
        let mut is_known = true;
        let before = self.pieces.clone();
        self.literal(self.at..self.at, true);
        loop {
            match self.peek(0) {
                None => return Err(error(self.text, "this quote is not closed", open)),
                Some('\'') => break,
                Some('\\') => {
                    is_known &= matches!(self.peek(1), Some('\'' | '"' | '\\'));
                    self.literal(self.at + 1..self.at + 2, true);
                }
                Some(_) => self.literal(self.at..self.at + 1, true),
            }
        }
        self.at += 1;
        if !is_known {
            self.pieces = before;
            self.literal(start..self.at, true);
        }
        Ok(())
    }

    fn double_quoted(&mut self) -> Result<(), LexError> {
        let open = self.at;
        self.at += 1;
        // Nothing between quotes is a word still; `"$@"` may be none.
        if self.peek(0) == Some('"') {
            self.literal(self.at..self.at, true);
        }
        loop {
            match self.peek(0) {
                None => return Err(error(self.text, "this quote is not closed", open)),
                Some('"') => break,
                Some('\\') => match self.peek(1) {
                    Some('$' | '`' | '"' | '\\') => {
                        self.literal(self.at + 1..self.at + 2, true);
                    }
                    Some('\n') => self.at += 2,
                    _ => self.literal(self.at..self.at + 1, true),
                },
                Some('$') => self.dollar(true)?,
                Some('`') => self.backquoted()?,
                Some(_) => self.literal(self.at..self.at + 1, true),
            }
        }
        self.at += 1;
        Ok(())
    }

    fn backquoted(&mut self) -> Result<(), LexError> {
        let open = self.at;
        let rest = &self.text[open + 1..];
        let is_end = |index: &usize| rest[*index].0 == '`' && !is_escaped(rest, *index);
        match (0..rest.len()).find(is_end) {
            // What a command would print: kept as written, one word.
            Some(length) => {
                self.literal(open..open + length + 2, true);
                Ok(())
            }
            None => Err(error(self.text, "this back quote is not closed", open)),
        }
    }

    fn dollar(&mut self, is_quoted: bool) -> Result<(), LexError> {
        let start = self.at;
        match self.peek(1) {
            Some('\'') if !is_quoted => return self.dollar_quoted(),
            Some('"') if !is_quoted => self.at += 1,
            Some('(') => {
                let end = closing_of(self.text, start + 1, '(', ')')? + 1;
                let is_double = self.peek(2) == Some('(') && self.text[end - 2].0 == ')';
                match is_double && end - start >= 6 {
                    true => self.arithmetic(start, end, is_quoted)?,
                    false => self.literal(start..end, true),
                }
            }
            Some('{') => {
                let around = (is_quoted || self.in_document).then_some('"');
                let end = closing_between(self.text, start + 1, ('{', '}'), around)?;
                self.at = end + 1;
                let is_mark = |(c, _): &Char| matches!(c, '\'' | '"' | '\\');
                let has_quotes = self.text[start..end].iter().any(is_mark);
                match around.is_some() && has_quotes {
                    // Quotes in quotes are a shell's own matter: kept as written.
                    true => self.literal(start..end + 1, true),
                    false => self.braced(start, end, is_quoted)?,
                }
            }
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                let is_name = |(c, _): &&Char| c.is_ascii_alphanumeric() || *c == '_';
                let length = self.text[start + 1..].iter().take_while(is_name).count();
                self.at = start + 1 + length;
                self.variable(start, start + 1..self.at, is_quoted, None, None);
            }
            Some('@' | '*') => {
                self.at = start + 2;
                let all = Some(self.text[start + 1].0 == '@');
                self.variable(start, start + 1..start + 2, is_quoted, all, None);
            }
            Some(c) if c.is_ascii_digit() => {
                self.at = start + 2;
                self.variable(start, start + 1..start + 2, is_quoted, None, None);
            }
            Some('[') => return Err(error(self.text, "`$[...]` is not followed", start)),
            Some('#' | '?' | '$' | '!' | '-') => {
                self.literal(start..start + 2, true);
            }
            _ => self.literal(start..start + 1, is_quoted),
        }
        Ok(())
    }

    fn variable(
        &mut self,
        start: usize,
        name: std::ops::Range<usize>,
        is_quoted: bool,
        all: Option<bool>,
        default: Option<(Vec<Piece>, bool)>,
    ) {
        self.pieces.push(Piece::Variable(Variable {
            name: Text(self.text[name].to_vec()).string(),
            is_quoted,
            all,
            index: None,
            default,
            assigns: false,
            requires: false,
            text: Text(self.text[start..self.at].to_vec()),
        }));
    }

    /// `$((...))` from `start` to before `end`.
    fn arithmetic(&mut self, start: usize, end: usize, is_quoted: bool) -> Result<(), LexError> {
        let expression = self.nested(start + 3, end - 2)?;
        self.at = end;
        self.pieces.push(Piece::Arithmetic {
            expression,
            is_quoted,
            text: Text(self.text[start..end].to_vec()),
        });
        Ok(())
    }

    /// `${...}` from `start` to the brace at `end`.
    fn braced(&mut self, start: usize, end: usize, is_quoted: bool) -> Result<(), LexError> {
        let inside = &self.text[start + 2..end];
        let is_name = |(c, _): &&Char| c.is_ascii_alphanumeric() || *c == '_';
        let length = match inside.first() {
            Some(('@' | '*', _)) => 1,
            _ => inside.iter().take_while(is_name).count(),
        };
        let name = start + 2..start + 2 + length;
        let rest: String = inside[length..].iter().map(|(c, _)| *c).collect();
        let (all, operator) = match rest.as_str() {
            rest if rest.starts_with("[@]") => (Some(true), 3),
            rest if rest.starts_with("[*]") => (Some(false), 3),
            _ => match inside.first() {
                Some((mark @ ('@' | '*'), _)) => (Some(*mark == '@'), 0),
                _ => (None, 0),
            },
        };
        let operator_text = &rest[operator..];
        let default = match operator_text {
            "" => None,
            text if text.starts_with(":-") || text.starts_with(":=") => Some(2),
            text if text.starts_with('-') || text.starts_with('=') => Some(1),
            text if text.starts_with(":?") || text.starts_with('?') => {
                // The script ends where it is not set.
                let marks = if text.starts_with(':') { 2 } else { 1 };
                let missing = Piece::Literal {
                    text: Text(self.text[start..end + 1].to_vec()),
                    is_quoted: true,
                };
                self.at = end + 1;
                let default = Some((vec![missing], marks == 2));
                self.variable(start, name, is_quoted, all, default);
                if let Some(Piece::Variable(variable)) = self.pieces.last_mut() {
                    variable.requires = true;
                }
                return Ok(());
            }
            text if all.is_none() && length > 0 && index_of(text).is_some() => {
                self.at = end + 1;
                self.variable(start, name, is_quoted, None, None);
                if let Some(Piece::Variable(variable)) = self.pieces.last_mut() {
                    variable.index = index_of(text);
                }
                return Ok(());
            }
            _ => {
                // Cut, replaced, counted: a shell's work, kept as written.
                self.literal(start..end + 1, true);
                return Ok(());
            }
        };
        if length == 0 {
            self.literal(start..end + 1, true);
            return Ok(());
        }
        let default = match default {
            None => None,
            Some(marks) => {
                let from = start + 2 + length + operator + marks;
                Some((self.nested(from, end)?, marks == 2))
            }
        };
        self.at = end + 1;
        self.variable(start, name, is_quoted, all, default);
        if let Some(Piece::Variable(variable)) = self.pieces.last_mut() {
            variable.assigns = operator_text.starts_with('=') || operator_text.starts_with(":=");
        }
        Ok(())
    }

    fn nested(&self, from: usize, end: usize) -> Result<Vec<Piece>, LexError> {
        if self.depth == SCRIPT_DEPTH_MAX {
            let message = format!("`$` is nested deeper than {SCRIPT_DEPTH_MAX}");
            return Err(LexError {
                message,
                at: self.text[from..end].to_vec(),
            });
        }
        let mut reader = WordReader::new(&self.text[..end], from, self.depth + 1);
        reader.read(Until::End)?;
        Ok(reader.pieces)
    }
}
