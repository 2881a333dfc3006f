//! Records as a timeline that viewers draw: Trace Event JSON, as Perfetto reads it.
//!
//! Traces hold no wall clock, so the axis is an order, not time: where ranks share a clock (the
//! waves of a check's own recording) an event stands at its wave, else behind what its rank did
//! before; a call stands at one place on all ranks that take part. Ranks are read beside each
//! other, each up to the next call that it shares, so that memory does not grow with the trace.

mod event;
mod lane;
mod page;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

use serde_json::json;

use super::damage::Damage;
use super::folder::Folder;
use super::native;

use event::{Call, Event, Members};
use lane::Lane;
use page::{Page, Spot};

/// Ranks of one drawing, each with a file open.
pub const RANKS_MAX: usize = 256;
/// Streams of other names than this many are none.
const STREAMS_MAX: usize = 4096;
/// No clock comes that far.
const PLACE_MAX: u64 = 1 << 48;

/// Which records are drawn.
#[derive(Clone, Debug, Default)]
pub struct Extent {
    /// The first and the last iteration; nothing means all. Set-up goes with the first.
    pub iterations: Option<(u64, u64)>,
}

impl Extent {
    fn takes(&self, iteration: Option<u64>) -> bool {
        let iteration = iteration.unwrap_or(0).max(1);
        self.iterations
            .is_none_or(|(first, last)| (first..=last).contains(&iteration))
    }
}

/// What was drawn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Drawn {
    pub ranks: u64,
    pub events: u64,
    /// Calls that are joined over ranks.
    pub flows: u64,
    /// Calls of which a member that is drawn has no such record, or not in this order.
    pub lacking: u64,
    /// Why the trace is not whole, which is no reason not to draw it.
    pub remarks: Vec<Damage>,
}

/// Why nothing was drawn.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TimelineError {
    #[error("the trace cannot be trusted")]
    Damaged(Box<Damage>),
    #[error("cannot write it: {0}")]
    Unwritable(#[from] io::Error),
    #[error("{ranks} ranks, and at most {RANKS_MAX} are drawn: name some with --ranks")]
    ManyRanks { ranks: usize },
    #[error("no record is like that: nothing is written")]
    NoEvents,
    #[error("the records name more than {STREAMS_MAX} streams")]
    ManyStreams,
    #[error("`time` of a record of rank {rank} is beyond any run's clock")]
    Late { rank: u32 },
}

impl From<Damage> for TimelineError {
    fn from(damage: Damage) -> TimelineError {
        TimelineError::Damaged(Box::new(damage))
    }
}

/// Draws the op streams of `ranks`, as far as `extent` goes.
///
/// # Errors
/// A trace that cannot be trusted, or that has more than a viewer can show; a file that cannot be
/// written. What was written by then is no drawing.
pub fn draw(
    folder: &Folder,
    ranks: impl Fn(u32) -> bool,
    extent: &Extent,
    out: &mut dyn Write,
) -> Result<Drawn, TimelineError> {
    let wanted: Vec<u32> = folder
        .ops
        .keys()
        .copied()
        .filter(|rank| ranks(*rank))
        .collect();
    if wanted.len() > RANKS_MAX {
        return Err(TimelineError::ManyRanks {
            ranks: wanted.len(),
        });
    }
    let mut page = Page::begin(out, &about(folder))?;
    let mut lanes = Vec::new();
    for rank in &wanted {
        lanes.push(Lane::open(*rank, &folder.ops[rank], folder.own(*rank))?);
        page.process(*rank)?;
    }
    let mut drawing = Drawing {
        page,
        lanes,
        ranks: wanted.iter().copied().collect(),
        tracks: BTreeMap::new(),
        named: BTreeSet::new(),
        waiting: BTreeMap::new(),
        drawn: Drawn::default(),
    };
    drawing.walk(extent)?;
    let Drawing {
        page, mut drawn, ..
    } = drawing;
    drawn.ranks = wanted.len() as u64;
    page.end(&json!({
        "events": drawn.events,
        "flows": drawn.flows,
        "calls_that_lack_a_member": drawn.lacking,
    }))?;
    drawn.remarks = native::complaints(folder, |_, _| None);
    Ok(drawn)
}

/// What a file says of itself.
fn about(folder: &Folder) -> serde_json::Value {
    let mut about = json!({
        "clock": "logical order, not time: no duration or gap means anything",
        "pid": "rank",
        "tid": "stream",
        "flows": "calls that ranks make together: collectives, and messages with their two ends",
        "source": folder.path.display().to_string(),
        "bitproof": env!("CARGO_PKG_VERSION"),
    });
    if let Some(world) = folder.run.as_ref().and_then(|run| run.world_size) {
        about["world_size"] = world.into();
    }
    about
}

/// Ranks that wait for each other in one call.
struct Waiting {
    call: Call,
    arrived: BTreeMap<usize, Event>,
}

