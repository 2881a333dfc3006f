use std::sync::Arc;

use proptest::prelude::*;

use super::{AccessLog, Roles};
use crate::numerics::Dtype;
use crate::world::command::{Command, Issued, Ticket};
use crate::world::memory::{Hazard, HazardLog};
use crate::world::rank::{COMPUTE_STREAM, StreamId, Tensor};
use crate::world::site::{Phase, Site};

/// What a host issues, to one of its streams.
#[derive(Clone, Debug)]
enum Verb {
    Alloc,
    Free,
    /// A copy within one buffer.
    Copy(u32, u32),
    Record,
    /// For the how-manieth record before.
    Wait(u32),
    Query(u32),
    /// A message arrives, and is over.
    Recv(u32),
    /// The host reads behind the stream.
    Read(u32),
    /// The host reads behind the stream, and a step ends.
    StepEnds,
    /// The end of set-up.
    Synchronises,
    /// The host stands still: everything is judged.
    Park,
}

fn verb() -> impl Strategy<Value = (u32, Verb)> {
    let verb = prop_oneof![
        1 => Just(Verb::Alloc),
        1 => Just(Verb::Free),
        6 => (0u32..8, 0u32..8).prop_map(|(from, to)| Verb::Copy(from, to)),
        2 => Just(Verb::Record),
        3 => (0u32..3).prop_map(Verb::Wait),
        1 => (0u32..3).prop_map(Verb::Query),
        2 => (0u32..8).prop_map(Verb::Recv),
        1 => (0u32..8).prop_map(Verb::Read),
        1 => Just(Verb::StepEnds),
        1 => Just(Verb::Synchronises),
        2 => Just(Verb::Park),
    ];
    (0u32..3, verb)
}

fn words(start: u32, len: u32) -> Tensor {
    Tensor {
        buffer: 0,
        start,
        len,
        dtype: Dtype::F32,
    }
}

/// One rank's host and streams: commands run as they are issued.
#[derive(Default)]
struct Host {
    log: AccessLog,
    ordinal: u32,
    records: u32,
}

impl Host {
    /// Stream 0 is the compute stream; the others lead elsewhere on each rank.
    fn stream(&self, rank: u32, stream: u32) -> StreamId {
        match stream {
            0 => COMPUTE_STREAM,
            other => StreamId(0x2000_0000 + 16 * rank + other),
        }
    }

    fn run(&mut self, rank: u32, (stream, verb): &(u32, Verb)) {
        let stream = self.stream(rank, *stream);
        let edge = || "an edge".into();
        let earlier = |back: u32| Ticket {
            number: self.records.saturating_sub(back + 1),
            edge: edge(),
        };
        let command = match verb {
            Verb::Alloc => Command::Alloc {
                tensor: words(0, 12),
                name: "a buffer".into(),
                poison: None,
            },
            Verb::Free => Command::Free {
                tensor: words(0, 12),
                users: vec![COMPUTE_STREAM, self.stream(rank, 1)].into(),
            },
            Verb::Copy(from, to) => Command::Copy {
                from: words(*from, 4),
                to: words(*to, 4),
            },
            Verb::Record => Command::Record {
                ticket: Ticket {
                    number: self.records,
                    edge: edge(),
                },
            },
            Verb::Wait(back) => Command::Wait {
                ticket: earlier(*back),
            },
            Verb::Recv(at) => Command::Recv {
                from: 0,
                tensor: words(*at, 4),
                ticket: Ticket {
                    number: self.records,
                    edge: edge(),
                },
            },
            Verb::Read(at) => Command::Read {
                from: words(*at, 4),
            },
            Verb::StepEnds => {
                self.log
                    .read_at_end(self.site(), COMPUTE_STREAM, words(0, 4));
                return self.log.end_step();
            }
            Verb::Synchronises => return self.log.synchronise(),
            Verb::Query(_) | Verb::Park => return,
        };
        self.records += u32::from(command.completes().is_some());
        let issued = Issued {
            site: self.site(),
            stream,
            ordinal: self.ordinal,
            command,
        };
        self.ordinal += 1;
        self.log.issued(stream, &issued);
        self.log.begin(stream, &issued);
        match &issued.command {
            Command::Copy { from, to } => {
                self.log.read(*from);
                self.log.write(*to);
            }
            Command::Read { from } => self.log.read(*from),
            Command::Recv { tensor, ticket, .. } => {
                self.log.write(*tensor);
                self.log.finish(stream, ticket.number);
            }
            _ => {}
        }
    }

