//! Follows a script from top to bottom, branches and loops included, and gathers what it launches.

use std::ops::Range;

use super::lexer::{self, Item};
use super::shell::{Remark, Shell, TooLong, Value};
use super::text::{Char, Text};
use super::word::{LexError, Piece, Word};
use crate::recipe::limits::{LAUNCHES_MAX, SCRIPT_DEPTH_MAX};

/// A command that starts a Python program, with its words.
#[derive(Debug)]
pub(super) struct Launch {
    /// The program's file, or the module behind `-m`; `None` for arguments without a program.
    pub program: Option<Text>,
    /// `torchrun` and its options.
    pub before: Vec<Text>,
    pub arguments: Vec<Text>,
    /// Variables assigned on the command's own line, and those exported before.
    pub environment: Vec<(String, String, Range<usize>)>,
    pub remarks: Vec<Remark>,
}

/// Everything that reading a script yields.
#[derive(Debug, Default)]
pub(super) struct Script {
    shell: Shell,
    pub launches: Vec<Launch>,
    /// Words of lines that begin with a flag: a list of arguments without a launcher.
    pub bare: Vec<Text>,
    pub bare_remarks: Vec<Remark>,
    pub broken_continuations: Vec<Char>,
    pub conditions: Vec<Char>,
    /// Files that the script reads commands from, and this does not.
    pub sourced: Vec<Range<usize>>,
    /// Launchers whose program was not found.
    pub unread: Vec<Range<usize>>,
    /// `if`s and loops that are open.
    branch_depth: usize,
}

#[derive(Debug)]
pub(super) enum ScriptError {
    Lex(LexError),
    /// Variables grow beyond the limit here.
    TooLong(Range<usize>),
    /// `sh -c` within `sh -c`.
    TooDeep(Range<usize>),
    /// More launches than anyone writes.
    TooMany(Range<usize>),
}

impl From<LexError> for ScriptError {
    fn from(error: LexError) -> Self {
        ScriptError::Lex(error)
    }
}

impl Script {
    /// `preset` are variables that Slurm sets: a name and a value each.
    pub fn read(text: &Text, preset: &[(Text, Text)]) -> Result<Script, ScriptError> {
        let mut script = Script::default();
        for (name, value) in preset {
            let value = Value {
                words: vec![value.clone()],
                ..Value::default()
            };
            script.shell.assign(name, value, false);
        }
        script.commands(&text.0, 0)?;
        Ok(script)
    }

    /// Exported variables at the end of the script.
    pub fn environment(&self) -> Vec<(String, String, Range<usize>)> {
        let owned = |(name, value, at): (&str, String, &Range<usize>)| {
            (name.to_string(), value, at.clone())
        };
        self.shell.environment().map(owned).collect()
    }

    fn commands(&mut self, text: &[Char], depth: usize) -> Result<(), ScriptError> {
        let lexed = lexer::commands(text)?;
        self.broken_continuations.extend(lexed.broken_continuations);
        self.conditions.extend(lexed.conditions);
        for command in &lexed.commands {
            let items = self.without_keywords(&command.items);
            if items.is_empty() {
                continue;
            }
            let at = span_of(&command.items);
            self.command(items, depth).map_err(|error| match error {
                Halt::TooLong(TooLong) => ScriptError::TooLong(at),
                Halt::Script(error) => error,
            })?;
        }
        Ok(())
    }