struct Drawing<'a> {
    page: Page<'a>,
    lanes: Vec<Lane>,
    ranks: BTreeSet<u32>,
    /// The number of each stream's name.
    tracks: BTreeMap<String, u32>,
    named: BTreeSet<(u32, u32)>,
    waiting: BTreeMap<String, Waiting>,
    drawn: Drawn,
}

impl Drawing<'_> {
    fn walk(&mut self, extent: &Extent) -> Result<(), TimelineError> {
        let mut free: Vec<usize> = (0..self.lanes.len()).rev().collect();
        loop {
            while let Some(lane) = free.pop() {
                if let Some(key) = self.advance(lane, extent)? {
                    free.extend(self.meet(&key)?.into_iter().rev());
                }
            }
            // Nobody goes on alone: whoever waits for a rank that does not come goes on without.
            let Some(key) = self.least() else {
                return Ok(());
            };
            free.extend(self.meet(&key)?.into_iter().rev());
        }
    }

    /// Draws a rank's events up to its next call; the call, once all are there.
    fn advance(&mut self, lane: usize, extent: &Extent) -> Result<Option<String>, TimelineError> {
        while let Some(mut event) = self.lanes[lane].next(extent)? {
            let Some(call) = event.call.take() else {
                let track = self.track(lane, &event)?;
                let place = self.lanes[lane].earliest(track, event.time);
                self.put(lane, (track, place), &event)?;
                continue;
            };
            let key = call.key.clone();
            let arrived = BTreeMap::new();
            let waiting = self.waiting.entry(key.clone());
            let waiting = waiting.or_insert(Waiting { call, arrived });
            waiting.arrived.insert(lane, event);
            let is_complete = self.lacking(&self.waiting[&key]) == Some(0);
            return Ok(is_complete.then_some(key));
        }
        Ok(None)
    }

    /// How many members that are drawn a call still lacks, as far as records say who they are.
    fn lacking(&self, waiting: &Waiting) -> Option<u64> {
        let arrived = waiting.arrived.len() as u64;
        let members = match &waiting.call.members {
            Members::Ranks(ranks) => {
                let ranks: BTreeSet<&u32> = ranks.iter().collect();
                let drawn = ranks.into_iter().filter(|rank| self.ranks.contains(rank));
                drawn.count() as u64
            }
            // Which of them are drawn is not known, unless all are.
            Members::Count(count) if *count <= arrived => arrived,
            Members::Count(_) | Members::Untold => return None,
        };
        Some(members.saturating_sub(arrived))
    }

    /// The call to go on with where none is complete: the earliest, then the one that lacks least.
    fn least(&self) -> Option<String> {
        let rank = |(key, waiting): &(&String, &Waiting)| {
            let times = waiting.arrived.values().map(|event| event.time);
            let time = times.min().flatten().unwrap_or(u64::MAX);
            let lacking = self.lacking(waiting).unwrap_or(0);
            let few = usize::MAX - waiting.arrived.len();
            (time, lacking, few, (*key).clone())
        };
        let least = self.waiting.iter().min_by_key(rank);
        least.map(|(key, _)| key.clone())
    }

    /// Draws a call at one place on all ranks that are there, which then go on.
    fn meet(&mut self, key: &str) -> Result<Vec<usize>, TimelineError> {
        let waiting = self.waiting.remove(key).expect("it waits");
        self.drawn.lacking += u64::from(self.lacking(&waiting).is_some_and(|count| count > 0));
        let mut tracks = Vec::new();
        let mut place = 0;
        for (lane, event) in &waiting.arrived {
            let track = self.track(*lane, event)?;
            place = place.max(self.lanes[*lane].earliest(track, event.time));
            tracks.push(track);
        }
        let mut spots = Vec::new();
        for ((lane, event), track) in waiting.arrived.iter().zip(tracks) {
            spots.push(self.put(*lane, (track, place), event)?);
        }
        if spots.len() > 1 {
            self.drawn.flows += 1;
            let id = self.drawn.flows;
            self.page.flow(id, &waiting.call.name, &spots)?;
        }
        Ok(waiting.arrived.into_keys().collect())
    }

    /// The number of an event's stream, which is named the first time.
    fn track(&mut self, lane: usize, event: &Event) -> Result<u32, TimelineError> {
        let next = self.tracks.len() as u32 + 1;
        let track = match self.tracks.get(&event.stream) {
            Some(track) => *track,
            None if self.tracks.len() >= STREAMS_MAX => return Err(TimelineError::ManyStreams),
            None => *self.tracks.entry(event.stream.clone()).or_insert(next),
        };
        let rank = self.lanes[lane].rank;
        if self.named.insert((rank, track)) {
            self.page.thread(rank, track, &event.stream)?;
        }
        Ok(track)
    }

    fn put(
        &mut self,
        lane: usize,
        (track, place): (u32, u64),
        event: &Event,
    ) -> Result<Spot, TimelineError> {
        let lane = &mut self.lanes[lane];
        lane.put(track, place)?;
        let rank = lane.rank;
        let spot = Spot { rank, track, place };
        self.page.event(spot, event)?;
        self.drawn.events += 1;
        Ok(spot)
    }
}
