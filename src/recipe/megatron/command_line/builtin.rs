//! Commands that a shell runs itself: they set variables, end the script, or read more of it.

use super::lexer::Item;
use super::script::{
    Flow, Halt, Script, as_word, command_name, element_assigned, item_span, not_followed,
};
use super::shell::{TooLong, Value};
use super::text::{NO_CHAR, Text};
use super::word::{Piece, Word};

impl Script {
    /// Runs a command of the shell's own, or a function of the script; `None` for any other.
    pub(super) fn builtin(
        &mut self,
        first: &Item,
        rest: &[Item],
        assignments: &[Item],
    ) -> Result<Option<Flow>, Halt> {
        if let Item::Arithmetic(text) = first {
            self.forget_assigned(text);
            return Ok(Some(Flow::Next));
        }
        let Some(name) = command_name(first) else {
            return self.called_by_value(first, rest, assignments);
        };
        match name.as_str() {
            "exit" => return Ok(Some(Flow::Exit)),
            "return" => return Ok(Some(Flow::Return)),
            "export" | "declare" | "typeset" | "local" | "readonly" => {
                self.declare(&name, rest)?;
            }
            "unset" => self.unset(rest)?,
            "set" => self.set(rest)?,
            "shift" => self.shift(rest),
            "read" | "mapfile" | "readarray" | "getopts" => self.forget_named(rest),
            "let" => rest
                .iter()
                .for_each(|item| self.forget_assigned(&literal_of(item))),
            "printf" => {
                let is_target = rest.first().and_then(command_name).as_deref() == Some("-v");
                self.forget_named(rest.get(1..2).filter(|_| is_target).unwrap_or_default());
            }
            "source" | "." => {
                self.shell.has_sourced = true;
                self.sourced.push(item_span(first));
            }
            "eval" => {
                return self.evaluated(rest).map(Some);
            }
            "exec" if rest.is_empty() => {}
            "command" | "builtin" if rest.first().is_some_and(names_none) => {
                return Ok(None);
            }
            "exec" | "command" | "builtin" => {
                let command = super::parse::Simple {
                    items: assignments.iter().chain(rest).cloned().collect(),
                    documents: Vec::new(),
                };
                let flow = self.simple(&command)?;
                // The program takes the script's place.
                return Ok(Some(if name == "exec" { Flow::Exit } else { flow }));
            }
            _ => return self.function(&name, rest, assignments),
        }
        Ok(Some(Flow::Next))
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

    /// `$RUN a b`, where `RUN` holds the name of a function.
    fn called_by_value(
        &mut self,
        first: &Item,
        rest: &[Item],
        assignments: &[Item],
    ) -> Result<Option<Flow>, Halt> {
        let mut remarks = Vec::new();
        let fields = self.shell.fields(&[as_word(first)], &mut remarks)?;
        match fields.as_slice() {
            [name] if self.is_function(&name.string()) => {
                self.function(&name.string(), rest, assignments)
            }
            _ => Ok(None),
        }
    }

    /// Words with a blank between them, read as commands.
    fn evaluated(&mut self, items: &[Item]) -> Result<Flow, Halt> {
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
        self.deeper(text.0.first().copied().unwrap_or(NO_CHAR))?;
        let flow = self.commands(&text.0)?;
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
        Ok(())
    }

    /// `export NAME=value`, `export NAME`, `declare -x NAME=value`, `declare -a NAME=(...)`.
    fn declare(&mut self, word: &str, items: &[Item]) -> Result<(), Halt> {
        let (mut exports, mut takes_back) = (word == "export", false);
        let mut is_odd = word == "readonly";
        let mut is_local = matches!(word, "local" | "declare" | "typeset");
        for item in items {
            let name = match item {
                Item::Word(_) | Item::Arithmetic(_) => command_name(item),
                Item::Assignment { name, .. } | Item::Array { name, .. } => Some(name.string()),
            };
            if let Some((array, at)) = element_assigned(item) {
                self.shell.forget(&array, at);
                continue;
            }
            let Some(name) = name else {
                // `export "$A"`: which names it sets is not known.
                self.sourced.push(item_span(item));
                continue;
            };
            if let (Item::Word(_), Some(options)) = (item, name.strip_prefix('+')) {
                takes_back |= options.contains('x');
                continue;
            }
            if let (Item::Word(_), Some(options)) = (item, name.strip_prefix('-')) {
                if word != "export" && options.contains('n') {
                    // A name for another name.
                    return Err(not_followed(item_span(item)));
                }
                is_odd |= options.contains(['i', 'l', 'u', 'c', 'r']);
                exports |= options.contains('x');
                // `export -n NAME` takes it back.
                takes_back |= word == "export" && options.contains('n');
                is_local &= !options.contains('g');
                continue;
            }
            if is_local && !self.locals.is_empty() {
                let saved = self.shell.saved(&name);
                self.locals
                    .last_mut()
                    .expect("asked")
                    .push((name.clone(), saved));
            }
            self.assign(item)?;
            let at = match item {
                Item::Assignment { name, .. } | Item::Array { name, .. } => name.span(),
                Item::Word(_) | Item::Arithmetic(_) => literal_of(item).span(),
            };
            let keeps = word == "readonly";
            let sets = !matches!(item, Item::Word(_));
            if is_odd && sets && !keeps {
                self.shell.forget(&name, at.clone());
            }
            if is_odd {
                self.shell.mark_odd(&name);
            }
            match (takes_back, exports) {
                (true, _) => self.shell.unexport(&name),
                (false, true) => self.shell.export(&name, at),
                (false, false) => {}
            }
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
            if is_of_functions {
                if self.functions.remove(&name).is_some() && self.undecided.is_some() {
                    return Err(not_followed(at));
                }
            } else if let Some(prefix) = prefix {
                self.shell.forget_all(prefix, &at);
            } else if name.contains(['$', '`']) {
                self.shell.forget_all("", &at);
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

    /// `set -a`, `set -- a b`
    fn set(&mut self, items: &[Item]) -> Result<(), TooLong> {
        let names: Vec<Option<String>> = items.iter().map(command_name).collect();
        let end = names
            .iter()
            .position(|name| name.as_deref() == Some("--"))
            .unwrap_or(names.len());
        for (index, name) in names[..end].iter().enumerate() {
            let before = index
                .checked_sub(1)
                .and_then(|before| names[before].as_deref());
            match (before, name.as_deref()) {
                (Some("+o"), Some("allexport")) | (_, Some("+a")) => self.shell.exports_all = false,
                (Some("-o"), Some("allexport")) => self.shell.exports_all = true,
                (_, Some(options)) if options.starts_with('-') && options.contains('a') => {
                    self.shell.exports_all = true;
                }
                _ => {}
            }
        }
        if end < items.len() {
            let words: Vec<Word> = items[end + 1..].iter().map(as_word).collect();
            let fields = self.shell.fields(&words, &mut Vec::new())?;
            self.shell.positional = Some(fields.into());
            self.shell.is_positional_lost = false;
        }
        Ok(())
    }

    fn shift(&mut self, items: &[Item]) {
        let count = items.first().and_then(command_name);
        let count = count.map_or(Some(1), |count| count.parse::<usize>().ok());
        let Some(given) = self.shell.positional.take() else {
            return;
        };
        match count {
            Some(count) => {
                // More than there are: none is taken.
                let left = given.get(count..).unwrap_or(&given);
                self.shell.positional = Some(left.to_vec().into());
            }
            None => self.shell.is_positional_lost = true,
        }
    }

    /// Variables that another command fills.
    fn forget_named(&mut self, items: &[Item]) {
        for item in items {
            match command_name(item) {
                Some(name) if !name.starts_with('-') => self.forget(&name, item),
                _ => {}
            }
        }
    }

    fn forget(&mut self, name: &str, item: &Item) {
        self.shell.forget(name, item_span(item));
    }

    /// `((N = 3))`, `let N+=1`: what is assigned in an expression is not known.
    fn forget_assigned(&mut self, expression: &Text) {
        let text = expression.string();
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let changes = text.contains('=') || text.contains("++") || text.contains("--");
        if !changes {
            return;
        }
        let names = text.split(|c: char| !is_word(c));
        let names = names.filter(|name| name.starts_with(|c: char| !c.is_ascii_digit()));
        for name in names.filter(|name| !name.is_empty()) {
            self.shell.forget(name, expression.span());
        }
    }
}

/// An item as it is written, for what is reckoned in it.
fn literal_of(item: &Item) -> Text {
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
