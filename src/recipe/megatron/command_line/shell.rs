//! Variables and arrays of a script, and the words that they become. Commands are never run: what
//! one would print stays in the words as it is written.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use super::arithmetic;
use super::text::{Char, Text};
use super::word::{Piece, Variable, Word};
use crate::recipe::limits::{ENV_COUNT_MAX, SCRIPT_CHARS_MAX, SCRIPT_WORDS_MAX};

/// What a variable holds: one text, or the elements of an array.
#[derive(Clone, Debug, Default)]
pub(super) struct Value {
    pub words: Vec<Text>,
    pub is_array: bool,
    /// Assigned where a script decides whether to, or in a way that is not followed: the name as
    /// it stands there, and what is taken.
    pub conditional: Option<(Range<usize>, Taken)>,
    /// About the words that it was made of.
    pub remarks: Vec<Remark>,
    /// Where it was assigned.
    pub at: Range<usize>,
}

impl Value {
    /// Of which nothing is known.
    pub fn unknown(at: Range<usize>, why: Taken) -> Value {
        debug_assert_ne!(why, Taken::FirstRound, "that one is known");
        Value {
            conditional: Some((at.clone(), why)),
            at,
            ..Value::default()
        }
    }

    pub fn is_unknown(&self) -> bool {
        let why = self.conditional.as_ref().map(|(_, taken)| *taken);
        matches!(why, Some(Taken::Branch | Taken::Other))
    }
}

/// Which of several values is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// None: a branch decides.
    Branch,
    /// None: what changes it is not followed.
    Other,
    /// The first round of a loop.
    FirstRound,
}

/// A name: what it holds, and since when it is exported.
#[derive(Clone, Debug, Default)]
pub(super) struct Slot {
    pub value: Option<Rc<Value>>,
    pub exported: Option<(usize, Range<usize>)>,
    /// Exported on some ways to here only.
    pub is_maybe_exported: bool,
    /// `readonly`, `declare -i`: what an assignment does to it is not followed.
    pub is_odd: bool,
}

#[derive(Debug, Default)]
pub(super) struct Shell {
    pub(super) slots: BTreeMap<String, Slot>,
    /// `set -a`: every assignment exports.
    pub exports_all: bool,
    /// `$1` and so on, where they are known.
    pub positional: Option<Rc<Vec<Text>>>,
    /// Whether even their number is not known.
    pub is_positional_lost: bool,
    /// Whether a file was read that may have set anything.
    pub has_sourced: bool,
    /// What was overwritten since the outermost shell or branch began.
    pub(super) journal: Vec<(String, Slot)>,
    /// Shells and branches within shells.
    pub(super) depth: usize,
    /// Exports so far: the order of the environment.
    export_count: usize,
    /// Characters and words that expansion has made so far.
    char_count: usize,
    word_count: usize,
}

/// What a shell was before another one began in it.
pub(super) struct Mark {
    journal: usize,
    exports_all: bool,
    positional: Option<Rc<Vec<Text>>>,
    is_positional_lost: bool,
}

/// Something about an expansion that a reader of its words should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Remark {
    /// `"$@"`, or `${NAME[@]}` of an array that is set nowhere: no words.
    Absent(Range<usize>),
    /// A variable that was assigned under a condition: where it is used, and where assigned.
    Conditional {
        name: String,
        used: Range<usize>,
        assigned: Range<usize>,
        taken: Taken,
    },
}

/// Remarks that one variable keeps.
const REMARKS_MAX: usize = 16;

/// Remarks about the words of one command.
const REMARKS_TOLD_MAX: usize = 1_000;

/// Names whose values are names, in an expression.
const NAMES_MAX: usize = 16;

/// Variables that grow each other beyond all limits.
#[derive(Debug)]
pub(super) struct TooLong;

impl Shell {
    /// Begins a shell in this one: what it assigns is gone with it.
    pub fn enter(&mut self) -> Mark {
        self.depth += 1;
        Mark {
            journal: self.journal.len(),
            exports_all: self.exports_all,
            positional: self.positional.clone(),
            is_positional_lost: self.is_positional_lost,
        }
    }

    pub fn leave(&mut self, mark: Mark) {
        assert!(self.depth > 0, "a shell was entered");
        self.depth -= 1;
        for (name, slot) in self.journal.drain(mark.journal..).rev() {
            self.slots.insert(name, slot);
        }
        self.exports_all = mark.exports_all;
        self.positional = mark.positional;
        self.is_positional_lost = mark.is_positional_lost;
    }

    /// What another program starts with: exported variables only.
    pub fn forget_unexported(&mut self) -> Result<(), TooLong> {
        let is_unknown = |slot: &Slot| slot.value.as_ref().is_some_and(|v| v.is_unknown());
        // What is not known stays so, whatever the other program makes of its name.
        let is_own = |(_, slot): &(&String, &Slot)| slot.exported.is_none() && !is_unknown(slot);
        let own = self.slots.iter().filter(is_own);
        let own: Vec<String> = own.map(|(name, _)| name.clone()).collect();
        self.count(self.slots.len())?;
        own.iter().for_each(|name| self.unset(name));
        Ok(())
    }

