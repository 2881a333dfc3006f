//! What the coordinator knows of one rank.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use crate::engine::{Engine, EngineError};
use crate::numerics::Digest;
use crate::world::command::{Command, Issued};
use crate::world::memory::{AccessLog, LiveInTracker, Mutant, Mutation, RankMemory};
use crate::world::rank::{Component, Park, StreamId, Tensor};
use crate::world::site::Phase;

use super::heads::Heads;
use super::reversal::Hold;

/// Digests of tensors that will be computed again, by microbatch and name.
pub(super) type Remembered = BTreeMap<(Option<u32>, Arc<str>), Digest>;

/// What the coordinator knows of one rank.
pub(super) struct RankState {
    pub memory: RankMemory,
    pub streams: BTreeMap<StreamId, VecDeque<Issued>>,
    /// Tickets from `tickets_before` on that are complete; earlier ones all are.
    pub tickets: Vec<bool>,
    pub tickets_before: u32,
    pub park: Option<Park>,
    pub read_words: Option<Vec<u32>>,
    pub finished: bool,
    pub root: Digest,
    pub step: u32,
    /// Folds of this step so far.
    pub fold_ordinal: u32,
    pub persisted: BTreeMap<(Component, String), Tensor>,
    pub metrics: BTreeMap<String, Tensor>,
    /// One for each cut that is past.
    pub live_in: Vec<(u32, LiveInTracker)>,
    /// The command that has begun last is one of a checkpoint.
    is_saving: bool,
    /// `None` once hazards are no longer looked for.
    pub accesses: Option<AccessLog>,
    pub hold: Hold,
    mutant: Mutant,
    pub steps_ended: u32,
    /// Digests of tensors that will be computed again, by microbatch and name.
    pub remembered: Remembered,
}

impl RankState {
    /// A rank whose memory is in the engine's memory `shard`.
    pub fn new(
        engine: &mut dyn Engine,
        shard: u32,
        follows_hazards: bool,
        hold: Hold,
    ) -> Result<Self, EngineError> {
        Ok(RankState {
            memory: RankMemory::new(engine, shard)?,
            streams: BTreeMap::new(),
            tickets: Vec::new(),
            tickets_before: 0,
            park: None,
            read_words: None,
            finished: false,
            root: Digest::default(),
            step: 0,
            fold_ordinal: 0,
            persisted: BTreeMap::new(),
            metrics: BTreeMap::new(),
            live_in: Vec::new(),
            is_saving: false,
            accesses: follows_hazards.then(AccessLog::default),
            hold,
            mutant: Mutant::default(),
            steps_ended: 0,
            remembered: BTreeMap::new(),
        })
    }

    #[cfg(test)]
    pub fn mutated(mut self, mutation: Option<Mutation>) -> Self {
        self.mutant = Mutant::of(mutation);
        self
    }

    /// What is read and written for a checkpoint is no part of a live-in set: no step depends on
    /// it.
    pub fn on_read(&mut self, tensor: Tensor) {
        let followed = !self.is_saving;
        for (_, tracker) in self.live_in.iter_mut().filter(|_| followed) {
            tracker.on_read(tensor);
        }
        if let Some(accesses) = &mut self.accesses {
            accesses.read(tensor);
        }
    }

    pub fn on_write(&mut self, tensor: Tensor) {
        let followed = !self.is_saving;
        for (_, tracker) in self.live_in.iter_mut().filter(|_| followed) {
            tracker.on_write(tensor);
        }
        if let Some(accesses) = &mut self.accesses {
            accesses.write(tensor);
        }
    }

    pub fn complete(&mut self, ticket: u32) {
        let ticket = (ticket - self.tickets_before) as usize;
        if self.tickets.len() <= ticket {
            self.tickets.resize(ticket + 1, false);
        }
        self.tickets[ticket] = true;
    }

    pub fn is_complete(&self, ticket: u32) -> bool {
        match ticket.checked_sub(self.tickets_before) {
            Some(open) => self.tickets.get(open as usize) == Some(&true),
            None => true,
        }
    }

    /// Nothing is queued, so every ticket is complete.
    pub fn forget_tickets(&mut self) {
        self.tickets_before += self.tickets.len() as u32;
        self.tickets.clear();
    }

    /// Whether accesses are followed, for hazards or for a live-in set.
    pub fn follows_accesses(&self) -> bool {
        self.accesses.is_some() || !self.live_in.is_empty()
    }

    /// Takes the head of `stream`, which begins; the next one comes into sight.
    pub fn take_head(&mut self, rank: u32, stream: StreamId, heads: &mut Heads) -> Option<Issued> {
        let queue = self.streams.get_mut(&stream)?;
        let issued = queue.pop_front()?;
        self.hold.begins(issued.ordinal);
        let next = queue.front();
        if let Some(next) = next.filter(|next| !self.hold.holds(next.ordinal)) {
            heads.appeared(rank, stream, &next.command);
        }
        self.is_saving = issued.site.phase == Phase::Checkpoint;
        if let Some(accesses) = &mut self.accesses {
            accesses.begin(stream, &issued);
        }
        Some(issued)
    }

    pub fn head(&self, stream: StreamId) -> Option<&Issued> {
        self.streams.get(&stream).and_then(VecDeque::front)
    }

    /// Whether the head of `stream` costs nothing and need not wait.
    pub fn has_free_head(&self, stream: StreamId) -> bool {
        let head = self.head(stream);
        let head = head.filter(|head| !self.hold.holds(head.ordinal));
        match head.map(|issued| &issued.command) {
            Some(Command::Record { .. } | Command::Alloc { .. } | Command::Free { .. }) => true,
            Some(Command::Wait { ticket }) => {
                self.is_complete(ticket.number) || self.mutant.is(Mutation::StreamsRunThrough)
            }
            _ => false,
        }
    }

    /// The stream after `stream`, or the first.
    pub fn stream_after(&self, stream: Option<StreamId>) -> Option<StreamId> {
        let from = stream.map_or(Bound::Unbounded, Bound::Excluded);
        let mut later = self.streams.range((from, Bound::Unbounded));
        later.next().map(|(stream, _)| *stream)
    }

    /// The collective or message on `stream` is over.
    pub fn finish_on(&mut self, stream: StreamId, ticket: u32) {
        if let Some(accesses) = &mut self.accesses {
            accesses.finish(stream, ticket);
        }
        self.complete(ticket);
    }

    pub fn idle(&self) -> bool {
        self.streams.values().all(VecDeque::is_empty)
    }
}
