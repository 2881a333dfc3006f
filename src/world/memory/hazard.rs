//! Hazards: pairs of accesses that nothing orders, and reads of what nothing has written.
//!
//! A hazard is a fault of the program even when the bytes happen to agree: on another day the
//! other order runs. `NVIDIA/Megatron-LM#3670` is a missing wait, `pytorch/pytorch#180665` a block
//! that was reused under a copy; both trained on, and differed now and then.

use std::collections::{BTreeMap, BTreeSet};
use std::iter;

use crate::world::rank::{Communicator, StreamId};
use crate::world::site::{Name, Phase, Site};

use super::accesses::{Conflict, Use};

/// Different hazards that are kept; more are only counted.
const HAZARDS_MAX: usize = 256;
/// Occurrences of one hazard that are kept; more are only counted.
const OCCURRENCES_MAX: usize = 256;

/// What is wrong between the two accesses. "First" is the one that the host issued first, whatever
/// order they ran in here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HazardKind {
    /// A read does not wait for the write whose result it wants.
    ReadBeforeComplete,
    /// A write does not wait for a read of the old value.
    WriteAfterRead,
    /// Two writes, and nothing says which is the last.
    WriteAfterWrite,
    /// What a copy reads is written while it runs.
    TornCopy,
    /// The host touches its own memory while a stream may, too.
    UnorderedHostAccess,
    /// Nobody ever waits for what a collective or message writes.
    MissingJoin,
    /// Memory is freed, or allocated again, while an access to it may still run.
    ReuseWhileInUse,
    /// Nothing has written the words since they were allocated, or they were freed.
    UninitialisedRead,
}

impl HazardKind {
    pub const fn name(self) -> &'static str {
        match self {
            HazardKind::ReadBeforeComplete => "read before complete",
            HazardKind::WriteAfterRead => "write after read",
            HazardKind::WriteAfterWrite => "write after write",
            HazardKind::TornCopy => "torn copy",
            HazardKind::UnorderedHostAccess => "unordered host access",
            HazardKind::MissingJoin => "missing join",
            HazardKind::ReuseWhileInUse => "reuse while in use",
            HazardKind::UninitialisedRead => "uninitialised read",
        }
    }
}

/// One side of a hazard.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Access {
    #[serde(flatten)]
    pub site: Site,
    /// `the compute stream`, `the stream of tp0`, `the stream of sends to rank 3`.
    pub stream: String,
    pub write: bool,
}

/// Two accesses of one rank to the same words that nothing orders.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Hazard {
    pub kind: HazardKind,
    /// The lowest rank that met it first.
    pub rank: u32,
    pub first: Access,
    pub second: Access,
    /// Words from..to of the buffer, or of the rank's memory where the buffer is not known.
    pub words: (u32, u32),
    pub buffer: Option<String>,
    /// The name of the edge that is missing, where a record or a handle has one.
    pub edge: Option<String>,
    /// The edge that is missing and where to put it, in words.
    pub missing_edge: String,
    /// The two commands of `rank`, by the order in which its host issued them, in the order in
    /// which they ran; `None` where one of them did not run.
    pub ran: Option<(u32, u32)>,
    /// How often it was met: over ranks, steps and microbatches.
    pub occurrences: u64,
    /// The later occurrences, each a hazard of its own, as far as they are kept.
    #[serde(skip)]
    pub further: Vec<Hazard>,
}

impl Hazard {
    /// Every occurrence that is kept, this one first.
    pub fn each(&self) -> impl Iterator<Item = &Hazard> {
        iter::once(self).chain(&self.further)
    }

    /// Whether every occurrence is kept.
    pub fn keeps_all(&self) -> bool {
        self.occurrences == self.each().count() as u64
    }

    /// The hazard without these occurrences, named by the first one that is left and `is_named`,
    /// else by the first that is left; `None` where none is.
    pub(crate) fn without(
        mut self,
        is_out: impl Fn(&Hazard) -> bool,
        is_named: impl Fn(&Hazard) -> bool,
    ) -> Option<Hazard> {
        let (occurrences, further) = (self.occurrences, std::mem::take(&mut self.further));
        self.occurrences = 1;
        let mut each: Vec<Hazard> = iter::once(self).chain(further).collect();
        let kept = each.len();
        each.retain(|one| !is_out(one));
        let out = (kept - each.len()) as u64;
        if each.is_empty() {
            return None;
        }
        let place = each.iter().position(is_named).unwrap_or(0);
        let named = each.remove(place);
        Some(Hazard {
            occurrences: occurrences - out,
            further: each,
            ..named
        })
    }
}

impl std::fmt::Display for Hazard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (from, to) = self.words;
        let buffer = self.buffer.as_deref().unwrap_or("memory");
        let (kind, rank) = (self.kind.name(), self.rank);
        write!(f, "{kind} on rank {rank}, words {from}..{to} of {buffer}: ")?;
        write!(f, "{}; {}; ", self.first, self.second)?;
        f.write_str(&self.missing_edge)
    }
}

