//! What the words of a script become: variables put in, split at blanks, sums reckoned. Commands
//! are never run: what one would print stays in the words as it is written.

use std::ops::Range;
use std::rc::Rc;

use super::arithmetic;
use super::shell::{Remark, Shell, TooLong, Value};
use super::text::{Char, Text};
use super::word::{Piece, Variable, Word};

/// Remarks about the words of one command.
const REMARKS_TOLD_MAX: usize = 1_000;

/// Names whose values are names, in an expression.
const NAMES_MAX: usize = 16;

/// What bash puts in whatever was assigned (bash manual, "Shell Variables").
const DYNAMIC: [&str; 19] = [
    "BASHPID",
    "BASH_ARGV0",
    "BASH_COMMAND",
    "BASH_SUBSHELL",
    "DIRSTACK",
    "EPOCHREALTIME",
    "EPOCHSECONDS",
    "HISTCMD",
    "SRANDOM",
    "_",
    "EUID",
    "FUNCNAME",
    "GROUPS",
    "LINENO",
    "PIPESTATUS",
    "PPID",
    "RANDOM",
    "SECONDS",
    "UID",
];

/// Set by bash itself, or by whoever started it, and kept when assigned.
const OF_BASH: [&str; 24] = [
    "BASH",
    "BASHOPTS",
    "BASH_SOURCE",
    "BASH_VERSINFO",
    "BASH_VERSION",
    "COLUMNS",
    "HOME",
    "HOSTNAME",
    "HOSTTYPE",
    "IFS",
    "LANG",
    "LINES",
    "MACHTYPE",
    "OLDPWD",
    "OPTARG",
    "OPTERR",
    "OPTIND",
    "OSTYPE",
    "PATH",
    "PS4",
    "PWD",
    "SHELL",
    "SHLVL",
    "USER",
];

impl Shell {
    /// `$((...))`: a number where all of it is known, else as it is written.
    fn reckon(
        &mut self,
        expression: &[Piece],
        text: &Text,
        remarks: &mut Vec<Remark>,
    ) -> Result<Text, TooLong> {
        let put_in = self.text(expression, remarks)?.string();
        let mut told = Vec::new();
        let mut named = |name: &str| self.number_of(name, text.span(), &mut told);
        let value = arithmetic::value(&put_in, &mut named);
        remarks.extend(told);
        // `$((N++))`, `$((N = 3))`
        let is_changing = arithmetic::assigns(&put_in);
        self.forget_assigned(&put_in, &text.span())?;
        let value = value.filter(|_| !is_changing);
        let at = text.0.first().map_or(0, |(_, at)| *at);
        Ok(match value {
            Some(number) => Text(number.to_string().chars().map(|c| (c, at)).collect()),
            None => text.clone(),
        })
    }

    /// Whether `((A > 1))` holds, where all of it is known.
    pub fn holds(&self, text: &Text) -> Option<bool> {
        let written = text.string();
        let inside = written.strip_prefix("((")?.strip_suffix("))")?;
        let mut told = Vec::new();
        let mut named = |name: &str| self.number_of(name, text.span(), &mut told);
        let holds = arithmetic::holds(inside, &mut named);
        // A value in doubt decides nothing.
        holds.filter(|_| told.is_empty())
    }

    /// `((N = 3))`, `let N+=1`: what is assigned in an expression is not known.
    pub fn forget_assigned(&mut self, expression: &str, at: &Range<usize>) -> Result<(), TooLong> {
        let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let names = expression.split(|c: char| !is_word(c));
        let names = names.filter(|name| name.starts_with(|c: char| !c.is_ascii_digit()));
        // A name's value is an expression, too: `A='N++'; ((A))`.
        let mut hides = false;
        for name in names.clone().filter(|name| !name.is_empty()) {
            let known = self.known(name);
            let mut words = known.iter().flat_map(|value| &value.words);
            hides |= words.any(|word| arithmetic::assigns(&word.string()));
        }
        if hides {
            return self.forget_everything(at);
        }
        if !arithmetic::assigns(expression) {
            return Ok(());
        }
        if expression.contains(['$', '`']) {
            // Which name it is follows from what is not known.
            return self.forget_everything(at);
        }
        for name in names {
            self.forget(name, at.clone());
        }
        Ok(())
    }

