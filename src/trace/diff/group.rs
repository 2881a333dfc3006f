//! A collective's inputs are the inputs of its whole group: a second look at the few collectives
//! at which a rank parts, on every rank. A rank whose own input agrees is no origin where another
//! member's input does not.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use rayon::prelude::*;

use super::divergence::{Collective, Difference, Divergence, Role};
use crate::trace::certify::RankStream;
use crate::trace::damage::Damage;
use crate::trace::folder::Folder;
use crate::trace::op::{Operand, Record, Unknown, Value};

/// What a rank put into a collective.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Given {
    text: String,
    is_known: bool,
    /// Inputs whose bytes are known.
    values: usize,
}

impl Default for Given {
    fn default() -> Given {
        Given {
            text: String::new(),
            is_known: true,
            values: 0,
        }
    }
}

/// What joins records across ranks: all but what a rank alone may say.
type Key = (Option<u64>, String, String, String);

fn key(one: &Collective) -> Key {
    (
        one.iteration,
        one.name.clone(),
        one.group.clone(),
        one.call.clone(),
    )
}

/// Decides, for divergences at a collective, whether the whole group's inputs match.
///
/// # Errors
/// Files that changed since they were certified.
pub fn join(folders: [&Folder; 2], firsts: &mut BTreeMap<u32, Divergence>) -> Result<(), Damage> {
    let wanted: BTreeSet<Key> = firsts
        .values()
        .filter(|first| is_open(first))
        .filter_map(|first| first.collective.as_ref().map(key))
        .collect();
    if wanted.is_empty() {
        return own_only(firsts);
    }
    let ranks: Vec<u32> = folders[0].ops.keys().copied().collect();
    let looked = ranks.into_par_iter().map(|rank| {
        let a = given(&folders[0].ops[&rank], folders[0].own(rank), &wanted)?;
        let b = match folders[1].ops.get(&rank) {
            Some(files) => given(files, folders[1].own(rank), &wanted)?,
            None => BTreeMap::new(),
        };
        Ok((rank, [a, b]))
    });
    let looked: BTreeMap<u32, [BTreeMap<Key, Given>; 2]> = looked.collect::<Result<_, Damage>>()?;
    // A group whose ranks are not told is known only where every rank was looked at.
    let is_whole = folders.iter().all(|folder| {
        let world = folder.run.as_ref().and_then(|run| run.world_size);
        world.is_some_and(|world| world as usize == looked.len())
    });
    for first in firsts.values_mut().filter(|first| is_open(first)) {
        let collective = first.collective.as_ref().expect("it is one");
        first.group_inputs_match = group_inputs_match(collective, &looked, is_whole);
        first.role = match first.group_inputs_match {
            Some(true) => Role::Origin,
            Some(false) => Role::Receiver,
            None => Role::Undecided,
        };
    }
    own_only(firsts)
}

/// Whether the group has to be asked: its own inputs match, or it gives none, as whoever only
/// receives a broadcast.
fn is_open(first: &Divergence) -> bool {
    let Some(collective) = &first.collective else {
        return false;
    };
    let gives_none =
        collective.inputs == 0 && matches!(first.difference, Difference::Content { .. });
    first.role == Role::Origin || (first.role == Role::Undecided && gives_none)
}

/// Where a rank's own input differs, its group's do.
fn own_only(firsts: &mut BTreeMap<u32, Divergence>) -> Result<(), Damage> {
    for first in firsts
        .values_mut()
        .filter(|first| first.collective.is_some())
    {
        if first.own_inputs_match == Some(false) {
            first.group_inputs_match = Some(false);
        }
    }
    Ok(())
}

fn group_inputs_match(
    collective: &Collective,
    looked: &BTreeMap<u32, [BTreeMap<Key, Given>; 2]>,
    is_whole: bool,
) -> Option<bool> {
    let key = key(collective);
    let took_part = |rank: &u32| {
        let sides = looked.get(rank);
        sides.is_some_and(|sides| sides.iter().any(|side| side.contains_key(&key)))
    };
    let members: Vec<u32> = match &collective.ranks {
        Some(ranks) => ranks.clone(),
        None => looked.keys().copied().filter(took_part).collect(),
    };
    let mut is_known = !members.is_empty() && (collective.ranks.is_some() || is_whole);
    let mut is_given = false;
    for rank in members {
        let sides = looked.get(&rank).map(|[a, b]| (a.get(&key), b.get(&key)));
        match sides {
            Some((Some(a), Some(b))) if a.is_known && b.is_known => {
                if a.text != b.text {
                    return Some(false);
                }
                is_given |= a.values > 0;
            }
            _ => is_known = false,
        }
    }
    // Inputs that no member shows are no inputs that match.
    (is_known && is_given).then_some(true)
}

/// What one rank put into each of the collectives.
fn given(
    files: &[PathBuf],
    rank: Option<u32>,
    wanted: &BTreeSet<Key>,
) -> Result<BTreeMap<Key, Given>, Damage> {
    let last = wanted
        .iter()
        .map(|(iteration, ..)| *iteration)
        .max()
        .flatten();
    let kind = memchr::memmem::Finder::new("collective");
    let mut stream = RankStream::open(files, rank)?;
    let mut found = BTreeMap::new();
    while stream.ready()? {
        if kind.find(stream.line()).is_some() {
            let record = stream.record()?;
            if record.iteration > last && last.is_some() {
                break;
            }
            let collective = Collective::of(&record).map(|one| key(&one));
            if let Some(key) = collective.filter(|key| wanted.contains(key)) {
                // Of a coalesced call each tensor may have a record of its own.
                let given: &mut Given = found.entry(key).or_default();
                given.add(&record);
            }
        }
        stream.advance();
    }
    Ok(found)
}

impl Given {
    /// Adds a record of the call.
    fn add(&mut self, record: &Record<'_>) {
        for operand in &record.inputs {
            let Operand {
                shape,
                dtype,
                value,
                ..
            } = operand;
            self.text += &format!("{shape:?} {dtype} {value:?} ");
            self.is_known &= matches!(
                value,
                Value::Digest { .. } | Value::Unknown(Unknown::WriteOnly)
            );
            self.values += usize::from(value.is_known());
        }
        self.text.push(';');
    }
}
