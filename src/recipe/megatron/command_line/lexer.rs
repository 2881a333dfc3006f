//! From a script to commands and words, as a shell reads them. Nothing is executed.
//!
//! Source: POSIX.1-2024, Shell Command Language, section 2.3 (tokens), 2.2 (quoting); arrays and
//! `$'...'` are bash's.

use super::text::{Char, Text};
use super::word::{LexError, Piece, Word, closing_of, error, word_at};
use crate::recipe::limits::SCRIPT_WORDS_MAX;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Word(Word),
    /// `NAME=word`, `NAME+=word`.
    Assignment {
        name: Text,
        appends: bool,
        value: Word,
    },
    /// `NAME=(words)`, `NAME+=(words)`.
    Array {
        name: Text,
        appends: bool,
        values: Vec<Word>,
    },
}

/// A simple command: never empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Command {
    pub items: Vec<Item>,
}

/// The commands of a script, and places where a backslash was meant to continue a line.
#[derive(Debug, Default)]
pub(super) struct Lexed {
    pub commands: Vec<Command>,
    /// Backslashes with blanks between them and the end of the line.
    pub broken_continuations: Vec<Char>,
    /// `&&`, `||` and parentheses: what follows may not run, or not in this shell.
    pub conditions: Vec<Char>,
}

pub(super) fn commands(text: &[Char]) -> Result<Lexed, LexError> {
    let mut lexer = Lexer {
        text,
        at: 0,
        word_count: 0,
        here_documents: Vec::new(),
        lexed: Lexed::default(),
        command: Command::default(),
    };
    lexer.script()?;
    Ok(lexer.lexed)
}

struct Lexer<'a> {
    text: &'a [Char],
    at: usize,
    word_count: usize,
    /// Delimiters of here-documents that begin after the line.
    here_documents: Vec<String>,
    lexed: Lexed,
    command: Command,
}

impl<'a> Lexer<'a> {
    fn script(&mut self) -> Result<(), LexError> {
        while let Some(c) = self.peek(0) {
            match c {
                ' ' | '\t' | '\r' => self.at += 1,
                '\\' if self.line_end_after(1).is_some() => self.continuation(),
                '#' => self.skip_line(),
                '\n' => {
                    self.end_command();
                    self.at += 1;
                    self.skip_here_documents();
                }
                '&' if self.peek(1) == Some('>') => self.redirection()?,
                c @ (';' | '&' | '|' | '(' | ')') => {
                    let doubled = matches!(c, '&' | '|') && self.peek(1) == Some(c);
                    if doubled || c == '(' {
                        self.lexed.conditions.push(self.text[self.at]);
                    }
                    self.end_command();
                    self.at += 1;
                }
                '<' | '>' => self.redirection()?,
                _ => self.item()?,
            }
        }
        self.end_command();
        Ok(())
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.text.get(self.at + ahead).map(|(c, _)| *c)
    }

    fn end_command(&mut self) {
        let command = std::mem::take(&mut self.command);
        if !command.items.is_empty() {
            self.lexed.commands.push(command);
        }
    }

    /// Characters from `ahead` to behind the end of the line, if only `\r` stands before it.
    fn line_end_after(&self, ahead: usize) -> Option<usize> {
        match (self.peek(ahead), self.peek(ahead + 1)) {
            (Some('\n'), _) => Some(ahead + 1),
            (Some('\r'), Some('\n')) => Some(ahead + 2),
            _ => None,
        }
    }

    fn continuation(&mut self) {
        self.at += self.line_end_after(1).expect("asked before");
    }

    fn skip_line(&mut self) {
        while self.peek(0).is_some_and(|c| c != '\n') {
            self.at += 1;
        }
    }

    fn skip_here_documents(&mut self) {
        for delimiter in std::mem::take(&mut self.here_documents) {
            while self.at < self.text.len() {
                let start = self.at;
                self.skip_line();
                let line = Text(self.text[start..self.at].to_vec()).string();
                self.at += 1;
                if line.trim_end_matches('\r').trim_start_matches('\t') == delimiter {
                    break;
                }
            }
        }
        self.at = self.at.min(self.text.len());
    }

