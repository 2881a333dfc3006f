//! A rank's boundary stream, read and certified.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::{Boundary, Mode};
use crate::trace::certify::{Course, Sequence, Step};
use crate::trace::damage::Damage;
use crate::trace::lines::Lines;

/// What a rank's boundary stream covers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BoundaryCoverage {
    pub records: u64,
    pub iterations: Vec<(u64, u64)>,
    /// Tensor records by mode.
    pub modes: BTreeMap<Mode, u64>,
}

/// The file of one rank.
pub struct BoundaryStream {
    lines: Lines,
    course: Course,
    coverage: BoundaryCoverage,
}

/// Certifies a rank's file.
///
/// # Errors
/// The first thing that is wrong with it.
pub fn certify(files: &[PathBuf], rank: Option<u32>) -> Result<BoundaryCoverage, Damage> {
    BoundaryStream::open(files, rank)?.finish()
}

impl BoundaryStream {
    /// Opens the stream of a rank, or of whichever rank a single file holds.
    ///
    /// # Errors
    /// What cannot be opened, or a second file.
    pub fn open(files: &[PathBuf], rank: Option<u32>) -> Result<BoundaryStream, Damage> {
        if let [_, second, ..] = files {
            let name = second.display().to_string().into();
            let message = "a boundary stream is one file a rank";
            return Err(Damage::of_file("two-files", &name, message));
        }
        Ok(BoundaryStream {
            lines: Lines::open(&files[0])?,
            course: Course::new(Sequence::Increasing, rank),
            coverage: BoundaryCoverage::default(),
        })
    }

    /// Shows the next record, certified; nothing at the end.
    ///
    /// # Errors
    /// What is no record, or does not go on from the last one.
    pub fn next<T>(&mut self, show: impl FnOnce(&Boundary<'_>) -> T) -> Result<Option<T>, Damage> {
        while self.lines.ready()? && self.lines.line().trim_ascii().is_empty() {
            self.lines.advance();
        }
        if !self.lines.ready()? {
            return Ok(None);
        }
        let here = self.lines.whereabouts();
        let record = Boundary::read(&here)?;
        let step = Step {
            rank: record.rank,
            seq: record.sequence,
            iteration: record.iteration,
            identity: Some(record.identity()),
        };
        self.course.step(step, &here)?;
        self.coverage.records += 1;
        if let Some(tensor) = &record.tensor {
            *self.coverage.modes.entry(tensor.mode).or_default() += 1;
        }
        let shown = show(&record);
        self.lines.advance();
        Ok(Some(shown))
    }

    /// Reads whatever is left.
    ///
    /// # Errors
    /// As [`BoundaryStream::next`], and a record that was there twice.
    pub fn finish(mut self) -> Result<BoundaryCoverage, Damage> {
        while self.next(|_| ())?.is_some() {}
        self.course.close()?;
        self.coverage.iterations = self.course.iterations().to_vec();
        Ok(self.coverage)
    }
}
