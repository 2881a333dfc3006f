//! From a script to commands, words and operators, as a shell reads them. Nothing is executed.
//!
//! Source: POSIX.1-2024, Shell Command Language, section 2.3 (tokens), 2.2 (quoting); arrays,
//! `[[ ]]`, `(( ))` and `$'...'` are bash's.

use super::text::{Char, Text};
use super::word::{self, LexError, Piece, Word, closing_of, error, plain_word, word_at};
use crate::recipe::limits::{SCRIPT_CHARS_MAX, SCRIPT_WORDS_MAX};

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
    /// `(( ... ))`, brackets included.
    Arithmetic(Text),
}

/// Words that stand between operators: never empty. With keywords in them, several commands.
#[derive(Clone, Debug, Default)]
pub(super) struct Command {
    pub items: Vec<Item>,
    /// Its here-documents: indices of [`Lexed::documents`].
    pub documents: Vec<usize>,
}

/// What stands between commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operator {
    /// The end of a line, or `;`.
    End,
    /// The end of one branch of a `case`.
    CaseEnd(CaseEnd),
    Background,
    Pipe,
    And,
    Or,
    Open,
    Close,
}

/// How a branch of a `case` ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CaseEnd {
    /// `;;`
    Done,
    /// `;&`: the next branch runs, whatever its pattern.
    Through,
    /// `;;&`: the next branch runs whose pattern matches, too.
    Further,
}

#[derive(Clone, Debug)]
pub(super) enum Token {
    Command(Command),
    Operator(Operator, Char),
}

/// `<<END`
#[derive(Clone, Debug, Default)]
pub(super) struct Document {
    pub text: Text,
    /// Variables in it are not put in.
    pub is_quoted: bool,
}

/// The tokens of a script, up to its end or to where it cannot be read.
#[derive(Debug, Default)]
pub(super) struct Lexed {
    pub tokens: Vec<Token>,
    pub documents: Vec<Document>,
    /// Behind an `exit` nothing of it matters.
    pub error: Option<LexError>,
    /// Backslashes with blanks between them and the end of the line, where they were meant to
    /// continue it.
    pub broken_continuations: Vec<Char>,
}

pub(super) fn tokens(text: &[Char]) -> Lexed {
    let mut lexer = Lexer {
        text,
        at: 0,
        word_count: 0,
        bracketed_count: 0,
        here_documents: Vec::new(),
        lexed: Lexed::default(),
        command: Command::default(),
    };
    if let Err(error) = lexer.script() {
        // A line that cannot be read is not begun.
        lexer.lexed.error = Some(error);
    }
    lexer.lexed
}

struct Lexer<'a> {
    text: &'a [Char],
    at: usize,
    word_count: usize,
    /// Characters between `((` and its end.
    bracketed_count: usize,
    /// Here-documents that begin after the line.
    here_documents: Vec<HereDocument>,
    lexed: Lexed,
    command: Command,
}

struct HereDocument {
    delimiter: String,
    /// `<<-`: tabs before a line are no part of it.
    strips_tabs: bool,
    /// Index of [`Lexed::documents`].
    index: usize,
    at: usize,
}

impl<'a> Lexer<'a> {
    fn script(&mut self) -> Result<(), LexError> {
        while let Some(c) = self.peek(0) {
            match c {
                ' ' | '\t' => self.at += 1,
                '\\' if self.line_end_after(1).is_some() => self.continuation(),
                '#' => self.skip_line(),
                '\n' => {
                    self.operator(Operator::End, 1);
                    self.here_documents()?;
                }
                '&' if self.peek(1) == Some('>') => self.redirection()?,
                '(' if self.peek(1) == Some('(') && self.is_at_command() => self.arithmetic()?,
                ';' | '&' | '|' | '(' | ')' => self.any_operator(),
                '<' | '>' => self.redirection()?,
                '[' if self.is_test() => self.test()?,
                _ => self.item()?,
            }
        }
        self.end_command();
        match self.here_documents.first() {
            Some(document) => Err(self.unended(document)),
            None => Ok(()),
        }
    }

