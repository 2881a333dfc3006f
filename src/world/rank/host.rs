//! Events, and what the host does itself: it waits, asks, and touches its own memory.

use crate::world::command::Command;
use crate::world::order::QueryId;

use super::{EventId, HOST, Handle, Park, Rank, RankError, Reply, StreamId, Tensor};

impl Rank {
    /// A handle of this point of the current stream, as `torch.cuda.Stream.record_event` gives one.
    pub fn record_handle(&mut self) -> Handle {
        self.mark(self.stream, "record", "record")
    }

    /// Records `event` at this point of the current stream.
    pub fn record(&mut self, event: EventId) {
        let handle = self.mark(self.stream, "record", &format!("event{}", event.0));
        self.events.insert(event, handle);
    }

    /// This point of the current stream, as work that can be waited for.
    pub fn mark_work(&mut self) -> Handle {
        self.mark(self.stream, "record", "work")
    }

    /// The current stream waits for the latest record of `event` so far. Waiting for an event that
    /// was never recorded does nothing, as in CUDA, and is reported.
    pub fn wait_event(&mut self, event: EventId) {
        match self.events.get(&event) {
            Some(handle) => self.wait_on(self.stream, "wait event", *handle),
            None => self.notes.push(format!(
                "rank {}: {} waits for event {}, which was never recorded",
                self.id, self.module, event.0
            )),
        }
    }

    /// The host waits for the handle, as `wait` of a Gloo work does. Its edge is the handle's.
    pub fn wait_host(&mut self, handle: Handle) -> Result<(), RankError> {
        self.wait_on(HOST, "wait", handle);
        self.park_host().map(|_| ())
    }

    /// Whether the work is over, as `is_completed` and `cudaEventQuery` say: no edge follows from
    /// the answer. Both answers are tried, where both can be given.
    pub fn query(&mut self, op: &str, handle: Handle) -> Result<bool, RankError> {
        let Some(ticket) = self.ticket_of(handle) else {
            return Ok(true);
        };
        let id = self.next_query();
        self.issue_on(HOST, op, Command::Query { ticket, id });
        Ok(self.park_host()? == [1])
    }

    /// Whether the host's own clock says that time is left. Nothing else decides it: where `open`,
    /// both answers are tried.
    pub fn clock(&mut self, op: &str, name: &str, open: bool) -> Result<bool, RankError> {
        let (id, name) = (self.next_query(), self.names.of(name));
        self.issue_on(HOST, op, Command::Clock { name, id, open });
        Ok(self.park_host()? == [1])
    }

    fn next_query(&mut self) -> QueryId {
        self.queries += 1;
        QueryId {
            step: self.step,
            rank: self.id,
            ordinal: self.queries - 1,
        }
    }

    /// The host waits for everything that `stream` holds: `cudaStreamSynchronize`. The edge is
    /// called as [`Rank::edge`] says, else `module.synchronize`.
    pub fn synchronize_stream(&mut self, stream: StreamId) -> Result<(), RankError> {
        let handle = self.mark(stream, "synchronize", "synchronize");
        self.wait_host(handle)
    }

    /// The host waits for every stream: `cudaDeviceSynchronize`.
    pub fn synchronize_device(&mut self) -> Result<(), RankError> {
        let streams: Vec<StreamId> = self.streams.iter().copied().collect();
        for stream in streams.into_iter().filter(|stream| *stream != HOST) {
            let handle = self.mark(stream, "synchronize", "synchronize");
            self.wait_on(HOST, "wait", handle);
        }
        self.park_host().map(|_| ())
    }

    /// The host reads its own memory, now: it waits for nothing.
    pub fn host_read(&mut self, op: &str, from: Tensor) -> Result<Vec<u32>, RankError> {
        self.issue_on(HOST, op, Command::HostRead { from });
        self.park_host()
    }

    /// The host writes its own memory, now: it waits for nothing.
    pub fn host_write(&mut self, op: &str, to: Tensor, words: &[u32]) -> Result<(), RankError> {
        if to.len as usize != words.len() {
            let (have, want) = (words.len(), to.len);
            self.fail(format!("host write `{op}` of {have} words into {want}"));
        }
        let words = words.into();
        self.issue_on(HOST, op, Command::HostWrite { to, words });
        self.park_host().map(|_| ())
    }

    /// A point of `stream`, as it is now.
    fn mark(&mut self, stream: StreamId, op: &str, edge: &str) -> Handle {
        let edge = self.edge_of(edge);
        let ticket = self.ticket(edge);
        let handle = self.handle(&ticket);
        self.issue_on(stream, op, Command::Record { ticket });
        handle
    }

    fn park_host(&mut self) -> Result<Vec<u32>, RankError> {
        match self.park(Park::Host)? {
            Reply::Words(words) => Ok(words),
            Reply::Go | Reply::Stop => Err(RankError::Stopped),
        }
    }
}
