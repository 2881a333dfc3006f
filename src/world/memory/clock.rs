//! Vector clocks over one rank's own streams: what happens before what.
//!
//! Edges come from stream order, from tickets (events, finished collectives and messages) and from
//! host reads. Queries, the order in which queues happen to run, and reuse of a block give none.
//! A path through another rank gives none either: whether there is one is decided by a run that
//! turns the pair round (`prove/reversal`).

use std::collections::BTreeMap;

use crate::world::rank::StreamId;

use super::mutation::{Mutant, Mutation};

/// The moment of one command: the how-manieth of its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Epoch {
    stream: usize,
    time: u32,
}

/// For each stream, how many of its commands are known to be over.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Clock(Vec<u32>);

impl Clock {
    fn at(&self, stream: usize) -> u32 {
        self.0.get(stream).copied().unwrap_or(0)
    }

    fn advance(&mut self, stream: usize) -> u32 {
        if self.0.len() <= stream {
            self.0.resize(stream + 1, 0);
        }
        self.0[stream] += 1;
        self.0[stream]
    }

    fn is_within(&self, other: &Clock) -> bool {
        let mut times = (0..).zip(&self.0);
        times.all(|(stream, time)| *time <= other.at(stream))
    }

    fn join(&mut self, other: &Clock) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        for (mine, theirs) in self.0.iter_mut().zip(&other.0) {
            *mine = (*mine).max(*theirs);
        }
    }
}

/// One stream's clock, and how many host reads it has taken note of.
#[derive(Clone, Debug, Default)]
struct Stream {
    clock: Clock,
    host_reads_seen: usize,
}

/// The clocks of a rank. What the host knows, every later command knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamClocks {
    numbers: BTreeMap<StreamId, usize>,
    streams: Vec<Stream>,
    tickets: BTreeMap<u32, Clock>,
    /// What the host knew from command `.0` on.
    host_reads: Vec<(u32, Clock)>,
    pub mutant: Mutant,
}

impl StreamClocks {
    /// Command `ordinal` (in the order the host issued them) runs on `stream`.
    pub fn advance(&mut self, stream: StreamId, ordinal: u32) -> Epoch {
        let number = self.number(stream);
        let Stream {
            clock,
            host_reads_seen,
        } = &mut self.streams[number];
        while let Some((from, known)) = self.host_reads.get(*host_reads_seen)
            && *from <= ordinal
        {
            clock.join(known);
            *host_reads_seen += 1;
        }
        let time = clock.advance(number);
        Epoch {
            stream: number,
            time,
        }
    }

    /// Ticket `ticket` carries what `stream` knows now.
    pub fn record(&mut self, stream: StreamId, ticket: u32) {
        let number = self.number(stream);
        let clock = self.streams[number].clock.clone();
        self.tickets.insert(ticket, clock);
    }

    /// `stream` learns what `ticket` carries. A ticket that was forgotten carries nothing that is
    /// not known.
    pub fn wait(&mut self, stream: StreamId, ticket: u32) {
        let number = self.number(stream);
        if self.mutant.is(Mutation::WaitsForNothing) {
            return;
        }
        if self.mutant.is(Mutation::WaitsForTooMuch) {
            let all: Vec<Clock> = self.streams.iter().map(|one| one.clock.clone()).collect();
            all.iter()
                .for_each(|one| self.streams[number].clock.join(one));
        }
        if let Some(known) = self.tickets.get(&ticket) {
            self.streams[number].clock.join(known);
        }
    }

    /// The host has waited for `stream`, or has run a command of its own there: commands from
    /// `next_ordinal` on come after.
    pub fn host_knows(&mut self, stream: StreamId, next_ordinal: u32) {
        let number = self.number(stream);
        if self.mutant.is(Mutation::HostForgets) {
            return;
        }
        let mut known = self.streams[number].clock.clone();
        if let Some((_, earlier)) = self.host_reads.last() {
            known.join(earlier);
        }
        self.host_reads.push((next_ordinal, known));
    }

    /// Whether what ran at `epoch` is over before the present command of `stream`.
    pub fn is_before(&self, epoch: Epoch, stream: StreamId) -> bool {
        let number = self.numbers.get(&stream);
        self.mutant.is(Mutation::AllIsOrdered)
            || number
                .is_some_and(|number| self.streams[*number].clock.at(epoch.stream) >= epoch.time)
    }