    fn site(&self) -> Arc<Site> {
        Arc::new(Site {
            step: 0,
            microbatch: None,
            phase: Phase::Forward,
            module: "".into(),
            op: self.ordinal.to_string().into(),
        })
    }
}

/// What a rank met, and what it was told when it asked.
type Seen = (Vec<Hazard>, Vec<bool>);

/// What each rank of one world saw, and how many trackers followed them.
fn followed(programs: &[(u32, Vec<(u32, Verb)>)]) -> (Vec<Seen>, usize) {
    let count = programs.len();
    let mut roles = Roles::new(count as u32);
    roles.compared_max = 1;
    let mut hosts: Vec<Host> = (0..count).map(|_| Host::default()).collect();
    let mut found: Vec<HazardLog> = (0..count).map(|_| HazardLog::default()).collect();
    let mut answers = vec![Vec::new(); count];
    let mut moment = 0;
    let longest = programs.iter().map(|(_, program)| program.len()).max();
    for place in 0..=longest.unwrap_or(0) {
        let mut parks = place == longest.unwrap_or(0);
        for (number, (rank, program)) in programs.iter().enumerate() {
            let host = &mut hosts[number];
            if place == program.len() {
                host.log.judge_joins(None);
                moment += 1;
                host.log.mark(moment);
            }
            let Some(step) = program.get(place) else {
                continue;
            };
            host.run(*rank, step);
            moment += 1;
            host.log.mark(moment);
            parks |= matches!(step.1, Verb::Park);
            if let Verb::Query(back) = step.1 {
                for (_, _, conflict) in roles.judge(&mut [&mut host.log]) {
                    found[number].add(*rank, &conflict, &[]);
                }
                let ticket = host.records.saturating_sub(back + 1);
                answers[number].push(roles.host_has(&host.log, ticket));
            }
        }
        if parks {
            let mut logs: Vec<&mut AccessLog> =
                hosts.iter_mut().map(|host| &mut host.log).collect();
            for (_, number, conflict) in roles.judge(&mut logs) {
                found[number].add(programs[number].0, &conflict, &[]);
            }
        }
    }
    if let Some(first) = hosts.first() {
        roles.release(&first.log);
    }
    let found = found.into_iter().map(|log| log.finish().0);
    let used = roles.holders.iter().filter(|holders| **holders > 0).count();
    (found.zip(answers).collect(), used)
}

/// The host's read at the end of a step and the next command's are two places, although they have
/// one number and their words are neighbours.
#[test]
fn a_read_at_the_end_of_a_step_is_no_part_of_the_next_command() {
    let verbs = [
        Verb::Alloc,
        Verb::StepEnds,
        Verb::StepEnds,
        Verb::Record,
        Verb::Copy(4, 0),
    ];
    let program = verbs.map(|verb| (0, verb)).to_vec();
    let (seen, _) = followed(&[(0, program)]);
    let words: Vec<(u32, u32)> = seen[0].0.iter().map(|hazard| hazard.words).collect();
    assert_eq!(words, [(0, 4), (4, 8)]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]
    /// Three ranks of one program, one of another that starts alike, each against a world of its
    /// own.
    #[test]
    fn ranks_that_share_a_tracker_meet_what_they_meet_alone(
        program in prop::collection::vec(verb(), 1..24),
        ending in prop::collection::vec(verb(), 0..6),
        cut in 0usize..24,
    ) {
        let mut other = program.clone();
        other.truncate(cut);
        other.extend(ending);
        let programs: Vec<(u32, Vec<(u32, Verb)>)> = (0..4)
            .map(|rank| (rank, if rank == 0 { other.clone() } else { program.clone() }))
            .collect();
        let (together, _) = followed(&programs);
        for (one, seen) in programs.iter().zip(&together) {
            let (alone, _) = followed(std::slice::from_ref(one));
            prop_assert_eq!(&alone[0], seen);
        }
    }

    #[test]
    fn equal_ranks_that_ask_nothing_share_one_tracker(
        program in prop::collection::vec(verb(), 1..24),
        ranks in 1u32..5,
    ) {
        let asks = |verb: &Verb| matches!(verb, Verb::Query(_));
        let program: Vec<(u32, Verb)> =
            program.into_iter().filter(|(_, verb)| !asks(verb)).collect();
        let programs: Vec<_> = (0..ranks).map(|rank| (rank, program.clone())).collect();
        let (_, used) = followed(&programs);
        prop_assert_eq!(used, usize::from(ranks > 1));
    }
}
