//! Commands that a shell runs itself: they set variables, end the script, or read more of it.

use std::collections::VecDeque;
use std::ops::Range;

use super::arithmetic;
use super::item::{as_word, command_name, first_char, item_span};
use super::lexer::Item;
use super::script::{Ends, Flow, Halt, Script, not_followed};
use super::shell::{TooLong, Value};
use super::text::{NO_CHAR, Text};
use super::word::{Piece, Word, has_braces};

impl Script {
    /// Runs a command of the shell's own, or a function of the script; `None` for any other.
    pub(super) fn builtin(
        &mut self,
        first: &Item,
        rest: &[Item],
        assignments: &[Item],
    ) -> Result<Option<Flow>, Halt> {
        if let Item::Arithmetic(text) = first {
            self.shell.forget_assigned(&text.string(), &text.span())?;
            return Ok(Some(Flow::Next));
        }
        let Some(name) = command_name(first) else {
            return self.called_by_value(first, rest, assignments);
        };
        if self.is_function(&name) {
            return self.function(&name, rest, assignments);
        }
        let rest = behind_options(&name, rest);
        match name.as_str() {
            "exit" => return Ok(Some(Flow::Exit)),
            "return" => return Ok(Some(Flow::Return)),
            // Out of several loops: not followed.
            "break" | "continue" if !rest.is_empty() => {
                return Err(not_followed(item_span(first)));
            }
            "break" | "continue" => return Ok(Some(Flow::Break)),
            "export" | "declare" | "typeset" | "local" | "readonly" => {
                self.declare(&name, rest)?;
                self.forget_names_of(assignments);
            }
            "unset" => self.unset(rest)?,
            "set" => self.set(first, rest)?,
            "shift" => self.shift(rest),
            "read" | "mapfile" | "readarray" | "getopts" | "let" | "printf" => {
                self.fills(&name, first, rest)?;
            }
            "source" | "." => self.reads(first, rest)?,
            tool if is_environment_tool(tool) && !runs_another(rest) => self.reads(first, rest)?,
            "trap" => self.trap(first, rest)?,
            "shopt" => self.shopt(rest)?,
            "eval" => return self.evaluated(rest, assignments).map(Some),
            "[[" | "[" | "test" => self.tested(rest)?,
            "enable" | "coproc" | "alias" if !rest.is_empty() => {
                return Err(not_followed(item_span(first)));
            }
            "wait"
                if rest
                    .iter()
                    .any(|item| command_name(item).as_deref() == Some("-p")) =>
            {
                self.forget_named(rest)?;
            }
            "exec" if rest.is_empty() => {}
            "command" | "builtin" if rest.first().is_some_and(names_none) => {
                return Ok(None);
            }
            "exec" | "command" | "builtin" => {
                return self.run_by(&name, rest, assignments).map(Some);
            }
            _ => return Ok(None),
        }
        Ok(Some(Flow::Next))
    }