    /// Whether some stream but `own`, or the host, knows that `ticket` is over.
    pub fn is_joined(&self, own: StreamId, ticket: u32) -> bool {
        let Some(end) = self.tickets.get(&ticket) else {
            return true;
        };
        let own = self.numbers.get(&own).copied();
        let mut others = (0..).zip(&self.streams);
        others.any(|(number, stream)| Some(number) != own && end.is_within(&stream.clock))
            || self.is_host_known(end)
    }

    /// Whether the host knows that `ticket` is over.
    pub fn host_has(&self, ticket: u32) -> bool {
        let end = self.tickets.get(&ticket);
        end.is_some_and(|end| self.is_host_known(end))
    }

    fn is_host_known(&self, clock: &Clock) -> bool {
        let known = self.host_reads.last();
        known.is_some_and(|(_, known)| clock.is_within(known))
    }

    /// Whether what ran at `epoch` is over before whatever the host issues from now on.
    pub fn is_before_all(&self, epoch: Epoch) -> bool {
        let known = self.host_reads.last();
        known.is_some_and(|(_, known)| known.at(epoch.stream) >= epoch.time)
    }

    /// Nothing is queued: what the host knows, every command from here on knows. So tickets that
    /// say no more need not be kept.
    pub fn forget_known(&mut self) {
        let Some((_, known)) = self.host_reads.pop() else {
            return;
        };
        self.tickets.retain(|_, clock| !clock.is_within(&known));
        for stream in &mut self.streams {
            stream.clock.join(&known);
            stream.host_reads_seen = 1;
        }
        self.host_reads = vec![(0, known)];
    }

    /// Everything is over.
    pub fn synchronise(&mut self) {
        *self = StreamClocks {
            mutant: self.mutant,
            ..StreamClocks::default()
        };
    }

    fn number(&mut self, stream: StreamId) -> usize {
        let next = self.streams.len();
        let number = *self.numbers.entry(stream).or_insert(next);
        if number == next {
            self.streams.push(Stream::default());
        }
        number
    }
}

#[cfg(test)]
mod tests {
    use super::{Epoch, StreamClocks};
    use crate::world::rank::StreamId;
    use proptest::prelude::*;

    /// One command of a random program: (stream, what it does, which ticket).
    type Step = (u32, u8, usize);

    /// Edges of the program as a graph, closed by brute force.
    fn reachable(edges: &[(usize, usize)], commands: usize) -> Vec<Vec<bool>> {
        let mut before = vec![vec![false; commands]; commands];
        for (from, to) in edges {
            before[*from][*to] = true;
        }
        for middle in 0..commands {
            for from in 0..commands {
                for to in 0..commands {
                    before[from][to] |= before[from][middle] && before[middle][to];
                }
            }
        }
        before
    }

    proptest! {
        #[test]
        fn clocks_say_what_the_graph_says(
            program in prop::collection::vec((0u32..4, 0u8..5, 0usize..6), 1..24),
        ) {
            check(&program)?;
        }
    }

    fn check(program: &[Step]) -> Result<(), TestCaseError> {
        let mut clocks = StreamClocks::default();
        let mut edges = Vec::new();
        let mut last = [None; 4];
        let mut records: Vec<usize> = Vec::new();
        let mut reads: Vec<usize> = Vec::new();
        let mut epochs: Vec<Epoch> = Vec::new();
        let mut known: Vec<Vec<bool>> = Vec::new();
        for (number, (stream, verb, ticket)) in program.iter().enumerate() {
            let id = StreamId(*stream);
            edges.extend(last[*stream as usize].map(|before| (before, number)));
            edges.extend(reads.iter().map(|read| (*read, number)));
            epochs.push(clocks.advance(id, number as u32));
            match verb {
                0 | 1 => {
                    clocks.record(id, records.len() as u32);
                    records.push(number);
                }
                2 | 3 if *ticket < records.len() => {
                    clocks.wait(id, *ticket as u32);
                    edges.push((records[*ticket], number));
                }
                4 => {
                    clocks.host_knows(id, number as u32 + 1);
                    reads.push(number);
                }
                _ => {}
            }
            last[*stream as usize] = Some(number);
            known.push(
                epochs
                    .iter()
                    .map(|epoch| clocks.is_before(*epoch, id))
                    .collect(),
            );
        }
        let before = reachable(&edges, program.len());
        for (now, known) in known.iter().enumerate() {
            for (earlier, known) in known
                .iter()
                .enumerate()
                .filter(|(earlier, _)| *earlier < now)
            {
                prop_assert_eq!(*known, before[earlier][now], "{} before {}", earlier, now);
            }
        }
        Ok(())
    }
}
