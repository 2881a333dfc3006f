//! What every stream owes: its own rank, its sequence, iterations that go on, each record once.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use crate::trace::damage::{Damage, Whereabouts};

/// How sequence numbers go on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sequence {
    /// From 0 without a gap (the op stream).
    Contiguous,
    /// Upwards (pull request 6610).
    Increasing,
}

/// Where a stream has come to.
#[derive(Clone, Debug)]
pub struct Course {
    sequence: Sequence,
    rank: Option<u32>,
    next: u64,
    iteration: Option<u64>,
    /// The iterations seen, as runs of neighbours.
    iterations: Vec<(u64, u64)>,
    /// Identities of this iteration, hashed, each with its file and line: bounded by one iteration.
    identities: Vec<(u64, usize, u64)>,
    /// The files of this iteration so far, the current one last.
    files: Vec<Arc<str>>,
}

/// What a record says of its place in the stream.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub rank: u64,
    pub seq: u64,
    pub iteration: Option<u64>,
    /// A hash of what the record is known by; nothing where only its header was read.
    pub identity: Option<u64>,
}

impl Course {
    /// The stream of `rank`; of whichever rank its first record says, if none is given.
    pub fn new(sequence: Sequence, rank: Option<u32>) -> Course {
        Course {
            sequence,
            rank,
            next: 0,
            iteration: None,
            iterations: Vec::new(),
            identities: Vec::new(),
            files: Vec::new(),
        }
    }

    /// A rank's next file: pull request 7262 counts anew in each.
    pub fn next_file(&mut self) {
        self.next = 0;
    }

    pub fn rank(&self) -> Option<u32> {
        self.rank
    }

    /// Runs of neighbouring iterations, ascending.
    pub fn iterations(&self) -> &[(u64, u64)] {
        &self.iterations
    }

    /// Takes the next record's place in.
    ///
    /// # Errors
    /// It does not go on from the last one.
    pub fn step(&mut self, step: Step, here: &Whereabouts<'_>) -> Result<(), Damage> {
        let rank = self.rank.map_or(step.rank, u64::from);
        if step.rank != rank || step.rank > u64::from(u32::MAX) {
            let message = format!("a record of rank {} in the file of rank {rank}", step.rank);
            return Err(here.damage("wrong-rank", 0, message));
        }
        self.rank = Some(step.rank as u32);
        let is_next = match self.sequence {
            Sequence::Contiguous => step.seq == self.next,
            Sequence::Increasing => step.seq >= self.next,
        };
        if !is_next {
            let (seq, next) = (step.seq, self.next);
            return Err(match self.sequence {
                Sequence::Contiguous => here
                    .damage("sequence-gap", 0, format!("seq {seq} where {next} is next"))
                    .expecting("records were lost, or put in twice"),
                Sequence::Increasing => here
                    .damage(
                        "sequence-gap",
                        0,
                        format!("sequence {seq} is not above the last"),
                    )
                    .expecting(format!("at least {next}")),
            });
        }
        self.next = step.seq.saturating_add(1);
        self.go_to(step.iteration, here)?;
        if self.files.last() != Some(here.file) {
            self.files.push(here.file.clone());
        }
        let place = (self.files.len() - 1, here.line);
        let identity = step.identity.map(|identity| (identity, place.0, place.1));
        self.identities.extend(identity);
        Ok(())
    }

    fn go_to(&mut self, iteration: Option<u64>, here: &Whereabouts<'_>) -> Result<(), Damage> {
        if iteration == self.iteration && !self.iterations.is_empty() {
            return Ok(());
        }
        // Records outside of iterations stand beside those of any.
        let Some(new) = iteration else {
            return Ok(());
        };
        match self.iterations.last_mut() {
            Some((_, last)) if new == *last => return Ok(()),
            Some((_, last)) if new < *last => {
                let message = format!("iteration {new} after iteration {last}");
                return Err(here
                    .damage("iteration-back", 0, message)
                    .expecting("a restarted run writes a folder of its own"));
            }
            Some((_, last)) if new == *last + 1 => *last = new,
            _ => self.iterations.push((new, new)),
        }
        self.iteration = iteration;
        self.close()
    }

    /// Ends an iteration: whatever is known by a name must have been there once.
    ///
    /// # Errors
    /// A record that was there twice.
    pub fn close(&mut self) -> Result<(), Damage> {
        self.identities.sort_unstable();
        let twice = self
            .identities
            .windows(2)
            .find(|pair| pair[0].0 == pair[1].0);
        let found = twice.map(|pair| (pair[0], pair[1]));
        self.identities.clear();
        let files = std::mem::take(&mut self.files);
        let Some(((_, file, first), (_, other, second))) = found else {
            return Ok(());
        };
        let of = match file == other {
            true => String::new(),
            false => format!(" of {}", files[file]),
        };
        let message = format!("lines {first}{of} and {second} are known by the same name");
        let at = Whereabouts {
            file: &files[other],
            line: second,
            offset: 0,
            bytes: &[],
        };
        Err(at
            .damage("same-identity", 0, message)
            .expecting("one record of an iteration, kind and id"))
    }
}

/// A hash of what a record is known by, alike in every process.
pub fn identity(parts: &[&str]) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}
