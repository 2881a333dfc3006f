//! Files that are read where they lie, and never copied into the repository.

use std::path::{Path, PathBuf};

/// A folder of files that `variable` names, else `../shared/NAME`; `None`, and said, where it is
/// not at hand.
pub fn shared(variable: &str, name: &str, file: &str) -> Option<PathBuf> {
    let folder = match std::env::var_os(variable) {
        Some(folder) => PathBuf::from(folder),
        None => Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../shared")
            .join(name),
    };
    if !folder.join(file).is_file() {
        eprintln!(
            "not tested: no {file} in {} ({variable} names the folder)",
            folder.display()
        );
        return None;
    }
    Some(folder)
}
