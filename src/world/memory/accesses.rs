//! Every access of one rank to its memory, and which pairs of them nothing orders.
//!
//! For each word: the last write and the reads since, one for each stream. That is enough to find
//! a hazard wherever there is one (Flanagan and Freund, "FastTrack", PLDI 2009), though not every
//! pair. An operand that a kernel only writes counts as written whole, unless what it writes is
//! measured (`world/exec/measure.rs`): then only the words that were written do.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::world::command::Ticket;
use crate::world::rank::{COMPUTE_STREAM, HOST, StreamId, Tensor};
use crate::world::site::{Name, Phase, Site};

use super::clock::{Epoch, StreamClocks};
use super::hazard::HazardKind;
use super::intervals::Intervals;
use super::mutation::{Mutant, Mutation};

pub(crate) use event::{Act, Beginning, Event};

/// Reads of unwritten words that are kept for a write that comes late.
const EARLY_READS_MAX: usize = 256;

/// One side of a conflict.
#[derive(Clone, Debug)]
pub(crate) struct Use {
    pub site: Arc<Site>,
    pub stream: StreamId,
    pub write: bool,
    epoch: Epoch,
    /// Place in the order in which the host issued commands.
    pub ordinal: u32,
    /// What the command completes.
    ticket: Option<Ticket>,
    /// It is a copy's.
    copy: bool,
    /// It is no command's, but the world's at the end of a step.
    at_end: bool,
    /// An allocation or a free: conflicts like a write.
    lifetime: bool,
    /// Of a free: who may go on with the memory.
    spared: Option<Arc<[StreamId]>>,
    /// Which allocation it was meant for, by the ordinal of its `Alloc`.
    allocation: Option<u32>,
}

impl Use {
    /// Whether one command makes both. The host's read at the end of a step has the ordinal of the
    /// command after it.
    fn is_of(&self, other: &Use) -> bool {
        (self.ordinal, self.epoch) == (other.ordinal, other.epoch)
    }

    /// Whether this is the allocation of the memory that `other` means.
    pub fn is_allocation_of(&self, other: &Use) -> bool {
        self.lifetime
            && self.allocation == Some(self.ordinal)
            && self.allocation == other.allocation
    }

    /// Whether this is a free that `other`, which the host issued before it, need not be behind.
    fn spares(&self, other: &Use) -> bool {
        let users = self.spared.as_ref();
        other.ordinal < self.ordinal && users.is_some_and(|users| users.contains(&other.stream))
    }
}

/// Two unordered accesses, in the order in which the host issued them.
#[derive(Clone, Debug)]
pub(crate) struct Conflict {
    pub kind: HazardKind,
    pub first: Use,
    pub second: Use,
    pub words: (u32, u32),
    pub buffer: Option<Arc<str>>,
    /// What `second` would wait for, where it has a name.
    pub edge: Option<Name>,
    /// The ordinals in the order in which the two ran; `None` where one did not run.
    pub ran: Option<(u32, u32)>,
}

/// The accesses to one word that not everything comes after.
#[derive(Clone, Debug, Default)]
struct Past {
    write: Option<Arc<Use>>,
    reads: Vec<Arc<Use>>,
}

impl Past {
    /// One read for each stream is enough.
    fn note_read(&mut self, present: &Arc<Use>, mutant: Mutant) {
        let only_one = mutant.is(Mutation::OneReaderIsKept);
        self.reads
            .retain(|read| read.stream != present.stream && !only_one);
        self.reads.push(present.clone());
        if mutant.is(Mutation::ReadsAreForgotten) {
            self.reads.clear();
        }
    }
}

/// One life of a buffer number.
#[derive(Clone, Debug)]
struct Life {
    ordinal: u32,
    start: u32,
    name: Arc<str>,
}

/// The command whose accesses come next.
#[derive(Clone, Debug)]
struct Present {
    site: Arc<Site>,
    stream: StreamId,
    epoch: Epoch,
    ordinal: u32,
    ticket: Option<Ticket>,
    copy: bool,
    at_end: bool,
}