    /// The slot of a name, to be changed: within another shell it is kept as it was.
    pub(super) fn slot(&mut self, name: &str) -> &mut Slot {
        if self.depth > 0 {
            let old = self.slots.get(name).cloned().unwrap_or_default();
            self.journal.push((name.to_string(), old));
        }
        self.slots.entry(name.to_string()).or_default()
    }

    /// Assigns, or appends to what was assigned before.
    pub fn assign(&mut self, name: &Text, mut value: Value, appends: bool) {
        let key = name.string();
        let slot = self.slots.get(&key);
        let old = slot.and_then(|slot| slot.value.clone());
        value.at = name.span();
        if slot.is_some_and(|slot| slot.is_odd) {
            value = Value::unknown(name.span(), Taken::Other);
        } else if let (true, Some(old)) = (appends, old.as_ref().filter(|old| old.is_unknown())) {
            value = (**old).clone();
        } else if let (true, Some(old)) = (appends, &old) {
            let mut joined = old.words.clone();
            match (old.is_array || value.is_array, joined.first_mut()) {
                (false, Some(first)) => {
                    let more = value.words.first().map_or(&[][..], |text| &text.0);
                    first.push_all(more);
                }
                _ => joined.append(&mut value.words),
            }
            value.is_array |= old.is_array;
            value.conditional = value.conditional.or_else(|| old.conditional.clone());
            value.remarks.extend(old.remarks.iter().cloned());
            value.words = joined;
        } else if appends && value.is_array && slot.is_some_and(|slot| slot.exported.is_some()) {
            value = Value::unknown(name.span(), Taken::Other);
        }
        // The first of them say enough; more would grow with every assignment.
        value.remarks.truncate(REMARKS_MAX);
        self.slot(&key).value = Some(Rc::new(value));
        if self.exports_all {
            self.export(&key, name.span());
        }
    }

    pub fn unset(&mut self, name: &str) {
        *self.slot(name) = Slot::default();
    }

    pub fn is_set(&self, name: &str) -> bool {
        self.slots
            .get(name)
            .is_some_and(|slot| slot.value.is_some())
    }

    /// What is assigned to it from here on is not known.
    pub fn mark_odd(&mut self, name: &str) {
        self.slot(name).is_odd = true;
    }

    pub fn is_odd(&self, name: &str) -> bool {
        self.slots.get(name).is_some_and(|slot| slot.is_odd)
    }

    /// The variable's value is not known from here on.
    pub fn forget(&mut self, name: &str, at: Range<usize>) {
        let exports = self.exports_all;
        self.slot(name).value = Some(Rc::new(Value::unknown(at.clone(), Taken::Other)));
        if exports {
            self.export(name, at);
        }
    }

    /// As [`Shell::forget`], for every name that begins so.
    pub fn forget_all(&mut self, prefix: &str, at: &Range<usize>) {
        let begins = |name: &&String| name.starts_with(prefix);
        let names: Vec<String> = self.slots.keys().filter(begins).cloned().collect();
        names.iter().for_each(|name| self.forget(name, at.clone()));
    }

    pub fn export(&mut self, name: &str, at: Range<usize>) {
        self.export_count += 1;
        let order = self.export_count;
        let slot = self.slot(name);
        let order = slot.exported.as_ref().map_or(order, |(first, _)| *first);
        slot.exported = Some((order, at));
        slot.is_maybe_exported = false;
    }

    pub fn unexport(&mut self, name: &str) {
        let slot = self.slot(name);
        slot.exported = None;
        slot.is_maybe_exported = false;
    }

    /// Exported variables that have a value, in order of first mention: one more than there may
    /// be at most, which is enough to refuse the script.
    pub fn environment(&mut self) -> Result<Vec<Exported>, TooLong> {
        let mut exported: Vec<(usize, &str, &Slot)> = Vec::new();
        for (name, slot) in &self.slots {
            if let (Some(_), Some((order, _))) = (&slot.value, &slot.exported) {
                exported.push((*order, name, slot));
            }
        }
        exported.sort_by_key(|(order, ..)| *order);
        exported.truncate(ENV_COUNT_MAX + 1);
        let environment: Vec<Exported> = exported.into_iter().filter_map(of_slot).collect();
        self.count(environment.iter().map(|one| one.value.len()).sum())?;
        Ok(environment)
    }

    /// A name's value and export, to be put back.
    pub fn saved(&self, name: &str) -> Saved {
        Saved(self.slots.get(name).cloned().unwrap_or_default())
    }

    pub fn restore(&mut self, name: &str, saved: Saved) {
        *self.slot(name) = saved.0;
    }