    /// `> file`, `2>&1`, `<<END`: the target goes with it.
    fn redirection(&mut self) -> Result<(), LexError> {
        let start = self.at;
        while self
            .peek(0)
            .is_some_and(|c| matches!(c, '<' | '>' | '&' | '|'))
        {
            self.at += 1;
        }
        let operator: String = self.text[start..self.at].iter().map(|(c, _)| *c).collect();
        if self.peek(0) == Some('(') {
            // Process substitution: a file name that the shell makes up.
            self.at = closing_of(self.text, self.at, '(', ')')? + 1;
            return Ok(());
        }
        if operator == "<<" && self.peek(0) == Some('-') {
            self.at += 1;
        }
        while self.peek(0).is_some_and(|c| matches!(c, ' ' | '\t')) {
            self.at += 1;
        }
        if self.peek(0).is_none_or(|c| matches!(c, '\n' | '\r')) {
            return Ok(());
        }
        let target = self.word()?;
        if operator == "<<" {
            let literal = |piece: &Piece| match piece {
                Piece::Literal { text, .. } => text.string(),
                Piece::Variable(variable) => variable.text.string(),
            };
            self.here_documents
                .push(target.iter().map(literal).collect());
        }
        Ok(())
    }

    fn item(&mut self) -> Result<(), LexError> {
        self.word_count += 1;
        if self.word_count > SCRIPT_WORDS_MAX {
            let message = format!("there are more than {SCRIPT_WORDS_MAX} words");
            return Err(self.error(message, self.at));
        }
        // The number of a redirection, as in `2>`.
        if let (Some('0'..='9'), Some('<' | '>')) = (self.peek(0), self.peek(1)) {
            self.at += 1;
            return Ok(());
        }
        let Some((name, appends)) = self.assignment() else {
            self.note_broken_continuation();
            let word = self.word()?;
            self.command.items.push(Item::Word(word));
            return Ok(());
        };
        let item = match self.peek(0) {
            Some('(') => Item::Array {
                name,
                appends,
                values: self.array()?,
            },
            _ => Item::Assignment {
                name,
                appends,
                value: self.word()?,
            },
        };
        self.command.items.push(item);
        Ok(())
    }

    /// A backslash, blanks, and the end of the line: a word of one blank, never what was meant.
    fn note_broken_continuation(&mut self) {
        let rest = &self.text[self.at..];
        let is_blank = |(c, _): &&Char| matches!(c, ' ' | '\t');
        if let Some((('\\', _), rest)) = rest.split_first() {
            let blanks = rest.iter().take_while(is_blank).count();
            let is_end = matches!(rest.get(blanks), Some(('\n' | '\r', _)));
            if blanks > 0 && is_end {
                self.lexed.broken_continuations.push(self.text[self.at]);
            }
        }
    }

    /// `NAME=` or `NAME+=`, read past if it stands here.
    fn assignment(&mut self) -> Option<(Text, bool)> {
        let is_letter = |c: char| c.is_ascii_alphabetic() || c == '_';
        let mut end = 0;
        while self
            .peek(end)
            .is_some_and(|c| is_letter(c) || (end > 0 && c.is_ascii_digit()))
        {
            end += 1;
        }
        let (appends, length) = match (self.peek(end), self.peek(end + 1)) {
            (Some('='), _) => (false, 1),
            (Some('+'), Some('=')) => (true, 2),
            _ => return None,
        };
        if end == 0 {
            return None;
        }
        let name = Text(self.text[self.at..self.at + end].to_vec());
        self.at += end + length;
        Some((name, appends))
    }

    fn array(&mut self) -> Result<Vec<Word>, LexError> {
        let open = self.at;
        self.at += 1;
        let mut values = Vec::new();
        loop {
            match self.peek(0) {
                None => return Err(self.error("this array is not closed", open)),
                Some(')') => break,
                Some(' ' | '\t' | '\r' | '\n') => self.at += 1,
                Some('\\') if self.line_end_after(1).is_some() => self.continuation(),
                Some('#') => self.skip_line(),
                Some('(' | '&' | '|' | ';' | '<' | '>') => {
                    return Err(self.error("this cannot stand in an array", self.at));
                }
                Some(_) => {
                    self.word_count += 1;
                    if self.word_count > SCRIPT_WORDS_MAX {
                        let message = format!("there are more than {SCRIPT_WORDS_MAX} words");
                        return Err(self.error(message, self.at));
                    }
                    self.note_broken_continuation();
                    values.push(self.word()?);
                }
            }
        }
        self.at += 1;
        Ok(values)
    }

    /// Up to a blank or an operator; may be empty.
    fn word(&mut self) -> Result<Word, LexError> {
        let (word, end) = word_at(self.text, self.at)?;
        self.at = end;
        Ok(word)
    }

    fn error(&self, message: impl Into<String>, at: usize) -> LexError {
        error(self.text, message, at)
    }
}