    /// `${A[N++]}` is left as it is written, and yet counts.
    fn forget_counted(&mut self, text: &Text) -> Result<(), TooLong> {
        let written = text.string();
        // `${A:+${B:=1}}`
        for name in super::word::assigned_in(&written) {
            self.forget(name, text.span());
        }
        let counts = written.contains("++") || written.contains("--") || written.contains('=');
        // `${A[N++]}`, `${A:N++}`
        let reckons = |part: &str| {
            let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
            let rest = part.trim_start_matches(is_word);
            let cuts = rest.strip_prefix(':');
            let cuts = cuts.is_some_and(|rest| !rest.starts_with(['-', '=', '?', '+']));
            cuts || part.contains('[')
        };
        if counts && written.contains("${!") {
            // `${!NAME:=word}`
            return self.forget_everything(&text.span());
        }
        if counts && written.split("${").skip(1).any(reckons) {
            self.forget_assigned(&written, &text.span())?;
        }
        Ok(())
    }

    /// The number that a name stands for in an expression: its value may be another name.
    fn number_of(&self, name: &str, used: Range<usize>, remarks: &mut Vec<Remark>) -> Option<i64> {
        let mut name = name.to_string();
        for _ in 0..NAMES_MAX {
            let value = self.known(&name)?;
            remarks.extend(of_condition(&name, used.clone(), &value));
            if value.is_unknown() {
                return None;
            }
            let text = value.words.first()?.string();
            if let Some(number) = arithmetic::number(text.trim()) {
                return Some(number);
            }
            name = text;
        }
        None
    }

    /// The fields that words become: unquoted variables are split at blanks.
    pub fn fields(
        &mut self,
        words: &[Word],
        remarks: &mut Vec<Remark>,
    ) -> Result<Vec<Text>, TooLong> {
        let mut fields = Fields::default();
        for word in words {
            self.expand(word, true, &mut fields, remarks)?;
            fields.end();
        }
        self.count_words(fields.done.len())?;
        Ok(fields.done)
    }

    /// One word that is not split: the value of an assignment.
    pub fn text(&mut self, word: &[Piece], remarks: &mut Vec<Remark>) -> Result<Text, TooLong> {
        let mut fields = Fields::default();
        self.expand(word, false, &mut fields, remarks)?;
        fields.end();
        let mut joined = Text::default();
        for (index, field) in fields.done.into_iter().enumerate() {
            if index > 0 {
                joined.0.push((' ', field.span().start as u32));
            }
            joined.push_all(&field.0);
        }
        Ok(joined)
    }

    fn expand(
        &mut self,
        word: &[Piece],
        splits: bool,
        fields: &mut Fields,
        remarks: &mut Vec<Remark>,
    ) -> Result<(), TooLong> {
        for piece in word {
            // The first of many say enough.
            remarks.truncate(REMARKS_TOLD_MAX);
            match piece {
                Piece::Literal { text, is_quoted } => {
                    self.count(text.0.len())?;
                    self.forget_counted(text)?;
                    fields.put(&text.0, *is_quoted);
                }
                Piece::Variable(variable) => self.variable(variable, splits, fields, remarks)?,
                Piece::Arithmetic {
                    expression, text, ..
                } => {
                    let number = self.reckon(expression, text, remarks)?;
                    self.count(number.0.len())?;
                    fields.put(&number.0, true);
                }
            }
        }
        Ok(())
    }

