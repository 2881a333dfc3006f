//! Every access of one rank to its memory, and which pairs of them nothing orders.
//!
//! For each word: the last write and the reads since, one for each stream. That is enough to find
//! a hazard wherever there is one (Flanagan and Freund, "FastTrack", PLDI 2009), though not every
//! pair. An operand that a kernel only writes counts as written whole, unless what it writes is
//! measured (`world/exec/measure.rs`): then only the words that were written do.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::world::command::{Command, Issued};
use crate::world::rank::{StreamId, Tensor};
use crate::world::site::Site;

use super::clock::{Epoch, StreamClocks};
use super::hazard::HazardKind;
use super::intervals::Intervals;

/// One side of a conflict.
#[derive(Clone, Debug)]
pub(crate) struct Use {
    pub site: Arc<Site>,
    pub stream: StreamId,
    pub write: bool,
    epoch: Epoch,
    /// Place in the order in which the host issued commands.
    ordinal: u32,
    /// An allocation or a free: conflicts like a write.
    lifetime: bool,
    /// Which allocation it was meant for, by the ordinal of its `Alloc`.
    allocation: Option<u32>,
}

/// Two unordered accesses, in the order in which the host issued them.
#[derive(Clone, Debug)]
pub(crate) struct Conflict {
    pub kind: HazardKind,
    pub first: Use,
    pub second: Use,
    pub words: (u32, u32),
    pub buffer: Option<Arc<str>>,
}

/// The accesses to one word since the last synchronisation.
#[derive(Clone, Debug, Default)]
struct Past {
    write: Option<Arc<Use>>,
    reads: Vec<Arc<Use>>,
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
}

/// Follows one rank.
#[derive(Debug, Default)]
pub(crate) struct AccessTracker {
    clocks: StreamClocks,
    past: Intervals<Past>,
    /// Words that nothing has written since the allocation or free that is their value.
    unwritten: Intervals<Arc<Use>>,
    lives: BTreeMap<u32, Vec<Life>>,
    present: Option<Present>,
    next_ordinal: u32,
    found: Vec<Conflict>,
}

impl AccessTracker {
    /// The host has issued a command; it has not run yet.
    pub fn issued(&mut self, issued: &Issued) {
        self.next_ordinal = issued.ordinal + 1;
        if let Command::Alloc { tensor, name, .. } = &issued.command {
            self.lives.entry(tensor.buffer).or_default().push(Life {
                ordinal: issued.ordinal,
                start: tensor.start,
                name: name.clone(),
            });
        }
    }

    /// A command begins to run on `stream`: `read` and `write` speak of it from now on.
    pub fn begin(&mut self, stream: StreamId, issued: &Issued) {
        let ordinal = issued.ordinal;
        self.present = Some(Present {
            site: issued.site.clone(),
            stream,
            epoch: self.clocks.advance(stream, ordinal),
            ordinal,
        });
        match &issued.command {
            Command::Record { ticket } => self.clocks.record(stream, *ticket),
            Command::Wait { ticket, .. } => self.clocks.wait(stream, *ticket),
            Command::Read { .. } => self.clocks.host_read(stream, self.next_ordinal),
            Command::Alloc { tensor, .. } | Command::Free { tensor } => {
                let present = self.use_of(*tensor, true, true);
                self.overwrite(*tensor, &present);
                let end = tensor.start + tensor.len;
                self.unwritten.set(tensor.start, end, present);
            }
            _ => {}
        }
    }

    /// The collective or message that ran on `stream` is over.
    pub fn finish(&mut self, stream: StreamId, ticket: u32) {
        self.clocks.record(stream, ticket);
    }

    pub fn read(&mut self, tensor: Tensor) {
        let present = self.use_of(tensor, false, false);
        let (from, to) = (tensor.start, tensor.start + tensor.len);
        let early = self.found.len();
        let mut next = from;
        for (start, end, mut past) in self.past.take(from, to) {
            self.fresh(next, start, &present);
            if let Some(write) = past.write.clone() {
                self.judge(&write, &present, (start, end));
            }
            past.reads.retain(|read| read.stream != present.stream);
            past.reads.push(present.clone());
            self.past.set(start, end, past);
            next = end;
        }
        self.fresh(next, to, &present);
        if self.found.len() == early {
            self.judge_unwritten(tensor, &present);
        }
    }

