//! Ranks that do the same share one tracker.
//!
//! Ranks of one role (one pipeline stage, say) issue and run the same commands on the same words,
//! on streams that only differ in whom they lead to. A tracker follows what it is told and nothing
//! else, so that ranks whose events are equal, streams numbered as they appear, need it once. What
//! a rank does is written down first, and judged when ranks stand still.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::world::command::{Command, Issued};
use crate::world::rank::{COMPUTE_STREAM, HOST, StreamId, Tensor};
use crate::world::site::Site;

use super::AccessTracker;
use super::accesses::{Act, Beginning, Conflict, Event};

/// Groups of one role that a rank's events are compared with before the rank gets its own.
const COMPARED_MAX: usize = 64;

/// What one rank has done since it was last judged.
#[derive(Debug, Default)]
pub(crate) struct AccessLog {
    /// Whose tracker the rank has shared so far.
    role: usize,
    events: Vec<Event>,
    /// How many events there were at some moments: a conflict is told of at the first moment
    /// after it.
    moments: Vec<(usize, u64)>,
    /// The rank's streams but the compute stream and the host's, by their numbers in events.
    streams: Vec<StreamId>,
    numbers: BTreeMap<StreamId, StreamId>,
    has_queried: bool,
}

impl AccessLog {
    /// The host has issued a command; it has not run yet.
    pub fn issued(&mut self, stream: StreamId, issued: &Issued) {
        let ordinal = issued.ordinal;
        match &issued.command {
            Command::Alloc { tensor, name, .. } => self.events.push(Event::Allocates {
                ordinal,
                tensor: *tensor,
                name: name.clone(),
            }),
            Command::Record { ticket } => {
                let stream = self.numbered(stream);
                let edge = ticket.edge.clone();
                self.events.push(Event::Records {
                    ordinal,
                    stream,
                    edge,
                });
            }
            Command::Query { .. } => self.has_queried = true,
            _ => {}
        }
        // Nothing runs while the host issues: one event says how far it has got.
        if let Some(Event::IssuedTo(next)) = self.events.last_mut() {
            *next = ordinal + 1;
        } else {
            self.events.push(Event::IssuedTo(ordinal + 1));
        }
    }

    /// Whether the rank's host has asked a question, so that it goes on being followed.
    pub fn has_queried(&self) -> bool {
        self.has_queried
    }

    /// A command begins to run on `stream`: `read` and `write` speak of it from now on.
    pub fn begin(&mut self, stream: StreamId, issued: &Issued) {
        let mut act = Act::of(issued);
        if let Act::Free(_, users) = &mut act
            && users.iter().any(|user| !is_own(*user))
        {
            *users = users.iter().map(|user| self.numbered(*user)).collect();
        }
        let beginning = Beginning {
            site: issued.site.clone(),
            stream: self.numbered(stream),
            ordinal: issued.ordinal,
            act,
        };
        self.events.push(Event::Begins(beginning));
    }

    pub fn read(&mut self, tensor: Tensor) {
        self.events.push(Event::Reads(tensor));
    }

    pub fn write(&mut self, tensor: Tensor) {
        self.events.push(Event::Writes(tensor));
    }

    /// The collective or message that ran on `stream` is over.
    pub fn finish(&mut self, stream: StreamId, ticket: u32) {
        let stream = self.numbered(stream);
        self.events.push(Event::Finishes(stream, ticket));
    }

    /// The host reads `tensor` behind all of `stream`, when a step ends.
    pub fn read_at_end(&mut self, site: Arc<Site>, stream: StreamId, tensor: Tensor) {
        let stream = self.numbered(stream);
        self.events.push(Event::ReadsAtEnd(site, stream, tensor));
    }

    /// A step has ended, and nothing is queued.
    pub fn end_step(&mut self) {
        self.events.push(Event::StepEnds);
    }

    /// Everything is over.
    pub fn synchronise(&mut self) {
        self.events.push(Event::Synchronises);
    }

    /// The run is over, or is no longer followed: what has nobody waited for? Those of `step` may
    /// still be waited for in the next one.
    pub fn judge_joins(&mut self, step: Option<u32>) {
        self.events.push(Event::JudgesJoins(step));
    }

    /// What has been found so far is told of as of `moment`, later than all before.
    pub fn mark(&mut self, moment: u64) {
        let marked = self.moments.last().map_or(0, |(events, _)| *events);
        if marked < self.events.len() {
            self.moments.push((self.events.len(), moment));
        }
    }

