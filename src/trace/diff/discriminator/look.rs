//! One rank's records of the op that parted first, each held against its counterpart.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::axis::{Axis, Values};
use super::{Cells, Site};
use crate::trace::certify::RankStream;
use crate::trace::damage::{Damage, Whereabouts};
use crate::trace::diff::compare::Contrast;
use crate::trace::diff::divergence::Collective;
use crate::trace::diff::rank::both_known;
use crate::trace::op::Record;
use crate::trace::strength::Strength;

/// Calls of one rank that are looked at where a collective parts.
pub(super) const CALLS_MAX: usize = 4096;

/// What came of two records of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// With the weakest evidence of its values.
    Differ(Strength),
    Agree(Strength),
    /// Other inputs, or values that are not known: the op was not tried on the same twice.
    Untested,
}

/// A collective on one rank, which its group's inputs decide.
#[derive(Clone, Debug)]
pub(super) struct Call {
    pub ranks: Option<Vec<u32>>,
    /// Whether this rank's inputs are known, and equal.
    pub gave_same: bool,
    /// Whether it gave any: who receives a broadcast does not.
    pub gave: bool,
    pub records: Vec<(Values, Outcome)>,
}

pub(super) type CallKey = (Option<u64>, String, String);

/// One rank's part of the table.
#[derive(Clone, Debug, Default)]
pub(super) struct Part {
    pub cells: Cells,
    pub calls: BTreeMap<CallKey, Call>,
    pub is_cut: bool,
}

/// The identity of a record within its place in the run.
type Key = (Option<u64>, String);

/// A record of the site, as its line.
struct Found {
    /// The iteration that the stream had come to.
    course: u64,
    key: Key,
    line: Vec<u8>,
}

/// Records of the site in one side's stream.
struct Sites<'a> {
    stream: RankStream,
    site: &'a Site,
    name: memchr::memmem::Finder<'a>,
    course: u64,
}

impl Sites<'_> {
    fn next(&mut self) -> Result<Option<Found>, Damage> {
        while self.stream.ready()? {
            let line = self.stream.line();
            // A name may be written with escapes.
            let may_be = self.name.find(line).is_some() || line.contains(&b'\\');
            let found = match may_be {
                true => self.read()?,
                false => None,
            };
            self.stream.advance();
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    fn read(&mut self) -> Result<Option<Found>, Damage> {
        let record = self.stream.record()?;
        if !self.site.is(&record) {
            return Ok(None);
        }
        self.course = record.iteration.unwrap_or(self.course);
        Ok(Some(Found {
            course: self.course,
            key: (record.iteration, record.id.to_string()),
            line: self.stream.line().to_vec(),
        }))
    }
}

/// Looks through both sides of a rank, an iteration at a time.
///
/// # Errors
/// Files that changed since they were certified.
pub(super) fn look(
    files: [&[PathBuf]; 2],
    own: [Option<u32>; 2],
    site: &Site,
) -> Result<Part, Damage> {
    let open = |side: usize| -> Result<Sites<'_>, Damage> {
        Ok(Sites {
            stream: RankStream::open(files[side], own[side])?,
            site,
            name: memchr::memmem::Finder::new(&site.name),
            course: 0,
        })
    };
    let (mut a, mut b) = (open(0)?, open(1)?);
    let mut part = Part::default();
    let (mut x, mut y) = (a.next()?, b.next()?);
    while let (Some(one), Some(other)) = (&x, &y) {
        let course = one.course.max(other.course);
        let mut lines: BTreeMap<Key, Vec<u8>> = BTreeMap::new();
        while let Some(one) = x.take_if(|one| one.course <= course) {
            match one.course == course {
                true => drop(lines.insert(one.key, one.line)),
                false => part.cells.untested += 1,
            }
            x = a.next()?;
        }
        while let Some(other) = y.take_if(|other| other.course <= course) {
            match lines.remove(&other.key) {
                Some(line) => part.pair(&line, &other.line)?,
                None => part.cells.untested += 1,
            }
            y = b.next()?;
        }
        part.cells.untested += lines.len() as u64;
    }
    Ok(part)
}

impl Part {
    fn pair(&mut self, a: &[u8], b: &[u8]) -> Result<(), Damage> {
        let kept = "a line that was read before".into();
        let read = |bytes| {
            Record::read(&Whereabouts {
                file: &kept,
                line: 1,
                offset: 0,
                bytes,
            })
        };
        let (x, y) = (read(a)?, read(b)?);
        let contrast = Contrast::of(&x, &y);
        let (values, outcome) = (Axis::of(&x), outcome(&x, &y, &contrast));
        let Some(collective) = Collective::of(&x) else {
            self.cells.add(values, outcome);
            return Ok(());
        };
        let key = (collective.iteration, collective.group, collective.call);
        if self.calls.len() >= CALLS_MAX && !self.calls.contains_key(&key) {
            self.is_cut = true;
            return Ok(());
        }
        let call = self.calls.entry(key).or_insert_with(|| Call {
            ranks: collective.ranks,
            gave_same: true,
            gave: false,
            records: Vec::new(),
        });
        call.gave_same &= has_same_inputs(&x, &y, &contrast);
        call.gave |= !x.inputs.is_empty();
        call.records.push((values, outcome));
        Ok(())
    }
}

/// Whether all inputs are known on both sides, and equal; so are those of an op that has none.
fn has_same_inputs(a: &Record<'_>, b: &Record<'_>, contrast: &Contrast) -> bool {
    let has_none = a.inputs.is_empty() && b.inputs.is_empty();
    contrast.unknown_inputs == 0 && (has_none || contrast.own_inputs_match() == Some(true))
}

fn outcome(a: &Record<'_>, b: &Record<'_>, contrast: &Contrast) -> Outcome {
    // An op without inputs has others that no record shows; a collective's are its group's.
    let gives = !a.inputs.is_empty() || &*a.kind == "collective";
    let is_tried = gives && contrast.metadata.is_empty() && has_same_inputs(a, b, contrast);
    let strength = both_known(a, b).min().unwrap_or(Strength::None);
    let mut outputs = a.outputs.iter().chain(&b.outputs);
    match (is_tried, contrast.outputs.is_empty()) {
        (true, false) => Outcome::Differ(strength),
        (true, true) if !a.outputs.is_empty() && outputs.all(|one| one.value.is_known()) => {
            Outcome::Agree(strength)
        }
        _ => Outcome::Untested,
    }
}