    /// Commands that put into variables what is not followed.
    fn fills(&mut self, name: &str, first: &Item, rest: &[Item]) -> Result<(), Halt> {
        match name {
            "read" | "mapfile" | "readarray" | "getopts" => {
                self.forget_named(rest)?;
                ["REPLY", "MAPFILE", "OPTARG", "OPTIND"]
                    .iter()
                    .for_each(|name| self.forget(name, first));
            }
            "let" => {
                for item in rest {
                    self.calculated(item)?;
                }
            }
            "printf" => {
                let option = rest.first().and_then(command_name).unwrap_or_default();
                let named = rest.get(1..2).filter(|_| option == "-v");
                self.forget_named(named.unwrap_or_default())?;
                if let Some(name) = option.strip_prefix("-v") {
                    self.forget(name, first);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// `exec CMD`, `command CMD`, `builtin CMD`: no function of the script.
    fn run_by(&mut self, name: &str, rest: &[Item], before: &[Item]) -> Result<Flow, Halt> {
        let command = super::parse::Simple {
            items: before.iter().chain(rest).cloned().collect(),
            documents: Vec::new(),
        };
        let called = rest.first().and_then(command_name).unwrap_or_default();
        let hidden = self.functions.remove(&called);
        let flow = self.simple(&command)?;
        if let Some(body) = hidden {
            self.functions.insert(called, body);
        }
        // The program takes the script's place.
        Ok(if name == "exec" { Flow::Exit } else { flow })
    }

    /// Commands that are not read here: they may set anything.
    fn reads(&mut self, first: &Item, rest: &[Item]) -> Result<(), TooLong> {
        let file = rest.first().map(|item| literal_of(item).span());
        let at = file.filter(|span| !span.is_empty());
        let at = at.unwrap_or(item_span(first));
        self.loses_to(at)
    }

    pub(super) fn loses_to(&mut self, at: Range<usize>) -> Result<(), TooLong> {
        self.shell.forget_everything(&at)?;
        self.sourced.push(at);
        Ok(())
    }

    /// `let N=3`
    fn calculated(&mut self, item: &Item) -> Result<(), TooLong> {
        let text = literal_of(item);
        match text.is_open() {
            true => self.loses_to(item_span(item)),
            false => self.shell.forget_assigned(&text.string(), &text.span()),
        }
    }

    /// A handler that runs between commands, or where one fails, may set variables there.
    fn trap(&mut self, first: &Item, rest: &[Item]) -> Result<(), Halt> {
        let names: Vec<Option<String>> = rest.iter().map(command_name).collect();
        // Between commands only signals come that are sent from outside.
        let is_inner = |name: &Option<String>| {
            let name = name.as_deref().unwrap_or_default().to_ascii_uppercase();
            let name = name.strip_prefix("SIG").unwrap_or(&name);
            let is_number = !name.is_empty() && name.bytes().all(|b| b.is_ascii_digit());
            let outer = ["EXIT", "INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "PIPE"];
            !is_number && !outer.contains(&name)
        };
        let handler = names.first().cloned().flatten();
        let is_idle = handler.is_some_and(|text| {
            let text = text.trim().to_string();
            let is_one = !text.contains([';', '&', '|', '\n', '$', '`', '(']);
            let says = text.starts_with("echo ") || text.starts_with("exit");
            text == "-" || text.is_empty() || (says && is_one)
        });
        if names.iter().skip(1).any(is_inner) && !is_idle {
            return Err(not_followed(item_span(first)));
        }
        let is_end = |name: &Option<String>| matches!(name.as_deref(), Some("EXIT" | "0"));
        if !names.iter().skip(1).all(is_end) && !is_idle {
            self.handler.get_or_insert(item_span(first));
        }
        Ok(())
    }

    /// Options by which the same words are other commands.
    fn shopt(&mut self, rest: &[Item]) -> Result<(), Halt> {
        const IDLE: [&str; 14] = [
            "-s",
            "-u",
            "-q",
            "-p",
            "nullglob",
            "globstar",
            "failglob",
            "dotglob",
            "huponexit",
            "inherit_errexit",
            "checkwinsize",
            "histappend",
            "cmdhist",
            "nocaseglob",
        ];
        let is_idle = |item: &&Item| {
            let name = command_name(item);
            name.is_some_and(|name| IDLE.contains(&&*name))
        };
        match rest.iter().find(|item| !is_idle(item)) {
            Some(item) => Err(not_followed(item_span(item))),
            None => Ok(()),
        }
    }

    /// `[[ N++ -eq 1 ]]`, `[ -v A[N=1] ]`: what is compared as a number is an expression, and so is
    /// an index.
    fn tested(&mut self, rest: &[Item]) -> Result<(), Halt> {
        const RECKONED: [&str; 8] = ["-eq", "-ne", "-lt", "-le", "-gt", "-ge", "-v", "-R"];
        let mut remarks = Vec::new();
        let mut texts = Vec::new();
        for item in rest {
            // What its words assign is assigned: `[[ -n ${A:=1} ]]`.
            texts.push(self.shell.text(&as_word(item), &mut remarks)?);
        }
        if !texts.iter().any(|text| RECKONED.contains(&&*text.string())) {
            return Ok(());
        }
        for text in &texts {
            let written = text.string();
            let is_operator = matches!(written.as_str(), "=" | "==" | "!=" | "=~" | "<" | ">");
            if !is_operator {
                self.shell.forget_assigned(&written, &text.span())?;
            }
        }
        Ok(())
    }

    /// `A=1 export A`: what is left of it behind the command is not followed.
    fn forget_names_of(&mut self, assignments: &[Item]) {
        for item in assignments {
            if let Item::Assignment { name, .. } | Item::Array { name, .. } = item {
                self.shell.forget(&name.string(), name.span());
            }
        }
    }

    fn function(
        &mut self,
        name: &str,
        rest: &[Item],
        assignments: &[Item],
    ) -> Result<Option<Flow>, Halt> {
        let words: Vec<Word> = rest.iter().map(as_word).collect();
        self.call(name, &words, assignments)
    }

    /// `$RUN a b`, where `RUN` holds a function's name, or one of the shell's own; `"$@"`.
    fn called_by_value(
        &mut self,
        first: &Item,
        rest: &[Item],
        assignments: &[Item],
    ) -> Result<Option<Flow>, Halt> {
        let mut remarks = Vec::new();
        let fields = self.shell.fields(&[as_word(first)], &mut remarks)?;
        let Some(name) = fields.first().filter(|name| !name.is_open()) else {
            return Ok(None);
        };
        let name = name.string();
        if !self.is_function(&name) && !super::doubt::sets(&name) {
            return Ok(None);
        }
        // What the shell does with `A=1` behind a name that is written is not done here.
        let word = |text: Text| {
            Item::Word(vec![Piece::Literal {
                text,
                is_quoted: true,
            }])
        };
        let rest = rest.iter().map(|item| Item::Word(as_word(item)));
        let items = assignments.iter().cloned();
        let items = items.chain(fields.into_iter().map(word)).chain(rest);
        let command = super::parse::Simple {
            items: items.collect(),
            documents: Vec::new(),
        };
        self.deeper(first_char(first))?;
        let count = self.launches.len();
        let flow = self.simple(&command)?;
        self.tell_from(count, &remarks);
        self.shallower();
        Ok(Some(flow))
    }

    /// Words with a blank between them, read as commands.
    fn evaluated(&mut self, items: &[Item], assignments: &[Item]) -> Result<Flow, Halt> {
        let words: Vec<Word> = items.iter().map(as_word).collect();
        let mut remarks = Vec::new();
        let fields = self.shell.fields(&words, &mut remarks)?;
        let mut text = Text::default();
        for field in fields {
            if let Some((_, at)) = text.0.last().copied() {
                text.0.push((' ', at));
            }
            text.push_all(&field.0);
        }
        let count = self.launches.len();
        let at = text.0.first().copied().unwrap_or(NO_CHAR);
        self.deeper(at)?;
        let temporary = self.temporary(assignments)?;
        let outer_names = self.temporaries.len();
        self.temporaries
            .extend(temporary.iter().map(|(name, _)| name.clone()));
        let flow = self.commands(&text.0, Ends::Evaluated)?;
        self.temporaries.truncate(outer_names);
        self.restore(temporary);
        let written = text.string();
        if written.contains("$(") && !written.contains("$((") || written.contains('`') {
            // What a command prints may be more commands.
            self.loses_to(item_span(&items[0]))?;
        }
        self.shallower();
        self.tell_from(count, &remarks);
        Ok(flow)
    }

    pub(super) fn assign(&mut self, item: &Item) -> Result<(), TooLong> {
        let mut remarks = Vec::new();
        let (name, appends, words) = match item {
            Item::Word(_) | Item::Arithmetic(_) => return Ok(()),
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
            remarks,
            ..Value::default()
        };
        self.shell.assign(name, value, appends);
        if let Item::Array { values, .. } = item
            && values.iter().any(has_braces)
        {
            self.shell.forget(&name.string(), name.span());
        }
        Ok(())
    }

    /// `unset NAME`, `unset -f NAME`, `unset "NAME[2]"`, `unset ${!PREFIX*}`.
    fn unset(&mut self, items: &[Item]) -> Result<(), Halt> {
        let mut is_of_functions = false;
        for item in items {
            let at = item_span(item);
            let Some(name) = command_name(item) else {
                // Any name.
                self.shell.forget_all("", &at);
                continue;
            };
            if let Some(options) = name.strip_prefix('-') {
                is_of_functions |= options.contains('f');
                continue;
            }
            let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let length = name.find(|c| !is_name(c)).unwrap_or(name.len());
            let prefix = name.strip_prefix("${!").and_then(|rest| {
                let rest = rest.strip_suffix('}')?;
                rest.strip_suffix(['*', '@'])
            });
            if !is_of_functions && self.is_scoped(&name[..length]) {
                // Which one it takes away, and what is seen then, is bash's own matter.
                return Err(not_followed(at));
            }
            if is_of_functions {
                if self.functions.remove(&name).is_some() && self.undecided.is_some() {
                    return Err(not_followed(at));
                }
            } else if let Some(prefix) = prefix {
                self.shell.forget_all(prefix, &at);
            } else if name.contains(['$', '`']) {
                self.shell.forget_all("", &at);
            } else if arithmetic::assigns(&name[length..]) {
                // `unset "A[N=1]"`
                self.loses_to(at)?;
            } else if length < name.len() || self.shell.is_odd(&name) {
                self.shell.forget(&name[..length], at);
            } else if self.shell.is_set(&name) {
                self.shell.unset(&name);
            } else if self.undecided.is_some() && self.functions.contains_key(&name) {
                return Err(not_followed(at));
            } else {
                // Where no variable has the name, a function's.
                self.functions.remove(&name);
                self.shell.unset(&name);
            }
        }
        Ok(())
    }

    /// `set -a`, `set -- a b`, `set a b`
    fn set(&mut self, first: &Item, items: &[Item]) -> Result<(), Halt> {
        let mut fields = Vec::new();
        let mut words = items.iter();
        // Of each `o` whose word is still to come: `-euo pipefail`.
        let mut signs = VecDeque::new();
        let mut has_words = false;
        for item in words.by_ref() {
            let Some(name) = command_name(item) else {
                // Options, or words.
                return Ok(self.loses_to(item_span(first))?);
            };
            match (signs.pop_front(), name.as_str()) {
                (None, option) if changes_reading(option) => {
                    return Err(not_followed(item_span(item)));
                }
                (Some(_), "posix" | "keyword" | "noexec" | "onecmd" | "privileged") => {
                    return Err(not_followed(item_span(item)));
                }
                (Some(sign), "allexport") => self.shell.exports_all = sign == '-',
                (Some(_), _) => {}
                (None, "--") => {
                    has_words = true;
                    break;
                }
                (None, "-") => {
                    has_words = items.len() > 1;
                    break;
                }
                (None, option) if option.starts_with(['-', '+']) => {
                    let sign = option.chars().next().unwrap_or('-');
                    if option.contains('a') {
                        self.shell.exports_all = sign == '-';
                    }
                    signs.extend(option.chars().filter(|c| *c == 'o').map(|_| sign));
                }
                _ => {
                    has_words = true;
                    fields.push(literal_of(item));
                    break;
                }
            }
        }
        if has_words {
            let rest: Vec<Word> = words.map(as_word).collect();
            fields.extend(self.shell.fields(&rest, &mut Vec::new())?);
            self.shell.positional = Some(fields.into());
            self.shell.is_positional_lost = rest.iter().any(has_braces);
        }
        Ok(())
    }

    fn shift(&mut self, items: &[Item]) {
        let count = items.first().map_or(Some("1".to_string()), command_name);
        let count = count.and_then(|count| count.parse::<usize>().ok());
        let Some(given) = self.shell.positional.take() else {
            return;
        };
        // A word that is not known may be none, or several.
        let is_sure = |count: usize| {
            let taken = given.get(..count).unwrap_or(&given);
            !taken.iter().any(Text::is_open)
        };
        match count.filter(|count| is_sure(*count)) {
            Some(count) => {
                // More than there are: none is taken.
                let left = given.get(count..).unwrap_or(&given);
                self.shell.positional = Some(left.to_vec().into());
            }
            None => self.shell.is_positional_lost = true,
        }
    }

    /// Variables that another command fills.
    fn forget_named(&mut self, items: &[Item]) -> Result<(), TooLong> {
        for item in items {
            let Some(name) = command_name(item) else {
                self.loses_to(item_span(item))?;
                continue;
            };
            // `read -a NAME`, `read -aNAME`, `read NAME[1]`
            let name = match name.strip_prefix('-') {
                Some(options) => options.split_once('a').map_or("", |(_, name)| name),
                None => name.split('[').next().unwrap_or_default(),
            };
            if !name.is_empty() {
                self.forget(name, item);
            }
        }
        Ok(())
    }

    fn forget(&mut self, name: &str, item: &Item) {
        self.shell.forget(name, item_span(item));
    }
}

/// The words behind options that change nothing of what a command of the shell's own does:
/// `command -p`, `builtin --`, `eval --`.
fn behind_options<'a>(name: &str, rest: &'a [Item]) -> &'a [Item] {
    let options: &[&str] = match name {
        "command" => &["-p", "--"],
        "builtin" | "eval" | "exec" | "source" | "." => &["--"],
        _ => return rest,
    };
    let is_option = |item: &&Item| {
        let name = command_name(item);
        name.is_some_and(|name| options.contains(&&*name))
    };
    &rest[rest.iter().take_while(is_option).count()..]
}

/// Options of `set` by which commands are read otherwise, or not run.
fn changes_reading(option: &str) -> bool {
    const IDLE: &str = "aeuxvmbhfCETHPo";
    let letters = option.strip_prefix(['-', '+']).unwrap_or_default();
    option != "--" && letters.chars().any(|letter| !IDLE.contains(letter))
}

/// An item as it is written, for what is reckoned in it.
pub(super) fn literal_of(item: &Item) -> Text {
    let mut text = Text::default();
    for piece in as_word(item) {
        match &piece {
            Piece::Literal { text: more, .. } | Piece::Arithmetic { text: more, .. } => {
                text.push_all(&more.0);
            }
            Piece::Variable(variable) => text.push_all(&variable.text.0),
        }
    }
    text
}

/// `command -v NAME` runs nothing.
fn names_none(item: &Item) -> bool {
    matches!(command_name(item).as_deref(), Some("-v" | "-V"))
}

/// Functions of a login shell and of tools: they set variables as a file that is read does.
fn is_environment_tool(name: &str) -> bool {
    matches!(
        name,
        "module" | "ml" | "conda" | "mamba" | "micromamba" | "spack"
    )
}

/// `conda run python a.py`
fn runs_another(rest: &[Item]) -> bool {
    rest.first().and_then(command_name).as_deref() == Some("run")
}
