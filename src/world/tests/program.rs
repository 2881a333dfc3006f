//! Small random programs of one rank: three streams, three device cells, one pinned cell, one block
//! that is freed and taken again.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

use crate::numerics::Dtype;
use crate::world::rank::Handle;
use crate::world::{Rank, RankError, StreamId, Tensor};

pub const STREAMS: u32 = 3;
pub const EVENTS: usize = 2;
/// Cells that live throughout; the last one is pinned.
pub const CELLS: usize = 4;
pub const PINNED: usize = 3;

/// Where a command reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Cell(usize),
    /// The live block, the last cell but one where there is none.
    Block,
}

#[derive(Clone, Debug)]
pub enum Verb {
    Set {
        stream: u32,
        to: Place,
        value: u32,
    },
    Copy {
        stream: u32,
        from: Place,
        to: Place,
    },
    Record {
        stream: u32,
        event: usize,
    },
    Wait {
        stream: u32,
        event: usize,
    },
    Sync {
        stream: u32,
    },
    HostSet {
        value: u32,
    },
    HostGet,
    /// The next command is left out if the event is not over.
    Query {
        event: usize,
    },
    Alloc {
        stream: u32,
    },
    /// The stream uses the block, too.
    User {
        stream: u32,
    },
    Free,
    EndStep,
}

#[derive(Clone, Debug)]
pub struct Program {
    pub verbs: Vec<Verb>,
}

impl Program {
    pub fn drawn(seed: u64) -> Program {
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut draw = |count: u32| random.next_u32() % count;
        let length = 4 + draw(4) as usize;
        let mut verbs = Vec::new();
        while verbs.len() < length {
            let verb = verb(&mut draw, verbs.len() as u32 + 1);
            let is_query = matches!(verb, Verb::Query { .. });
            verbs.push(verb);
            if is_query {
                verbs.push(write(&mut draw, 100));
            }
        }
        Program { verbs }
    }

    /// Which verb a command's op is of: each op ends with the verb's number.
    pub fn place(&self, op: &str) -> Option<usize> {
        let number: usize = op.rsplit(' ').next()?.parse().ok()?;
        // A free is named by its allocation.
        let is_free = op.starts_with("free ");
        let frees = |verb: &Verb| matches!(verb, Verb::Free);
        let after = (number..self.verbs.len()).find(|at| frees(&self.verbs[*at]));
        if is_free { after } else { Some(number) }
    }

    /// Whether a verb runs only after a question was answered with *ready*: no order of the run
    /// shows that the answer is no edge.
    pub fn is_guarded(&self, number: usize) -> bool {
        let before = number.checked_sub(1).map(|before| &self.verbs[before]);
        matches!(before, Some(Verb::Query { .. }))
    }

    /// Runs on a rank; the cells and what the host saw, in the end.
    pub fn run(&self, rank: &mut Rank) -> Result<Vec<u32>, RankError> {
        let mut cells = Vec::new();
        for number in 0..PINNED {
            let cell = rank.alloc(&format!("cell{number}"), Dtype::U32, 1);
            rank.upload("load", cell, &[0]);
            cells.push(cell);
        }
        let pinned = rank.alloc_host("pinned", Dtype::U32, 1);
        rank.host_write("load pinned", pinned, &[0])?;
        cells.push(pinned);
        rank.end_setup()?;
        let mut running = Running {
            cells,
            events: vec![None; EVENTS],
            block: None,
            step: 1,
            seen: Vec::new(),
            skips: false,
        };
        rank.set_step(running.step);
        for (number, verb) in self.verbs.iter().enumerate() {
            if !std::mem::take(&mut running.skips) {
                running.verb(rank, number, verb)?;
            }
        }
        rank.synchronize_device()?;
        let mut words = Vec::new();
        for cell in &running.cells[..PINNED] {
            words.extend(rank.read("look", *cell)?);
        }
        words.extend(rank.host_read("look", running.cells[PINNED])?);
        words.extend(running.seen);
        rank.end_step()?;
        Ok(words)
    }
}

