//! Files that a verb writes for the user: whole or not at all, and over nothing by mistake.

use std::io::Write;
use std::path::{Path, PathBuf};

use clap::Args;

use super::output::talk;

/// Where to, and whether something may be there.
#[derive(Debug, Args)]
pub(super) struct OutputArgs {
    /// Write a file here that other verbs take
    #[arg(short, long, value_name = "OUT.toml")]
    pub output: Option<PathBuf>,
    /// Replace OUT.toml if it is there
    #[arg(long, requires = "output")]
    pub force: bool,
}

impl OutputArgs {
    /// Refuses what would be lost: a source, what is no file, and a file that is there.
    pub fn check(&self, sources: &[PathBuf]) -> std::io::Result<()> {
        match &self.output {
            Some(path) => may_write(path, sources, self.force),
            None => Ok(()),
        }
    }

    /// Writes the text, if a file was asked for.
    pub fn write(&self, text: &str) -> std::io::Result<()> {
        match &self.output {
            Some(path) => save(path, self.force, text),
            None => Ok(()),
        }
    }

    /// Writes what `write` says, piece by piece, if a file was asked for.
    pub fn write_with<T: Default, E: From<std::io::Error>>(
        &self,
        write: impl FnOnce(&mut dyn Write) -> Result<T, E>,
    ) -> Result<T, E> {
        match &self.output {
            Some(path) => save_with(path, self.force, write),
            None => Ok(T::default()),
        }
    }

    /// Says what the system said of the file.
    pub fn unwritable(&self, error: &std::io::Error) {
        let path = self.output.as_deref().unwrap_or(Path::new("")).display();
        talk(&format!("cannot write `{path}`: {error}"));
    }
}

fn may_write(path: &Path, sources: &[PathBuf], force: bool) -> std::io::Result<()> {
    let Ok(known) = std::fs::symlink_metadata(path) else {
        return Ok(());
    };
    let same = |a: &Path, b: &Path| a.canonicalize().ok() == b.canonicalize().ok();
    let why = if !path.is_file() || known.is_symlink() {
        "it is there, and no regular file"
    } else if sources.iter().any(|source| same(path, source)) {
        "it is the file that is read: the job's own file"
    } else if !force {
        "it is there already: `--force` replaces it"
    } else {
        return Ok(());
    };
    Err(std::io::Error::other(why))
}

/// Writes a file as a whole or not at all, in the place of what is there.
pub(super) fn replace(path: &Path, text: &str) -> std::io::Result<()> {
    save(path, true, text)
}

/// Writes a file as a whole or not at all. A file that is replaced keeps its mode.
fn save(path: &Path, replaces: bool, text: &str) -> std::io::Result<()> {
    save_with(path, replaces, |out| out.write_all(text.as_bytes()))
}

/// As [`save`], of what is too much to be held as one text.
fn save_with<T, E: From<std::io::Error>>(
    path: &Path,
    replaces: bool,
    write: impl FnOnce(&mut dyn Write) -> Result<T, E>,
) -> Result<T, E> {
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    let mut file = new_file(folder.unwrap_or(Path::new(".")))?;
    let mut buffered = std::io::BufWriter::new(&mut file);
    let written = write(&mut buffered)?;
    buffered.flush()?;
    drop(buffered);
    if let (true, Ok(known)) = (replaces, std::fs::metadata(path)) {
        file.as_file().set_permissions(known.permissions())?;
    }
    file.as_file().sync_all()?;
    match replaces {
        true => file.persist(path),
        false => file.persist_noclobber(path),
    }
    .map_err(std::io::Error::from)?;
    Ok(written)
}

/// A file that others may read, as far as the user's mask lets them.
fn new_file(folder: &Path) -> std::io::Result<tempfile::NamedTempFile> {
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        builder.permissions(std::fs::Permissions::from_mode(0o666));
    }
    builder.tempfile_in(folder)
}