impl std::fmt::Display for Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let verb = if self.write { "written" } else { "read" };
        write!(f, "{verb} on {} at {}", self.stream, self.site)
    }
}

/// A place in the program, whatever the step and microbatch.
type Place = (Phase, Name, Name);

type Pair = (HazardKind, Place, Place);

/// The hazards of a run, each reported once.
#[derive(Debug, Default)]
pub(crate) struct HazardLog {
    numbers: BTreeMap<Pair, usize>,
    /// Reads that nothing orders behind the allocation that they are of.
    unallocated: BTreeSet<Pair>,
    hazards: Vec<Hazard>,
    more: u64,
}

impl HazardLog {
    pub fn add(&mut self, rank: u32, conflict: &Conflict, communicators: &[Communicator]) {
        let key = (
            conflict.kind,
            place(&conflict.first.site),
            place(&conflict.second.site),
        );
        let (first, second) = (&conflict.first, &conflict.second);
        if first.is_allocation_of(second) && !second.write {
            self.unallocated.insert(key.clone());
        }
        if let Some(number) = self.numbers.get(&key) {
            let known = &mut self.hazards[*number];
            known.occurrences += 1;
            if known.further.len() + 1 < OCCURRENCES_MAX {
                known.further.push(hazard(rank, conflict, communicators));
            }
        } else if self.hazards.len() == HAZARDS_MAX {
            self.more += 1;
        } else {
            self.numbers.insert(key, self.hazards.len());
            self.hazards.push(hazard(rank, conflict, communicators));
        }
    }

    /// The hazards in the order they were met, and how many more occurrences were not kept.
    ///
    /// Where the schedule ran a read before the write it should have waited for, the read also met
    /// unwritten words, and nothing orders it behind their allocation: one mistake, reported once.
    /// So is a handle that nobody waits for, where some access is known to have needed the wait.
    pub fn finish(mut self) -> (Vec<Hazard>, u64) {
        let pairs = self.hazards.iter().filter(|hazard| hazard.ran.is_some());
        let of_first: BTreeSet<Place> = pairs.map(|hazard| place(&hazard.first.site)).collect();
        let early: Vec<(Place, Option<String>)> = self
            .hazards
            .iter()
            .filter(|hazard| {
                hazard.kind == HazardKind::ReadBeforeComplete
                    || (hazard.kind == HazardKind::UnorderedHostAccess && hazard.first.write)
            })
            .map(|hazard| (place(&hazard.second.site), hazard.buffer.clone()))
            .collect();
        self.hazards.retain(|hazard| match hazard.kind {
            HazardKind::UninitialisedRead => {
                !early.contains(&(place(&hazard.second.site), hazard.buffer.clone()))
            }
            HazardKind::ReuseWhileInUse if self.unallocated.contains(&pair(hazard)) => {
                !early.contains(&(place(&hazard.second.site), hazard.buffer.clone()))
            }
            HazardKind::MissingJoin => !of_first.contains(&place(&hazard.first.site)),
            _ => true,
        });
        (self.hazards, self.more)
    }
}

fn pair(hazard: &Hazard) -> Pair {
    let (first, second) = (&hazard.first.site, &hazard.second.site);
    (hazard.kind, place(first), place(second))
}

fn place(site: &Site) -> Place {
    (site.phase, site.module.clone(), site.op.clone())
}

fn hazard(rank: u32, conflict: &Conflict, communicators: &[Communicator]) -> Hazard {
    let access = |side: &Use| Access {
        site: Site::clone(&side.site),
        stream: stream_name(side.stream, communicators),
        write: side.write,
    };
    let (first, second) = (access(&conflict.first), access(&conflict.second));
    Hazard {
        kind: conflict.kind,
        rank,
        edge: conflict.edge.as_deref().map(str::to_string),
        missing_edge: missing_edge(conflict, &first, &second),
        ran: conflict.ran,
        first,
        second,
        words: conflict.words,
        buffer: conflict.buffer.as_deref().map(str::to_string),
        occurrences: 1,
        further: Vec::new(),
    }
}

fn missing_edge(conflict: &Conflict, first: &Access, second: &Access) -> String {
    let (one, two) = (&first.site.op, &second.site.op);
    match (conflict.kind, &conflict.edge) {
        (HazardKind::UninitialisedRead, _) => {
            format!("nothing writes these words between `{one}` and `{two}`")
        }
        (HazardKind::MissingJoin, Some(edge)) => {
            format!("nobody waits for `{edge}`: wait for it before its result is needed")
        }
        (_, Some(edge)) => format!("{} must wait for `{edge}` before `{two}`", second.stream),
        (_, None) => format!(
            "{} must wait for `{one}` on {} before `{two}`: record an event behind `{one}`",
            second.stream, first.stream
        ),
    }
}

fn stream_name(stream: StreamId, communicators: &[Communicator]) -> String {
    stream.describe(|group| {
        let communicator = communicators.get(group.0 as usize);
        communicator.map_or("?".to_string(), |communicator| communicator.name.clone())
    })
}
