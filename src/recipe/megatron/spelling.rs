//! One argument under its several spellings.

use std::collections::BTreeMap;

use crate::diagnostic::{Diagnostic, Place, escaped};

/// `--num-layers`, `--num_layers` and `num_layers` as one word.
pub(super) fn folded(flag: &str) -> String {
    flag.trim_start_matches('-').replace('_', "-")
}

/// Flags so far, and where they stand.
#[derive(Default)]
pub(super) struct Spellings {
    first: BTreeMap<String, (String, Place)>,
}

/// A flag that came before.
pub(super) struct Repeated<'a> {
    flag: &'a str,
    place: &'a Place,
}

impl Spellings {
    /// The earlier use of the flag, if there is one.
    pub fn put(&mut self, flag: &str, place: &Place) -> Option<Repeated<'_>> {
        use std::collections::btree_map::Entry;
        match self.first.entry(folded(flag)) {
            Entry::Vacant(vacant) => {
                vacant.insert((flag.to_string(), place.clone()));
                None
            }
            Entry::Occupied(occupied) => {
                let (flag, place) = occupied.into_mut();
                Some(Repeated { flag, place })
            }
        }
    }
}

impl Repeated<'_> {
    pub fn finding(&self, flag: &str, place: &Place) -> Diagnostic {
        let message = match self.flag == flag {
            true => format!("`{}` is given twice", escaped(flag)),
            false => format!(
                "`{}` and `{}` are one argument",
                escaped(self.flag),
                escaped(flag)
            ),
        };
        Diagnostic::error("duplicate-key", message)
            .at(place, "a second time here")
            .with_context(Some(self.place), "first here")
    }
}
