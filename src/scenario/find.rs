//! The scenario that a replay token was made from.

use std::path::{Path, PathBuf};

use super::{Overrides, Scenario};

/// What a search found.
#[derive(Debug)]
pub struct Found {
    /// The scenario with the wanted hash, and its file.
    pub scenario: Option<(PathBuf, Scenario)>,
    /// Files that were read as scenarios and have another hash.
    pub others: Vec<PathBuf>,
}

/// Scenario files that one search looks at.
const FILES_MAX: usize = 10_000;

/// Looks through `folders` (not below them), in order and by file name, for a scenario whose
/// content hash starts with `prefix`. A file that is no sound scenario is passed over: a broken
/// neighbour must not keep a token from being replayed.
pub fn find_by_hash(folders: &[&Path], prefix: &[u8], overrides: &Overrides) -> Found {
    let mut others = Vec::new();
    for path in folders
        .iter()
        .flat_map(|folder| toml_files(folder))
        .take(FILES_MAX)
    {
        let Ok(loaded) = Scenario::load(&path, overrides) else {
            continue;
        };
        if loaded.scenario.content_hash().starts_with(prefix) {
            return Found {
                scenario: Some((path, loaded.scenario)),
                others,
            };
        }
        others.push(path);
    }
    Found {
        scenario: None,
        others,
    }
}

/// Files of a folder, not below it, that may be scenarios, by name.
pub fn toml_files(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut files: Vec<PathBuf> = entries
        .take(FILES_MAX)
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
        .collect();
    files.sort();
    files
}
