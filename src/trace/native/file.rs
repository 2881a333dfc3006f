//! One file, appended to a frame at a time.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::frames::{self, Packer};

/// Text that is kept before it is packed and written.
const KEPT_BYTES: usize = 64 << 10;

/// A rank's file that is being written. It is opened anew for each frame: there may be more ranks
/// than a process may have files open.
pub(super) struct RankFile {
    path: PathBuf,
    kept: Vec<u8>,
    pub records: u64,
}

impl RankFile {
    /// A file that is not there yet.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(path: &Path, header: &str) -> io::Result<RankFile> {
        let mut file = File::create_new(path)?;
        file.write_all(&frames::header(header))?;
        Ok(RankFile {
            path: path.to_path_buf(),
            kept: Vec::new(),
            records: 0,
        })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the next line goes; [`RankFile::pushed`] follows.
    pub fn text(&mut self) -> &mut Vec<u8> {
        &mut self.kept
    }

    /// A line was written into the text; says whether there is enough for a frame.
    pub fn pushed(&mut self) -> bool {
        self.kept.push(b'\n');
        self.records += 1;
        self.kept.len() >= KEPT_BYTES
    }

    /// Writes what is kept as one frame; returns its bytes.
    ///
    /// # Errors
    /// What the system says.
    pub fn flush(&mut self, packer: &mut Packer) -> io::Result<u64> {
        if self.kept.is_empty() {
            return Ok(0);
        }
        let frame = packer.frame(&self.kept)?;
        self.append(&frame)?;
        self.kept.clear();
        Ok(frame.len() as u64)
    }

    /// Ends the file; it is then on the disk.
    ///
    /// # Errors
    /// What the system says.
    pub fn end(&mut self, packer: &mut Packer) -> io::Result<u64> {
        let bytes = self.flush(packer)?;
        let end = frames::end(self.records);
        self.append(&end)?.sync_all()?;
        Ok(bytes + end.len() as u64)
    }

    fn append(&self, bytes: &[u8]) -> io::Result<File> {
        let mut file = OpenOptions::new().append(true).open(&self.path)?;
        file.write_all(bytes)?;
        Ok(file)
    }
}
