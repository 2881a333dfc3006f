//! From tokens to commands within commands: branches, loops, functions, shells of their own.
//!
//! Source: POSIX.1-2024, Shell Command Language, section 2.9 (commands), 2.10 (grammar);
//! `function`, `select` and `(( ))` are bash's. As a shell does, it reads one whole command at a
//! time: what stands behind an `exit` is never read.

use std::rc::Rc;

use super::chain::{Joined, joined_by};
use super::item::{as_word, first_char};
use super::lexer::{CaseEnd, Command, Document, Item, Lexed, Operator, Token};
use super::text::{Char, Text};
use super::word::{LexError, Piece, Word, plain_word};
use crate::recipe::limits::SCRIPT_NESTING_MAX;

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub kind: Kind,
    /// Its first character.
    pub at: Char,
    /// `!` before it.
    pub is_negated: bool,
    pub joined: Joined,
    /// Part of a pipe, or run beside the script: what it assigns is lost.
    pub is_own_shell: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Simple(Simple),
    Brace(Vec<Node>),
    Subshell(Vec<Node>),
    /// `if`: what decides, and what may run, in order.
    Branches {
        first: Vec<Node>,
        others: Vec<Other>,
        /// An `else`: one of them does run.
        is_exhaustive: bool,
    },
    Case(Case),
    /// `while`, `until`.
    Repeated {
        first: Vec<Node>,
        body: Vec<Node>,
        is_while: bool,
    },
    /// `for`, `select`: a variable and its values; `None` with `((...))` or without `in`.
    Loop {
        variable: Option<Text>,
        values: Vec<Word>,
        body: Vec<Node>,
    },
    Function {
        name: String,
        body: Rc<Node>,
    },
}

/// `case WORD in ... esac`
#[derive(Clone, Debug)]
pub(super) struct Case {
    pub word: Option<Word>,
    pub clauses: Vec<Clause>,
}

/// `pattern | pattern) commands ;;`
#[derive(Clone, Debug)]
pub(super) struct Clause {
    pub patterns: Vec<Word>,
    pub body: Vec<Node>,
    pub end: CaseEnd,
}

/// What may run.
#[derive(Clone, Debug)]
pub(super) enum Other {
    Body(Vec<Node>),
    /// Of an `elif`: the bodies behind it see what it sets.
    Condition(Vec<Node>),
}

/// Words of one command: never empty.
#[derive(Clone, Debug)]
pub(super) struct Simple {
    pub items: Vec<Item>,
    pub documents: Vec<Document>,
}

pub(super) struct Parser<'a> {
    tokens: &'a [Token],
    documents: &'a [Document],
    /// Index of a token, and of an item in it where it is a command whose first items were read.
    token: usize,
    item: usize,
    depth: usize,
}

/// What ended a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    Keyword(&'static str),
    Close,
    CaseEnd(CaseEnd),
}

/// Words that end a list, and what each needs before it.
const ENDS: [(&str, &str); 8] = [
    ("then", "if"),
    ("elif", "if"),
    ("else", "if"),
    ("fi", "if"),
    ("do", "for` or `while"),
    ("done", "do"),
    ("esac", "case"),
    ("}", "{"),
];

impl<'a> Parser<'a> {
    pub fn new(lexed: &'a Lexed) -> Parser<'a> {
        Parser {
            tokens: &lexed.tokens,
            documents: &lexed.documents,
            token: 0,
            item: 0,
            depth: 0,
        }
    }

    /// The next commands up to a line's end, or `None` at the end of the text.
    pub fn next(&mut self) -> Result<Option<Vec<Node>>, LexError> {
        self.skip_ends();
        if self.token == self.tokens.len() {
            return Ok(None);
        }
        self.refuse_end()?;
        let mut nodes = Vec::new();
        self.and_or(&mut nodes)?;
        Ok(Some(nodes))
    }

    fn command_at_cursor(&self) -> Option<&'a Command> {
        match self.tokens.get(self.token) {
            Some(Token::Command(command)) => Some(command),
            _ => None,
        }
    }

