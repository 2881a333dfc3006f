//! The command format: what a rank's program appends to its streams.

use std::sync::Arc;

use crate::plan::{Combine, Init};
use crate::world::order::QueryId;
use crate::world::rank::{GroupId, LocalOrder, Segments, StreamId, Tensor};
use crate::world::site::{Family, Name, Site};

/// One entry of a stream.
#[derive(Clone, Debug)]
pub struct Issued {
    pub site: Arc<Site>,
    pub stream: StreamId,
    /// Its place in the order in which the rank's host issued commands.
    pub ordinal: u32,
    pub command: Command,
}

#[derive(Clone, Debug)]
pub enum Command {
    Launch {
        kernel: Arc<str>,
        invocations: [u32; 3],
        operands: Vec<Tensor>,
        params: Vec<u32>,
    },
    Fold(LocalFold),
    Copy {
        from: Tensor,
        to: Tensor,
    },
    Upload {
        to: Tensor,
        words: Arc<[u32]>,
    },
    /// The stream has reached an allocation: `tensor` is its whole block. Every word becomes
    /// `poison`, if there is one; with or without, nothing has been written yet.
    Alloc {
        tensor: Tensor,
        name: Arc<str>,
        poison: Option<u32>,
    },
    /// The stream has reached the end of an allocation: `tensor` is its whole block. `users` may
    /// go on with it: whoever gets the block next waits for them.
    Free {
        tensor: Tensor,
        users: Arc<[StreamId]>,
    },
    Collective(Collective),
    Send {
        to: u32,
        tensor: Tensor,
        ticket: Ticket,
    },
    Recv {
        from: u32,
        tensor: Tensor,
        ticket: Ticket,
    },
    /// The stream has reached this point: completes the ticket.
    Record {
        ticket: Ticket,
    },
    /// The stream goes on once the ticket is complete. On the host's stream, the host does.
    Wait {
        ticket: Ticket,
    },
    /// The host asks whether the ticket is complete, and goes on with either answer.
    Query {
        ticket: Ticket,
        id: QueryId,
    },
    /// The host asks its own clock whether time is left. `open`: both answers are to be tried.
    Clock {
        name: Name,
        id: QueryId,
        open: bool,
    },
    /// The host reads its own memory, whatever streams may be doing to it.
    HostRead {
        from: Tensor,
    },
    /// The host writes its own memory, whatever streams may be doing to it.
    HostWrite {
        to: Tensor,
        words: Arc<[u32]>,
    },
    Read {
        from: Tensor,
    },
    /// Keeps digests of tensors under the microbatch and their names, or compares with those kept.
    Recall {
        tensors: Vec<(Arc<str>, Tensor)>,
        recall: Recall,
    },
}

/// A point that a stream reaches, and that others wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The how-manieth of its rank.
    pub number: u32,
    /// The name of the edge to whoever waits: a scenario can leave it out.
    pub edge: Name,
}

/// What is done with the digests of tensors that are computed twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recall {
    /// The first time: they are kept.
    Remember,
    /// The second time: they must be those that were kept, and are forgotten.
    Expect,
}

/// A fold whose addends all lie in one rank's memory.
#[derive(Clone, Debug)]
pub enum LocalFold {
    Slots {
        family: Family,
        addends: Tensor,
        slots: u32,
        out: Tensor,
        init: Init,
        order: LocalOrder,
    },
    Segments {
        family: Family,
        addends: Tensor,
        width: u32,
        segments: Segments,
        out: Tensor,
        order: LocalOrder,
    },
}

impl Command {
    /// The ticket that the command completes.
    pub(crate) fn completes(&self) -> Option<&Ticket> {
        match self {
            Command::Record { ticket }
            | Command::Send { ticket, .. }
            | Command::Recv { ticket, .. } => Some(ticket),
            Command::Collective(call) => Some(&call.ticket),
            _ => None,
        }
    }
}

/// One rank's call of a collective.
#[derive(Clone, Debug)]
pub struct Collective {
    pub group: GroupId,
    pub kind: CollectiveKind,
    pub input: Tensor,
    pub output: Tensor,
    pub ticket: Ticket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CollectiveKind {
    AllReduce { combine: Combine, family: Family },
    ReduceScatter { family: Family },
    AllGather,
    AllToAll,
    Broadcast { root_place: u32 },
}

impl CollectiveKind {
    /// Whether the member at `place` gives its input away.
    pub const fn sends(self, place: u32) -> bool {
        match self {
            CollectiveKind::Broadcast { root_place } => place == root_place,
            _ => true,
        }
    }

    /// Whether the output of the member at `place` is written.
    pub const fn receives(self, place: u32) -> bool {
        match self {
            CollectiveKind::Broadcast { root_place } => place != root_place,
            _ => true,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            CollectiveKind::AllReduce { .. } => "all_reduce",
            CollectiveKind::ReduceScatter { .. } => "reduce_scatter",
            CollectiveKind::AllGather => "all_gather",
            CollectiveKind::AllToAll => "all_to_all",
            CollectiveKind::Broadcast { .. } => "broadcast",
        }
    }
}

impl Collective {
    /// What every member must agree on, in words.
    pub fn signature(&self) -> String {
        let combine = match self.kind {
            CollectiveKind::AllReduce { combine, .. } => format!("{combine:?} ").to_lowercase(),
            CollectiveKind::ReduceScatter { .. } => "sum ".to_string(),
            CollectiveKind::Broadcast { root_place } => format!("from place {root_place} "),
            _ => String::new(),
        };
        format!(
            "{} {combine}of {} {} into {}",
            self.kind.name(),
            self.input.len,
            self.input.dtype,
            self.output.len
        )
    }
}
