//! A folder of traces: which file is whose.
//!
//! `rank_<digits>.jsonl` is one rank's stream (Megatron-LM pull request 6610 and the op stream);
//! `rank<digits>_iter<digits>.jsonl` one rank's iteration (pull request 7262). Each may end in
//! `.gz` or `.zst`. A folder `boundary` beside op streams holds the boundary streams.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::Deserialize;

use crate::diagnostic::Source;
use crate::topology::MAX_RANKS;

use super::damage::Damage;
use super::lines::Lines;
use super::native::Stream;
use super::op::is_op_line;

/// More files than this are no folder of traces.
const FILES_MAX: usize = 1 << 20;

/// The files of one run.
#[derive(Clone, Debug, Default)]
pub struct Folder {
    pub path: PathBuf,
    /// Op streams: the files of each rank in the order of their iterations.
    pub ops: BTreeMap<u32, Vec<PathBuf>>,
    /// Boundary streams.
    pub boundary: BTreeMap<u32, Vec<PathBuf>>,
    pub run: Option<RunFile>,
    /// Files that look like traces and have no rank in their name.
    pub unnamed: Vec<String>,
    /// Whether streams of a run that was killed are taken up to where they end.
    pub accepts_cut: bool,
}

/// What `run.json` says that matters here. Other keys are the recorder's own.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct RunFile {
    pub world_size: Option<u32>,
    /// The ranks that were to be recorded, where not all were.
    pub ranks: Option<Vec<u32>>,
    /// How tensors were digested.
    pub digest: Option<String>,
    /// What recorded it.
    pub recorder: Option<String>,
}

impl RunFile {
    /// Whether every stream of this recorder ends with a record that says so: a run that was killed
    /// leaves none.
    pub fn ends_with_record(&self) -> bool {
        self.recorder.as_deref() == Some("bitproof_trace")
    }
}

impl Folder {
    /// Looks through a folder. One file that is named itself is a folder of that file.
    ///
    /// # Errors
    /// No such folder, two files for one rank, or a `run.json` that cannot be read.
    pub fn open(path: &Path) -> Result<Folder, Vec<Damage>> {
        let mut folder = Folder {
            path: path.to_path_buf(),
            ..Folder::default()
        };
        let streams = match path.is_file() {
            true => BTreeMap::from([(rank_in(path).unwrap_or(0), vec![path.to_path_buf()])]),
            false => folder.list(path)?,
        };
        match streams.values().flatten().next() {
            Some(first) if !is_ops(first).map_err(|damage| vec![damage])? => {
                folder.boundary = streams;
            }
            _ => folder.ops = streams,
        }
        let beside = path.join("boundary");
        if folder.boundary.is_empty() && beside.is_dir() {
            folder.boundary = folder.list(&beside)?;
        }
        folder.run = run_file(path).map_err(|damage| vec![damage])?;
        Ok(folder)
    }

    /// The files of each rank of one of the two streams.
    pub(super) fn streams(&self, stream: Stream) -> &BTreeMap<u32, Vec<PathBuf>> {
        match stream {
            Stream::Ops => &self.ops,
            Stream::Boundary => &self.boundary,
        }
    }

    /// Whether the rank has a file of either stream.
    pub(super) fn has(&self, rank: u32) -> bool {
        self.ops.contains_key(&rank) || self.boundary.contains_key(&rank)
    }

    /// Whether there is nothing to look at.
    pub fn is_empty(&self) -> bool {
        self.ops.is_empty() && self.boundary.is_empty()
    }

    /// Whether streams may end without their last record.
    pub fn may_be_cut(&self) -> bool {
        let ends = self.run.as_ref().is_some_and(RunFile::ends_with_record);
        self.accepts_cut && ends
    }

    /// The rank that a stream's records must be of; nothing for a single file whose name says none.
    pub fn own(&self, rank: u32) -> Option<u32> {
        match self.path.is_file() {
            true => rank_in(&self.path),
            false => Some(rank),
        }
    }

    /// Of two single files, this one under the other's rank: whoever names them means them.
    pub fn beside(&self, other: &Folder) -> Folder {
        let mut folder = self.clone();
        let rank = other.ops.keys().chain(other.boundary.keys()).next();
        if let (true, true, Some(rank)) = (self.path.is_file(), other.path.is_file(), rank) {
            for streams in [&mut folder.ops, &mut folder.boundary] {
                let files = streams.pop_first().map(|(_, files)| (*rank, files));
                streams.extend(files);
            }
        }
        folder
    }

    fn list(&mut self, path: &Path) -> Result<BTreeMap<u32, Vec<PathBuf>>, Vec<Damage>> {
        let whole: Arc<str> = path.display().to_string().into();
        let refuse = |code, message: String| vec![Damage::of_file(code, &whole, message)];
        let unreadable =
            |error: std::io::Error| refuse("unreadable-folder", format!("cannot read it: {error}"));
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path).map_err(unreadable)? {
            names.push(entry.map_err(unreadable)?.file_name());
            if names.len() > FILES_MAX {
                let message = format!("more than {FILES_MAX} files");
                return Err(refuse("too-many-files", message));
            }
        }
        names.sort();
        let mut found: BTreeMap<(u32, Option<u64>), PathBuf> = BTreeMap::new();
        let mut damages = Vec::new();
        for name in names {
            let file = path.join(&name);
            match key_of(&name.to_string_lossy()) {
                Key::Stream(rank, iteration) => {
                    if let Some(other) = found.insert((rank, iteration), file.clone()) {
                        damages.push(twice(rank, &other, &file));
                    }
                }
                Key::Unnamed => self.unnamed.push(file.display().to_string()),
                Key::Other => {}
            }
        }
        let mut streams: BTreeMap<u32, Vec<PathBuf>> = BTreeMap::new();
        let mut is_whole: BTreeMap<u32, bool> = BTreeMap::new();
        for ((rank, iteration), file) in found {
            let files = streams.entry(rank).or_default();
            if *is_whole.entry(rank).or_insert(iteration.is_none()) != iteration.is_none() {
                damages.push(twice(rank, &files[0], &file));
            }
            files.push(file);
        }
        match damages.is_empty() {
            true => Ok(streams),
            false => Err(damages),
        }
    }
}