    fn variable(
        &mut self,
        variable: &Variable,
        splits: bool,
        fields: &mut Fields,
        remarks: &mut Vec<Remark>,
    ) -> Result<(), TooLong> {
        let known = self.known(&variable.name);
        if self.is_lost(variable, known.as_deref(), splits) {
            self.note_required(variable);
            let remark = |value| of_condition(&variable.name, variable.text.span(), value);
            remarks.extend(known.as_deref().and_then(remark));
            fields.put(&variable.text.0, true);
            return Ok(());
        }
        let known = match &variable.index {
            Some(index) => match known.map(|value| element(&value, index)) {
                Some(Element::Open) => {
                    fields.put(&variable.text.0, true);
                    return Ok(());
                }
                Some(Element::Is(value)) => Some(value),
                Some(Element::Absent) | None => None,
            },
            None => known,
        };
        let is_empty = known
            .as_ref()
            .is_some_and(|value| value.words.iter().all(Text::is_empty));
        let wants_default = match (&variable.default, &known) {
            (Some(_), None) => true,
            (Some((_, empty_counts)), Some(_)) => *empty_counts && is_empty,
            (None, _) => false,
        };
        if let (true, Some((default, _))) = (wants_default, &variable.default) {
            self.note_required(variable);
            remarks.extend(assumed(variable, known.as_deref()));
            if variable.assigns {
                return self.assign_default(variable, default, splits, fields, remarks);
            }
            return match variable.is_quoted {
                false => self.unquoted_default(default, splits, fields, remarks),
                true => {
                    let text = self.text(default, remarks)?;
                    self.count(text.0.len())?;
                    fields.put(&text.0, true);
                    Ok(())
                }
            };
        }
        let Some(value) = known else {
            match variable.all {
                // `"$@"`, or all of an array that is set nowhere: `"$*"` is a word still.
                Some(is_several) => {
                    remarks.push(Remark::Absent(variable.text.span()));
                    fields.put(&[], variable.is_quoted && !is_several);
                }
                None => fields.put(&variable.text.0, true),
            }
            return Ok(());
        };
        self.note_empty(variable, &value);
        remarks.extend(of_condition(&variable.name, variable.text.span(), &value));
        remarks.extend(value.remarks.iter().cloned());
        let count = variable.all.map_or(1, |_| usize::MAX);
        let words: Vec<Text> = value.words.iter().take(count).cloned().collect();
        self.count(words.iter().map(|word| word.0.len() + 1).sum())?;
        fields.put_value(&words, variable, splits);
        Ok(())
    }

    /// The word of `${NAME:-word}`, which is split at its blanks where no quotes stand.
    fn unquoted_default(
        &mut self,
        default: &[Piece],
        splits: bool,
        fields: &mut Fields,
        remarks: &mut Vec<Remark>,
    ) -> Result<(), TooLong> {
        for piece in default {
            match piece {
                Piece::Literal {
                    text,
                    is_quoted: false,
                } if splits && !self.is_set("IFS") => {
                    self.count(text.0.len())?;
                    fields.split(&text.0);
                }
                piece => self.expand(std::slice::from_ref(piece), splits, fields, remarks)?,
            }
        }
        Ok(())
    }

    /// What is not known may be empty.
    fn note_empty(&mut self, variable: &Variable, value: &Value) {
        if value.words.iter().any(Text::is_open) {
            self.note_required(variable);
        }
    }

    /// `${NAME:?}` without a value that is known.
    fn note_required(&mut self, variable: &Variable) {
        if variable.requires {
            self.may_have_ended.get_or_insert(variable.text.span());
        }
    }

    /// Whether what becomes of a variable is not known.
    fn is_lost(&self, variable: &Variable, known: Option<&Value>, splits: bool) -> bool {
        let is_own = matches!(variable.name.as_str(), "@" | "*");
        let is_lost = match known {
            Some(value) => value.is_unknown() || is_named(value, variable),
            None if is_own => self.is_positional_lost,
            None if variable.name.starts_with("SLURM_") => self.is_batch,
            None => OF_BASH.contains(&&*variable.name),
        };
        let is_lost = is_lost || DYNAMIC.contains(&&*variable.name);
        // How an unquoted value is split, or several are joined, is not the usual.
        let is_cut = splits && !variable.is_quoted && known.is_some();
        let is_joined = variable.all == Some(false) && (variable.is_quoted || !splits);
        is_lost || ((is_cut || is_joined) && self.is_set("IFS"))
    }

    /// `${NAME:=word}`
    fn assign_default(
        &mut self,
        variable: &Variable,
        default: &[Piece],
        splits: bool,
        fields: &mut Fields,
        remarks: &mut Vec<Remark>,
    ) -> Result<(), TooLong> {
        let text = self.text(default, remarks)?;
        self.count(text.0.len())?;
        let start = variable.text.span().start as u32;
        let name = Text(variable.name.chars().map(|c| (c, start)).collect());
        let value = Value {
            words: vec![text.clone()],
            remarks: remarks.clone(),
            ..Value::default()
        };
        self.assign(&name, value, false);
        if self.is_odd(&variable.name) {
            self.forget(&variable.name, variable.text.span());
        }
        fields.put_value(&[text], variable, splits);
        Ok(())
    }
}

/// One element of an array.
enum Element {
    Is(Rc<Value>),
    Absent,
    /// It may be another one: how many stand before it is not known.
    Open,
}

