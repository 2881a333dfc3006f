//! Which waits protect a buffer from its next owner: those for streams that still read it.
//!
//! A wait protects a buffer where another stream has read what the buffer holds, the waiting stream
//! writes or frees it next, and knows of the read by this wait. A send of an activation is such a
//! reader (`NVIDIA/Megatron-LM#4047`), so is a copy to the host (`pytorch/pytorch#180665`). A wait
//! that also carries data to whoever reads what the other stream has written is not among them:
//! without it that comes first, and is a dropped wait.
//!
//! What a host issues before it next has to wait itself is looked at together: where the next owner
//! comes later still, nothing is listed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::kernel::Registry;
use crate::world::command::{Command, Issued, LocalFold};
use crate::world::rank::{HOST, StreamId, Tensor};

/// For each stream, how many of its commands are known to be over.
type Clock = BTreeMap<StreamId, u32>;

/// A command that read or wrote words of a buffer: the how-manieth of its stream.
#[derive(Clone, Copy, Debug)]
struct Touch {
    stream: StreamId,
    time: u32,
    start: u32,
    end: u32,
}

/// A wait of the batch.
#[derive(Debug)]
struct Known {
    place: usize,
    stream: StreamId,
    before: Clock,
    after: Clock,
    carries: bool,
    protects: BTreeSet<String>,
}

impl Known {
    /// Whether it is by this wait that its stream knows of `touch`.
    fn tells(&self, touch: &Touch) -> bool {
        let at = |clock: &Clock| clock.get(&touch.stream).copied().unwrap_or(0);
        at(&self.before) < touch.time && touch.time <= at(&self.after)
    }
}

/// What one rank's host has issued, as far as it matters.
#[derive(Debug, Default)]
struct Follower {
    names: BTreeMap<u32, Arc<str>>,
    clocks: BTreeMap<StreamId, Clock>,
    /// What everything knows that the host issues from now on.
    host: Clock,
    tickets: BTreeMap<u32, Clock>,
    /// By the buffer's number: the reads of what it holds, and the writes that it holds.
    reads: BTreeMap<u32, Vec<Touch>>,
    writes: BTreeMap<u32, Vec<Touch>>,
    waits: Vec<Known>,
}

#[derive(Debug, Default)]
pub(super) struct Protections(BTreeMap<u32, Follower>);

impl Protections {
    /// The buffers that each wait protects, by its place among the commands that `rank`'s host has
    /// issued since it last waited.
    pub fn of(
        &mut self,
        rank: u32,
        issued: &[(StreamId, Issued)],
        registry: &Registry,
    ) -> BTreeMap<usize, BTreeSet<String>> {
        let follower = self.0.entry(rank).or_default();
        for (place, (stream, issued)) in issued.iter().enumerate() {
            follower.follow(place, *stream, &issued.command, registry);
        }
        let waits = std::mem::take(&mut follower.waits).into_iter();
        let waits = waits.filter(|wait| !wait.carries && !wait.protects.is_empty());
        waits.map(|wait| (wait.place, wait.protects)).collect()
    }
}

impl Follower {
    fn follow(&mut self, place: usize, stream: StreamId, command: &Command, registry: &Registry) {
        let host = self.host.clone();
        let clock = self.clocks.entry(stream).or_default();
        join(clock, &host);
        let time = clock.entry(stream).or_insert(0);
        *time += 1;
        let time = *time;
        match command {
            Command::Wait { ticket } => {
                let before = clock.clone();
                if let Some(known) = self.tickets.get(&ticket.number) {
                    join(clock, known);
                }
                let after = clock.clone();
                if stream == HOST {
                    join(&mut self.host, &after);
                }
                let reuse = ticket.edge.strip_suffix(".reuse").map(str::to_string);
                self.waits.push(Known {
                    place,
                    stream,
                    before,
                    after,
                    carries: false,
                    protects: reuse.into_iter().collect(),
                });
            }
            Command::Alloc { tensor, name, .. } => {
                self.names.insert(tensor.buffer, name.clone());
                self.reads.remove(&tensor.buffer);
                self.writes.remove(&tensor.buffer);
            }
            Command::Free { tensor, users } => {
                self.overwritten(touch(stream, time, tensor), tensor.buffer, users);
                self.writes.remove(&tensor.buffer);
            }
            command => {
                let (reads, writes) = footprint(command, registry);
                for tensor in &reads {
                    self.read(touch(stream, time, tensor), tensor.buffer);
                }
                for tensor in &writes {
                    self.overwritten(touch(stream, time, tensor), tensor.buffer, &[]);
                }
                if let (Command::Read { .. }, Some(known)) = (command, self.clocks.get(&stream)) {
                    join(&mut self.host, known);
                }
            }
        }
        if let Some(ticket) = command.completes() {
            let known = self.clocks.get(&stream).cloned();
            self.tickets
                .insert(ticket.number, known.unwrap_or_default());
        }
    }

    /// Whatever told of the writes carries data.
    fn read(&mut self, now: Touch, buffer: u32) {
        let written = self.writes.get(&buffer).into_iter().flatten();
        for earlier in written.filter(|earlier| is_other(earlier, &now)) {
            let telling = self.waits.iter_mut().filter(|wait| wait.tells(earlier));
            telling.for_each(|wait| wait.carries = true);
        }
        let reads = self.reads.entry(buffer).or_default();
        reads.retain(|read| read.stream != now.stream || !is_within(read, &now));
        reads.push(now);
    }

    fn overwritten(&mut self, now: Touch, buffer: u32, spared: &[StreamId]) {
        let written = self.writes.entry(buffer).or_default();
        for earlier in written.iter().filter(|earlier| is_other(earlier, &now)) {
            let telling = self.waits.iter_mut().filter(|wait| wait.tells(earlier));
            telling.for_each(|wait| wait.carries = true);
        }
        written.retain(|write| !is_within(write, &now));
        written.push(now);
        let reads = self.reads.entry(buffer).or_default();
        let protected = reads.iter().filter(|read| is_other(read, &now));
        for read in protected.filter(|read| !spared.contains(&read.stream)) {
            let own = |wait: &&mut Known| [now.stream, HOST].contains(&wait.stream);
            let mut telling = self.waits.iter_mut().filter(own);
            if let (Some(wait), Some(name)) = (
                telling.find(|wait| wait.tells(read)),
                self.names.get(&buffer),
            ) {
                wait.protects.insert(name.to_string());
            }
        }
        reads.retain(|read| !is_within(read, &now));
    }
}

fn touch(stream: StreamId, time: u32, tensor: &Tensor) -> Touch {
    let (start, end) = (tensor.start, tensor.start + tensor.len);
    Touch {
        stream,
        time,
        start,
        end,
    }
}

/// Whether another stream touches the same words.
fn is_other(earlier: &Touch, now: &Touch) -> bool {
    earlier.stream != now.stream && earlier.start < now.end && now.start < earlier.end
}

fn is_within(earlier: &Touch, now: &Touch) -> bool {
    now.start <= earlier.start && earlier.end <= now.end
}

fn join(clock: &mut Clock, known: &Clock) {
    for (stream, time) in known {
        let own = clock.entry(*stream).or_insert(0);
        *own = (*own).max(*time);
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
