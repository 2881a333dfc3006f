//! What the coordinator knows of one rank.

use std::collections::{BTreeMap, VecDeque};

use crate::engine::{Engine, EngineError};
use crate::numerics::Digest;
use crate::world::command::{Command, Issued};
use crate::world::memory::{AccessTracker, LiveInTracker, RankMemory};
use crate::world::rank::{Component, Park, StreamId, Tensor};

/// What the coordinator knows of one rank.
pub(super) struct RankState {
    pub memory: RankMemory,
    pub streams: BTreeMap<StreamId, VecDeque<Issued>>,
    /// Completed tickets of this step.
    pub tickets: Vec<bool>,
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
    /// `None` once hazards are no longer looked for.
    pub accesses: Option<AccessTracker>,
    pub steps_ended: u32,
}

impl RankState {
    pub fn new(engine: &mut dyn Engine, follows_hazards: bool) -> Result<Self, EngineError> {
        Ok(RankState {
            memory: RankMemory::new(engine)?,
            streams: BTreeMap::new(),
            tickets: Vec::new(),
            park: None,
            read_words: None,
            finished: false,
            root: Digest::default(),
            step: 0,
            fold_ordinal: 0,
            persisted: BTreeMap::new(),
            metrics: BTreeMap::new(),
            live_in: Vec::new(),
            accesses: follows_hazards.then(AccessTracker::default),
            steps_ended: 0,
        })
    }

    pub fn on_read(&mut self, tensor: Tensor) {
        for (_, tracker) in &mut self.live_in {
            tracker.on_read(tensor);
        }
        if let Some(accesses) = &mut self.accesses {
            accesses.read(tensor);
        }
    }

    pub fn on_write(&mut self, tensor: Tensor) {
        for (_, tracker) in &mut self.live_in {
            tracker.on_write(tensor);
        }
        if let Some(accesses) = &mut self.accesses {
            accesses.write(tensor);
        }
    }

    pub fn complete(&mut self, ticket: u32) {
        let ticket = ticket as usize;
        if self.tickets.len() <= ticket {
            self.tickets.resize(ticket + 1, false);
        }
        self.tickets[ticket] = true;
    }

    /// Whether accesses are followed, for hazards or for a live-in set.
    pub fn follows_accesses(&self) -> bool {
        self.accesses.is_some() || !self.live_in.is_empty()
    }

    /// Takes the head of `stream` if it costs nothing and need not wait.
    pub fn take_free_head(&mut self, stream: StreamId) -> Option<Issued> {
        let queue = self.streams.get_mut(&stream)?;
        let free = match queue.front()?.command {
            Command::Record { .. } | Command::Alloc { .. } | Command::Free { .. } => true,
            Command::Wait { ticket } => self.tickets.get(ticket as usize) == Some(&true),
            _ => false,
        };
        if free { queue.pop_front() } else { None }
    }

    /// The command is taken from the head of `stream`.
    pub fn begin(&mut self, stream: StreamId, issued: &Issued) {
        if let Some(accesses) = &mut self.accesses {
            accesses.begin(stream, issued);
        }
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
