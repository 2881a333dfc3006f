//! What a rank's program holds and says: tensors, communicators, handles, streams, folds.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::numerics::Dtype;
use crate::plan::Init;
use crate::world::site::Family;

use super::{Component, LocalOrder};

/// A run of words in the rank's own memory, tagged with the type of its values. A plain handle:
/// copying it copies no data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tensor {
    /// The allocation it lies in.
    pub buffer: u32,
    /// First word, counted from the start of the rank's memory.
    pub start: u32,
    /// Elements, one word each.
    pub len: u32,
    pub dtype: Dtype,
}

impl Tensor {
    /// Elements `start..start + len` of this tensor.
    pub fn slice(self, start: u32, len: u32) -> Tensor {
        assert!(
            start + len <= self.len,
            "slice {start}+{len} of a tensor of {}",
            self.len
        );
        Tensor {
            start: self.start + start,
            len,
            ..self
        }
    }
}

/// A communicator, by its place in the list that the world was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupId(pub u32);

/// Asynchronous work that was issued. [`Rank::wait`](super::Rank::wait) makes the current stream
/// wait for it, in this step or in a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a collective that nobody waits for is a hazard"]
pub struct Handle {
    /// The ticket's number; [`NO_TICKET`] after a misuse.
    pub(crate) ticket: u32,
    /// Which of the rank's edges.
    pub(crate) edge: u32,
}

pub(super) const NO_TICKET: u32 = u32::MAX;

/// What a misuse gives.
pub(super) const NO_HANDLE: Handle = Handle {
    ticket: NO_TICKET,
    edge: 0,
};

/// A sequence of messages between two ranks: one lane's are matched in order, and independently of
/// another's. At most 256.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lane(pub u8);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

impl StreamId {
    /// The stream's name in reports; `group` names communicators.
    pub(crate) fn describe(self, group: impl Fn(GroupId) -> String) -> String {
        let peer = self.0 & PEER;
        match self.0 & STREAM_KIND {
            COMMUNICATOR_STREAMS => {
                format!("the stream of {}", group(GroupId(self.0 & !STREAM_KIND)))
            }
            SEND_STREAMS => format!("the stream of sends to rank {peer}"),
            RECV_STREAMS => format!("the stream of receives from rank {peer}"),
            _ if self == COMPUTE_STREAM => "the compute stream".to_string(),
            _ if self == CHECKPOINT_COPY_STREAM => "the stream of checkpoint copies".to_string(),
            _ if self == CHECKPOINT_WRITER_STREAM => "the checkpoint writer".to_string(),
            _ if self == OFFLOAD_STREAM => "the offload stream".to_string(),
            _ if self == GRAD_HOOK_STREAM => "the stream of gradient hooks".to_string(),
            _ if self == HOST => "the host".to_string(),
            _ => format!("stream {}", self.0),
        }
    }

    /// The stream's short name in records: no two streams of a rank have the same.
    pub(crate) fn label(self, group: impl Fn(GroupId) -> String) -> String {
        let peer = self.0 & PEER;
        let lane = match self.lane() {
            Lane(0) => String::new(),
            Lane(lane) => format!(" (lane {lane})"),
        };
        match self.0 & STREAM_KIND {
            COMMUNICATOR_STREAMS => {
                format!("collectives of {}", group(GroupId(self.0 & !STREAM_KIND)))
            }
            SEND_STREAMS => format!("sends to {peer}{lane}"),
            RECV_STREAMS => format!("receives from {peer}{lane}"),
            _ if self == COMPUTE_STREAM => "compute".to_string(),
            _ if self == CHECKPOINT_COPY_STREAM => "checkpoint copies".to_string(),
            _ if self == CHECKPOINT_WRITER_STREAM => "checkpoint writer".to_string(),
            _ if self == OFFLOAD_STREAM => "offload".to_string(),
            _ if self == GRAD_HOOK_STREAM => "gradient hooks".to_string(),
            _ if self == HOST => "host".to_string(),
            _ => format!("stream {}", self.0),
        }
    }

