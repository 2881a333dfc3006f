//! Whether the files of a native recording belong together, and were written to their end.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;

use super::description::{FORMAT, FORMAT_VERSION, Header, RunDescription, Stream};
use super::frames;
use crate::diagnostic::open_regular;
use crate::trace::certify::runs_of;
use crate::trace::damage::Damage;
use crate::trace::folder::{Folder, run_text};

/// What a native folder says of itself; nothing of any other folder.
///
/// # Errors
/// A description that is of this format, and none of this version's.
pub(super) fn description(folder: &Path) -> Result<Option<RunDescription>, Damage> {
    #[derive(Deserialize)]
    struct Probe {
        format: Option<String>,
        format_version: Option<u32>,
    }
    let Some(source) = run_text(folder)? else {
        return Ok(None);
    };
    let refuse = |message: String| Damage::of_file("run-file", &source.name, message);
    let probe: Probe = match serde_json::from_str(&source.text) {
        Ok(probe) => probe,
        // Another recorder's: who reads it says what is wrong with it.
        Err(_) => return Ok(None),
    };
    if probe.format.as_deref() != Some(FORMAT) {
        return Ok(None);
    }
    if probe.format_version != Some(FORMAT_VERSION) {
        let message = format!("`format_version` is not {FORMAT_VERSION}, the only one known");
        return Err(refuse(message).expecting("a recording of this version of bitproof"));
    }
    let read = serde_json::from_str(&source.text);
    let found = read.map_err(|error| refuse(format!("not what bitproof writes: {error}")))?;
    Ok(Some(found))
}

/// What is wrong with a native folder as a whole; nothing with any other. `read` says how many
/// records were read of a file, where it was read whole.
pub(in crate::trace) fn complaints(
    folder: &Folder,
    read: impl Fn(Stream, u32) -> Option<u64>,
) -> Vec<Damage> {
    let described = match description(&folder.path) {
        Ok(described) => described,
        Err(damage) => return vec![damage],
    };
    let mut found = Vec::new();
    let alone = described.is_none().then(|| undescribed(folder));
    let (run, own_rank) = match (described, alone.flatten()) {
        (Some(run), _) => {
            found.extend(lacking_streams(folder, &run));
            (run, None)
        }
        // Whoever names a single file means it; its own header describes it.
        (None, Some(header)) if folder.path.is_file() => (header.run, Some(header.rank)),
        (None, Some(header)) => return vec![no_description(folder, &header.run)],
        (None, None) => return Vec::new(),
    };
    let own = run.in_header();
    let mut unended = Vec::new();
    for (stream, rank, path) in files(folder) {
        let wanted = Header {
            stream,
            rank: folder.own(rank).or(own_rank).unwrap_or(rank),
            run: own.clone(),
        };
        match look(path, &wanted) {
            Ok(Some(ended)) => {
                let lost = read(stream, rank).filter(|read| *read != ended);
                found.extend(lost.map(|read| lost_records(path, read, ended)));
            }
            Ok(None) => unended.push(u64::from(rank)),
            Err(damage) => found.push(damage),
        }
    }
    unended.sort_unstable();
    unended.dedup();
    found.extend((!unended.is_empty()).then(|| unfinished(folder, unended)));
    found
}

fn files(folder: &Folder) -> impl Iterator<Item = (Stream, u32, &Path)> {
    let of = |stream: Stream| {
        let files = folder.streams(stream).iter();
        files.flat_map(move |(rank, all)| all.iter().map(move |one| (stream, *rank, &**one)))
    };
    Stream::ALL.into_iter().flat_map(of)
}

/// The header of a native file in a folder that no `run.json` describes, if it has one.
fn undescribed(folder: &Folder) -> Option<Header> {
    files(folder).find_map(|(_, _, path)| {
        let (start, _) = ends_of(path).ok()?;
        serde_json::from_str(frames::header_of(&start)?).ok()
    })
}