    fn item_at_cursor(&self) -> Option<&'a Item> {
        self.command_at_cursor()?.items.get(self.item)
    }

    fn operator(&self) -> Option<Operator> {
        match self.tokens.get(self.token) {
            Some(Token::Operator(operator, _)) => Some(*operator),
            _ => None,
        }
    }

    fn keyword(&self) -> Option<String> {
        match self.item_at_cursor()? {
            Item::Word(word) => plain_word(word),
            _ => None,
        }
    }

    /// Goes past one item, or one operator.
    fn advance(&mut self) {
        let length = self.command_at_cursor().map_or(0, |c| c.items.len());
        self.item += 1;
        if self.item >= length {
            (self.token, self.item) = ((self.token + 1).min(self.tokens.len()), 0);
        }
    }

    fn skip_ends(&mut self) {
        while self.operator() == Some(Operator::End) {
            self.advance();
        }
    }

    /// Where the cursor stands; at the end of the text, its last token.
    fn place(&self) -> Char {
        let token = self.tokens.get(self.token).or(self.tokens.last());
        match token.expect("there is a token") {
            Token::Operator(_, at) => *at,
            Token::Command(command) => {
                let item = command.items.get(self.item).or(command.items.first());
                first_char(item.expect("a command is never empty"))
            }
        }
    }

    fn error<T>(&self, message: impl Into<String>, at: Char) -> Result<T, LexError> {
        Err(LexError {
            message: message.into(),
            at: vec![at],
        })
    }

    /// An end of something that did not begin.
    fn refuse_end(&self) -> Result<(), LexError> {
        if self.operator() == Some(Operator::Close) {
            return self.error("nothing opens this bracket", self.place());
        }
        let keyword = self.keyword();
        let is_it = |(end, _): &&(&str, &str)| keyword.as_deref() == Some(*end);
        match ENDS.iter().find(is_it) {
            Some((end, begin)) => {
                let message = format!("this `{end}` has no `{begin}` before it");
                self.error(message, self.place())
            }
            None => Ok(()),
        }
    }

    /// Commands up to one of `ends`, which is gone past. `opening` and `at` are what they close.
    fn list(&mut self, ends: &[Ended], opening: &str, at: Char) -> Result<Body, LexError> {
        self.depth += 1;
        if self.depth > SCRIPT_NESTING_MAX {
            let message = format!("commands are nested deeper than {SCRIPT_NESTING_MAX}");
            return self.error(message, at);
        }
        let mut nodes = Vec::new();
        let ended = loop {
            self.skip_ends();
            if let Some(ended) = ends.iter().find_map(|ended| self.is_at(*ended)) {
                self.advance();
                break ended;
            }
            if self.token == self.tokens.len() || self.refuse_end().is_err() {
                let wanted = match ends[ends.len() - 1] {
                    Ended::Keyword(word) => word,
                    Ended::Close => ")",
                    Ended::CaseEnd(_) => "esac",
                };
                let message = format!("this `{opening}` has no `{wanted}`");
                return self.error(message, at);
            }
            self.and_or(&mut nodes)?;
        };
        self.depth -= 1;
        Ok((nodes, ended))
    }

    /// What stands here, if it is one of this kind.
    fn is_at(&self, ended: Ended) -> Option<Ended> {
        match (ended, self.operator()) {
            (Ended::Keyword(word), _) if self.keyword().as_deref() == Some(word) => Some(ended),
            (Ended::Close, Some(Operator::Close)) => Some(ended),
            (Ended::CaseEnd(_), Some(Operator::CaseEnd(end))) => Some(Ended::CaseEnd(end)),
            _ => None,
        }
    }

    /// `a | b && c || d &`
    fn and_or(&mut self, nodes: &mut Vec<Node>) -> Result<(), LexError> {
        let start = nodes.len();
        let mut joined = Joined::No;
        loop {
            let first = nodes.len();
            self.pipeline(nodes)?;
            nodes[first..]
                .iter_mut()
                .for_each(|node| node.joined = joined);
            match self.operator() {
                Some(operator @ (Operator::And | Operator::Or)) => {
                    joined = joined_by(operator, &nodes[start..]);
                    self.advance();
                    self.skip_ends();
                }
                Some(Operator::Background) => {
                    nodes[start..]
                        .iter_mut()
                        .for_each(|node| node.is_own_shell = true);
                    self.advance();
                    return Ok(());
                }
                _ => return Ok(()),
            }
        }
    }

    fn pipeline(&mut self, nodes: &mut Vec<Node>) -> Result<(), LexError> {
        let start = nodes.len();
        loop {
            nodes.push(self.command()?);
            if self.operator() != Some(Operator::Pipe) {
                break;
            }
            self.advance();
            self.skip_ends();
        }
        let is_piped = nodes.len() - start > 1;
        nodes[start..]
            .iter_mut()
            .for_each(|node| node.is_own_shell = is_piped);
        Ok(())
    }

    fn command(&mut self) -> Result<Node, LexError> {
        let mut is_negated = false;
        while matches!(self.keyword().as_deref(), Some("!" | "time")) {
            is_negated |= self.keyword().as_deref() == Some("!");
            let is_time = self.keyword().as_deref() == Some("time");
            self.advance();
            // How it prints the time.
            while is_time && matches!(self.keyword().as_deref(), Some("-p" | "--")) {
                self.advance();
            }
        }
        if self.token == self.tokens.len() {
            return self.error("a command is missing behind this", self.place());
        }
        let at = self.place();
        let kind = match (self.operator(), self.keyword().as_deref()) {
            (Some(Operator::Open), _) => {
                self.advance();
                Kind::Subshell(self.list(&[Ended::Close], "(", at)?.0)
            }
            (Some(_), _) => return self.error("a command is missing before this", at),
            (None, Some("{")) => {
                self.advance();
                Kind::Brace(self.list(&[Ended::Keyword("}")], "{", at)?.0)
            }
            (None, Some("if")) => self.branches(at)?,
            (None, Some("while" | "until")) => self.repeated(at)?,
            (None, Some("for" | "select")) => self.loop_over(at)?,
            (None, Some("case")) => self.case(at)?,
            (None, Some("function")) => {
                self.advance();
                self.function(at)?
            }
            (None, _) if self.is_function() => self.function(at)?,
            (None, _) => {
                self.refuse_end()?;
                self.simple()?
            }
        };
        if !matches!(kind, Kind::Simple(_)) {
            self.end_of_compound()?;
        }
        Ok(Node {
            kind,
            at,
            is_negated,
            joined: Joined::No,
            is_own_shell: false,
        })
    }

    /// Behind `fi` or a bracket only another end may stand.
    fn end_of_compound(&self) -> Result<(), LexError> {
        if self.operator() == Some(Operator::Open) {
            return self.error("expected the end of the command before this", self.place());
        }
        let Some(item) = self.item_at_cursor() else {
            return Ok(());
        };
        let keyword = self.keyword();
        let is_end = ENDS.iter().any(|(end, _)| keyword.as_deref() == Some(*end));
        match is_end || self.item == 0 {
            true => Ok(()),
            false => self.error(
                "expected the end of the command before this",
                first_char(item),
            ),
        }
    }

    fn simple(&mut self) -> Result<Kind, LexError> {
        let command = self.command_at_cursor().expect("a command");
        let document = |index: &usize| self.documents[*index].clone();
        let rest = Simple {
            items: command.items[self.item..].to_vec(),
            documents: command.documents.iter().map(document).collect(),
        };
        (self.token, self.item) = (self.token + 1, 0);
        if self.operator() == Some(Operator::Open) {
            return self.error("this bracket cannot stand here", self.place());
        }
        Ok(Kind::Simple(rest))
    }

    /// `if`: the first condition is decided on, everything else may run.
    fn branches(&mut self, at: Char) -> Result<Kind, LexError> {
        self.advance();
        let then = [Ended::Keyword("then")];
        let ends = ["elif", "else", "fi"].map(Ended::Keyword);
        let (first, _) = self.list(&then, "if", at)?;
        let mut others = Vec::new();
        let is_exhaustive = loop {
            let (body, ended) = self.list(&ends, "if", at)?;
            others.push(Other::Body(body));
            match ended {
                Ended::Keyword("elif") => {
                    others.push(Other::Condition(self.list(&then, "if", at)?.0));
                }
                Ended::Keyword("else") => {
                    others.push(Other::Body(self.list(&ends[2..], "if", at)?.0));
                    break true;
                }
                _ => break false,
            }
        };
        Ok(Kind::Branches {
            first,
            others,
            is_exhaustive,
        })
    }

    fn repeated(&mut self, at: Char) -> Result<Kind, LexError> {
        let keyword = self.keyword().unwrap_or_default();
        self.advance();
        let (first, _) = self.list(&[Ended::Keyword("do")], &keyword, at)?;
        let (body, _) = self.list(&[Ended::Keyword("done")], &keyword, at)?;
        Ok(Kind::Repeated {
            first,
            body,
            is_while: keyword == "while",
        })
    }

    fn loop_over(&mut self, at: Char) -> Result<Kind, LexError> {
        let keyword = self.keyword().unwrap_or_default();
        let token = self.token;
        self.advance();
        let mut variable = None;
        let mut values = Vec::new();
        if let (true, Some(Item::Word(word))) = (self.token == token, self.item_at_cursor()) {
            variable = match word.as_slice() {
                [Piece::Literal { text, .. }] => Some(text.clone()),
                _ => return self.error("expected the name of a variable", self.place()),
            };
        }
        if let (true, Some(Item::Arithmetic(_))) = (self.token == token, self.item_at_cursor()) {
            return self.counted(at);
        }
        let is_header = |parser: &Self| parser.token == token && parser.token < parser.tokens.len();
        while is_header(self) && self.keyword().as_deref() != Some("do") {
            if let Some(Item::Word(word)) = self.item_at_cursor() {
                values.push(word.clone());
            }
            self.advance();
        }
        // The name itself, and `in`.
        values.drain(..values.len().min(2));
        self.skip_ends();
        if self.is_at(Ended::Keyword("do")).is_none() {
            let message = format!("this `{keyword}` has no `do`");
            return self.error(message, at);
        }
        self.advance();
        let (body, _) = self.list(&[Ended::Keyword("done")], &keyword, at)?;
        Ok(Kind::Loop {
            variable,
            values,
            body,
        })
    }

    /// `for ((A = 0; A < 3; A++))`: what its header sets is not known in any round.
    fn counted(&mut self, at: Char) -> Result<Kind, LexError> {
        let header = self.simple_header();
        self.skip_ends();
        if self.is_at(Ended::Keyword("do")).is_none() {
            return self.error("this `for` has no `do`", at);
        }
        self.advance();
        let (body, _) = self.list(&[Ended::Keyword("done")], "for", at)?;
        Ok(Kind::Repeated {
            first: vec![header],
            body,
            is_while: true,
        })
    }

    /// The `((...))` at the cursor as a command of its own.
    fn simple_header(&mut self) -> Node {
        let at = self.place();
        let items = self.item_at_cursor().cloned().into_iter().collect();
        self.advance();
        Node {
            kind: Kind::Simple(Simple {
                items,
                documents: Vec::new(),
            }),
            at,
            is_negated: false,
            joined: Joined::No,
            is_own_shell: false,
        }
    }

    fn case(&mut self, at: Char) -> Result<Kind, LexError> {
        // `case`, the word that decides, `in`.
        self.advance();
        let word = self.item_at_cursor().map(as_word);
        self.advance();
        self.skip_ends();
        if self.keyword().as_deref() != Some("in") {
            return self.error("this `case` has no `in`", at);
        }
        self.advance();
        let mut clauses = Vec::new();
        loop {
            self.skip_ends();
            if self.is_at(Ended::Keyword("esac")).is_some() {
                self.advance();
                break;
            }
            let patterns = self.patterns(at)?;
            let ends = [Ended::CaseEnd(CaseEnd::Done), Ended::Keyword("esac")];
            let (body, ended) = self.list(&ends, "case", at)?;
            let end = match ended {
                Ended::CaseEnd(end) => end,
                Ended::Keyword(_) | Ended::Close => CaseEnd::Done,
            };
            clauses.push(Clause {
                patterns,
                body,
                end,
            });
            if matches!(ended, Ended::Keyword(_)) {
                break;
            }
        }
        Ok(Kind::Case(Case { word, clauses }))
    }

    /// `a|b)`, `(a)`
    fn patterns(&mut self, case: Char) -> Result<Vec<Word>, LexError> {
        if self.operator() == Some(Operator::Open) {
            self.advance();
        }
        let mut patterns = Vec::new();
        loop {
            patterns.extend(self.item_at_cursor().map(as_word));
            match (self.operator(), self.tokens.get(self.token)) {
                (_, None) => return self.error("this `case` has no `esac`", case),
                (Some(Operator::Close), _) => {
                    self.advance();
                    return Ok(patterns);
                }
                (None | Some(Operator::Pipe), _) => self.advance(),
                (Some(_), _) => return self.error("this pattern has no `)`", self.place()),
            }
        }
    }

    /// `name (`
    fn is_function(&self) -> bool {
        let next = |ahead: usize| match self.tokens.get(self.token + ahead) {
            Some(Token::Operator(operator, _)) => Some(*operator),
            _ => None,
        };
        let items = self.command_at_cursor().map_or(0, |c| c.items.len());
        let brackets = [Some(Operator::Open), Some(Operator::Close)];
        self.item + 1 == items && [next(1), next(2)] == brackets && self.keyword().is_some()
    }

    fn function(&mut self, at: Char) -> Result<Kind, LexError> {
        let Some(name) = self.keyword() else {
            return self.error("expected the name of a function", at);
        };
        self.advance();
        if self.operator() == Some(Operator::Open) {
            self.advance();
            if self.operator() == Some(Operator::Close) {
                self.advance();
            }
        }
        self.skip_ends();
        self.depth += 1;
        if self.token == self.tokens.len() || self.depth > SCRIPT_NESTING_MAX {
            return self.error("this function has no body that can be read", at);
        }
        let body = Rc::new(self.command()?);
        self.depth -= 1;
        Ok(Kind::Function { name, body })
    }
}

type Body = (Vec<Node>, Ended);