    /// The lane of a stream of sends or receives.
    pub(crate) const fn lane(self) -> Lane {
        Lane(((self.0 & !STREAM_KIND) >> LANE_SHIFT) as u8)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventId(pub u32);

/// Why a rank's program ended early. Returned through `?` by every method that can fail.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RankError {
    /// Another rank failed, or the world was stopped: this rank only has to return.
    #[error("the world was stopped")]
    Stopped,
    #[error("{0}")]
    Program(String),
    #[error("panicked: {0}")]
    Panicked(String),
}

/// A sum of rows chosen by index, one list of rows for each output row (CSR).
#[derive(Clone, Debug)]
pub struct Segments {
    /// `pointers[r]..pointers[r + 1]` are the places in `indices` of output row `r`.
    pub pointers: Arc<[u32]>,
    pub indices: Arc<[u32]>,
}

/// A local fold over slots: `out[e] = fold over k of addends[k * out.len + e]`.
#[derive(Clone, Copy, Debug)]
pub struct SlotFold {
    pub family: Family,
    pub addends: Tensor,
    pub slots: u32,
    pub out: Tensor,
    pub init: Init,
    pub order: LocalOrder,
}

/// A communicator: its name in reports, and its global ranks in the communicator's order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Communicator {
    pub name: String,
    pub ranks: Arc<[u32]>,
}

/// What a rank tells the world about its memory.
#[derive(Clone, Debug)]
pub enum Declaration {
    Persisted {
        component: Component,
        name: String,
        tensor: Tensor,
    },
    Replicated {
        group: GroupId,
        name: String,
        tensor: Tensor,
    },
    Metric {
        name: String,
        tensor: Tensor,
    },
    /// What a background writer has written of this rank.
    Saved {
        after: u32,
        iteration: u32,
        tensors: BTreeMap<(Component, String), (Dtype, Vec<u32>)>,
    },
}

/// How one run's memory differs from another's without changing what it computes.
#[derive(Clone, Copy, Debug, Default)]
pub struct MemoryOptions {
    /// Words before the first allocation.
    pub base_words: u32,
    /// Fills every allocation, so that a read of unwritten memory shows.
    pub poison: Option<u32>,
}

/// The stream that a rank's program starts on.
pub const COMPUTE_STREAM: StreamId = StreamId(0);

/// What a checkpoint is staged on: copies from device to host.
pub const CHECKPOINT_COPY_STREAM: StreamId = StreamId(0x0010_0000);

/// The writer of checkpoints, which is a process of its own.
pub const CHECKPOINT_WRITER_STREAM: StreamId = StreamId(0x0010_0001);

/// Activations go to the host and come back here (Transformer Engine, `cpu_offload.py`,
/// `offload_stream`).
pub const OFFLOAD_STREAM: StreamId = StreamId(0x0010_0002);

/// Where the hooks of a replayed graph's gradients run: a parameter's hook runs on the stream on
/// which it was made, the graph on the one that a capture needs beside it (Megatron-LM,
/// `cuda_graphs.py`).
pub const GRAD_HOOK_STREAM: StreamId = StreamId(0x0010_0003);

/// Where what the host does itself is ordered: no stream, but what a stream is to clocks.
pub(crate) const HOST: StreamId = StreamId(0x4000_0000);

/// The bits of a stream's number that tell the world's own streams from a program's.
const STREAM_KIND: u32 = 0xf000_0000;
const COMMUNICATOR_STREAMS: u32 = 0x1000_0000;
const SEND_STREAMS: u32 = 0x2000_0000;
const RECV_STREAMS: u32 = 0x3000_0000;
/// Lanes of messages stand between the kind and the peer's rank.
const LANE_SHIFT: u32 = 20;
const PEER: u32 = (1 << LANE_SHIFT) - 1;

/// NCCL runs a communicator's collectives on a stream of its own, and so does the world.
pub(super) const fn communicator_stream(group: GroupId) -> StreamId {
    StreamId(COMMUNICATOR_STREAMS | group.0)
}

pub(super) const fn send_stream(lane: Lane, peer: u32) -> StreamId {
    StreamId(SEND_STREAMS | (lane.0 as u32) << LANE_SHIFT | peer)
}

pub(crate) const fn recv_stream(lane: Lane, peer: u32) -> StreamId {
    StreamId(RECV_STREAMS | (lane.0 as u32) << LANE_SHIFT | peer)
}

pub(super) fn segments_problem(
    addends: Tensor,
    width: u32,
    segments: &Segments,
    out: Tensor,
) -> Option<String> {
    let pointers = &segments.pointers;
    if width == 0 || !width.is_multiple_of(4) || !addends.len.is_multiple_of(width) {
        return Some(format!("rows of {width} words in {}", addends.len));
    }
    if pointers.is_empty() || (pointers.len() - 1) * width as usize != out.len as usize {
        return Some(format!(
            "{} pointers for {} output words",
            pointers.len(),
            out.len
        ));
    }
    let ascending = pointers.windows(2).all(|pair| pair[0] <= pair[1]);
    if !ascending || *pointers.last()? as usize != segments.indices.len() {
        return Some("pointers are not ascending, or do not end at the last index".to_string());
    }
    let rows = addends.len / width;
    let bad = segments.indices.iter().find(|index| **index >= rows)?;
    Some(format!("row {bad} of {rows}"))
}