    /// What the stream is called in events.
    fn numbered(&mut self, stream: StreamId) -> StreamId {
        if is_own(stream) {
            return stream;
        }
        let streams = &mut self.streams;
        *self.numbers.entry(stream).or_insert_with(|| {
            streams.push(stream);
            StreamId(NUMBERED | (streams.len() - 1) as u32)
        })
    }

    fn stream(&self, numbered: StreamId) -> StreamId {
        match is_own(numbered) {
            true => numbered,
            false => self.streams[(numbered.0 & !NUMBERED) as usize],
        }
    }

    /// The conflict as this rank has met it, and when.
    fn told(&self, conflict: &Conflict, event: usize) -> (u64, Conflict) {
        let mut conflict = conflict.clone();
        conflict.first.stream = self.stream(conflict.first.stream);
        conflict.second.stream = self.stream(conflict.second.stream);
        let moment = self.moments.iter().find(|(events, _)| event < *events);
        let (_, moment) = moment.expect("logs are marked before they are judged");
        (*moment, conflict)
    }
}

/// Whether every rank has a stream of that number.
fn is_own(stream: StreamId) -> bool {
    stream == HOST || stream == COMPUTE_STREAM
}

/// Streams in events.
const NUMBERED: u32 = 0x1000_0000;

/// Ranks whose events since they were last judged are equal.
struct Group {
    role: usize,
    events: Vec<Event>,
    /// Places in the list of logs.
    members: Vec<usize>,
}

/// The trackers, and how many logs share each.
#[derive(Debug)]
pub(crate) struct Roles {
    trackers: Vec<AccessTracker>,
    holders: Vec<usize>,
    compared_max: usize,
}

impl Roles {
    /// `ranks` logs that have done nothing.
    pub fn new(ranks: u32) -> Roles {
        Roles {
            trackers: vec![AccessTracker::default()],
            holders: vec![ranks as usize],
            compared_max: COMPARED_MAX,
        }
    }

    #[cfg(test)]
    pub fn mutated(mut self, mutation: Option<super::Mutation>) -> Roles {
        self.trackers[0].mutate(super::Mutant::of(mutation));
        self
    }

    /// Whether `log`'s host knows that `ticket` is over, so that it cannot be told otherwise.
    /// What the log holds must have been judged.
    pub fn host_has(&self, log: &AccessLog, ticket: u32) -> bool {
        assert!(log.events.is_empty(), "a tracker knows what it was told");
        self.trackers[log.role].host_has(ticket)
    }

    /// Tells the trackers what the logs hold. What was found, by the moment it is told of, and the
    /// place of its log in `logs`.
    pub fn judge(&mut self, logs: &mut [&mut AccessLog]) -> Vec<(u64, usize, Conflict)> {
        let mut found = Vec::new();
        for group in groups(logs, self.compared_max) {
            let role = self.role_of(&group);
            let tracker = &mut self.trackers[role];
            let mut events_of = Vec::new();
            for (number, event) in group.events.iter().enumerate() {
                tracker.tell(event);
                events_of.resize(tracker.found(), number);
            }
            let conflicts = tracker.take_found();
            for member in group.members {
                let log = &mut *logs[member];
                log.role = role;
                for (conflict, event) in conflicts.iter().zip(&events_of) {
                    let (moment, conflict) = log.told(conflict, *event);
                    found.push((moment, member, conflict));
                }
                log.moments.clear();
            }
        }
        found.sort_by_key(|(moment, ..)| *moment);
        found
    }

    /// The role that is the group's alone from now on.
    fn role_of(&mut self, group: &Group) -> usize {
        if self.holders[group.role] == group.members.len() {
            return group.role;
        }
        self.holders[group.role] -= group.members.len();
        self.holders.push(group.members.len());
        self.trackers.push(self.trackers[group.role].clone());
        self.trackers.len() - 1
    }

    /// A log that is no longer kept.
    pub fn release(&mut self, log: &AccessLog) {
        self.holders[log.role] -= 1;
        if self.holders[log.role] == 0 {
            self.trackers[log.role] = AccessTracker::default();
        }
    }
}

/// Takes the logs' events, each list of equal ones once.
fn groups(logs: &mut [&mut AccessLog], compared_max: usize) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut of_role: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for (member, log) in logs.iter_mut().enumerate() {
        let events = std::mem::take(&mut log.events);
        let alike = of_role.entry(log.role).or_default();
        let compared = alike.iter().take(compared_max);
        let equal = compared
            .copied()
            .find(|group| groups[*group].events == events);
        if let Some(group) = equal {
            groups[group].members.push(member);
            continue;
        }
        alike.push(groups.len());
        groups.push(Group {
            role: log.role,
            events,
            members: vec![member],
        });
    }
    groups
}

#[cfg(test)]
mod tests;
