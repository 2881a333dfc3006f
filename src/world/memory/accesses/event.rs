//! What a rank's tracker is told, as data.

use std::sync::Arc;

use crate::world::command::{Command, Issued, Ticket};
use crate::world::rank::{StreamId, Tensor};
use crate::world::site::{Name, Site};

use super::AccessTracker;

/// One thing that a tracker is told. Trackers that were told the same are the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// The host has issued an allocation.
    Allocates {
        ordinal: u32,
        tensor: Tensor,
        name: Arc<str>,
    },
    /// The host has issued a record.
    Records {
        ordinal: u32,
        stream: StreamId,
        edge: Name,
    },
    /// The host has issued what comes before that ordinal.
    IssuedTo(u32),
    /// A command begins to run: reads and writes speak of it from now on.
    Begins(Beginning),
    Reads(Tensor),
    Writes(Tensor),
    /// The collective or message that ran on the stream is over.
    Finishes(StreamId, u32),
    /// The host reads behind all of the stream, when a step ends.
    ReadsAtEnd(Arc<Site>, StreamId, Tensor),
    StepEnds,
    /// Everything is over.
    Synchronises,
    /// The run is over, or is no longer followed after that step.
    JudgesJoins(Option<u32>),
}

/// A command that begins to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Beginning {
    pub site: Arc<Site>,
    pub stream: StreamId,
    pub ordinal: u32,
    pub act: Act,
}

/// What of a command orders others, or is an access by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Alloc(Tensor),
    Free(Tensor, Arc<[StreamId]>),
    Copy,
    Record(Ticket),
    Wait(u32),
    /// A question; its answer orders nothing.
    Query(u32),
    /// The host reads behind the stream.
    Read,
    Send(Ticket),
    /// A collective or message that writes the tensor.
    Receive(Ticket, Tensor),
    Other,
}

impl Act {
    pub fn of(issued: &Issued) -> Act {
        match &issued.command {
            Command::Alloc { tensor, .. } => Act::Alloc(*tensor),
            Command::Free { tensor, users } => Act::Free(*tensor, users.clone()),
            Command::Copy { .. } => Act::Copy,
            Command::Record { ticket } => Act::Record(ticket.clone()),
            Command::Wait { ticket } => Act::Wait(ticket.number),
            Command::Query { ticket, .. } => Act::Query(ticket.number),
            Command::Read { .. } => Act::Read,
            Command::Send { ticket, .. } => Act::Send(ticket.clone()),
            Command::Recv { ticket, tensor, .. } => Act::Receive(ticket.clone(), *tensor),
            Command::Collective(call) => Act::Receive(call.ticket.clone(), call.output),
            Command::Launch { .. }
            | Command::Fold(_)
            | Command::Upload { .. }
            | Command::Clock { .. }
            | Command::HostRead { .. }
            | Command::HostWrite { .. }
            | Command::Recall { .. } => Act::Other,
        }
    }

    /// The ticket that the command completes.
    pub fn completes(&self) -> Option<&Ticket> {
        match self {
            Act::Record(ticket) | Act::Send(ticket) | Act::Receive(ticket, _) => Some(ticket),
            _ => None,
        }
    }
}

impl AccessTracker {
    pub fn tell(&mut self, event: &Event) {
        match event {
            Event::Allocates {
                ordinal,
                tensor,
                name,
            } => self.allocates(*ordinal, *tensor, name),
            Event::Records {
                ordinal,
                stream,
                edge,
            } => self.records.push((*stream, *ordinal, edge.clone())),
            Event::IssuedTo(ordinal) => self.next_ordinal = *ordinal,
            Event::Begins(beginning) => self.begin(beginning),
            Event::Reads(tensor) => self.read(*tensor),
            Event::Writes(tensor) => self.write(*tensor),
            Event::Finishes(stream, ticket) => self.clocks.record(*stream, *ticket),
            Event::ReadsAtEnd(site, stream, tensor) => self.read_at_end(site, *stream, *tensor),
            Event::StepEnds => self.end_step(),
            Event::Synchronises => self.synchronise(),
            Event::JudgesJoins(step) => self.judge_joins(*step),
        }
    }
}