fn no_description(folder: &Folder, run: &RunDescription) -> Damage {
    let name: Arc<str> = folder.path.display().to_string().into();
    let message = format!(
        "no `run.json` of this recording is there: which of the {} ranks of `{}` were recorded is \
         not known",
        run.world_size, run.scenario
    );
    Damage::of_file("no-run-file", &name, message).expecting("the folder as it was recorded")
}

/// Each rank that was recorded has every stream of the recording's level.
fn lacking_streams(folder: &Folder, run: &RunDescription) -> Vec<Damage> {
    let ranks = match &run.ranks {
        Some(ranks) => ranks.clone(),
        None => (0..run.world_size).collect(),
    };
    let lacking = run.level.streams().iter().filter_map(|stream| {
        let files = folder.streams(*stream);
        let is_lacking = |rank: &&u32| folder.has(**rank) && !files.contains_key(rank);
        let ranks = ranks.iter().filter(is_lacking);
        let which = runs_of(ranks.map(|rank| u64::from(*rank)));
        let name: Arc<str> = folder.path.display().to_string().into();
        let message = format!(
            "at level {} each rank has {}: none of ranks {which} is there",
            run.level.slug(),
            stream.words()
        );
        (!which.is_empty()).then(|| Damage::of_file("no-stream", &name, message))
    });
    lacking.collect()
}

fn unfinished(folder: &Folder, ranks: Vec<u64>) -> Damage {
    let name: Arc<str> = folder.path.display().to_string().into();
    let which = runs_of(ranks);
    let message = format!(
        "the files of ranks {which} have no end, as a run that was killed leaves them: \
         `bitproof trace show` and `convert --to ops` read as far as they came"
    );
    Damage::of_file("unfinished-run", &name, message)
}

fn lost_records(path: &Path, read: u64, ended: u64) -> Damage {
    let name: Arc<str> = path.display().to_string().into();
    let message = format!("{read} records, and {ended} were written");
    Damage::of_file("lost-records", &name, message).expecting("the file as it was recorded")
}

/// How many records a file was ended with, if it was.
fn look(path: &Path, wanted: &Header) -> Result<Option<u64>, Damage> {
    let name: Arc<str> = path.display().to_string().into();
    let refuse = |message: String| {
        Damage::of_file("other-run", &name, message).expecting("the files of one recording")
    };
    let (start, last) = ends_of(path).map_err(|error| {
        Damage::of_file("unreadable-file", &name, format!("cannot read it: {error}"))
    })?;
    let header = frames::header_of(&start);
    let header: Option<Header> = header.and_then(|text| serde_json::from_str(text).ok());
    let Some(header) = header else {
        return Err(refuse(
            "it does not begin as a recording's file does".to_string(),
        ));
    };
    if header.rank != wanted.rank || header.stream != wanted.stream {
        let message = format!("it is a file of rank {} under another name", header.rank);
        return Err(refuse(message));
    }
    if header.run != wanted.run {
        let message = format!(
            "it was recorded of `{}` ({}), and `run.json` speaks of `{}` ({})",
            header.run.scenario,
            header.run.scenario_hash,
            wanted.run.scenario,
            wanted.run.scenario_hash
        );
        return Err(refuse(message));
    }
    Ok(frames::records_of(&last))
}

/// The first and the last bytes of a file.
fn ends_of(path: &Path) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut file: File = open_regular(path)?;
    let mut start = Vec::new();
    let most = frames::HEADER_BYTES_MAX as u64 + 8;
    Read::by_ref(&mut file).take(most).read_to_end(&mut start)?;
    let length = file.seek(SeekFrom::End(0))?;
    let from = length.saturating_sub(frames::END_BYTES as u64);
    file.seek(SeekFrom::Start(from))?;
    let mut last = Vec::new();
    file.take(frames::END_BYTES as u64).read_to_end(&mut last)?;
    Ok((start, last))
}
