//! Which way of calling an op parts two runs: a table over the op that parted first, of its records
//! whose inputs are the same bytes on both sides.
//!
//! The method is Megatron-LM pull request 7262's. Only counts are claimed: an axis separates if
//! none of its values has both records that differ and records that agree. A record that agrees may
//! be one whose order made no difference that time.

mod axis;
mod look;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use rayon::prelude::*;

use super::divergence::{Difference, Divergence, Role};
use crate::trace::damage::Damage;
use crate::trace::folder::Folder;
use crate::trace::op::Record;
use crate::trace::strength::Strength;

pub use axis::Axis;
use axis::Values;
use look::{CALLS_MAX, Outcome, Part, look};

/// Ways of calling that a table has room for.
const CELLS_MAX: usize = 256;

/// The table of one op.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Discriminator {
    pub kind: String,
    pub name: String,
    /// Axes on which the op's tested records are not all alike.
    pub axes: Vec<Axis>,
    pub cells: Vec<Cell>,
    /// The smallest sets of axes that tell all records that differ from all that agree; nothing
    /// where none does.
    pub separating: Vec<Vec<Axis>>,
    /// Records whose inputs are not known to be the same, or whose outputs are not known.
    pub untested: u64,
    /// How much it shows that values are equal: inputs that a weak digest finds so may not be.
    pub evidence: Strength,
    /// Why it is not a table of all records.
    pub partial: Option<String>,
}

/// Records that were called alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cell {
    /// On each of the table's axes; nothing where the records do not say.
    pub values: Vec<Option<String>>,
    pub differ: u64,
    pub agree: u64,
}

/// The op that parted first.
#[derive(Clone, Debug)]
pub(super) struct Site {
    kind: String,
    name: String,
}

impl Site {
    fn is(&self, record: &Record<'_>) -> bool {
        *record.kind == *self.kind && *record.name == *self.name
    }
}

/// Counts of records that differ and agree, by how they were called.
#[derive(Clone, Debug, Default)]
pub(super) struct Cells {
    counts: BTreeMap<Values, [u64; 2]>,
    untested: u64,
    /// Of the values of what was tested.
    weakest: Option<Strength>,
    is_full: bool,
}

impl Cells {
    fn add(&mut self, values: Values, outcome: Outcome) {
        let (place, strength) = match outcome {
            Outcome::Differ(strength) => (0, strength),
            Outcome::Agree(strength) => (1, strength),
            Outcome::Untested => {
                self.untested += 1;
                return;
            }
        };
        self.weakest = self.weakest.into_iter().chain([strength]).min();
        self.count(values, place, 1);
    }

    fn count(&mut self, values: Values, place: usize, count: u64) {
        if self.counts.len() >= CELLS_MAX && !self.counts.contains_key(&values) {
            self.is_full = true;
            return;
        }
        self.counts.entry(values).or_default()[place] += count;
    }

    fn merge(&mut self, other: Cells) {
        for (values, counts) in other.counts {
            for (place, count) in counts.into_iter().enumerate() {
                self.count(values.clone(), place, count);
            }
        }
        self.untested += other.untested;
        self.weakest = self.weakest.into_iter().chain(other.weakest).min();
        self.is_full |= other.is_full;
    }
}

/// The table of the op at `first`, if that is an origin: looks at its records on every rank.
///
/// # Errors
/// Files that changed since they were certified.
pub(super) fn discriminator(
    [a, b]: [&Folder; 2],
    first: &Divergence,
) -> Result<Option<Discriminator>, Damage> {
    let is_content = matches!(first.difference, Difference::Content { .. });
    if first.role != Role::Origin || !is_content {
        return Ok(None);
    }
    let site = Site {
        kind: first.point.kind.clone(),
        name: first.point.name.clone(),
    };
    type Pair<'a> = (u32, [&'a [PathBuf]; 2]);
    let pairs: Vec<Pair<'_>> = a
        .ops
        .iter()
        .filter_map(|(rank, files)| Some((*rank, [&files[..], &b.ops.get(rank)?[..]])))
        .collect();
    let parts = pairs.into_par_iter().map(|(rank, files)| {
        let own = [a.own(rank), b.own(rank)];
        Ok((rank, look(files, own, &site)?))
    });
    let mut parts: BTreeMap<u32, Part> = parts.collect::<Result<_, Damage>>()?;
    let mut cells = Cells::default();
    for part in parts.values_mut() {
        cells.merge(std::mem::take(&mut part.cells));
    }
    let is_cut = parts.values().any(|part| part.is_cut);
    let is_whole = [a, b].iter().all(|folder| {
        let world = folder.run.as_ref().and_then(|run| run.world_size);
        world.is_some_and(|world| world as usize == parts.len())
    });
    collectives(&parts, is_whole, &mut cells);
    Ok(Discriminator::of(site, cells, is_cut))
}

