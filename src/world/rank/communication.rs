//! Collectives and messages, as NCCL's: asynchronous, in order within a communicator.

use crate::plan::Combine;
use crate::world::command::{Collective, CollectiveKind, Command};
use crate::world::site::Family;

use super::handle::{NO_HANDLE, communicator_stream, recv_stream, send_stream};
use super::{GroupId, Handle, Lane, Rank, Tensor};

impl Rank {
    /// Global ranks of a communicator, in its order.
    pub fn group(&self, group: GroupId) -> &[u32] {
        &self.communicators[group.0 as usize].ranks
    }

    /// This rank's place in a communicator.
    pub fn place_in(&self, group: GroupId) -> Option<u32> {
        self.group(group)
            .iter()
            .position(|rank| *rank == self.id)
            .map(|place| place as u32)
    }

    /// In place.
    pub fn all_reduce(
        &mut self,
        op: &str,
        family: Family,
        group: GroupId,
        tensor: Tensor,
        combine: Combine,
    ) -> Handle {
        self.collective(
            op,
            group,
            CollectiveKind::AllReduce { combine, family },
            tensor,
            tensor,
        )
    }

    /// `input` is `group size` blocks of `output.len`; the rank at place p gets the sum of block p.
    pub fn reduce_scatter(
        &mut self,
        op: &str,
        family: Family,
        group: GroupId,
        input: Tensor,
        output: Tensor,
    ) -> Handle {
        self.collective(
            op,
            group,
            CollectiveKind::ReduceScatter { family },
            input,
            output,
        )
    }

    /// `output` is `group size` blocks of `input.len`.
    pub fn all_gather(
        &mut self,
        op: &str,
        group: GroupId,
        input: Tensor,
        output: Tensor,
    ) -> Handle {
        self.collective(op, group, CollectiveKind::AllGather, input, output)
    }

    /// Block p of `input` goes to place p; block q of `output` comes from place q.
    pub fn all_to_all(
        &mut self,
        op: &str,
        group: GroupId,
        input: Tensor,
        output: Tensor,
    ) -> Handle {
        self.collective(op, group, CollectiveKind::AllToAll, input, output)
    }

    pub fn broadcast(
        &mut self,
        op: &str,
        group: GroupId,
        tensor: Tensor,
        root_place: u32,
    ) -> Handle {
        self.collective(
            op,
            group,
            CollectiveKind::Broadcast { root_place },
            tensor,
            tensor,
        )
    }

    fn collective(
        &mut self,
        op: &str,
        group: GroupId,
        kind: CollectiveKind,
        input: Tensor,
        output: Tensor,
    ) -> Handle {
        let size = match self.communicators.get(group.0 as usize) {
            Some(communicator) if communicator.ranks.contains(&self.id) => communicator.ranks.len(),
            _ => {
                self.fail(format!(
                    "`{op}` on communicator {} without being in it",
                    group.0
                ));
                return NO_HANDLE;
            }
        };
        let (input_len, output_len) = (input.len as usize, output.len as usize);
        let fits = match kind {
            CollectiveKind::ReduceScatter { .. } => output_len * size == input_len,
            CollectiveKind::AllGather => input_len * size == output_len,
            CollectiveKind::AllToAll => input_len == output_len && input_len % size == 0,
            CollectiveKind::AllReduce { .. } | CollectiveKind::Broadcast { .. } => true,
        };
        if !fits || input.dtype != output.dtype {
            self.fail(format!(
                "`{op}`: {} of {input_len} {} into {output_len} {} in a group of {size}",
                kind.name(),
                input.dtype,
                output.dtype
            ));
            return NO_HANDLE;
        }
        let stream = communicator_stream(group);
        let edge = self.edge_of(op);
        self.behind_current(stream, op, &edge);
        let ticket = self.ticket(edge);
        let handle = self.handle(&ticket);
        let collective = Collective {
            group,
            kind,
            input,
            output,
            ticket,
        };
        self.issue_on(stream, op, Command::Collective(collective));
        handle
    }

    /// Point to point, by global rank; matched in order for each (from, to) pair.
    pub fn send(&mut self, op: &str, to: u32, tensor: Tensor) -> Handle {
        self.send_on(Lane::default(), op, to, tensor)
    }

    /// Point to point on a lane: matched in order for each (from, to, lane).
    pub fn send_on(&mut self, lane: Lane, op: &str, to: u32, tensor: Tensor) -> Handle {
        let stream = send_stream(lane, to);
        let edge = self.edge_of(op);
        self.behind_current(stream, op, &edge);
        let ticket = self.ticket(edge);
        let handle = self.handle(&ticket);
        self.issue_on(stream, op, Command::Send { to, tensor, ticket });
        handle
    }

    pub fn recv(&mut self, op: &str, from: u32, tensor: Tensor) -> Handle {
        self.recv_on(Lane::default(), op, from, tensor)
    }

    /// The other end of `send_on`.
    pub fn recv_on(&mut self, lane: Lane, op: &str, from: u32, tensor: Tensor) -> Handle {
        let stream = recv_stream(lane, from);
        let edge = self.edge_of(op);
        self.behind_current(stream, op, &edge);
        let ticket = self.ticket(edge);
        let handle = self.handle(&ticket);
        self.issue_on(
            stream,
            op,
            Command::Recv {
                from,
                tensor,
                ticket,
            },
        );
        handle
    }

    /// The current stream waits for the collective: a stream edge, as with NCCL.
    pub fn wait(&mut self, handle: Handle) {
        self.wait_on(self.stream, "wait", handle);
    }
}