fn twice(rank: u32, a: &Path, b: &Path) -> Damage {
    let message = format!("rank {rank} has a second file: {} is one too", a.display());
    let file = b.display().to_string().into();
    Damage::of_file("two-files", &file, message).expecting("one file a rank (and iteration)")
}

#[derive(Debug, PartialEq)]
enum Key {
    Stream(u32, Option<u64>),
    Unnamed,
    Other,
}

/// The rank in a file's name, if there is one.
fn rank_in(path: &Path) -> Option<u32> {
    match key_of(&path.file_name()?.to_string_lossy()) {
        Key::Stream(rank, _) => Some(rank),
        Key::Unnamed | Key::Other => None,
    }
}

/// Whose stream a file's name says it is.
fn key_of(name: &str) -> Key {
    let stem = name
        .strip_suffix(".gz")
        .or_else(|| name.strip_suffix(".zst"))
        .unwrap_or(name);
    let Some(stem) = stem.strip_suffix(".jsonl") else {
        return Key::Other;
    };
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let whole = stem.strip_prefix("rank_").filter(|rest| digits(rest));
    let rank_of = |text: &str| text.parse().ok().filter(|rank| *rank < MAX_RANKS);
    if let Some(rank) = whole.and_then(rank_of) {
        return Key::Stream(rank, None);
    }
    let parts = stem
        .strip_prefix("rank")
        .and_then(|rest| rest.split_once("_iter"));
    let parts = parts.filter(|(rank, iteration)| digits(rank) && digits(iteration));
    match parts.map(|(rank, iteration)| (rank_of(rank), iteration.parse())) {
        Some((Some(rank), Ok(iteration))) => Key::Stream(rank, Some(iteration)),
        _ => Key::Unnamed,
    }
}

/// Whether a file's first line is a record of the op stream. An empty file is one, too.
fn is_ops(path: &Path) -> Result<bool, Damage> {
    let mut lines = Lines::open(path)?;
    while lines.ready()? {
        if !lines.line().trim_ascii().is_empty() {
            return Ok(is_op_line(&lines.whereabouts()));
        }
        lines.advance();
    }
    Ok(true)
}

/// The text of a folder's `run.json`, if it has one.
///
/// # Errors
/// A file that cannot be read.
pub(super) fn run_text(folder: &Path) -> Result<Option<Source>, Damage> {
    let path = folder.join("run.json");
    if !path.is_file() {
        return Ok(None);
    }
    let name: Arc<str> = path.display().to_string().into();
    let read = Source::read(&path);
    read.map(Some)
        .map_err(|error| Damage::of_file("run-file", &name, error.to_string()))
}

fn run_file(folder: &Path) -> Result<Option<RunFile>, Damage> {
    let Some(source) = run_text(folder)? else {
        return Ok(None);
    };
    let refuse = |message: String| Damage::of_file("run-file", &source.name, message);
    let read = serde_json::from_str(&source.text);
    let run: RunFile =
        read.map_err(|error| refuse(format!("not what a recorder writes: {error}")))?;
    let mut ranks = run.ranks.iter().flatten().chain(&run.world_size);
    match ranks.all(|rank| *rank <= MAX_RANKS) {
        true => Ok(Some(run)),
        false => Err(refuse(format!("more than {MAX_RANKS} ranks"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_whose_a_file_is() {
        for (name, key) in [
            ("rank_000012.jsonl", Key::Stream(12, None)),
            ("rank_3.jsonl.gz", Key::Stream(3, None)),
            ("rank00002_iter000007.jsonl.zst", Key::Stream(2, Some(7))),
            ("rank_x.jsonl", Key::Unnamed),
            ("rank_99999999999.jsonl", Key::Unnamed),
            ("rank_4294967295.jsonl", Key::Unnamed),
            ("trace.jsonl", Key::Unnamed),
            ("run.json", Key::Other),
            ("rank_1.json", Key::Other),
        ] {
            assert_eq!(key_of(name), key, "{name}");
        }
    }

    #[test]
    fn two_files_for_a_rank_are_refused() {
        for names in [
            ["rank_000001.jsonl", "rank_1.jsonl.gz"],
            ["rank_1.jsonl", "rank1_iter2.jsonl"],
        ] {
            let folder = tempfile::tempdir().unwrap();
            for name in names {
                std::fs::write(folder.path().join(name), "").unwrap();
            }
            let damages = Folder::open(folder.path()).unwrap_err();
            assert_eq!(damages[0].code, "two-files", "{names:?}");
        }
        let folder = tempfile::tempdir().unwrap();
        for name in ["rank1_iter2.jsonl", "rank1_iter10.jsonl", "x.jsonl"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let found = Folder::open(folder.path()).unwrap();
        assert!(found.ops[&1][1].ends_with("rank1_iter10.jsonl"));
        assert_eq!(found.unnamed.len(), 1);
        assert!(Folder::open(&folder.path().join("none")).is_err());
    }
}
