//! One rank's op stream, read and certified record by record.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

use super::course::{Course, Sequence, Step, identity};
use crate::trace::damage::{Damage, Whereabouts};
use crate::trace::header::Header;
use crate::trace::lines::Lines;
use crate::trace::op::{Operand, Record, Unknown, Value};
use crate::trace::point::Point;
use crate::trace::strength::Strength;

/// What a rank's stream covers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    pub rank: u32,
    pub records: u64,
    /// Of those, records of which only the header was read: they are equal on both sides.
    pub headers_only: u64,
    /// Runs of iterations, both ends included.
    pub iterations: Vec<(u64, u64)>,
    /// Records of each kind.
    pub kinds: BTreeMap<String, u64>,
    /// Operands that have a digest, and of those the ones whose digest knows no order.
    pub digested: u64,
    pub order_blind: u64,
    /// Operands without a digest, by why.
    pub undigested: BTreeMap<Unknown, u64>,
    /// Recomputed outputs that were held against their forward's.
    pub recomputed: u64,
    /// Whether the recorder says that it came to its end.
    pub is_ended: bool,
}

/// Checks records in their order and counts what they cover.
#[derive(Clone, Debug)]
pub struct Certifier {
    course: Course,
    coverage: Coverage,
    kinds: Vec<(String, u64)>,
    /// Begun and not ended: where.
    open: BTreeMap<(String, String), u64>,
    /// Outputs of this iteration's `forward` records, for recomputation.
    forwards: BTreeMap<String, Vec<Seen>>,
    iteration: Option<u64>,
    undigested: [u64; 5],
}

/// Kind of the record that our recorder ends with: `end`, or `failed` when it could not go on.
const RECORDER: &str = "recorder";
/// More kinds than this are none.
const KINDS_MAX: usize = 1024;
/// More pairs than this are never open at once.
const OPEN_MAX: usize = 1 << 20;

impl Certifier {
    pub fn new(rank: Option<u32>) -> Certifier {
        Certifier {
            course: Course::new(Sequence::Contiguous, rank),
            coverage: Coverage::default(),
            kinds: Vec::new(),
            open: BTreeMap::new(),
            forwards: BTreeMap::new(),
            iteration: None,
            undigested: [0; 5],
        }
    }

    /// Records of each kind that were taken in so far.
    pub fn kinds(&self) -> &[(String, u64)] {
        &self.kinds
    }

    /// Takes a record in.
    ///
    /// # Errors
    /// Whatever makes the stream no stream.
    pub fn take(&mut self, record: &Record<'_>, here: &Whereabouts<'_>) -> Result<(), Damage> {
        let step = Step {
            rank: record.rank,
            seq: record.seq,
            iteration: record.iteration,
            // Records outside of iterations are no copies of those within.
            identity: Some(match record.iteration {
                Some(_) => identity(&[&record.kind, &record.id]),
                None => identity(&["", &record.kind, &record.id]),
            }),
        };
        self.course.step(step, here)?;
        self.count(&record.kind, here)?;
        if &*record.kind == RECORDER && &*record.name == "failed" {
            let why = record.extra.get("reason").unwrap_or("no reason is given");
            let message = format!("the recorder failed here: {why}");
            return Err(here.damage("recorder-failed", 0, message));
        }
        self.coverage.is_ended = &*record.kind == RECORDER && &*record.name == "end";
        for operand in record.inputs.iter().chain(&record.outputs) {
            match &operand.value {
                Value::Unknown(why) => self.undigested[*why as usize] += 1,
                Value::Digest { .. } => {
                    self.coverage.digested += 1;
                    let is_blind = operand.strength() == Some(Strength::Xor);
                    self.coverage.order_blind += u64::from(is_blind);
                }
            }
        }
        self.pair(record, here)?;
        self.recompute(record, here)
    }

    /// Takes in a record that is equal on the other side, of which the header was read.
    ///
    /// # Errors
    /// It does not go on from the last one.
    pub fn take_header(
        &mut self,
        header: &Header<'_>,
        here: &Whereabouts<'_>,
    ) -> Result<(), Damage> {
        let step = Step {
            rank: header.rank,
            seq: header.seq,
            iteration: header.iteration,
            identity: None,
        };
        self.course.step(step, here)?;
        self.coverage.headers_only += 1;
        self.coverage.is_ended = false;
        self.count(header.kind, here)
    }