/// Adds each rank's records of each call, tested only where the whole group gave the same.
fn collectives(parts: &BTreeMap<u32, Part>, is_whole: bool, cells: &mut Cells) {
    for part in parts.values() {
        for (key, call) in &part.calls {
            let members: Vec<u32> = match &call.ranks {
                Some(ranks) => ranks.clone(),
                None => parts
                    .iter()
                    .filter(|(_, part)| part.calls.contains_key(key))
                    .map(|(rank, _)| *rank)
                    .collect(),
            };
            let of = |rank: &u32| parts.get(rank)?.calls.get(key);
            let is_known = call.ranks.is_some() || is_whole;
            let is_same = is_known
                && members
                    .iter()
                    .all(|rank| of(rank).is_some_and(|one| one.gave_same))
                && members
                    .iter()
                    .any(|rank| of(rank).is_some_and(|one| one.gave));
            for (values, outcome) in &call.records {
                let outcome = match is_same {
                    true => *outcome,
                    false => Outcome::Untested,
                };
                cells.add(values.clone(), outcome);
            }
        }
    }
}

impl Discriminator {
    fn of(site: Site, cells: Cells, is_cut: bool) -> Option<Discriminator> {
        let counts = &cells.counts;
        let total = |place: usize| counts.values().map(|both| both[place]).sum::<u64>();
        if total(0) == 0 {
            return None;
        }
        let values = |axis: usize| counts.keys().map(move |values| &values[axis]);
        let varies = |axis: &usize| values(*axis).collect::<BTreeSet<_>>().len() > 1;
        let axes: Vec<usize> = (0..Axis::ALL.len()).filter(varies).collect();
        let mut grouped: BTreeMap<Vec<Option<String>>, [u64; 2]> = BTreeMap::new();
        for (values, both) in counts {
            let seen = axes.iter().map(|axis| values[*axis].clone()).collect();
            let sum = grouped.entry(seen).or_default();
            (0..2).for_each(|place| sum[place] += both[place]);
        }
        let cut = || format!("of the first {CALLS_MAX} calls of each rank");
        let full = || format!("of the first {CELLS_MAX} ways in which it was called");
        let table: Vec<Cell> = grouped
            .into_iter()
            .map(|(values, [differ, agree])| Cell {
                values,
                differ,
                agree,
            })
            .collect();
        let is_partial = cells.is_full || is_cut;
        let separating = match is_partial {
            true => Vec::new(),
            false => separating(&table, axes.len()),
        };
        let named = |set: Vec<usize>| set.iter().map(|at| Axis::ALL[axes[*at]]).collect();
        Some(Discriminator {
            kind: site.kind,
            name: site.name,
            separating: separating.into_iter().map(named).collect(),
            axes: axes.iter().map(|axis| Axis::ALL[*axis]).collect(),
            cells: table,
            untested: cells.untested,
            evidence: cells.weakest.unwrap_or(Strength::None),
            partial: match cells.is_full {
                true => Some(full()),
                false => is_cut.then(cut),
            },
        })
    }

    /// Records that differ, and that agree.
    pub fn totals(&self) -> (u64, u64) {
        let sums = self.cells.iter();
        sums.fold((0, 0), |(differ, agree), cell| {
            (differ + cell.differ, agree + cell.agree)
        })
    }

    /// What the table shows, in one sentence that says no more than its counts.
    pub fn in_words(&self) -> String {
        let (differ, agree) = self.totals();
        let weak = match self.evidence {
            Strength::Full => String::new(),
            other => format!(" (by evidence {})", other.slug()),
        };
        let all = format!("{differ} records with equal inputs differ, {agree} agree{weak}");
        let names = |set: &Vec<Axis>| {
            let names: Vec<&str> = set.iter().map(|axis| axis.name()).collect();
            names.join(" with ")
        };
        if let Some(partial) = &self.partial {
            return format!("{all}: a table {partial}, from which no axis is named");
        }
        match &self.separating[..] {
            _ if agree == 0 => format!("{all}: nothing to tell them from"),
            _ if self.axes.is_empty() => {
                format!("{all}: all were called alike, as far as the records say")
            }
            [] => format!("{all}: no axis tells them apart, nor all of them together"),
            [one] => format!(
                "{all}: {} tells them apart, and nothing smaller does",
                names(one)
            ),
            several => {
                let several: Vec<String> = several.iter().map(names).collect();
                let several = several.join("; ");
                format!(
                    "{all}: each of these tells them apart, which of them counts is open: \
                         {several}"
                )
            }
        }
    }
}

/// The smallest sets of axes in whose cells no record that differs meets one that agrees.
fn separating(cells: &[Cell], axes: usize) -> Vec<Vec<usize>> {
    let separates = |set: &Vec<usize>| {
        let mut seen: BTreeMap<Vec<&Option<String>>, [bool; 2]> = BTreeMap::new();
        for cell in cells {
            let values = set.iter().map(|axis| &cell.values[*axis]).collect();
            let both = seen.entry(values).or_default();
            both[0] |= cell.differ > 0;
            both[1] |= cell.agree > 0;
        }
        seen.values().all(|both| *both != [true, true])
    };
    let has = |count: fn(&Cell) -> u64| cells.iter().any(|cell| count(cell) > 0);
    if !has(|cell| cell.differ) || !has(|cell| cell.agree) {
        return Vec::new();
    }
    let sets = (0u32..1 << axes).map(|bits| {
        let members = (0..axes).filter(|axis| bits & (1 << axis) != 0);
        members.collect::<Vec<usize>>()
    });
    let found: Vec<Vec<usize>> = sets.filter(separates).collect();
    let least = found.iter().map(Vec::len).min().unwrap_or(0);
    found.into_iter().filter(|set| set.len() == least).collect()
}
