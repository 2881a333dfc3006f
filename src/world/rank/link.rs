//! The line between a rank's thread and the coordinator.

use crossbeam_channel::{Receiver, Sender};

use crate::fault::FaultKind;
use crate::world::command::Issued;
use crate::world::site::Name;

use super::{Allocation, Declaration, RankError, StreamId};

/// What a rank has done since it last parked, and why it parks now.
pub(crate) struct Parked {
    pub rank: u32,
    pub issued: Vec<(StreamId, Issued)>,
    pub extent_words: u32,
    pub peak_bytes: u64,
    pub declared: Vec<Declaration>,
    pub notes: Vec<String>,
    /// The places at which the program asked whether a fault strikes, each with its step.
    pub asked: Vec<(FaultKind, u32, Name)>,
    pub park: Park,
}

pub(crate) enum Park {
    /// Until the last read that was issued has run.
    Read,
    /// Until what the host does itself has been done.
    Host,
    /// Until every stream is empty.
    Setup {
        live: Vec<Allocation>,
    },
    Step {
        step: u32,
        live: Vec<Allocation>,
    },
    Finished(Result<(), RankError>),
}

pub(crate) enum Reply {
    Go,
    Words(Vec<u32>),
    Stop,
}

pub(crate) struct Link {
    pub to_coordinator: Sender<Parked>,
    pub from_coordinator: Receiver<Reply>,
}

impl Link {
    /// `None` when the coordinator is gone.
    pub fn exchange(&self, parked: Parked) -> Option<Reply> {
        self.to_coordinator.send(parked).ok()?;
        self.from_coordinator.recv().ok()
    }

    pub fn send(&self, parked: Parked) {
        // A coordinator that is gone has already reported why.
        let _ = self.to_coordinator.send(parked);
    }
}