    fn count(&mut self, kind: &str, here: &Whereabouts<'_>) -> Result<(), Damage> {
        self.coverage.records += 1;
        let known = self.kinds.len();
        match self.kinds.iter_mut().find(|(known, _)| known == kind) {
            Some((_, count)) => *count += 1,
            None if known >= KINDS_MAX => {
                let message = format!("more than {KINDS_MAX} kinds of records");
                let damage = here.damage("too-many-kinds", 0, message);
                return Err(damage.expecting("kinds such as op, collective, grad and param"));
            }
            None => self.kinds.push((kind.to_string(), 1)),
        }
        Ok(())
    }

    /// Kinds that end in `_begin` and `_end` are a pair by name and occurrence.
    fn pair(&mut self, record: &Record<'_>, here: &Whereabouts<'_>) -> Result<(), Damage> {
        let begun = record.kind.strip_suffix("_begin");
        let Some(kind) = begun.or_else(|| record.kind.strip_suffix("_end")) else {
            return Ok(());
        };
        let occurrence = record.id.rsplit(':').next().unwrap_or_default();
        let iteration = record.iteration.unwrap_or(0);
        let key = (
            format!("{kind} {}", record.name),
            format!("{iteration}:{occurrence}"),
        );
        let found = match begun {
            Some(_) => self.open.insert(key, here.line).is_none(),
            None => self.open.remove(&key).is_some(),
        };
        if !found || self.open.len() > OPEN_MAX {
            let message = format!("{} {} has no counterpart", record.kind, record.id);
            return Err(here
                .damage("unpaired", 0, message)
                .expecting("a begin, then its end"));
        }
        Ok(())
    }

    /// A `recompute` record names its forward by `of`: both must have written the same bytes.
    fn recompute(&mut self, record: &Record<'_>, here: &Whereabouts<'_>) -> Result<(), Damage> {
        // Records outside of iterations stand beside those of any.
        if record.iteration.is_some() && record.iteration != self.iteration {
            self.iteration = record.iteration;
            self.forwards.clear();
        }
        if &*record.kind == "forward" {
            let outputs = record.outputs.iter().map(Seen::of).collect();
            self.forwards.insert(record.id.to_string(), outputs);
        }
        if &*record.kind != "recompute" {
            return Ok(());
        }
        let of = record.extra.get("of").unwrap_or_default().trim_matches('"');
        let outputs: Vec<Seen> = record.outputs.iter().map(Seen::of).collect();
        let message = match self.forwards.get(of) {
            Some(forward) if agree(forward, &outputs) => {
                let known = forward.iter().zip(&outputs);
                let known = known.filter(|(x, y)| x.value.is_known() && y.value.is_known());
                self.coverage.recomputed += known.count() as u64;
                return Ok(());
            }
            Some(_) => format!(
                "{} was recomputed to other bytes than its forward `{of}`",
                record.id
            ),
            None => format!(
                "{} recomputes `{of}`, and there is no such forward",
                record.id
            ),
        };
        Err(here.damage("recompute-differs", 0, message))
    }

    /// Ends the stream.
    ///
    /// # Errors
    /// Pairs that were begun and never ended, records that were there twice.
    pub fn finish(mut self, here: &Whereabouts<'_>) -> Result<Coverage, Damage> {
        self.course.close()?;
        if let Some(((what, at), line)) = self.open.iter().next() {
            let more = self.open.len();
            let message =
                format!("{more} begun and never ended, such as {what} {at} of line {line}");
            return Err(here.damage("unpaired", 0, message));
        }
        self.coverage.rank = self.course.rank().unwrap_or_default();
        self.coverage.iterations = self.course.iterations().to_vec();
        self.coverage.kinds = self.kinds.into_iter().collect();
        let reasons = [
            Unknown::WriteOnly,
            Unknown::Tainted,
            Unknown::InFlight,
            Unknown::Oversize,
            Unknown::Unsaid,
        ];
        let counts = reasons.into_iter().zip(self.undigested);
        self.coverage.undigested = counts.filter(|(_, count)| *count > 0).collect();
        Ok(self.coverage)
    }
}

/// Whether what such a record says is needed for another one.
fn is_half_of_two(kind: &str) -> bool {
    kind.ends_with("_begin")
        || kind.ends_with("_end")
        || ["forward", "recompute", RECORDER].contains(&kind)
}

/// An output of a forward, as far as its recomputation must give it again.
#[derive(Clone, Debug)]
struct Seen {
    shape: Vec<u64>,
    dtype: String,
    value: Value<'static>,
}

impl Seen {
    fn of(operand: &Operand<'_>) -> Seen {
        Seen {
            shape: operand.shape.clone(),
            dtype: operand.dtype.to_string(),
            value: operand.value.clone().into_owned(),
        }
    }

