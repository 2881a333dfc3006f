//! Which waits protect a buffer from its next owner: those for streams that still read it.
//!
//! A wait protects a buffer where the stream that it is for, another one, has read what the buffer
//! holds now: whoever writes or frees it next must come after. A send of an activation is such a
//! reader (`NVIDIA/Megatron-LM#4047`), so is the reduction of half of a ping-pong buffer
//! (`deepspeedai/DeepSpeed#5606`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::kernel::Registry;
use crate::world::command::{Command, Issued, LocalFold};
use crate::world::rank::{StreamId, Tensor};

/// What one rank's host has issued, as far as it matters.
#[derive(Debug, Default)]
struct Readers {
    names: BTreeMap<u32, Arc<str>>,
    /// The streams that have read what a buffer holds, by its number.
    readers: BTreeMap<u32, BTreeSet<StreamId>>,
    /// The buffers that a ticket says are read, with its stream.
    tickets: BTreeMap<u32, (StreamId, BTreeSet<Arc<str>>)>,
}

#[derive(Debug, Default)]
pub(super) struct Protections(BTreeMap<u32, Readers>);

impl Protections {
    /// Takes note of a command. Of a wait: the buffers that it protects.
    pub fn follow(
        &mut self,
        rank: u32,
        stream: StreamId,
        issued: &Issued,
        registry: &Registry,
    ) -> BTreeSet<String> {
        let readers = self.0.entry(rank).or_default();
        match &issued.command {
            Command::Alloc { tensor, name, .. } => {
                readers.names.insert(tensor.buffer, name.clone());
                readers.readers.remove(&tensor.buffer);
            }
            Command::Free { tensor, .. } => {
                readers.readers.remove(&tensor.buffer);
            }
            Command::Wait { ticket } => return readers.protected(stream, ticket),
            command => readers.note(stream, command, registry),
        }
        BTreeSet::new()
    }
}

impl Readers {
    fn protected(
        &self,
        stream: StreamId,
        ticket: &crate::world::command::Ticket,
    ) -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        if let Some((of, buffers)) = self.tickets.get(&ticket.number)
            && *of != stream
        {
            names.extend(buffers.iter().map(ToString::to_string));
        }
        names.extend(ticket.edge.strip_suffix(".reuse").map(str::to_string));
        names
    }

    fn note(&mut self, stream: StreamId, command: &Command, registry: &Registry) {
        let (reads, writes) = footprint(command, registry);
        for tensor in &writes {
            self.readers.remove(&tensor.buffer);
        }
        for tensor in &reads {
            self.readers
                .entry(tensor.buffer)
                .or_default()
                .insert(stream);
        }
        if let Some(ticket) = command.completes() {
            let read = self.readers.iter();
            let read = read.filter(|(_, streams)| streams.contains(&stream));
            let names = read.filter_map(|(buffer, _)| self.names.get(buffer).cloned());
            let names: BTreeSet<Arc<str>> = names.collect();
            if !names.is_empty() {
                self.tickets.insert(ticket.number, (stream, names));
            }
        }
    }
}

/// What a command reads and writes, by its signature.
fn footprint(command: &Command, registry: &Registry) -> (Vec<Tensor>, Vec<Tensor>) {
    match command {
        Command::Launch {
            kernel, operands, ..
        } => {
            let linked = registry.get(kernel).ok();
            let signature = linked.map_or(&[][..], |linked| &linked.operands[..]);
            let pairs = || signature.iter().zip(operands);
            let reads = pairs().filter(|(operand, _)| operand.reads);
            let writes = pairs().filter(|(operand, _)| operand.writes);
            (
                reads.map(|(_, tensor)| *tensor).collect(),
                writes.map(|(_, tensor)| *tensor).collect(),
            )
        }
        Command::Fold(LocalFold::Slots { addends, out, .. })
        | Command::Fold(LocalFold::Segments { addends, out, .. }) => (vec![*addends], vec![*out]),
        Command::Copy { from, to } => (vec![*from], vec![*to]),
        Command::Upload { to, .. } | Command::HostWrite { to, .. } => (Vec::new(), vec![*to]),
        Command::Collective(call) => (vec![call.input], vec![call.output]),
        Command::Send { tensor, .. } => (vec![*tensor], Vec::new()),
        Command::Recv { tensor, .. } => (Vec::new(), vec![*tensor]),
        Command::Read { from } | Command::HostRead { from } => (vec![*from], Vec::new()),
        _ => (Vec::new(), Vec::new()),
    }
}
