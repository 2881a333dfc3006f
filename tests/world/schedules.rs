//! Random programs of up to four ranks with collectives and messages: without a hazard, every
//! schedule of their streams gives the same bits. `BITPROOF_SCHEDULES=N` tries N a program.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use bitproof::plan::Combine;
use bitproof::world::{EventId, Family, Handle, Rank, RankError, StreamId, Tensor};

use crate::cluster::{ALL, Cluster, Outcome, Seen, show, step_in_place, tensor};

const PROGRAMS: u64 = 40;
const SCHEDULES: u64 = 6;
const CELLS: usize = 3;

/// What every rank does, one after the other.
#[derive(Clone, Copy, Debug)]
enum Verb {
    Step {
        stream: u32,
        cell: usize,
    },
    Reduce {
        stream: u32,
        cell: usize,
    },
    Pass {
        from: usize,
        to: usize,
    },
    /// A stream waits for all handles so far.
    Wait {
        stream: u32,
    },
    Record {
        stream: u32,
    },
    WaitEvent {
        stream: u32,
    },
}

#[derive(Clone, Debug)]
struct Program {
    ranks: u32,
    verbs: Vec<Verb>,
}

impl Program {
    fn drawn(seed: u64) -> Program {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut draw = |count: u32| random.next_u32() % count;
        let ranks = 2 + draw(3);
        let count = 5 + draw(5);
        let verbs = (0..count).map(|_| {
            let (stream, cell) = (draw(2), draw(CELLS as u32) as usize);
            match draw(8) {
                0 | 1 => Verb::Step { stream, cell },
                2 | 3 => Verb::Reduce { stream, cell },
                4 => Verb::Pass {
                    from: cell,
                    to: (cell + 1) % CELLS,
                },
                5 => Verb::Wait { stream },
                6 => Verb::Record { stream },
                _ => Verb::WaitEvent { stream },
            }
        });
        let verbs = verbs.collect();
        Program { ranks, verbs }
    }

    fn run(&self, rank: &mut Rank, seen: &Seen) -> Result<(), RankError> {
        let cells: Vec<Tensor> = (0..CELLS)
            .map(|cell| tensor(rank, &format!("cell{cell}"), &[(rank.id + 1) as f32; 4]))
            .collect();
        rank.end_setup()?;
        rank.set_step(1);
        let mut handles = Vec::new();
        for (number, verb) in self.verbs.iter().enumerate() {
            self.verb(rank, &cells, &mut handles, (number, *verb));
        }
        handles.into_iter().for_each(|handle| rank.wait(handle));
        rank.synchronize_device()?;
        for (number, cell) in cells.iter().enumerate() {
            show(rank, seen, &format!("cell{number}"), *cell)?;
        }
        rank.end_step()
    }

    fn verb(
        &self,
        rank: &mut Rank,
        cells: &[Tensor],
        handles: &mut Vec<Handle>,
        (number, verb): (usize, Verb),
    ) {
        let op = format!("verb {number}");
        match verb {
            Verb::Step { stream, cell } => rank.on_stream(StreamId(stream), |rank| {
                step_in_place(rank, &op, cells[cell], 2.0);
            }),
            Verb::Reduce { stream, cell } => {
                handles.push(rank.on_stream(StreamId(stream), |rank| {
                    rank.all_reduce(&op, Family::DpGradients, ALL, cells[cell], Combine::Sum)
                }));
            }
            Verb::Pass { from, to } => {
                let next = (rank.id + 1) % self.ranks;
                let previous = (rank.id + self.ranks - 1) % self.ranks;
                handles.push(rank.send(&op, next, cells[from]));
                handles.push(rank.recv(&op, previous, cells[to]));
            }
            Verb::Wait { stream } => rank.on_stream(StreamId(stream), |rank| {
                handles.iter().for_each(|handle| rank.wait(*handle));
            }),
            Verb::Record { stream } => {
                rank.on_stream(StreamId(stream), |rank| rank.record(EventId(0)));
            }
            Verb::WaitEvent { stream } => {
                rank.on_stream(StreamId(stream), |rank| rank.wait_event(EventId(0)));
            }
        }
    }
}

fn words(program: &Program, outcome: &Outcome) -> Vec<Vec<u32>> {
    let cells = (0..CELLS).map(|cell| format!("cell{cell}"));
    let cells: Vec<String> = cells.collect();
    let of_rank = |rank| cells.iter().map(move |cell| (rank, cell));
    let places = (0..program.ranks).flat_map(of_rank);
    places
        .map(|(rank, cell)| outcome.words(rank, cell))
        .collect()
}

fn scheduled(program: &Program, seed: Option<u64>) -> Outcome {
    let run = program.clone();
    let cluster = Cluster::new(program.ranks).watched();
    let cluster = cluster.options(|options| options.shuffle = seed);
    cluster.run(move |rank, seen| run.run(rank, seen))
}

#[test]
fn without_a_hazard_every_schedule_gives_the_same_bits() {
    let asked = std::env::var("BITPROOF_SCHEDULES").ok();
    let schedules = asked
        .and_then(|asked| asked.parse().ok())
        .unwrap_or(SCHEDULES);
    let (mut clean, mut parted) = (0, 0);
    for number in 0..PROGRAMS {
        let program = Program::drawn(number);
        let canonical = scheduled(&program, None);
        let expected = words(&program, &canonical);
        let is_clean = canonical.record().hazards.is_empty();
        clean += u32::from(is_clean);
        for seed in 0..schedules {
            let other = scheduled(&program, Some(seed));
            let found = &other.record().hazards;
            assert_eq!(
                found.is_empty(),
                is_clean,
                "{seed}: {program:#?}\n{found:#?}"
            );
            let is_equal = words(&program, &other) == expected;
            assert!(is_equal || !is_clean, "schedule {seed} of {program:#?}");
            parted += u32::from(!is_equal);
        }
    }
    // The control: schedules do differ, and programs with hazards show it.
    assert!(
        clean >= 5 && parted >= 5,
        "{clean} without a hazard, {parted} runs parted"
    );
}
