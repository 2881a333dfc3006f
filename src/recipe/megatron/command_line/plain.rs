//! Scripts that can be read only one way: assignments of words, and one launch.
//!
//! A shell's language is large, and what is followed here beyond this much may be followed wrongly.
//! So only a plain script is checked as it is. What may stand in one is a list, and all else is
//! beyond it: characters, words, commands, names, and the lines that other programs read of it.
//!
//! Source: POSIX.1-2024, Shell Command Language, sections 2.2 to 2.7; the bash manual, "Shell
//! Variables", for names by which the shell itself changes.

mod directives;
mod names;
mod words;

use std::collections::BTreeMap;
use std::ops::Range;

use super::super::launch::is_variable_name;
use super::kind::is_flag;
use names::{is_of_shell, is_told_by_torchrun, needs_export};
use words::Quotes;

/// Where a script is more than plain.
type Beyond = Range<usize>;

/// Commands that start a program of Python.
const LAUNCHERS: [&str; 3] = ["torchrun", "python", "python3"];

/// Commands that change nothing of the shell: what stands behind them is no matter.
const IDLE: [&str; 14] = [
    ":",
    "true",
    "echo",
    "mkdir",
    "cd",
    "ls",
    "date",
    "sleep",
    "pwd",
    "nvidia-smi",
    "hostname",
    "whoami",
    "which",
    "ulimit",
];

/// Those that end a script, or wait for nothing: behind the launch they come too late.
const ENDINGS: [&str; 2] = ["exit", "wait"];

/// What a plain script's lines are.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Command {
    Export,
    Set,
    Idle,
    Launch,
    /// `--flag value`: a list of arguments, and no script.
    Arguments,
}

/// The first place where a script is more than plain.
pub(super) fn first_beyond(text: &str) -> Option<Range<usize>> {
    let first = match directives::shell(text) {
        Ok(shell) => Scan {
            text,
            at: 0,
            names: BTreeMap::new(),
            is_bash: shell.is_bash,
            launch: None,
            unexported: BTreeMap::new(),
            is_list: false,
            has_commands: false,
        }
        .run()
        .err(),
        Err(beyond) => Some(beyond),
    };
    debug_assert!(first.as_ref().is_none_or(|span| span.end <= text.len()));
    first
}

/// Whether the first line names a shell that is followed, without an option that changes what it
/// does; else where it stands.
pub(super) fn check_shell(text: &str) -> Result<(), Range<usize>> {
    directives::followed(text)
}

/// What a name holds. As the other one it means its first element, or a part of itself.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Word,
    /// A word that is a small number, and can be reckoned with.
    Number,
    Array,
}

impl Kind {
    /// Of a word as it is written.
    fn of(word: &str) -> Kind {
        let digits = word.bytes().all(|byte| byte.is_ascii_digit());
        match digits && !word.starts_with('0') && (1..=NUMBER_DIGITS_MAX).contains(&word.len()) {
            true => Kind::Number,
            false => Kind::Word,
        }
    }

    fn is_array(self) -> bool {
        self == Kind::Array
    }
}

/// Products of a few such numbers are in range.
const NUMBER_DIGITS_MAX: usize = 6;

/// `NAME=...` as it stands.
struct Assignment {
    name: Range<usize>,
    kind: Kind,
    /// `+=`
    adds: bool,
}

struct Scan<'a> {
    text: &'a str,
    at: usize,
    /// Names that were assigned, and what each is.
    names: BTreeMap<&'a str, Kind>,
    /// Arrays, `+=` and `pipefail` are bash's.
    is_bash: bool,
    /// Where the only launch stands.
    launch: Option<Range<usize>>,
    /// Assignments from which bits follow, and that nothing has exported so far.
    unexported: BTreeMap<&'a str, Range<usize>>,
    /// Whether the text is a list of arguments.
    is_list: bool,
    has_commands: bool,
}