/// Follows one rank.
#[derive(Clone, Debug, Default)]
pub(crate) struct AccessTracker {
    clocks: StreamClocks,
    past: Intervals<Past>,
    /// Words that nothing has written since the allocation or free that is their value.
    unwritten: Intervals<Arc<Use>>,
    /// Reads that met unwritten words, which a write that the host had issued before may be late
    /// for: then nothing orders the two.
    early: Vec<(u32, u32, Arc<Use>)>,
    lives: BTreeMap<u32, Vec<Life>>,
    present: Option<Present>,
    next_ordinal: u32,
    found: Vec<Conflict>,
    /// Records that the host has issued: stream, ordinal, edge.
    records: Vec<(StreamId, u32, Name)>,
    /// What collectives and messages write, until somebody is known to have waited for them.
    unjoined: BTreeMap<u32, (Arc<Use>, Tensor)>,
}

impl AccessTracker {
    #[cfg(test)]
    pub fn mutate(&mut self, mutant: Mutant) {
        self.clocks.mutant = mutant;
    }

    /// The host has issued an allocation; it has not run yet.
    fn allocates(&mut self, ordinal: u32, tensor: Tensor, name: &Arc<str>) {
        self.lives.entry(tensor.buffer).or_default().push(Life {
            ordinal,
            start: tensor.start,
            name: name.clone(),
        });
    }

    /// A command begins to run: `read` and `write` speak of it from now on.
    fn begin(&mut self, beginning: &Beginning) {
        let mutant = self.clocks.mutant;
        let Beginning {
            stream, ordinal, ..
        } = *beginning;
        self.present = Some(Present {
            site: beginning.site.clone(),
            stream,
            epoch: self.clocks.advance(stream, ordinal),
            ordinal,
            ticket: beginning.act.completes().cloned(),
            copy: beginning.act == Act::Copy,
            at_end: false,
        });
        match &beginning.act {
            Act::Record(ticket) => self.clocks.record(stream, ticket.number),
            Act::Wait(ticket) => self.clocks.wait(stream, *ticket),
            Act::Read => self.clocks.host_knows(stream, self.next_ordinal),
            Act::Receive(ticket, output) => self.expect_join(ticket.number, *output),
            Act::Query(ticket) if mutant.is(Mutation::QueriesOrder) => {
                self.clocks.wait(stream, *ticket);
            }
            Act::Alloc(tensor) => self.begin_life(*tensor, None),
            Act::Free(tensor, users) => self.begin_life(*tensor, Some(users.clone())),
            Act::Query(_) | Act::Copy | Act::Send(_) | Act::Other => {}
        }
        if stream == HOST {
            self.clocks.host_knows(HOST, ordinal + 1);
        }
    }

    /// An allocation, or the state of being free, begins on the whole of `tensor`.
    fn begin_life(&mut self, tensor: Tensor, spared: Option<Arc<[StreamId]>>) {
        if self.clocks.mutant.is(Mutation::FreesAreNothing) {
            return;
        }
        let present = Arc::new(Use {
            spared,
            lifetime: true,
            ..Use::clone(&self.use_of(tensor, true))
        });
        self.overwrite(tensor, &present);
        if self.clocks.mutant.is(Mutation::NothingIsUnwritten) {
            return;
        }
        let end = tensor.start + tensor.len;
        self.unwritten.set(tensor.start, end, present);
    }

    fn expect_join(&mut self, ticket: u32, output: Tensor) {
        let writer = self.use_of(output, true);
        self.unjoined.insert(ticket, (writer, output));
    }

    /// Whether the host knows that `ticket` is over, so that it cannot be told otherwise.
    pub fn host_has(&self, ticket: u32) -> bool {
        self.clocks.host_has(ticket)
    }

