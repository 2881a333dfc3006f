//! Ways through a script that part and meet again: what they leave different is not known behind.

use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use super::shell::{Shell, Slot, Taken, Value};
use super::text::Text;

/// Where ways part.
pub(super) struct Fork {
    journal: usize,
    start: Rest,
}

/// What one way changed.
pub(super) struct Way {
    slots: BTreeMap<String, Slot>,
    end: Rest,
}

/// A shell's state beside its variables.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Rest {
    exports_all: bool,
    positional: Option<Rc<Vec<Text>>>,
    is_positional_lost: bool,
    lost: Option<Range<usize>>,
}

impl Way {
    /// The variables that it changed.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.slots.keys()
    }
}

impl Shell {
    pub(super) fn rest(&self) -> Rest {
        Rest {
            exports_all: self.exports_all,
            positional: self.positional.clone(),
            is_positional_lost: self.is_positional_lost,
            lost: self.lost.clone(),
        }
    }

    pub(super) fn set_rest(&mut self, rest: Rest) {
        self.exports_all = rest.exports_all;
        self.positional = rest.positional;
        self.is_positional_lost = rest.is_positional_lost;
        self.lost = rest.lost;
    }

    /// Before any later round of a loop of which `ways` are rounds: what they changed is not known.
    pub fn forget_rounds(&mut self, ways: &[Way], at: &Range<usize>) {
        for name in ways.iter().flat_map(Way::names) {
            let value = Value::unknown(at.clone(), Taken::Branch);
            self.slot(name).value = Some(Rc::new(value));
        }
        for way in ways {
            self.is_positional_lost |= way.end.positional != self.positional;
            self.is_positional_lost |= way.end.is_positional_lost;
            if self.lost.is_none() {
                self.lost = way.end.lost.clone();
            }
        }
    }

    pub fn fork(&mut self) -> Fork {
        self.depth += 1;
        Fork {
            journal: self.journal.len(),
            start: self.rest(),
        }
    }

    /// The end of one way: what it changed is taken back.
    pub fn end_way(&mut self, fork: &Fork) -> Way {
        let mut slots = BTreeMap::new();
        for (name, before) in self.journal.drain(fork.journal..).rev() {
            let after = self.slots.insert(name.clone(), before).unwrap_or_default();
            // Read backwards, the first of a name is how the way left it.
            slots.entry(name).or_insert(after);
        }
        let end = self.rest();
        self.set_rest(fork.start.clone());
        Way { slots, end }
    }

    /// Where the ways meet. `stays` says that none of them may be taken. Returns whether what
    /// `set -a` set is the same on all.
    pub fn join(&mut self, fork: Fork, ways: &[Way], stays: bool, at: &Range<usize>) -> bool {
        assert!(self.depth > 0, "ways part before they meet");
        self.depth -= 1;
        let mut names: Vec<&String> = ways.iter().flat_map(|way| way.slots.keys()).collect();
        names.sort();
        names.dedup();
        for name in names {
            let before = self.slots.get(name).cloned().unwrap_or_default();
            let of_way = |way: &Way| way.slots.get(name).unwrap_or(&before).clone();
            let mut slots: Vec<Slot> = ways.iter().map(of_way).collect();
            slots.extend(stays.then(|| before.clone()));
            *self.slot(name) = met(&slots, at);
        }
        let mut rests: Vec<&Rest> = ways.iter().map(|way| &way.end).collect();
        rests.extend(stays.then_some(&fork.start));
        let Some(first) = rests.first() else {
            return true;
        };
        let is_same = |part: fn(&Rest, &Rest) -> bool| rests.iter().all(|rest| part(first, rest));
        let has_same_words = is_same(|a, b| {
            (&a.positional, a.is_positional_lost) == (&b.positional, b.is_positional_lost)
        });
        let has_same_exports = is_same(|a, b| a.exports_all == b.exports_all);
        let lost = rests.iter().find_map(|rest| rest.lost.clone());
        self.set_rest((*first).clone());
        self.lost = lost;
        self.is_positional_lost |= !has_same_words;
        has_same_exports
    }
}

/// One slot of several.
fn met(slots: &[Slot], at: &Range<usize>) -> Slot {
    let first = slots.first().cloned().unwrap_or_default();
    let is_exported = |slot: &Slot| slot.exported.is_some() && !slot.is_maybe_exported;
    let mut exports: Vec<_> = slots
        .iter()
        .filter_map(|slot| slot.exported.clone())
        .collect();
    exports.sort_by_key(|(order, _)| *order);
    let mut ats = slots.iter().filter_map(|slot| slot.value.as_ref());
    let assigned = ats.find(|value| !value.at.is_empty());
    let value = match slots.iter().all(|slot| holds_same(slot, &first)) {
        true => first.value.clone(),
        false => {
            let at = assigned.map_or(at.clone(), |value| value.at.clone());
            Some(Rc::new(Value::unknown(at, Taken::Branch)))
        }
    };
    Slot {
        value,
        is_maybe_exported: !exports.is_empty() && !slots.iter().all(is_exported),
        exported: exports.into_iter().next(),
        is_odd: slots.iter().any(|slot| slot.is_odd),
    }
}

fn holds_same(a: &Slot, b: &Slot) -> bool {
    match (&a.value, &b.value) {
        (None, None) => true,
        (Some(a), Some(b)) if Rc::ptr_eq(a, b) => true,
        (Some(a), Some(b)) => {
            let texts = |value: &Value| value.words.iter().map(Text::string).collect::<Vec<_>>();
            let is_sure = a.conditional.is_none() && b.conditional.is_none();
            is_sure && a.is_array == b.is_array && texts(a) == texts(b)
        }
        _ => false,
    }
}
