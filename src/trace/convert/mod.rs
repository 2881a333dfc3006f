//! One format of traces as the other.
//!
//! What the other cannot say is not made up: a record of the op stream becomes an `event` of pull
//! request 6610 with its operands as fields, for the SHA-256 of their bytes is not known; a
//! boundary record becomes a record of kind `boundary` whose digest is that SHA-256.

mod lines;

pub use lines::{boundary_of_op, op_line, op_of_boundary};

use std::collections::BTreeMap;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::boundary::BoundaryStream;
use super::certify::RankStream;
use super::damage::Damage;
use super::folder::Folder;
use super::op::Record;

/// What to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The boundary stream of pull request 6610, schema version 1.
    MegatronV1,
    /// The op stream, whose records are pull request 7262's.
    Ops,
}

/// Why nothing was written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConvertError {
    #[error("the trace cannot be trusted")]
    Damaged(Box<Damage>),
    #[error("cannot write `{path}`: {error}")]
    Unwritable { path: String, error: io::Error },
    #[error("`{0}` is there already, and traces are never written over")]
    Exists(String),
}

impl From<Damage> for ConvertError {
    fn from(damage: Damage) -> ConvertError {
        ConvertError::Damaged(Box::new(damage))
    }
}

/// Writes a folder in another format; returns how many records. The folder appears whole, or not
/// at all.
///
/// # Errors
/// A trace that cannot be trusted, and a folder that is there or cannot be written.
pub fn convert(folder: &Folder, to: Format, out: &Path) -> Result<u64, ConvertError> {
    if std::fs::symlink_metadata(out).is_ok() {
        return Err(ConvertError::Exists(out.display().to_string()));
    }
    let unwritable = |error: io::Error| ConvertError::Unwritable {
        path: out.display().to_string(),
        error,
    };
    let parent = match out.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let aside = tempfile::Builder::new()
        .prefix(".bitproof-")
        .tempdir_in(parent);
    let aside = aside.map_err(unwritable)?;
    let mut records = 0;
    let (streams, is_ops) = match folder.ops.is_empty() {
        true => (&folder.boundary, false),
        false => (&folder.ops, true),
    };
    let failed = |error: Failed| match error {
        Failed::Damage(damage) => ConvertError::from(damage),
        Failed::Write(error) => unwritable(error),
    };
    for (rank, files) in streams {
        let own = folder.own(*rank);
        let written = stream_file(aside.path(), *rank, |writer| match is_ops {
            true => of_ops(files, own, to, writer),
            false => of_boundary(files, own, to, writer),
        });
        records += written.map_err(failed)?;
    }
    if is_ops && to == Format::Ops && !folder.boundary.is_empty() {
        let beside = aside.path().join("boundary");
        std::fs::create_dir(&beside).map_err(unwritable)?;
        for (rank, files) in &folder.boundary {
            let written = stream_file(&beside, *rank, |writer| {
                of_boundary(files, folder.own(*rank), Format::MegatronV1, writer)
            });
            records += written.map_err(failed)?;
        }
    }
    description(&folder.path, aside.path()).map_err(unwritable)?;
    std::fs::rename(aside.keep(), out).map_err(unwritable)?;
    Ok(records)
}

/// Takes `run.json` along. What it says of a check's own files does not hold of others.
fn description(from: &Path, to: &Path) -> io::Result<()> {
    let run = from.join("run.json");
    if !run.is_file() {
        return Ok(());
    }
    let text = std::fs::read(&run)?;
    let mut said: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&text)?;
    let is_of_check = ["format", "format_version"].map(|key| said.remove(key).is_some());
    let text = match is_of_check.contains(&true) {
        true => serde_json::to_vec_pretty(&said)?,
        false => text,
    };
    let mut file = std::fs::File::create(to.join("run.json"))?;
    file.write_all(&text)?;
    file.sync_all()
}

/// Whether streams stay behind: a folder of boundary streams has no place for a second kind.
pub fn leaves_boundary(folder: &Folder, to: Format) -> bool {
    to == Format::MegatronV1 && !folder.ops.is_empty() && !folder.boundary.is_empty()
}

/// Writes one rank's file in `folder`; returns how many records.
fn stream_file(
    folder: &Path,
    rank: u32,
    write: impl FnOnce(&mut BufWriter<std::fs::File>) -> Result<u64, Failed>,
) -> Result<u64, Failed> {
    let path = folder.join(format!("rank_{rank:06}.jsonl"));
    let file = std::fs::File::create(&path).map_err(Failed::Write)?;
    let mut writer = BufWriter::new(file);
    let records = write(&mut writer)?;
    let file = writer
        .into_inner()
        .map_err(|error| Failed::Write(error.into_error()))?;
    file.sync_all().map_err(Failed::Write)?;
    Ok(records)
}

/// Where one stream's conversion stopped.
enum Failed {
    Damage(Damage),
    Write(io::Error),
}

impl From<Damage> for Failed {
    fn from(damage: Damage) -> Failed {
        Failed::Damage(damage)
    }
}

fn of_ops(
    files: &[PathBuf],
    rank: Option<u32>,
    to: Format,
    writer: &mut impl Write,
) -> Result<u64, Failed> {
    let mut stream = RankStream::open(files, rank)?;
    let mut occurrences = Occurrences::default();
    let mut count = 0;
    while stream.ready()? {
        let line = stream.certified(|record| match to {
            Format::Ops => op_line(record, count),
            Format::MegatronV1 => boundary_of_op(record, occurrences.next(record), count),
        })?;
        writeln!(writer, "{line}").map_err(Failed::Write)?;
        stream.advance();
        count += 1;
    }
    stream.finish()?;
    Ok(count)
}

fn of_boundary(
    files: &[PathBuf],
    rank: Option<u32>,
    to: Format,
    writer: &mut impl Write,
) -> Result<u64, Failed> {
    let mut stream = BoundaryStream::open(files, rank)?;
    let mut count = 0;
    while let Some(line) = stream.next(|record| match to {
        Format::Ops => op_of_boundary(record, count),
        Format::MegatronV1 => serde_json::to_string(record).expect("a record has a JSON form"),
    })? {
        writeln!(writer, "{line}").map_err(Failed::Write)?;
        count += 1;
    }
    stream.finish()?;
    Ok(count)
}

/// How often a name was there in its iteration, microbatch and phase: bounded by one iteration.
#[derive(Default)]
struct Occurrences {
    iteration: Option<u64>,
    seen: BTreeMap<(Option<u64>, String, String), u64>,
}

impl Occurrences {
    fn next(&mut self, record: &Record<'_>) -> u64 {
        // Records outside of iterations stand beside those of any.
        if record.iteration.is_some() && record.iteration != self.iteration {
            self.iteration = record.iteration;
            self.seen.clear();
        }
        let key = (
            record.microbatch,
            record.phase.to_string(),
            record.name.to_string(),
        );
        let count = self.seen.entry(key).or_default();
        *count += 1;
        *count - 1
    }
}

#[cfg(test)]
mod tests;