    fn read(&mut self, tensor: Tensor) {
        let present = self.use_of(tensor, false);
        let (from, to) = (tensor.start, tensor.start + tensor.len);
        let early = self.found.len();
        let mutant = self.clocks.mutant;
        let mut next = from;
        // Most reads are of whole words of one write.
        if let Some(past) = self.past.get_mut(from, to) {
            let write = past.write.clone();
            past.note_read(&present, mutant);
            if let Some(write) = write {
                self.judge(&write, &present, (from, to));
            }
            next = to;
        }
        for (start, end, mut past) in self.past.take(next, to) {
            self.fresh(next, start, &present);
            if let Some(write) = past.write.clone() {
                self.judge(&write, &present, (start, end));
            }
            past.note_read(&present, mutant);
            self.past.set(start, end, past);
            next = end;
        }
        self.fresh(next, to, &present);
        if self.found.len() == early {
            self.judge_unwritten(tensor, &present);
        }
    }

    fn write(&mut self, tensor: Tensor) {
        let present = self.use_of(tensor, true);
        self.judge_early(tensor, &present);
        self.overwrite(tensor, &present);
        self.unwritten.take(tensor.start, tensor.start + tensor.len);
    }

    /// Reads that ran before the write that they should have waited for, whatever else has touched
    /// the words meanwhile.
    fn judge_early(&mut self, tensor: Tensor, present: &Arc<Use>) {
        if self.early.is_empty() {
            return;
        }
        let (from, to) = (tensor.start, tensor.start + tensor.len);
        let is_late = |(start, end, read): &(u32, u32, Arc<Use>)| {
            *start < to
                && from < *end
                && present.ordinal < read.ordinal
                && present.allocation == read.allocation
        };
        let late: Vec<(u32, u32, Arc<Use>)> = self
            .early
            .iter()
            .filter(|early| is_late(early))
            .cloned()
            .collect();
        for (start, end, read) in late {
            self.judge(&read, present, (start.max(from), end.min(to)));
        }
    }

    /// The host reads `tensor` behind all of `stream`, when a step ends.
    fn read_at_end(&mut self, site: &Arc<Site>, stream: StreamId, tensor: Tensor) {
        self.present = Some(Present {
            site: site.clone(),
            stream,
            epoch: self.clocks.advance(stream, self.next_ordinal),
            ordinal: self.next_ordinal,
            ticket: None,
            copy: false,
            at_end: true,
        });
        self.read(tensor);
    }

    /// A step has ended, and nothing is queued: the host has read behind the compute stream. What
    /// everything comes after from here on is forgotten.
    fn end_step(&mut self) {
        self.clocks.host_knows(COMPUTE_STREAM, self.next_ordinal);
        self.next_ordinal += 1;
        if self.clocks.mutant.is(Mutation::StepsSynchronise) {
            return self.synchronise();
        }
        self.present = None;
        self.early.clear();
        let clocks = &self.clocks;
        let is_joined = |(ticket, writer): (&u32, &Use)| clocks.is_joined(writer.stream, *ticket);
        self.unjoined
            .retain(|ticket, (writer, _)| !is_joined((ticket, writer)));
        let is_open = |earlier: &Arc<Use>| !clocks.is_before_all(earlier.epoch);
        self.past.retain(|past| {
            past.reads.retain(is_open);
            past.write = past.write.take().filter(is_open);
            past.write.is_some() || !past.reads.is_empty()
        });
        self.clocks.forget_known();
        self.forget_lives();
    }

    /// Keeps the names of what may still be reported.
    fn forget_lives(&mut self) {
        let open = self.past.values();
        let open = open.flat_map(|past| past.write.iter().chain(&past.reads));
        let joins = self.unjoined.values().map(|(writer, _)| writer);
        let uses: Vec<&Arc<Use>> = open.chain(joins).collect();
        let known: BTreeSet<Option<u32>> = uses.iter().map(|one| one.allocation).collect();
        let oldest = uses.iter().map(|one| one.ordinal).min();
        for lives in self.lives.values_mut() {
            let last = lives.last().map(|life| life.ordinal);
            lives.retain(|life| Some(life.ordinal) == last || known.contains(&Some(life.ordinal)));
        }
        self.records
            .retain(|(_, ordinal, _)| oldest.is_some_and(|oldest| oldest <= *ordinal));
    }