    /// Whether nothing that both know differs.
    fn agrees(&self, again: &Seen) -> bool {
        let is_same_tensor = self.shape == again.shape && self.dtype == again.dtype;
        is_same_tensor && !self.value.differs(&again.value)
    }
}

fn agree(forward: &[Seen], again: &[Seen]) -> bool {
    let mut pairs = forward.iter().zip(again);
    forward.len() == again.len() && pairs.all(|(x, y)| x.agrees(y))
}

/// A rank's files as one stream of lines, certified as it is read.
pub struct RankStream {
    files: VecDeque<PathBuf>,
    lines: Lines,
    certifier: Certifier,
}

impl RankStream {
    /// Opens the stream of a rank, or of whichever rank a single file holds.
    ///
    /// # Errors
    /// What cannot be opened.
    pub fn open(files: &[PathBuf], rank: Option<u32>) -> Result<RankStream, Damage> {
        let (first, rest) = files.split_first().expect("a rank has a file");
        Ok(RankStream {
            lines: Lines::open(first)?,
            files: rest.iter().cloned().collect(),
            certifier: Certifier::new(rank),
        })
    }

    /// Whether there is a current record; blank lines are none.
    ///
    /// # Errors
    /// Files that cannot be read on.
    pub fn ready(&mut self) -> Result<bool, Damage> {
        loop {
            if !self.lines.ready()? {
                let Some(next) = self.files.pop_front() else {
                    return Ok(false);
                };
                self.lines = Lines::open(&next)?;
                self.certifier.course.next_file();
            } else if self.lines.line().trim_ascii().is_empty() {
                self.lines.advance();
            } else {
                return Ok(true);
            }
        }
    }

    pub fn lines(&mut self) -> &mut Lines {
        &mut self.lines
    }

    pub fn line(&self) -> &[u8] {
        self.lines.line()
    }

    /// The current record, parsed.
    ///
    /// # Errors
    /// A line that is none.
    pub fn record(&self) -> Result<Record<'_>, Damage> {
        Record::read(&self.lines.whereabouts())
    }

    /// Parses and certifies the current record, and shows it.
    ///
    /// # Errors
    /// A line that is no record, or does not go on from the last one.
    pub fn certified<T>(&mut self, show: impl FnOnce(&Record<'_>) -> T) -> Result<T, Damage> {
        let here = self.lines.whereabouts();
        let record = Record::read(&here)?;
        self.certifier.take(&record, &here)?;
        Ok(show(&record))
    }

    /// Certifies the current record by its header, where it has the usual form; else in full.
    ///
    /// # Errors
    /// As [`RankStream::certified`].
    pub fn certified_header(&mut self) -> Result<(), Damage> {
        let here = self.lines.whereabouts();
        match Header::scan(here.bytes) {
            Some(header) if !is_half_of_two(header.kind) => {
                self.certifier.take_header(&header, &here)
            }
            _ => {
                let record = Record::read(&here)?;
                self.certifier.take(&record, &here)
            }
        }
    }

    pub fn advance(&mut self) {
        self.lines.advance();
    }

    /// Records of each kind that were certified so far.
    pub fn kinds(&self) -> &[(String, u64)] {
        self.certifier.kinds()
    }

    /// Whether the last record says that the recorder came to its end.
    pub fn is_ended(&self) -> bool {
        self.certifier.coverage.is_ended
    }

    /// The lines and their certificate, for who parses records by itself.
    pub fn parts(&mut self) -> (&Lines, &mut Certifier) {
        (&self.lines, &mut self.certifier)
    }

    /// Takes over the certificate of a stream that was the same so far.
    pub fn certify_as(&mut self, other: &RankStream) {
        self.certifier = other.certifier.clone();
    }

    /// Reads and certifies whatever is left, and ends the stream.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn finish(self) -> Result<Coverage, Damage> {
        self.finish_looking_for(None).map(|(coverage, _)| coverage)
    }

    /// As [`RankStream::finish`]; tells whether the rest has a record of that name.
    ///
    /// # Errors
    /// The first thing that is wrong with the stream.
    pub fn finish_looking_for(
        mut self,
        wanted: Option<&Point>,
    ) -> Result<(Coverage, bool), Damage> {
        let mut is_there = false;
        while self.ready()? {
            is_there |= self.certified(|record| {
                wanted.is_some_and(|wanted| {
                    record.iteration == wanted.iteration
                        && *record.id == *wanted.id
                        && *record.kind == *wanted.kind
                })
            })?;
            self.advance();
        }
        let here = self.lines.whereabouts();
        Ok((self.certifier.finish(&here)?, is_there))
    }
}