    pub fn write(&mut self, tensor: Tensor) {
        let present = self.use_of(tensor, true, false);
        self.overwrite(tensor, &present);
        self.unwritten.take(tensor.start, tensor.start + tensor.len);
    }

    /// The world reads `tensor` when everything is over.
    pub fn read_at_end(&mut self, site: &Arc<Site>, stream: StreamId, tensor: Tensor) {
        let reader = Use {
            site: site.clone(),
            stream,
            write: false,
            epoch: self.clocks.advance(stream, self.next_ordinal),
            ordinal: self.next_ordinal,
            lifetime: false,
            allocation: self
                .life(tensor, self.next_ordinal)
                .map(|life| life.ordinal),
        };
        self.judge_unwritten(tensor, &Arc::new(reader));
    }

    /// Everything is over: only what was never written is remembered.
    pub fn synchronise(&mut self) {
        self.clocks.synchronise();
        self.past.clear();
        self.present = None;
        for lives in self.lives.values_mut() {
            let last = lives.len().saturating_sub(1);
            lives.drain(..last);
        }
    }

    /// The conflicts found since this was last asked.
    pub fn take_found(&mut self) -> Vec<Conflict> {
        std::mem::take(&mut self.found)
    }

    fn overwrite(&mut self, tensor: Tensor, present: &Arc<Use>) {
        let (from, to) = (tensor.start, tensor.start + tensor.len);
        for (start, end, past) in self.past.take(from, to) {
            for earlier in past.write.iter().chain(&past.reads) {
                self.judge(earlier, present, (start, end));
            }
        }
        let write = Some(present.clone());
        let reads = Vec::new();
        self.past.set(from, to, Past { write, reads });
    }

    /// `from..to` has been read, and nothing else.
    fn fresh(&mut self, from: u32, to: u32, present: &Arc<Use>) {
        let reads = vec![present.clone()];
        self.past.set(from, to, Past { write: None, reads });
    }

    fn judge(&mut self, earlier: &Arc<Use>, present: &Arc<Use>, words: (u32, u32)) {
        let same = earlier.ordinal == present.ordinal;
        if same || self.clocks.is_before(earlier.epoch, present.stream) {
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
            (true, false) => HazardKind::ReadBeforeComplete,
            (false, _) => HazardKind::WriteAfterRead,
            (true, true) => HazardKind::WriteAfterWrite,
        };
        self.report(kind, first, second, words);
    }

    fn judge_unwritten(&mut self, tensor: Tensor, present: &Arc<Use>) {
        let (from, to) = (tensor.start, tensor.start + tensor.len);
        let parts: Vec<(u32, u32, Arc<Use>)> = self
            .unwritten
            .within(from, to)
            .map(|(start, end, since)| (start, end, since.clone()))
            .collect();
        for (start, end, since) in parts {
            let kind = HazardKind::UninitialisedRead;
            self.report(kind, &since, present, (start, end));
        }
    }

    /// Neighbouring words of one pair of accesses are one conflict.
    fn report(&mut self, kind: HazardKind, first: &Use, second: &Use, words: (u32, u32)) {
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
            && (last.first.ordinal, last.second.ordinal) == (first.ordinal, second.ordinal)
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
        });
    }

    fn use_of(&self, tensor: Tensor, write: bool, lifetime: bool) -> Arc<Use> {
        let present = self.present.as_ref().expect("a command has begun");
        let life = self.life(tensor, present.ordinal);
        Arc::new(Use {
            site: present.site.clone(),
            stream: present.stream,
            write,
            epoch: present.epoch,
            ordinal: present.ordinal,
            lifetime,
            allocation: life.map(|life| life.ordinal),
        })
    }

    /// The life of `tensor`'s buffer that a command of that ordinal means.
    fn life(&self, tensor: Tensor, ordinal: u32) -> Option<&Life> {
        let lives = self.lives.get(&tensor.buffer)?;
        lives.iter().rev().find(|life| life.ordinal <= ordinal)
    }
}

