//! Variables and arrays of a script, and what may have changed them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use super::branch::Rest;
use super::text::Text;
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
        matches!(why, Some(Taken::Branch | Taken::Other | Taken::Read))
    }
}

/// Which of several values is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// None: a branch decides.
    Branch,
    /// None: what changes it is not followed.
    Other,
    /// None: commands that are not read here may have set it.
    Read,
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
    /// `$1` and so on, where they are known; a word that is not known stands as it is written.
    pub positional: Option<Rc<Vec<Text>>>,
    /// Whether even their number is not known.
    pub is_positional_lost: bool,
    /// Where commands ran that are not read here, and that may have set anything.
    pub lost: Option<Range<usize>>,
    /// Whether Slurm runs the script, and sets variables that nothing in it says.
    pub is_batch: bool,
    /// A `${NAME:?}` of which no value is known: whether the script goes on is not known either.
    pub may_have_ended: Option<Range<usize>>,
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
    rest: Rest,
}

/// Something about an expansion that a reader of its words should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Remark {
    /// `"$@"`, or `${NAME[@]}` of an array that is set nowhere: no words.
    Absent(Range<usize>),
    /// The word of `${NAME:-word}`, where the script sets no such name: whoever starts it may.
    Assumed(Range<usize>),
    /// A variable that was assigned under a condition: where it is used, and where assigned.
    Conditional {
        name: String,
        used: Range<usize>,
        assigned: Range<usize>,
        taken: Taken,
    },
}

impl Remark {
    /// Whether the words may be others as the script stands, whoever starts it.
    pub fn is_doubt(&self) -> bool {
        !matches!(self, Remark::Assumed(_))
    }

    pub fn assumed(&self) -> Option<Range<usize>> {
        match self {
            Remark::Assumed(at) => Some(at.clone()),
            Remark::Absent(_) | Remark::Conditional { .. } => None,
        }
    }

    /// Where a value that is in doubt was assigned, and which is taken.
    fn doubt(&self) -> Option<(Range<usize>, Taken)> {
        match self {
            Remark::Absent(_) | Remark::Assumed(_) => None,
            Remark::Conditional {
                assigned, taken, ..
            } => Some((assigned.clone(), *taken)),
        }
    }
}

/// Remarks that one variable keeps.
const REMARKS_MAX: usize = 16;

/// Variables that grow each other beyond all limits.
#[derive(Debug)]
pub(super) struct TooLong;

impl Shell {
    /// Begins a shell in this one: what it assigns is gone with it.
    pub fn enter(&mut self) -> Mark {
        self.depth += 1;
        Mark {
            journal: self.journal.len(),
            rest: self.rest(),
        }
    }

    pub fn leave(&mut self, mark: Mark) {
        assert!(self.depth > 0, "a shell was entered");
        self.depth -= 1;
        for (name, slot) in self.journal.drain(mark.journal..).rev() {
            self.slots.insert(name, slot);
        }
        self.set_rest(mark.rest);
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
        let old_value = slot.and_then(|slot| slot.value.as_deref());
        // What is appended to may have been set where nobody looked.
        let lost = || self.lost_value().filter(|_| appends);
        let old = slot.and_then(|slot| slot.value.clone()).or_else(lost);
        value.at = name.span();
        // `L=(a b); L=c` sets one element.
        let is_element = !value.is_array && old_value.is_some_and(|old| old.is_array);
        if is_element || slot.is_some_and(|slot| slot.is_odd) {
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
        // The first of them say enough; more would grow with every assignment. Doubts come first.
        value.remarks.sort_by_key(|remark| !remark.is_doubt());
        value.remarks.truncate(REMARKS_MAX);
        self.slot(&key).value = Some(Rc::new(value));
        if self.exports_all {
            self.export(&key, name.span());
        }
    }

    pub fn unset(&mut self, name: &str) {
        *self.slot(name) = Slot::default();
    }

    /// As [`Shell::unset`], and it stays exported.
    pub fn unset_value(&mut self, name: &str) {
        self.slot(name).value = None;
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

    /// Commands that are not read here ran at `at`: whatever they may have set is not known.
    pub fn forget_everything(&mut self, at: &Range<usize>) -> Result<(), TooLong> {
        self.count(self.slots.len())?;
        let is_set = |(_, slot): &(&String, &Slot)| slot.value.is_some();
        let set = self.slots.iter().filter(is_set);
        let names: Vec<String> = set.map(|(name, _)| name.clone()).collect();
        for name in names {
            let value = Value::unknown(at.clone(), Taken::Read);
            self.slot(&name).value = Some(Rc::new(value));
        }
        self.lost.get_or_insert(at.clone());
        // `set -- ...`
        self.is_positional_lost = true;
        Ok(())
    }

    /// The value of a variable that the script does not set, where something else may have.
    fn lost_value(&self) -> Option<Rc<Value>> {
        let at = self.lost.clone()?;
        Some(Rc::new(Value::unknown(at, Taken::Read)))
    }

    pub fn export(&mut self, name: &str, at: Range<usize>) {
        self.export_count += 1;
        let order = self.export_count;
        let slot = self.slot(name);
        let order = slot.exported.as_ref().map_or(order, |(first, _)| *first);
        slot.exported = Some((order, at));
        slot.is_maybe_exported = false;
    }

    pub fn is_exported(&self, name: &str) -> bool {
        let slot = self.slots.get(name);
        slot.is_some_and(|slot| slot.exported.is_some())
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
    pub(super) fn known(&self, name: &str) -> Option<Rc<Value>> {
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
                // A word that is not known may be none, or several.
                let is_open = given.iter().take(index - 1).any(Text::is_open);
                let word = given.get(index - 1).cloned().filter(|_| !is_open);
                match word.is_none() && given.iter().any(Text::is_open) {
                    true => None,
                    false => of_words(word.into_iter().collect(), false),
                }
            }
            Err(_) if matches!(name, "@" | "*") => {
                let given = self
                    .positional
                    .as_ref()
                    .filter(|_| !self.is_positional_lost)?;
                of_words(given.to_vec(), true)
            }
            Err(_) => {
                let value = self.slots.get(name).and_then(|slot| slot.value.clone());
                value.or_else(|| self.lost_value())
            }
        }
    }

    pub fn count_words(&mut self, count: usize) -> Result<(), TooLong> {
        self.word_count += count;
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
}

/// An exported variable.
#[derive(Clone, Debug)]
pub(super) struct Exported {
    pub name: String,
    pub value: String,
    pub at: Range<usize>,
    pub conditional: Option<(Range<usize>, Taken)>,
    /// Where the value is that of a name which the script does not set.
    pub assumed: Option<Range<usize>>,
}

/// A name's slot as it was.
#[derive(Debug)]
pub(super) struct Saved(Slot);

fn of_slot((_, name, slot): (usize, &str, &Slot)) -> Option<Exported> {
    let (value, (_, at)) = (slot.value.as_ref()?, slot.exported.as_ref()?);
    if value.is_array {
        // bash exports none.
        return None;
    }
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
        assumed: value.remarks.iter().find_map(Remark::assumed),
        conditional: value
            .conditional
            .clone()
            .or(doubt)
            .or_else(|| value.remarks.iter().find_map(Remark::doubt)),
    })
}