    /// What a name holds; `1`, `@` and `*` are the script's or the function's own arguments.
    fn known(&self, name: &str) -> Option<Rc<Value>> {
        let of_words = |words: Vec<Text>, is_array| {
            Some(Rc::new(Value {
                words,
                is_array,
                ..Value::default()
            }))
        };
        match name.parse::<usize>() {
            Ok(_) if self.is_positional_lost => None,
            Ok(index) => {
                let given = self.positional.as_ref().filter(|_| index > 0)?;
                of_words(given.get(index - 1).cloned().into_iter().collect(), false)
            }
            Err(_) if matches!(name, "@" | "*") => {
                of_words(self.positional.as_ref()?.to_vec(), true)
            }
            Err(_) => self.slots.get(name)?.value.clone(),
        }
    }

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
        let at = text.0.first().map_or(0, |(_, at)| *at);
        Ok(match value {
            Some(number) => Text(number.to_string().chars().map(|c| (c, at)).collect()),
            None => text.clone(),
        })
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
        self.word_count += fields.done.len();
        match self.word_count > SCRIPT_WORDS_MAX {
            true => Err(TooLong),
            false => Ok(fields.done),
        }
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

    pub fn count_word(&mut self) -> Result<(), TooLong> {
        self.word_count += 1;
        match self.word_count > SCRIPT_WORDS_MAX {
            true => Err(TooLong),
            false => Ok(()),
        }
    }

    pub fn count(&mut self, chars: usize) -> Result<(), TooLong> {
        self.char_count += chars;
        match self.char_count > SCRIPT_CHARS_MAX {
            true => Err(TooLong),
            false => Ok(()),
        }
    }

    fn variable(
        &mut self,
        variable: &Variable,
        splits: bool,
        fields: &mut Fields,
        remarks: &mut Vec<Remark>,
    ) -> Result<(), TooLong> {
        let known = self.known(&variable.name);
        let is_own = matches!(variable.name.as_str(), "@" | "*");
        let is_lost = match &known {
            Some(value) => value.is_unknown() || is_named(value, variable),
            None if is_own => self.is_positional_lost,
            None => variable.all.is_some() && self.has_sourced,
        };
        if is_lost {
            let remark = |value| of_condition(&variable.name, variable.text.span(), value);
            remarks.extend(known.as_deref().and_then(remark));
            fields.put(&variable.text.0, true);
            return Ok(());
        }
        let known = match &variable.index {
            Some(index) => known.and_then(|value| element(&value, index)),
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
            return match variable.is_quoted {
                false => self.expand(default, splits, fields, remarks),
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
        remarks.extend(of_condition(&variable.name, variable.text.span(), &value));
        remarks.extend(value.remarks.iter().cloned());
        let count = if variable.all.is_some() {
            usize::MAX
        } else {
            1
        };
        let words: Vec<Text> = value.words.iter().take(count).cloned().collect();
        self.count(words.iter().map(|word| word.0.len() + 1).sum())?;
        fields.put_value(&words, variable, splits);
        Ok(())
    }
}

/// An exported variable.
#[derive(Clone, Debug)]
pub(super) struct Exported {
    pub name: String,
    pub value: String,
    pub at: Range<usize>,
    pub conditional: Option<(Range<usize>, Taken)>,
}

/// A name's slot as it was.
#[derive(Debug)]
pub(super) struct Saved(Slot);

/// One element of an array, by its number or, `[name]=value`, by its name.
fn element(value: &Value, index: &str) -> Option<Rc<Value>> {
    let named = |word: &Text| {
        let (name, element) = word.split_once('=')?;
        (name.string() == format!("[{index}]")).then_some(element)
    };
    let has_names = value.words.iter().any(|word| word.starts_with("["));
    let word = match (value.is_array, has_names) {
        (false, _) => return None,
        (true, true) => value.words.iter().rev().find_map(named)?,
        (true, false) => value.words.get(index.parse::<usize>().ok()?)?.clone(),
    };
    Some(Rc::new(Value {
        words: vec![word],
        is_array: false,
        conditional: value.conditional.clone(),
        remarks: value.remarks.clone(),
        at: value.at.clone(),
    }))
}

fn of_slot((_, name, slot): (usize, &str, &Slot)) -> Option<Exported> {
    let (value, (_, at)) = (slot.value.as_ref()?, slot.exported.as_ref()?);
    let doubt = (at.clone(), Taken::Branch);
    let doubt = slot.is_maybe_exported.then_some(doubt);
    let is_unknown = doubt.is_some() || value.is_unknown();
    let first = || value.words.first().map(Text::string).unwrap_or_default();
    Some(Exported {
        name: name.to_string(),
        value: match is_unknown {
            true => format!("${name}"),
            false => first(),
        },
        at: at.clone(),
        conditional: value.conditional.clone().or(doubt),
    })
}

/// All of an array whose elements have names: their order is the shell's.
fn is_named(value: &Value, variable: &Variable) -> bool {
    let is_named = |word: &Text| word.starts_with("[");
    variable.all.is_some() && value.is_array && value.words.iter().any(is_named)
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

    /// Adds an unquoted value: blanks end a field.
    fn split(&mut self, chars: &[Char]) {
        for run in chars.chunk_by(|a, b| is_blank(a) == is_blank(b)) {
            match is_blank(&run[0]) {
                true => self.end(),
                false => self.put(run, false),
            }
        }
    }
}

fn is_blank((c, _): &Char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\r')
}