#[cfg(test)]
mod tests {
    use super::AccessTracker;
    use crate::numerics::Dtype;
    use crate::world::command::{Command, Issued};
    use crate::world::rank::{StreamId, Tensor};
    use crate::world::site::{Phase, Site};
    use proptest::prelude::*;

    /// What one command of a random program does.
    #[derive(Clone, Debug)]
    enum Verb {
        Read(u32, u32),
        Write(u32, u32),
        Record,
        Wait(usize),
    }

    fn verb() -> impl Strategy<Value = Verb> {
        prop_oneof![
            (0u32..12, 1u32..6).prop_map(|(start, len)| Verb::Read(start, len)),
            (0u32..12, 1u32..6).prop_map(|(start, len)| Verb::Write(start, len)),
            Just(Verb::Record),
            (0usize..4).prop_map(Verb::Wait),
        ]
    }

    fn command(verb: &Verb, records: u32) -> Command {
        let tensor = |start: &u32, len: &u32| Tensor {
            buffer: 0,
            start: *start,
            len: *len,
            dtype: Dtype::F32,
        };
        match verb {
            Verb::Read(start, len) | Verb::Write(start, len) => Command::Copy {
                from: tensor(start, len),
                to: tensor(start, len),
            },
            Verb::Record => Command::Record { ticket: records },
            Verb::Wait(ticket) => Command::Wait {
                ticket: *ticket as u32,
                edge: "an edge".into(),
            },
        }
    }

    /// Runs the program in the order given; whether a conflict was found.
    fn tracked(program: &[(u32, Verb)]) -> bool {
        let mut tracker = AccessTracker::default();
        let mut records = 0;
        for (ordinal, (stream, verb)) in program.iter().enumerate() {
            let issued = Issued {
                site: Site {
                    step: 0,
                    microbatch: None,
                    phase: Phase::Forward,
                    module: "".into(),
                    op: ordinal.to_string().into(),
                }
                .into(),
                ordinal: ordinal as u32,
                command: command(verb, records),
            };
            tracker.issued(&issued);
            tracker.begin(StreamId(*stream), &issued);
            match (verb, &issued.command) {
                (Verb::Read(..), Command::Copy { from, .. }) => tracker.read(*from),
                (Verb::Write(..), Command::Copy { to, .. }) => tracker.write(*to),
                (Verb::Record, _) => records += 1,
                _ => {}
            }
        }
        !tracker.take_found().is_empty()
    }

    /// Every pair of commands, by the transitive closure of all edges.
    fn brute_force(program: &[(u32, Verb)]) -> bool {
        let count = program.len();
        let mut before = vec![vec![false; count]; count];
        let mut records = Vec::new();
        for (now, (stream, verb)) in program.iter().enumerate() {
            if let Some(last) = (0..now).rev().find(|last| program[*last].0 == *stream) {
                before[last][now] = true;
            }
            match verb {
                Verb::Record => records.push(now),
                Verb::Wait(ticket) => {
                    if let Some(record) = records.get(*ticket) {
                        before[*record][now] = true;
                    }
                }
                _ => {}
            }
        }
        for middle in 0..count {
            for from in 0..count {
                for to in 0..count {
                    before[from][to] |= before[from][middle] && before[middle][to];
                }
            }
        }
        let span = |verb: &Verb| match verb {
            Verb::Read(start, len) => Some((*start, start + len, false)),
            Verb::Write(start, len) => Some((*start, start + len, true)),
            _ => None,
        };
        (0..count).any(|two| {
            (0..two).any(|one| {
                let (Some(a), Some(b)) = (span(&program[one].1), span(&program[two].1)) else {
                    return false;
                };
                (a.2 || b.2) && a.0 < b.1 && b.0 < a.1 && !before[one][two]
            })
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]
        #[test]
        fn a_hazard_is_found_exactly_where_there_is_one(
            program in prop::collection::vec((0u32..3, verb()), 1..14),
        ) {
            prop_assert_eq!(tracked(&program), brute_force(&program));
        }
    }
}