    /// The run is over, or is no longer followed: nobody has waited for these. Those of `step` may
    /// still be waited for in the next one.
    fn judge_joins(&mut self, step: Option<u32>) {
        for (ticket, (writer, output)) in std::mem::take(&mut self.unjoined) {
            let is_joined = self.clocks.is_joined(writer.stream, ticket);
            if is_joined || step == Some(writer.site.step) {
                continue;
            }
            let end = Use {
                site: Arc::new(Site {
                    step: writer.site.step,
                    microbatch: None,
                    phase: Phase::Checkpoint,
                    module: Name::from(""),
                    op: Name::from("the end of the run"),
                }),
                stream: HOST,
                write: false,
                ordinal: self.next_ordinal,
                ticket: None,
                ..Use::clone(&writer)
            };
            let words = (output.start, output.start + output.len);
            self.report(HazardKind::MissingJoin, (&writer, &end), words, None);
        }
    }

    /// Everything is over: only what was never written is remembered.
    fn synchronise(&mut self) {
        self.clocks.synchronise();
        self.past.clear();
        self.unjoined.clear();
        self.early.clear();
        self.records.clear();
        self.present = None;
        for lives in self.lives.values_mut() {
            let last = lives.len().saturating_sub(1);
            lives.drain(..last);
        }
    }

    /// How many conflicts there are that nobody has taken.
    pub fn found(&self) -> usize {
        self.found.len()
    }

    /// The conflicts found since this was last asked.
    pub fn take_found(&mut self) -> Vec<Conflict> {
        std::mem::take(&mut self.found)
    }

    fn overwrite(&mut self, tensor: Tensor, present: &Arc<Use>) {
        let (from, to) = (tensor.start, tensor.start + tensor.len);
        let mut spared = Vec::new();
        for (start, end, past) in self.past.take(from, to) {
            for earlier in past.write.iter().chain(&past.reads) {
                self.judge(earlier, present, (start, end));
            }
            // Whoever gets the memory next has them to wait for.
            let users = past.write.iter().chain(&past.reads);
            let users = users.filter(|earlier| present.spares(earlier));
            let users: Vec<Arc<Use>> = users.cloned().collect();
            if !users.is_empty() {
                spared.push((start, end, users));
            }
        }
        let write = Some(present.clone());
        let reads = Vec::new();
        self.past.set(from, to, Past { write, reads });
        for (start, end, reads) in spared {
            let write = Some(present.clone());
            self.past.set(start, end, Past { write, reads });
        }
    }

    /// `from..to` has been read, and nothing else.
    fn fresh(&mut self, from: u32, to: u32, present: &Arc<Use>) {
        let mut reads = vec![present.clone()];
        if self.clocks.mutant.is(Mutation::ReadsAreForgotten) {
            reads.clear();
        }
        self.past.set(from, to, Past { write: None, reads });
    }

    fn judge(&mut self, earlier: &Arc<Use>, present: &Arc<Use>, words: (u32, u32)) {
        let same = earlier.is_of(present);
        let spared = earlier.spares(present) || present.spares(earlier);
        let commute = self.clocks.mutant.is(Mutation::WritesCommute);
        let commute = commute && earlier.write && present.write;
        if same || spared || commute || self.clocks.is_before(earlier.epoch, present.stream) {
            return;
        }
        let (first, second) = match earlier.ordinal < present.ordinal {
            true => (earlier, present),
            false => (present, earlier),
        };
        let kind = match (first.write, second.write) {
            _ if first.lifetime || second.lifetime || first.allocation != second.allocation => {
                HazardKind::ReuseWhileInUse
            }
            _ if second.stream == HOST => HazardKind::UnorderedHostAccess,
            (false, true) if first.copy => HazardKind::TornCopy,
            (true, false) => HazardKind::ReadBeforeComplete,
            (false, _) => HazardKind::WriteAfterRead,
            (true, true) => HazardKind::WriteAfterWrite,
        };
        let ran = (earlier.ordinal, present.ordinal);
        let ran = (!earlier.at_end && !present.at_end).then_some(ran);
        self.report(kind, (first, second), words, ran);
    }