fn place(draw: &mut impl FnMut(u32) -> u32) -> Place {
    match draw(6) {
        4 | 5 => Place::Block,
        cell => Place::Cell(cell as usize),
    }
}

fn write(draw: &mut impl FnMut(u32) -> u32, value: u32) -> Verb {
    Verb::Set {
        stream: draw(STREAMS),
        to: place(draw),
        value,
    }
}

fn verb(draw: &mut impl FnMut(u32) -> u32, value: u32) -> Verb {
    let stream = draw(STREAMS);
    let event = draw(EVENTS as u32) as usize;
    match draw(20) {
        0..=2 => write(draw, value),
        3..=5 => Verb::Copy {
            stream,
            from: place(draw),
            to: place(draw),
        },
        6 | 7 => Verb::Record { stream, event },
        8..=10 => Verb::Wait { stream, event },
        11 => Verb::Sync { stream },
        12 => Verb::HostSet { value },
        13 => Verb::HostGet,
        14 => Verb::Query { event },
        15 | 16 => Verb::Alloc { stream },
        17 => Verb::User { stream },
        18 => Verb::Free,
        _ => Verb::EndStep,
    }
}

/// A program on its way.
struct Running {
    cells: Vec<Tensor>,
    events: Vec<Option<Handle>>,
    block: Option<Tensor>,
    step: u32,
    seen: Vec<u32>,
    skips: bool,
}

impl Running {
    fn at(&self, place: Place) -> Tensor {
        match place {
            Place::Cell(cell) => self.cells[cell],
            Place::Block => self.block.unwrap_or(self.cells[PINNED - 1]),
        }
    }

    fn verb(&mut self, rank: &mut Rank, number: usize, verb: &Verb) -> Result<(), RankError> {
        let op = format!("verb {number}");
        match *verb {
            Verb::Set { stream, to, value } => {
                let to = self.at(to);
                rank.on_stream(StreamId(stream), |rank| rank.upload(&op, to, &[value]));
            }
            Verb::Copy { stream, from, to } => {
                let (from, to) = (self.at(from), self.at(to));
                if from == to {
                    return Ok(());
                }
                rank.on_stream(StreamId(stream), |rank| rank.copy(&op, from, to));
            }
            Verb::Record { stream, event } => {
                let stream = StreamId(stream);
                let handle = rank.on_stream(stream, |rank| rank.record_handle());
                self.events[event] = Some(handle);
            }
            Verb::Wait { stream, event } => {
                if let Some(handle) = self.events[event] {
                    rank.on_stream(StreamId(stream), |rank| rank.wait(handle));
                }
            }
            Verb::Sync { stream } => rank.synchronize_stream(StreamId(stream))?,
            Verb::HostSet { value } => rank.host_write(&op, self.cells[PINNED], &[value])?,
            Verb::HostGet => self.seen.extend(rank.host_read(&op, self.cells[PINNED])?),
            Verb::Query { event } => {
                if let Some(handle) = self.events[event] {
                    self.skips = !rank.query(&op, handle)?;
                }
            }
            Verb::Alloc { stream } if self.block.is_none() => {
                let name = format!("b {number}");
                let stream = StreamId(stream);
                let block = rank.on_stream(stream, |rank| rank.alloc(&name, Dtype::U32, 1));
                self.block = Some(block);
            }
            Verb::User { stream } => {
                if let Some(block) = self.block {
                    rank.record_stream(block, StreamId(stream));
                }
            }
            Verb::Free => {
                if let Some(block) = self.block.take() {
                    rank.free(block);
                }
            }
            Verb::Alloc { .. } => {}
            Verb::EndStep => {
                rank.end_step()?;
                self.step += 1;
                rank.set_step(self.step);
            }
        }
        Ok(())
    }
}
