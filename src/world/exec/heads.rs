//! What changed since the last wave, so that a wave costs what it does and not the size of the
//! world: ranks with a new head or a completed ticket, calls and sends that wait at a head.

use std::collections::{BTreeMap, BTreeSet};

use crate::world::command::Command;
use crate::world::rank::{Communicator, GroupId, StreamId};

use super::shuffle::Shuffle;

/// Stream heads, told as they appear. A rank that did not stir has nothing to run: its heads are
/// blocked or wait for others, as they did when it was last looked at.
pub(super) struct Heads {
    group_sizes: Vec<usize>,
    /// Members whose call is at the head of its stream.
    calls: BTreeMap<(GroupId, StreamId), usize>,
    complete: BTreeSet<(GroupId, StreamId)>,
    sends: BTreeSet<(u32, StreamId)>,
    stirred: Vec<u32>,
    is_stirred: Vec<bool>,
}

impl Heads {
    pub fn new(ranks: u32, communicators: &[Communicator]) -> Self {
        Heads {
            group_sizes: communicators.iter().map(|c| c.ranks.len()).collect(),
            calls: BTreeMap::new(),
            complete: BTreeSet::new(),
            sends: BTreeSet::new(),
            stirred: Vec::new(),
            is_stirred: vec![false; ranks as usize],
        }
    }

    /// `rank` has a new head or a completed ticket.
    pub fn stir(&mut self, rank: u32) {
        if !std::mem::replace(&mut self.is_stirred[rank as usize], true) {
            self.stirred.push(rank);
        }
    }

    /// The ranks that stirred, ascending; from now on others are counted.
    pub fn take_stirred(&mut self) -> Vec<u32> {
        let mut stirred = std::mem::take(&mut self.stirred);
        stirred.sort_unstable();
        for rank in &stirred {
            self.is_stirred[*rank as usize] = false;
        }
        stirred
    }

    /// The ranks that have stirred since `take_stirred`.
    pub fn stirred(&self) -> &[u32] {
        &self.stirred
    }

    /// `command` has come to the head of `stream`.
    pub fn appeared(&mut self, rank: u32, stream: StreamId, command: &Command) {
        match command {
            Command::Collective(call) => {
                let key = (call.group, stream);
                let count = self.calls.entry(key).or_default();
                *count += 1;
                if *count == self.group_sizes[call.group.0 as usize] {
                    self.complete.insert(key);
                }
            }
            Command::Send { .. } => {
                self.sends.insert((rank, stream));
            }
            _ => {}
        }
    }

    /// `command`, at the head of `stream`, is held back from now on.
    pub fn withdrawn(&mut self, rank: u32, stream: StreamId, command: &Command) {
        match command {
            Command::Collective(call) => {
                let key = (call.group, stream);
                if let Some(count) = self.calls.get_mut(&key) {
                    *count -= 1;
                }
                self.complete.remove(&key);
            }
            Command::Send { .. } => {
                self.sends.remove(&(rank, stream));
            }
            _ => {}
        }
    }

    /// Communicators whose members all have a call at the head of its stream, each told once, as
    /// far as none is late.
    pub fn take_complete(&mut self, shuffle: &mut Shuffle) -> BTreeSet<(GroupId, StreamId)> {
        let complete = std::mem::take(&mut self.complete);
        let (late, complete): (BTreeSet<_>, BTreeSet<_>) =
            complete.into_iter().partition(|_| shuffle.delays());
        self.complete = late;
        for key in &complete {
            self.calls.remove(key);
        }
        complete
    }

    /// Sends at the head of their stream.
    pub fn sends(&self) -> impl Iterator<Item = (u32, StreamId)> {
        self.sends.iter().copied()
    }

    /// The send at the head of `stream` is taken.
    pub fn sent(&mut self, rank: u32, stream: StreamId) {
        self.sends.remove(&(rank, stream));
    }
}