    fn any_operator(&mut self) {
        let (operator, length) = match (self.peek(0), self.peek(1), self.peek(2)) {
            (Some(';'), Some(';'), Some('&')) => (Operator::CaseEnd(CaseEnd::Further), 3),
            (Some(';'), Some(';'), _) => (Operator::CaseEnd(CaseEnd::Done), 2),
            (Some(';'), Some('&'), _) => (Operator::CaseEnd(CaseEnd::Through), 2),
            (Some('&'), Some('&'), _) => (Operator::And, 2),
            (Some('|'), Some('|'), _) => (Operator::Or, 2),
            (Some('|'), Some('&'), _) => (Operator::Pipe, 2),
            (Some('&'), ..) => (Operator::Background, 1),
            (Some('|'), ..) => (Operator::Pipe, 1),
            (Some('('), ..) => (Operator::Open, 1),
            (Some(')'), ..) => (Operator::Close, 1),
            _ => (Operator::End, 1),
        };
        self.operator(operator, length);
    }

    fn operator(&mut self, operator: Operator, length: usize) {
        self.end_command();
        let token = Token::Operator(operator, self.text[self.at]);
        self.lexed.tokens.push(token);
        self.at += length;
    }

    /// Whether a command may begin here: at its first word, or behind keywords.
    fn is_at_command(&self) -> bool {
        const BEFORE: [&str; 11] = [
            "if", "elif", "while", "until", "then", "else", "do", "for", "!", "{", "time",
        ];
        let is_before = |item: &Item| match item {
            Item::Word(word) => plain_word(word).is_some_and(|word| BEFORE.contains(&&*word)),
            _ => false,
        };
        self.command.items.iter().all(is_before)
    }

    fn is_test(&self) -> bool {
        let ends = self.peek(2).is_none_or(char::is_whitespace);
        self.peek(1) == Some('[') && ends && self.is_at_command()
    }