impl Scan<'_> {
    fn run(&mut self) -> Result<(), Beyond> {
        while self.at < self.text.len() {
            self.blanks()?;
            match self.peek() {
                None => {}
                Some('#') => self.comment()?,
                Some('\n') => self.at += 1,
                Some(_) => self.command()?,
            }
        }
        self.check_exports(self.launch.as_ref().is_some_and(|at| self.is_torchrun(at)))
    }

    fn is_torchrun(&self, at: &Range<usize>) -> bool {
        &self.text[at.clone()] == "torchrun"
    }

    /// Without `export`, whether a program sees an assignment is its caller's matter.
    fn check_exports(&self, is_torchrun: bool) -> Result<(), Beyond> {
        let is_open =
            |(name, _): &(&&str, &Range<usize>)| !(is_torchrun && is_told_by_torchrun(name));
        match self.unexported.iter().find(is_open) {
            Some((_, at)) => Err(at.clone()),
            None => Ok(()),
        }
    }

    /// One command, up to the end of its line or a `;`.
    fn command(&mut self) -> Result<(), Beyond> {
        let start = self.at;
        let Some(kind) = self.kind()? else {
            return Ok(());
        };
        self.has_commands = true;
        while let Some(next) = self.next_word(kind)? {
            let fits = match kind {
                Command::Export => self.is_exported(&next)?,
                Command::Set => self.setting(&next)?,
                Command::Idle | Command::Launch | Command::Arguments => true,
            };
            if !fits {
                return Err(start..next.end);
            }
        }
        Ok(())
    }

    /// Reads the first word of a command; `None` where there are assignments only.
    fn kind(&mut self) -> Result<Option<Command>, Beyond> {
        let start = self.at;
        let mut before = Vec::new();
        while let Some(name) = self.assigned(self.at) {
            before.push(self.assignment(name)?);
            let end = self.at;
            if self.ends()? {
                self.has_commands = true;
                return match before.as_slice() {
                    [one] => self.assign(one).map(|()| None),
                    _ => Err(start..end),
                };
            }
        }
        let first = self.word(Quotes::Any)?;
        let name = &self.text[first.clone()];
        let kind = match name {
            "export" => Command::Export,
            "set" => Command::Set,
            _ if IDLE.contains(&name) => Command::Idle,
            _ if LAUNCHERS.contains(&name) && self.launch.is_none() => Command::Launch,
            _ if ENDINGS.contains(&name) && self.launch.is_some() => Command::Idle,
            _ if is_flag(name) && (self.is_list || !self.has_commands) => Command::Arguments,
            _ => return Err(first),
        };
        self.is_list |= kind == Command::Arguments;
        if self.is_list && kind != Command::Arguments {
            return Err(first);
        }
        match kind {
            Command::Launch if before.iter().all(|one| !one.kind.is_array() && !one.adds) => {
                self.check_exports(name == "torchrun")?;
                self.launch = Some(first);
            }
            // Of a launch only, what stands before it is no matter to the shell.
            _ if before.is_empty() && kind != Command::Launch => {}
            _ => return Err(start..first.end),
        }
        Ok(Some(kind))
    }

    /// Whether a command ends here, at a remark or a line's end.
    fn ends(&mut self) -> Result<bool, Beyond> {
        let is_glued = self.blanks()? == 0;
        match self.peek() {
            None => Ok(true),
            Some('\n') => {
                self.at += 1;
                Ok(true)
            }
            Some(';') if !self.text[self.at..].starts_with(";;") => {
                self.at += 1;
                Ok(true)
            }
            Some('#') if !is_glued => {
                self.comment()?;
                self.ends()
            }
            Some(_) if is_glued => Err(self.here()),
            Some(_) => Ok(false),
        }
    }

    /// `NAME=` or `NAME+=` at `start`: the name, where one stands there.
    fn assigned(&self, start: usize) -> Option<Range<usize>> {
        let rest = &self.text[start..];
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = rest.find(|c| !is_word(c))?;
        let assigns = rest[length..].starts_with('=') || rest[length..].starts_with("+=");
        let is_name = assigns && is_variable_name(&rest[..length]);
        is_name.then_some(start..start + length)
    }

    /// `NAME=word`, `NAME=(words)`, `NAME+=...`, of a name that is no more than a variable.
    fn assignment(&mut self, name: Range<usize>) -> Result<Assignment, Beyond> {
        let written = &self.text[name.clone()];
        if is_of_shell(written) || self.is_list {
            return Err(name);
        }
        self.at = name.end;
        let adds = self.take("+");
        if adds && !self.is_bash {
            return Err(name.start..self.at);
        }
        self.at += 1;
        let start = self.at;
        let is_array = self.peek() == Some('(');
        // What is added to is known; and a name is one kind of thing from first to last.
        match self.names.get(written) {
            None if adds => return Err(name),
            Some(known) if known.is_array() != is_array => return Err(name),
            _ => {}
        }
        let kind = match is_array {
            true if !self.is_bash => return Err(self.here()),
            true => {
                self.array()?;
                Kind::Array
            }
            false => {
                self.value(Quotes::Value)?;
                match adds {
                    true => Kind::Word,
                    false => Kind::of(&self.text[start..self.at]),
                }
            }
        };
        Ok(Assignment { name, kind, adds })
    }

    /// What an assignment leaves behind, where nothing is launched with it.
    fn assign(&mut self, assignment: &Assignment) -> Result<(), Beyond> {
        let name = &assignment.name;
        let written = &self.text[name.clone()];
        if needs_export(written) {
            self.unexported.insert(written, name.clone());
        }
        self.names.insert(written, assignment.kind);
        Ok(())
    }

    /// A value, which may be empty.
    fn value(&mut self, quotes: Quotes) -> Result<(), Beyond> {
        match self.peek() {
            None | Some(' ' | '\t' | '\n' | ';') => Ok(()),
            Some(_) => self.word(quotes).map(|_| ()),
        }
    }

    /// `(words)`, over several lines, with comments.
    fn array(&mut self) -> Result<(), Beyond> {
        let open = self.here();
        self.at += 1;
        loop {
            self.blanks()?;
            match self.peek() {
                None => return Err(open),
                Some('\n') => self.at += 1,
                Some('#') => self.comment()?,
                Some(')') => break,
                Some(_) => {
                    self.word(Quotes::Element)?;
                }
            }
        }
        self.at += 1;
        match self.peek() {
            None | Some(' ' | '\t' | '\n' | ';') => Ok(()),
            Some(_) => Err(self.here()),
        }
    }

    /// `NAME` or `NAME=word` behind `export`.
    fn is_exported(&mut self, word: &Range<usize>) -> Result<bool, Beyond> {
        let written = &self.text[word.clone()];
        let name = written.split('=').next().unwrap_or_default();
        let is_fit = is_variable_name(name) && !is_of_shell(name);
        // dash splits `A=$B` behind it.
        let is_split = !self.is_bash && written.contains('$');
        let is_array = self.names.get(name) == Some(&Kind::Array);
        if !is_fit || is_split || is_array {
            return Err(word.clone());
        }
        if let Some((_, value)) = written.split_once('=') {
            self.names.insert(name, Kind::of(value));
        }
        self.unexported.remove(name);
        Ok(true)
    }

    /// `-e`, `-eux`, `-euo pipefail`, `+ex`.
    fn setting(&mut self, word: &Range<usize>) -> Result<bool, Beyond> {
        let written = &self.text[word.clone()];
        let is_letter = |c: char| matches!(c, 'e' | 'u' | 'x');
        if let Some(letters) = written.strip_prefix('+') {
            return Ok(!letters.is_empty() && letters.chars().all(is_letter));
        }
        let letters = written.strip_prefix('-').unwrap_or_default();
        let (plain, takes) = match letters.strip_suffix('o') {
            Some(plain) => (plain, true),
            None => (letters, false),
        };
        let is_fit = !letters.is_empty() && plain.chars().all(is_letter);
        if !is_fit || !takes {
            return Ok(is_fit);
        }
        let next = self.next_word(Command::Set)?;
        let next = next.map(|next| &self.text[next]);
        Ok(self.is_bash && next == Some("pipefail"))
    }

    /// The next word of a command; `None` at its end.
    fn next_word(&mut self, kind: Command) -> Result<Option<Range<usize>>, Beyond> {
        loop {
            let is_glued = self.blanks()? == 0;
            match self.peek() {
                None => return Ok(None),
                Some('\n' | ';') => {
                    let is_end = self.text[self.at..].starts_with(";;");
                    if is_end || (self.is_list && self.peek() == Some(';')) {
                        return Err(self.here());
                    }
                    self.at += 1;
                    return Ok(None);
                }
                // A word that begins with it is none.
                Some('#') if is_glued => return Err(self.here()),
                Some('#') => self.comment()?,
                Some('|') if kind == Command::Launch && !is_glued => self.tee()?,
                Some(_) if is_glued => return Err(self.here()),
                Some(_) if self.redirection(kind)? => {}
                Some(_) => {
                    let quotes = match kind {
                        Command::Export => Quotes::Export,
                        Command::Arguments => Quotes::Literal,
                        _ => Quotes::Any,
                    };
                    return self.word(quotes).map(Some);
                }
            }
        }
    }

    /// `> FILE`, `2>&1`: of a launch to any file, of what is said to nowhere else.
    fn redirection(&mut self, kind: Command) -> Result<bool, Beyond> {
        const MARKS: [&str; 5] = [">>", ">", "1>", "2>", "2>>"];
        let start = self.at;
        let fits = matches!(kind, Command::Idle | Command::Launch);
        for copy in ["2>&1", ">&2", "1>&2"] {
            if fits && self.take(copy) {
                return Ok(true);
            }
        }
        // To a POSIX shell `&>` is a `&` and another redirection.
        let all = self.is_bash && self.text[start..].starts_with("&>");
        self.at += usize::from(all);
        let rest = &self.text[self.at..];
        let mark = MARKS[..if all { 2 } else { MARKS.len() }]
            .iter()
            .filter(|mark| rest.starts_with(**mark));
        let Some(mark) = mark.max_by_key(|mark| mark.len()) else {
            return Ok(false);
        };
        self.at += mark.len();
        self.blanks()?;
        let file = self.word(Quotes::Any)?;
        match fits && (kind == Command::Launch || &self.text[file.clone()] == "/dev/null") {
            true => Ok(true),
            false => Err(start..file.end),
        }
    }

    /// `| tee FILE`: what the launch says goes elsewhere, too.
    fn tee(&mut self) -> Result<(), Beyond> {
        let start = self.at;
        self.at += 1;
        self.blanks()?;
        let tool = self.word(Quotes::Any)?;
        if &self.text[tool.clone()] != "tee" {
            return Err(start..tool.end);
        }
        while self.blanks()? > 0 {
            match self.peek() {
                None | Some('\n' | ';') => break,
                Some(_) => {
                    self.word(Quotes::Any)?;
                }
            }
        }
        match self.peek() {
            None | Some('\n' | ';') => Ok(()),
            Some(_) => Err(self.here()),
        }
    }

    /// Blanks and continued lines; how many there are.
    fn blanks(&mut self) -> Result<usize, Beyond> {
        let start = self.at;
        loop {
            let rest = &self.text[self.at..];
            if rest.starts_with([' ', '\t']) {
                self.at += 1;
            } else if let Some(next) = rest.strip_prefix("\\\n") {
                // In the middle of a word it would be one word.
                let is_word = |c: char| !matches!(c, ' ' | '\t' | '\n');
                let before = self.text[..self.at].chars().next_back();
                let behind = next.chars().next();
                if before.is_some_and(is_word) && behind.is_some_and(is_word) {
                    return Err(self.here());
                }
                self.at += 2;
            } else {
                return Ok(self.at - start);
            }
        }
    }

    /// A comment, which another program may read.
    fn comment(&mut self) -> Result<(), Beyond> {
        let start = self.at;
        let rest = &self.text[start..];
        self.at += rest.find('\n').unwrap_or(rest.len());
        let line = &self.text[start..self.at];
        if let Some(odd) = line.find(|c: char| c.is_control() && c != '\t') {
            return Err(start + odd..start + odd + 1);
        }
        let is_first = start == 0 || self.text[..start].ends_with('\n');
        match directives::is_plain(line, is_first, self.has_commands) {
            true => Ok(()),
            false => Err(start..self.at),
        }
    }

    fn take(&mut self, text: &str) -> bool {
        let is_here = self.text[self.at..].starts_with(text);
        self.at += if is_here { text.len() } else { 0 };
        is_here
    }

    fn peek(&self) -> Option<char> {
        self.text[self.at..].chars().next()
    }

    fn here(&self) -> Range<usize> {
        let end = self.peek().map_or(self.at, |c| self.at + c.len_utf8());
        self.at..end
    }
}

#[cfg(test)]
mod tests;
