use super::{AccessTracker, Act, Beginning, Event};
use crate::numerics::Dtype;
use crate::world::command::{Command, Issued, Ticket};
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
        Verb::Record => Command::Record {
            ticket: numbered(records),
        },
        Verb::Wait(ticket) => Command::Wait {
            ticket: numbered(*ticket as u32),
        },
    }
}

fn numbered(number: u32) -> Ticket {
    let edge = "an edge".into();
    Ticket { number, edge }
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
            stream: StreamId(*stream),
            ordinal: ordinal as u32,
            command: command(verb, records),
        };
        let stream = StreamId(*stream);
        if let Command::Record { ticket } = &issued.command {
            let edge = ticket.edge.clone();
            let ordinal = issued.ordinal;
            tracker.tell(&Event::Records {
                ordinal,
                stream,
                edge,
            });
            records += 1;
        }
        tracker.tell(&Event::IssuedTo(issued.ordinal + 1));
        tracker.tell(&Event::Begins(Beginning {
            site: issued.site.clone(),
            stream,
            ordinal: issued.ordinal,
            act: Act::of(&issued),
        }));
        match (verb, &issued.command) {
            (Verb::Read(..), Command::Copy { from, .. }) => tracker.read(*from),
            (Verb::Write(..), Command::Copy { to, .. }) => tracker.write(*to),
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