    /// Goes past the words that open, divide and close branches and loops.
    fn without_keywords<'b>(&mut self, mut items: &'b [Item]) -> &'b [Item] {
        while let Some((first, rest)) = items.split_first() {
            match plain_word(first).as_deref() {
                Some("if" | "while" | "until") => self.branch_depth += 1,
                Some("for" | "case" | "select") => {
                    self.branch_depth += 1;
                    return &[];
                }
                Some("fi" | "done" | "esac") => {
                    self.branch_depth = self.branch_depth.saturating_sub(1);
                }
                Some("then" | "else" | "elif" | "do" | "{" | "}" | "!" | "time" | "exec") => {}
                _ => return items,
            }
            items = rest;
        }
        items
    }

    fn command(&mut self, items: &[Item], depth: usize) -> Result<(), Halt> {
        let is_assignment = |item: &&Item| !matches!(item, Item::Word(_));
        let assignment_count = items.iter().take_while(is_assignment).count();
        let (assignments, rest) = items.split_at(assignment_count);
        if rest.is_empty() {
            for assignment in assignments {
                self.assign(assignment)?;
            }
            return Ok(());
        }
        match plain_word(&rest[0]).as_deref() {
            Some(word @ ("export" | "declare" | "typeset" | "local" | "readonly")) => {
                return self.declare(word, &rest[1..]);
            }
            Some("unset") => {
                let names = rest[1..].iter().filter_map(plain_word);
                names.for_each(|name| self.shell.unset(&name));
                return Ok(());
            }
            Some("set") => {
                let words: Vec<String> = rest[1..].iter().filter_map(plain_word).collect();
                if words.iter().any(|word| word == "-a" || word == "allexport") {
                    self.shell.exports_all = true;
                }
                return Ok(());
            }
            Some("source" | ".") => {
                self.sourced.push(span_of(items));
                return Ok(());
            }
            _ => {}
        }
        self.program(assignments, rest, depth)
    }

    fn assign(&mut self, item: &Item) -> Result<(), TooLong> {
        let mut remarks = Vec::new();
        let (name, appends, words) = match item {
            Item::Word(_) => return Ok(()),
            Item::Assignment {
                name,
                appends,
                value,
            } => (name, *appends, vec![self.shell.text(value, &mut remarks)?]),
            Item::Array {
                name,
                appends,
                values,
            } => (name, *appends, self.shell.fields(values, &mut remarks)?),
        };
        let value = Value {
            words,
            is_array: matches!(item, Item::Array { .. }),
            conditional: (self.branch_depth > 0).then(|| name.span()),
            remarks,
        };
        self.shell.assign(name, value, appends);
        Ok(())
    }

    /// `export NAME=value`, `export NAME`, `declare -x NAME=value`, `declare -a NAME=(...)`.
    fn declare(&mut self, word: &str, items: &[Item]) -> Result<(), Halt> {
        let mut exports = word == "export";
        for item in items {
            match item {
                Item::Word(_) => {
                    let Some(name) = plain_word(item) else {
                        continue;
                    };
                    match name.strip_prefix('-') {
                        Some(options) => {
                            exports |= options.contains('x');
                            // `export -n NAME` takes it back.
                            exports &= !options.contains('n');
                        }
                        None if exports => self
                            .shell
                            .export(&name, span_of(std::slice::from_ref(item))),
                        None => {}
                    }
                }
                Item::Assignment { name, .. } | Item::Array { name, .. } => {
                    self.assign(item)?;
                    if exports {
                        self.shell.export(&name.string(), name.span());
                    }
                }
            }
        }
        Ok(())
    }

    /// Any other command: kept if it launches a program of Python.
    fn program(&mut self, assignments: &[Item], rest: &[Item], depth: usize) -> Result<(), Halt> {
        let mut remarks = Vec::new();
        let words: Vec<Word> = rest.iter().map(as_word).collect();
        let fields = self.shell.fields(&words, &mut remarks)?;
        if fields.first().is_some_and(is_flag) {
            self.bare.extend(fields);
            self.bare_remarks.extend(remarks);
            return Ok(());
        }
        if let Some((shell, inner)) = inner_script(&fields) {
            if depth == SCRIPT_DEPTH_MAX {
                return Err(Halt::Script(ScriptError::TooDeep(inner.span())));
            }
            let count = self.launches.len();
            self.commands(&inner.0, depth + 1).map_err(Halt::Script)?;
            for launch in &mut self.launches[count..] {
                launch.remarks.extend(remarks.iter().cloned());
                // `srun --nodes 2 bash -c "..."` says how many, too.
                launch.before.splice(0..0, fields[..shell].iter().cloned());
            }
            return Ok(());
        }
        let Some((program, arguments)) = program_at(&fields) else {
            let is_launcher = |word: &&Text| {
                let word = word.string();
                word.ends_with("torchrun") || word.starts_with("torch.distributed.")
            };
            self.unread
                .extend(fields.iter().find(is_launcher).map(Text::span));
            return Ok(());
        };
        if self.launches.len() == LAUNCHES_MAX {
            let at = fields[program].span();
            return Err(Halt::Script(ScriptError::TooMany(at)));
        }
        let mut environment = self.environment();
        for assignment in assignments {
            if let Item::Assignment { name, value, .. } = assignment {
                let text = self.shell.text(value, &mut remarks)?;
                put_variable(&mut environment, name, &text);
            }
        }
        for (index, field) in fields[..program].iter().enumerate() {
            let Some((name, value)) = field.split_once('=') else {
                continue;
            };
            let before = index.checked_sub(1).map(|before| fields[before].string());
            let passes = matches!(before.as_deref(), Some("-x" | "-e" | "--env" | "env"));
            let is_listed = before.is_some_and(|before| before.contains('='));
            if is_name(&name) && (passes || is_listed) {
                put_variable(&mut environment, &name, &value);
            }
        }
        self.launches.push(Launch {
            program: Some(fields[program].clone()),
            before: fields[..program].to_vec(),
            arguments: fields[arguments..].to_vec(),
            environment,
            remarks,
        });
        Ok(())
    }
}