    /// The name of what `second` would have to wait for: what `first` itself completes, else the
    /// record behind it that was meant for `second`, else the first record behind it that is not
    /// made for a collective or message alone, else the first one.
    fn edge(&self, first: &Use, second: &Use) -> Option<Name> {
        if let Some(ticket) = &first.ticket {
            return Some(ticket.edge.clone());
        }
        let between = |(stream, ordinal, _): &&(StreamId, u32, Name)| {
            *stream == first.stream && (first.ordinal..=second.ordinal).contains(ordinal)
        };
        let records = || self.records.iter().filter(between).map(|(.., edge)| edge);
        let own = second.ticket.as_ref();
        let meant = records()
            .find(|edge| own.is_some_and(|own| edge.strip_suffix(".start") == Some(&*own.edge)));
        let open = records().find(|edge| !edge.ends_with(".start"));
        meant.or(open).or_else(|| records().next()).cloned()
    }

    fn judge_unwritten(&mut self, tensor: Tensor, present: &Arc<Use>) {
        let (from, to) = (tensor.start, tensor.start + tensor.len);
        let parts: Vec<(u32, u32, Arc<Use>)> = self
            .unwritten
            .within(from, to)
            .map(|(start, end, since)| (start, end, since.clone()))
            .collect();
        for (start, end, since) in parts {
            if since.spares(present) {
                continue;
            }
            if self.early.len() < EARLY_READS_MAX {
                self.early.push((start, end, present.clone()));
            }
            let kind = HazardKind::UninitialisedRead;
            self.report(kind, (&since, present), (start, end), None);
        }
    }

    /// Neighbouring words of one pair of accesses are one conflict.
    fn report(
        &mut self,
        kind: HazardKind,
        (first, second): (&Use, &Use),
        words: (u32, u32),
        ran: Option<(u32, u32)>,
    ) {
        let life = first.allocation.and_then(|ordinal| {
            let mut lives = self.lives.values().flatten();
            lives.find(|life| life.ordinal == ordinal)
        });
        let (start, buffer) = match life {
            Some(life) => (life.start, Some(life.name.clone())),
            None => (0, None),
        };
        let words = (words.0 - start, words.1 - start);
        if let Some(last) = self.found.last_mut()
            && last.kind == kind
            && last.first.is_of(first)
            && last.second.is_of(second)
            && last.words.1 == words.0
        {
            last.words.1 = words.1;
            return;
        }
        self.found.push(Conflict {
            kind,
            first: first.clone(),
            second: second.clone(),
            words,
            buffer,
            edge: match kind {
                HazardKind::UninitialisedRead => None,
                _ => self.edge(first, second),
            },
            ran,
        });
    }

    fn use_of(&self, tensor: Tensor, write: bool) -> Arc<Use> {
        let present = self.present.as_ref().expect("a command has begun");
        let life = self.life(tensor, present.ordinal);
        Arc::new(Use {
            site: present.site.clone(),
            stream: present.stream,
            write,
            epoch: present.epoch,
            ordinal: present.ordinal,
            ticket: present.ticket.clone(),
            copy: present.copy,
            at_end: present.at_end,
            lifetime: false,
            spared: None,
            allocation: life.map(|life| life.ordinal),
        })
    }

    /// The life of `tensor`'s buffer that a command of that ordinal means.
    fn life(&self, tensor: Tensor, ordinal: u32) -> Option<&Life> {
        let lives = self.lives.get(&tensor.buffer)?;
        lives.iter().rev().find(|life| life.ordinal <= ordinal)
    }
}

mod event;
#[cfg(test)]
mod tests;