/// One element of an array, by its number or, `[name]=value`, by its name.
fn element(value: &Value, index: &str) -> Element {
    let named = |word: &Text| {
        let (name, element) = word.split_once('=')?;
        (name.string() == format!("[{index}]")).then_some(element)
    };
    let has_names = value.words.iter().any(|word| word.starts_with("["));
    let number = index.parse::<usize>().ok();
    let word = match (value.is_array, has_names) {
        (false, _) => None,
        (true, true) => value.words.iter().rev().find_map(named),
        (true, false) => number.and_then(|number| value.words.get(number)).cloned(),
    };
    let before = word.as_ref().and(number).unwrap_or(usize::MAX);
    match (value.words.iter().take(before).any(Text::is_open), word) {
        (true, _) => Element::Open,
        (false, None) => Element::Absent,
        (false, Some(word)) => Element::Is(Rc::new(Value {
            words: vec![word],
            is_array: false,
            conditional: value.conditional.clone(),
            remarks: value.remarks.clone(),
            at: value.at.clone(),
        })),
    }
}

/// All of an array whose elements have names: their order is the shell's.
fn is_named(value: &Value, variable: &Variable) -> bool {
    let is_named = |word: &Text| word.starts_with("[");
    variable.all.is_some() && value.is_array && value.words.iter().any(is_named)
}

/// The word of a name that the script does not set.
fn assumed(variable: &Variable, known: Option<&Value>) -> Option<Remark> {
    let is_unset = known.is_none() && variable.index.is_none();
    is_unset.then(|| Remark::Assumed(variable.text.span()))
}

fn of_condition(name: &str, used: Range<usize>, value: &Value) -> Option<Remark> {
    let (assigned, taken) = value.conditional.clone()?;
    Some(Remark::Conditional {
        name: name.to_string(),
        used,
        assigned,
        taken,
    })
}

/// Words as they grow.
#[derive(Default)]
struct Fields {
    done: Vec<Text>,
    /// The field that is not complete; `Some` though empty where quotes stood.
    open: Option<Text>,
}

impl Fields {
    fn put(&mut self, chars: &[Char], is_quoted: bool) {
        if is_quoted || !chars.is_empty() {
            self.open.get_or_insert_default().push_all(chars);
        }
    }

    fn end(&mut self) {
        self.done.extend(self.open.take());
    }

    fn put_value(&mut self, words: &[Text], variable: &Variable, splits: bool) {
        let joins = variable.all == Some(false) && variable.is_quoted;
        if words.is_empty() && variable.is_quoted && variable.all != Some(true) {
            self.put(&[], true);
        }
        for (index, word) in words.iter().enumerate() {
            match (index, joins || !splits) {
                (0, _) => {}
                (_, true) => {
                    let at = word.span().start as u32;
                    self.put(&[(' ', at)], true);
                }
                (_, false) => self.end(),
            }
            match variable.is_quoted || !splits {
                true => self.put(&word.0, true),
                false => self.split(&word.0),
            }
        }
    }

    /// Adds an unquoted value: blanks end a field. What is not known stays one word.
    fn split(&mut self, chars: &[Char]) {
        let mut unknown = Unknown::default();
        for c in chars {
            let is_inside = unknown.take(c.0);
            match is_blank(c) && !is_inside {
                true => self.end(),
                false => self.put(std::slice::from_ref(c), false),
            }
        }
    }
}

/// Whether a character stands in `$(...)`, `${...}` or back quotes, left in a text.
#[derive(Default)]
struct Unknown {
    before: char,
    depth: usize,
    is_back_quoted: bool,
    quote: Option<char>,
}

impl Unknown {
    fn take(&mut self, c: char) -> bool {
        match c {
            '\'' | '"' if self.depth > 0 && self.before != '\\' => match self.quote {
                None => self.quote = Some(c),
                Some(open) if open == c => self.quote = None,
                Some(_) => {}
            },
            _ if self.quote.is_some() => {}
            '(' | '{' if self.before == '$' || self.depth > 0 => self.depth += 1,
            ')' | '}' => self.depth = self.depth.saturating_sub(1),
            '`' => self.is_back_quoted = !self.is_back_quoted,
            _ => {}
        }
        self.before = c;
        self.depth > 0 || self.is_back_quoted
    }
}

fn is_blank((c, _): &Char) -> bool {
    matches!(c, ' ' | '\t' | '\n')
}