    /// `[[ ... ]]`: operators in it are words.
    fn test(&mut self) -> Result<(), LexError> {
        let open = self.at;
        loop {
            match self.peek(0) {
                None => return Err(self.error("this `[[` is not closed", open)),
                Some(c) if c.is_whitespace() => self.at += 1,
                Some('\\') if self.line_end_after(1).is_some() => self.continuation(),
                Some(';' | '&' | '|' | '(' | ')' | '<' | '>') => {
                    let text = Text(vec![self.text[self.at]]);
                    self.command.items.push(Item::Word(vec![Piece::Literal {
                        text,
                        is_quoted: false,
                    }]));
                    self.at += 1;
                }
                Some(_) => {
                    self.count_word()?;
                    let word = self.word()?;
                    let is_end = plain_word(&word).as_deref() == Some("]]");
                    self.command.items.push(Item::Word(word));
                    if is_end {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// `(( ... ))`
    fn arithmetic(&mut self) -> Result<(), LexError> {
        let open = self.at;
        let end = closing_of(self.text, open, '(', ')')?;
        // Brackets in brackets are looked through again and again.
        self.bracketed_count += end - open;
        if self.bracketed_count > SCRIPT_CHARS_MAX {
            return Err(self.error("there are too many brackets in brackets", open));
        }
        if self.text[end - 1].0 != ')' {
            // A shell of its own within one.
            self.any_operator();
            return Ok(());
        }
        self.count_word()?;
        let text = Text(self.text[open..end + 1].to_vec());
        self.command.items.push(Item::Arithmetic(text));
        self.at = end + 1;
        Ok(())
    }

    fn peek(&self, ahead: usize) -> Option<char> {
        self.text.get(self.at + ahead).map(|(c, _)| *c)
    }

    fn end_command(&mut self) {
        let command = std::mem::take(&mut self.command);
        if !command.items.is_empty() {
            self.lexed.tokens.push(Token::Command(command));
        }
    }

    /// Characters from `ahead` to behind the end of the line, if it ends there.
    fn line_end_after(&self, ahead: usize) -> Option<usize> {
        (self.peek(ahead) == Some('\n')).then_some(ahead + 1)
    }

    /// Goes past continued lines, of which a shell sees nothing.
    fn continuations(&mut self) {
        while self.peek(0) == Some('\\') && self.line_end_after(1).is_some() {
            self.continuation();
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

    fn here_documents(&mut self) -> Result<(), LexError> {
        for document in std::mem::take(&mut self.here_documents) {
            let mut text = Text::default();
            let mut is_ended = false;
            while self.at < self.text.len() && !is_ended {
                let start = self.at;
                self.skip_line();
                let line = Text(self.text[start..self.at].to_vec()).string();
                let mut line = line.as_str();
                if document.strips_tabs {
                    line = line.trim_start_matches('\t');
                }
                is_ended = line == document.delimiter;
                let is_read = !self.lexed.documents[document.index].is_quoted;
                if is_ended && is_read && is_continued(&text.0) {
                    // To a shell it is the end of the line before it.
                    return Err(self.error("a backslash continues into this line", start));
                }
                self.at = (self.at + 1).min(self.text.len());
                if !is_ended {
                    text.push_all(&self.text[start..self.at]);
                }
            }
            if !is_ended {
                return Err(self.unended(&document));
            }
            let is_read = !self.lexed.documents[document.index].is_quoted;
            if is_read && word::document(&text.0)?.iter().any(sets) {
                return Err(self.error("what this here-document sets is not followed", document.at));
            }
            self.lexed.documents[document.index].text = text;
        }
        Ok(())
    }

    fn unended(&self, document: &HereDocument) -> LexError {
        let delimiter = crate::diagnostic::escaped(&document.delimiter);
        let message = format!("no line `{delimiter}` ends this here-document");
        self.error(message, document.at)
    }

    /// `> file`, `2>&1`, `<<END`: the target goes with it, from the next line where this one is
    /// continued.
    fn redirection(&mut self) -> Result<(), LexError> {
        let start = self.at;
        let mut operator = String::new();
        self.continuations();
        while let Some(c @ ('<' | '>' | '&' | '|')) = self.peek(0) {
            operator.push(c);
            self.at += 1;
            self.continuations();
        }
        if self.peek(0) == Some('(') {
            // Process substitution: a file name that the shell makes up.
            self.at = closing_of(self.text, self.at, '(', ')')? + 1;
            return Ok(());
        }
        let strips_tabs = operator == "<<" && self.peek(0) == Some('-');
        if strips_tabs {
            self.at += 1;
        }
        self.continuations();
        while self.peek(0).is_some_and(|c| matches!(c, ' ' | '\t')) {
            self.at += 1;
            self.continuations();
        }
        let begins = self.at;
        let target = self.word()?;
        if self.at == begins {
            return Err(self.error("no file stands behind this redirection", start));
        }
        if target.iter().any(sets) {
            return Err(self.error("what this redirection sets is not followed", start));
        }
        if operator == "<<" {
            self.begin_document(&target, strips_tabs, start);
        }
        Ok(())
    }

    fn begin_document(&mut self, delimiter: &Word, strips_tabs: bool, at: usize) {
        let literal = |piece: &Piece| match piece {
            Piece::Literal { text, .. } | Piece::Arithmetic { text, .. } => text.string(),
            Piece::Variable(variable) => variable.text.string(),
        };
        let is_quoted = |piece: &Piece| {
            matches!(
                piece,
                Piece::Literal {
                    is_quoted: true,
                    ..
                }
            )
        };
        let index = self.lexed.documents.len();
        self.lexed.documents.push(Document {
            text: Text::default(),
            is_quoted: delimiter.iter().any(is_quoted),
        });
        self.command.documents.push(index);
        self.here_documents.push(HereDocument {
            delimiter: delimiter.iter().map(literal).collect(),
            strips_tabs,
            index,
            at,
        });
    }

    fn count_word(&mut self) -> Result<(), LexError> {
        self.word_count += 1;
        if self.word_count > SCRIPT_WORDS_MAX {
            let message = format!("there are more than {SCRIPT_WORDS_MAX} words");
            return Err(self.error(message, self.at));
        }
        Ok(())
    }

    fn item(&mut self) -> Result<(), LexError> {
        self.count_word()?;
        if self.redirected()? {
            return Ok(());
        }
        if self.is_broken_name() {
            return Err(self.error("a name that goes on in the next line is not read", self.at));
        }
        let start = self.at;
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
        if word::hides_blanks(&self.text[start..self.at]) {
            // Taken for what a command prints, it would be one word; to a shell it is several.
            return Err(self.error(
                "a `$` or back quote in single quotes is not followed",
                start,
            ));
        }
        self.command.items.push(item);
        Ok(())
    }

    /// The number of a redirection, as in `2>`, is gone past.
    fn redirected(&mut self) -> Result<bool, LexError> {
        let rest = &self.text[self.at..];
        let is_mark = |mut at: usize| {
            while let (Some(('\\', _)), Some(('\n', _))) = (rest.get(at), rest.get(at + 1)) {
                at += 2;
            }
            matches!(rest.get(at), Some(('<' | '>', _)))
        };
        let digits = rest.iter().take_while(|(c, _)| c.is_ascii_digit()).count();
        if digits > 0 && is_mark(digits) {
            self.at += digits;
            return Ok(true);
        }
        // `{NAME}>file` sets a variable.
        let is_named = rest.first().is_some_and(|(c, _)| *c == '{');
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = rest.iter().skip(1).take_while(|(c, _)| is_word(*c)).count();
        let closes = matches!(rest.get(length + 1), Some(('}', _))) && length > 0;
        match is_named && closes && is_mark(length + 2) {
            true => Err(self.error("a redirection to a name is not followed", self.at)),
            false => Ok(false),
        }
    }

    /// A backslash, blanks, and the end of the line: a word of one blank, never what was meant.
    fn note_broken_continuation(&mut self) {
        let rest = &self.text[self.at..];
        let is_blank = |(c, _): &&Char| matches!(c, ' ' | '\t');
        if let Some((('\\', _), rest)) = rest.split_first() {
            let blanks = rest.iter().take_while(is_blank).count();
            let is_end = matches!(rest.get(blanks), Some(('\n', _)));
            if blanks > 0 && is_end {
                self.lexed.broken_continuations.push(self.text[self.at]);
            }
        }
    }

    /// `NA\` and `ME=value` in the next line.
    fn is_broken_name(&self) -> bool {
        let rest = &self.text[self.at..];
        let is_word = |(c, _): &&Char| c.is_ascii_alphanumeric() || *c == '_';
        let length = rest.iter().take_while(is_word).count();
        let next = |ahead: usize| rest.get(length + ahead).map(|(c, _)| *c);
        let breaks = next(0) == Some('\\') && next(1) == Some('\n');
        let behind = rest.iter().skip(length + 2);
        let name = behind.take_while(|(c, _)| !c.is_whitespace());
        length > 0 && breaks && { name }.any(|(c, _)| *c == '=')
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
                Some(' ' | '\t' | '\n') => self.at += 1,
                Some('\\') if self.line_end_after(1).is_some() => self.continuation(),
                Some('#') => self.skip_line(),
                Some('(' | '&' | '|' | ';' | '<' | '>') => {
                    return Err(self.error("this cannot stand in an array", self.at));
                }
                Some(_) => {
                    self.count_word()?;
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

/// Whether a part of a word assigns.
fn sets(piece: &Piece) -> bool {
    match piece {
        Piece::Variable(variable) => {
            let default = variable.default.iter().flat_map(|(word, _)| word);
            variable.assigns || { default }.any(sets)
        }
        Piece::Arithmetic { text, .. } => super::arithmetic::assigns(&text.string()),
        Piece::Literal { text, .. } => !word::assigned_in(&text.string()).is_empty(),
    }
}

/// Whether a text ends with a line that a backslash continues.
fn is_continued(text: &[Char]) -> bool {
    let Some((('\n', _), line)) = text.split_last() else {
        return false;
    };
    let marks = line.iter().rev().take_while(|(c, _)| *c == '\\');
    marks.count() % 2 == 1
}
