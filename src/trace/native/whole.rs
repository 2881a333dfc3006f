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
    let run = match description(&folder.path) {
        Ok(Some(run)) => run,
        Ok(None) => return Vec::new(),
        Err(damage) => return vec![damage],
    };
    let own = run.in_header();
    let mut found = Vec::new();
    let mut unended = Vec::new();
    let streams = [
        (Stream::Ops, &folder.ops),
        (Stream::Boundary, &folder.boundary),
    ];
    for (stream, files) in streams {
        for (rank, path) in files
            .iter()
            .flat_map(|(rank, all)| all.iter().map(move |one| (rank, one)))
        {
            let wanted = Header {
                stream,
                rank: *rank,
                run: own.clone(),
            };
            match look(path, &wanted) {
                Ok(Some(ended)) => {
                    let lost = read(stream, *rank).filter(|read| *read != ended);
                    found.extend(lost.map(|read| lost_records(path, read, ended)));
                }
                Ok(None) => unended.push(u64::from(*rank)),
                Err(damage) => found.push(damage),
            }
        }
    }
    unended.sort_unstable();
    unended.dedup();
    if !unended.is_empty() {
        let name: Arc<str> = folder.path.display().to_string().into();
        let which = runs_of(unended);
        let message = format!(
            "the files of ranks {which} have no end, as a run that was killed leaves them: \
             `bitproof trace show` and `convert --to ops` read as far as they came"
        );
        found.push(Damage::of_file("unfinished-run", &name, message));
    }
    found
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
