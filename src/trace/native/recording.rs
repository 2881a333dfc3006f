//! A folder that is being recorded into: made by it, and never one that holds something already.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use super::description::{Header, RunDescription, Stream};
use super::file::RankFile;
use super::frames::Packer;
use super::line::OpLine;

/// Why a run cannot be recorded, or not to its end.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RecordingError {
    #[error("`{folder}` holds `{found}` already, and records are never written over or added to")]
    Exists { folder: String, found: String },
    #[error("cannot write `{path}`: {error}")]
    Unwritable { path: String, error: io::Error },
    #[error(
        "the trace has outgrown its budget of {budget} bytes: what was written up to iteration \
         {iteration} stays, as the start of a run"
    )]
    Budget { budget: u64, iteration: u32 },
}

impl RecordingError {
    /// What to do next.
    pub fn help(&self) -> &'static str {
        match self {
            RecordingError::Exists { .. } => {
                "name a folder that is not there yet; two of them are compared by `bitproof trace \
                 diff A B`"
            }
            RecordingError::Unwritable { .. } => {
                "see that its folder is there, may be written, and has room"
            }
            RecordingError::Budget { .. } => {
                "record less: --trace-level semantic, --ranks 0,8-15 or --steps 1-2; \
                 or raise --trace-budget"
            }
        }
    }
}

/// One run on its way into a folder.
pub struct Recording {
    folder: PathBuf,
    packer: Packer,
    files: BTreeMap<(u32, Stream), RankFile>,
    written: u64,
    budget: u64,
    iteration: u32,
    failure: Option<RecordingError>,
}

fn refuse_full(folder: &Path) -> Result<(), RecordingError> {
    let unwritable = |error| unwritable(folder, error);
    match std::fs::symlink_metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(unwritable(error)),
        Ok(_) => {}
    }
    let mut entries = std::fs::read_dir(folder).map_err(unwritable)?;
    match entries.next().transpose().map_err(unwritable)? {
        None => Ok(()),
        Some(found) => Err(RecordingError::Exists {
            folder: folder.display().to_string(),
            found: found.file_name().to_string_lossy().into_owned(),
        }),
    }
}

fn unwritable(path: &Path, error: io::Error) -> RecordingError {
    RecordingError::Unwritable {
        path: path.display().to_string(),
        error,
    }
}

impl Recording {
    /// Whether a run could be recorded into `folder`: it is not there, or empty.
    ///
    /// # Errors
    /// What is in the way.
    pub fn refuse_full(folder: &Path) -> Result<(), RecordingError> {
        refuse_full(folder)
    }

    /// Makes the folder, with a file for each of `ranks` and each stream of the level. Of its
    /// files, no more than `budget` bytes are written.
    ///
    /// # Errors
    /// A folder that holds something, or cannot be written.
    pub fn begin(
        folder: &Path,
        description: &RunDescription,
        ranks: &[u32],
        budget: u64,
    ) -> Result<Recording, RecordingError> {
        refuse_full(folder)?;
        let failed = |path: &Path| {
            let path = path.to_path_buf();
            move |error| unwritable(&path, error)
        };
        std::fs::create_dir_all(folder).map_err(failed(folder))?;
        let beside = folder.join("boundary");
        std::fs::create_dir(&beside).map_err(failed(&beside))?;
        let run = folder.join("run.json");
        let json = serde_json::to_string_pretty(description).expect("it has a JSON form");
        save_new(&run, &format!("{json}\n")).map_err(failed(&run))?;
        let mut recording = Recording {
            folder: folder.to_path_buf(),
            packer: Packer::new().map_err(failed(folder))?,
            files: BTreeMap::new(),
            written: 0,
            budget,
            iteration: 0,
            failure: None,
        };
        let own = description.in_header();
        let streams = description.level.streams();
        for (rank, stream) in ranks
            .iter()
            .flat_map(|rank| streams.iter().map(move |s| (rank, s)))
        {
            let within = match stream {
                Stream::Ops => folder,
                Stream::Boundary => &beside,
            };
            let path = within.join(format!("rank_{rank:06}.jsonl.zst"));
            let header = Header {
                stream: *stream,
                rank: *rank,
                run: own.clone(),
            };
            let header = serde_json::to_string(&header).expect("it has a JSON form");
            let file = RankFile::create(&path, &header).map_err(failed(&path))?;
            recording.files.insert((*rank, *stream), file);
        }
        Ok(recording)
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Bytes of packed records so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Records so far, of all files.
    pub fn records(&self) -> u64 {
        self.files.values().map(|file| file.records).sum()
    }

    /// Why nothing more is recorded.
    pub fn failure(&self) -> Option<&RecordingError> {
        self.failure.as_ref()
    }

    /// Whether the rank has this stream, and it is still written.
    pub fn takes(&self, rank: u32, stream: Stream) -> bool {
        self.failure.is_none() && self.files.contains_key(&(rank, stream))
    }

    /// Adds a record to its rank's op stream.
    pub fn op(&mut self, line: &OpLine<'_>) {
        self.iteration = self.iteration.max(line.iteration.unwrap_or(0));
        self.push((line.rank, Stream::Ops), |seq, out| line.write(seq, out));
    }

    /// Adds a line to a rank's boundary stream; `line` is told its place.
    pub fn boundary(&mut self, rank: u32, line: impl Fn((u64, u32)) -> String) {
        self.push((rank, Stream::Boundary), |seq, out| {
            out.extend_from_slice(line((seq, rank)).as_bytes());
        });
    }

    fn push(&mut self, key: (u32, Stream), write: impl FnOnce(u64, &mut Vec<u8>)) {
        if self.failure.is_some() {
            return;
        }
        let file = self.files.get_mut(&key).expect("the rank is recorded");
        let seq = file.records;
        write(seq, file.text());
        if file.pushed() {
            let flushed = file.flush(&mut self.packer);
            let path = file.path().to_path_buf();
            self.account(&path, flushed);
        }
    }

    /// Writes all that is kept: whoever is killed from here on leaves it behind.
    pub fn flush(&mut self) {
        self.each(RankFile::flush);
    }

    /// Ends every file.
    ///
    /// # Errors
    /// Why the recording is not whole.
    pub fn end(mut self) -> Result<(u64, u64), RecordingError> {
        self.each(RankFile::end);
        match self.failure.take() {
            Some(failure) => Err(failure),
            None => Ok((self.records(), self.written)),
        }
    }

    fn each(&mut self, act: fn(&mut RankFile, &mut Packer) -> io::Result<u64>) {
        let mut files = std::mem::take(&mut self.files);
        for file in files.values_mut() {
            if self.failure.is_some() {
                break;
            }
            let done = act(file, &mut self.packer);
            self.account(file.path(), done);
        }
        self.files = files;
    }

    fn account(&mut self, path: &Path, written: io::Result<u64>) {
        match written {
            Ok(bytes) => self.written += bytes,
            Err(error) => self.failure = Some(unwritable(path, error)),
        }
        if self.written > self.budget && self.failure.is_none() {
            self.failure = Some(RecordingError::Budget {
                budget: self.budget,
                iteration: self.iteration,
            });
        }
    }
}

/// Writes a small file that is not there yet, whole or not at all.
fn save_new(path: &Path, text: &str) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        // Temporary files are their owner's alone; the user's mask says what others may do.
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    let mut file = builder.prefix(".bitproof-").tempfile_in(folder)?;
    io::Write::write_all(&mut file, text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist_noclobber(path)?;
    Ok(())
}
