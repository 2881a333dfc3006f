//! One argument under its several spellings.

use std::collections::BTreeMap;

use crate::diagnostic::{Diagnostic, Place, escaped};

/// `--num-layers`, `--num_layers` and `num_layers` as one word.
pub(super) fn folded(flag: &str) -> String {
    flag.trim_start_matches('-').replace('_', "-")
}

/// Whether argparse takes a word for a flag: it begins with `-`, has no blank, and is no negative
/// number, written plainly (`_negative_number_matcher` and `_parse_optional` in `argparse.py`, up
/// to Python 3.13): `-1` and `-.5` are, `-1e-3` and `-1_0` are not.
pub(super) fn is_flag_to_argparse(word: &str) -> bool {
    let Some(rest) = word.strip_prefix('-').filter(|rest| !rest.is_empty()) else {
        return false;
    };
    let is_number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit());
    let is_plain = match rest.split_once('.') {
        Some((whole, part)) => is_number(whole) && !part.is_empty() && is_number(part),
        None => is_number(rest),
    };
    !is_plain && !word.contains(' ')
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
