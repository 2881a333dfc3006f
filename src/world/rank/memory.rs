//! A rank's memory, as a caching allocator hands it out.

use std::sync::Arc;

use crate::numerics::Dtype;
use crate::world::command::Command;

use super::{Rank, RankError, StreamId, Tensor};

impl Rank {
    /// New memory of `len` elements, of the current stream's pool. Unwritten words hold poison or
    /// what a freed buffer left.
    pub fn alloc(&mut self, name: &str, dtype: Dtype, len: u32) -> Tensor {
        let names = self.names.of_buffer(name).clone();
        let allocated = self.allocator.alloc(&names.name, dtype, len, self.stream);
        let Some((tensor, users)) = allocated else {
            self.fail(format!(
                "`{name}` of {len} words does not fit in a rank's 4 GiB"
            ));
            return Tensor {
                buffer: 0,
                start: 0,
                len,
                dtype,
            };
        };
        for user in users {
            self.wait_on(self.stream, "reuse", user);
        }
        let block = self.allocator.get(tensor.buffer).block(tensor);
        let command = Command::Alloc {
            tensor: block,
            name: names.name.shared(),
            poison: self.memory.poison,
        };
        self.issue_as(self.stream, names.alloc, command);
        tensor
    }

    /// Pinned memory of the host: streams copy to and from it, and the host reads and writes it by
    /// [`Rank::host_read`] and [`Rank::host_write`]. It is there as soon as it is asked for.
    pub fn alloc_host(&mut self, name: &str, dtype: Dtype, len: u32) -> Tensor {
        self.on_stream(super::HOST, |rank| rank.alloc(name, dtype, len))
    }

    /// Gives memory back to the pool of the stream that it was allocated on, in the order of that
    /// stream. Who else uses it must be done, or be told of by [`Rank::record_stream`].
    pub fn free(&mut self, tensor: Tensor) {
        let Some(allocation) = self.allocator.free(tensor.buffer) else {
            self.fail("a buffer was freed twice".to_string());
            return;
        };
        let op = self.names.of_buffer(&allocation.name).free.clone();
        let edge = self.names.of(&format!("{}.reuse", allocation.name));
        let users: Arc<[StreamId]> = allocation.users.iter().copied().collect();
        let mut handles = Vec::new();
        for stream in users.iter() {
            let ticket = self.ticket(edge.clone());
            handles.push(self.handle(&ticket));
            self.issue_as(*stream, op.clone(), Command::Record { ticket });
        }
        let tensor = allocation.block(tensor);
        self.issue_as(allocation.stream, op, Command::Free { tensor, users });
        self.allocator.give_back(&allocation, handles);
    }

    /// `stream` uses the memory, too: once it is freed, its next owner waits for what `stream`
    /// holds by then. The edge is called `BUFFER.reuse`.
    pub fn record_stream(&mut self, tensor: Tensor, stream: StreamId) {
        if !self.allocator.record_stream(tensor.buffer, stream) {
            self.fail("a stream was recorded for a buffer that is free".to_string());
        }
    }

    /// A copy that the current stream makes when it comes to it: with `non_blocking=True` that is
    /// what a copy between device and pinned memory is.
    pub fn copy(&mut self, op: &str, from: Tensor, to: Tensor) {
        if from.len != to.len || from.dtype != to.dtype {
            self.fail(format!(
                "copy `{op}` joins tensors of unequal length or type"
            ));
            return;
        }
        self.issue(op, Command::Copy { from, to });
    }

    /// A copy for which the host waits. The edge is called as [`Rank::edge`] says, else
    /// `module.synchronize`.
    pub fn copy_blocking(&mut self, op: &str, from: Tensor, to: Tensor) -> Result<(), RankError> {
        self.copy(op, from, to);
        self.synchronize_stream(self.stream)
    }
}