enum Halt {
    TooLong(TooLong),
    Script(ScriptError),
}

impl From<TooLong> for Halt {
    fn from(error: TooLong) -> Self {
        Halt::TooLong(error)
    }
}

/// A word without variables, as text.
fn plain_word(item: &Item) -> Option<String> {
    let Item::Word(pieces) = item else {
        return None;
    };
    let mut text = String::new();
    for piece in pieces {
        match piece {
            Piece::Literal { text: literal, .. } => text += &literal.string(),
            Piece::Variable(_) => return None,
        }
    }
    Some(text)
}

/// An item behind a command's name is a word, whatever it looks like.
fn as_word(item: &Item) -> Word {
    let literal = |chars: Vec<Char>| Piece::Literal {
        text: Text(chars),
        is_quoted: false,
    };
    let named = |name: &Text, appends: bool| {
        let mut chars = name.0.clone();
        let at = name.span().end as u32;
        chars.extend(appends.then_some(('+', at)));
        chars.push(('=', at + u32::from(appends)));
        literal(chars)
    };
    match item {
        Item::Word(word) => word.clone(),
        Item::Assignment {
            name,
            appends,
            value,
        } => {
            let mut word = vec![named(name, *appends)];
            word.extend(value.iter().cloned());
            word
        }
        Item::Array { name, appends, .. } => vec![named(name, *appends)],
    }
}

fn span_of(items: &[Item]) -> Range<usize> {
    let of_piece = |piece: &Piece| match piece {
        Piece::Literal { text, .. } => text.span(),
        Piece::Variable(variable) => variable.text.span(),
    };
    let of_item = |item: &Item| match item {
        Item::Word(word) => word.first().map(of_piece),
        Item::Assignment { name, .. } | Item::Array { name, .. } => Some(name.span()),
    };
    items.iter().find_map(of_item).unwrap_or(0..0)
}

fn is_flag(word: &Text) -> bool {
    let third = word.0.get(2).is_some_and(|(c, _)| c.is_ascii_alphabetic());
    word.starts_with("--") && third
}

fn is_name(name: &Text) -> bool {
    super::super::launch::is_variable_name(&name.string())
}

fn put_variable(environment: &mut Vec<(String, String, Range<usize>)>, name: &Text, value: &Text) {
    let (key, text) = (name.string(), value.string());
    environment.retain(|(known, ..)| *known != key);
    environment.push((key, text, name.span()));
}

/// The script of `sh -c SCRIPT`, and where `sh` stands.
fn inner_script(fields: &[Text]) -> Option<(usize, &Text)> {
    let is_shell = |word: &Text| {
        let word = word.string();
        matches!(word.rsplit('/').next(), Some("sh" | "bash"))
    };
    let shell = fields.iter().position(is_shell)?;
    let is_option = |word: &Text| {
        let word = word.string();
        word.starts_with('-') && !word.starts_with("--") && word.ends_with('c')
    };
    let option = fields[shell + 1..].iter().position(is_option)? + shell + 1;
    fields.get(option + 1).map(|script| (shell, script))
}

/// Where a program of Python is named, and where its arguments begin.
fn program_at(fields: &[Text]) -> Option<(usize, usize)> {
    const LAUNCHERS: [&str; 3] = [
        "torch.distributed.run",
        "torch.distributed.launch",
        "accelerate.commands.launch",
    ];
    for (index, field) in fields.iter().enumerate() {
        let word = field.string();
        if word.ends_with(".py") && !word.starts_with('-') {
            return Some((index, index + 1));
        }
        if word == "-m" {
            let module = fields.get(index + 1)?.string();
            let is_module = module.starts_with(|c: char| c.is_ascii_alphabetic());
            if is_module && !LAUNCHERS.contains(&module.as_str()) {
                return Some((index + 1, index + 2));
            }
        }
    }
    None
}
