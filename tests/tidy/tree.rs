//! The files of the repository that rules look at.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// A source file.
pub struct File {
    /// From the repository's root, with `/`.
    pub path: String,
    pub text: String,
    /// A module that is compiled into tests only.
    pub is_test_only: bool,
}

impl File {
    pub fn new(path: &str, text: &str) -> File {
        let is_test_only = path.starts_with("tests/") || path.starts_with("benches/");
        File {
            path: path.to_string(),
            text: text.to_string(),
            is_test_only,
        }
    }

    /// Numbered lines that are compiled into the program: up to the inline test module, which
    /// stands last, and none of a test-only file.
    pub fn program_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate();
        let lines = lines.map(|(place, line)| (place + 1, line));
        let has_inline = |line: &str| line == "#[cfg(test)]";
        let is_test_only = self.is_test_only;
        lines.take_while(move |(_, line)| !is_test_only && !has_inline(line))
    }
}

pub fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

pub fn text(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Files below `folder` with the given ending, sorted.
pub fn paths(folder: &str, ending: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(root().join(&folder)) else {
            continue;
        };
        for entry in entries {
            let entry = entry.expect("a readable folder");
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|found| found == ending) {
                found.push(path.to_string_lossy().replace('\\', "/"));
            }
        }
    }
    found.sort();
    found
}

/// Rust and WGSL of the program, its tests and its benchmarks.
pub fn sources() -> Vec<File> {
    let rust = ["src", "tests", "benches"]
        .into_iter()
        .flat_map(|folder| paths(folder, "rs"));
    let all = rust.chain(paths("shaders", "wgsl"));
    let mut files: Vec<File> = all.map(|path| File::new(&path, &text(&path))).collect();
    let test_modules = test_modules(&files);
    for file in &mut files {
        let stem = file.path.trim_end_matches(".rs");
        let is_below =
            |module: &String| stem == module || file.path.starts_with(&format!("{module}/"));
        file.is_test_only |= test_modules.iter().any(is_below);
    }
    files
}

/// Modules that are declared behind `#[cfg(test)]`, as paths without an ending.
fn test_modules(files: &[File]) -> BTreeSet<String> {
    let mut modules = BTreeSet::new();
    for file in files {
        let stem = file.path.trim_end_matches(".rs");
        let folder = stem.trim_end_matches("/mod").trim_end_matches("/lib");
        let mut lines = file.text.lines().map(str::trim);
        while let Some(line) = lines.next() {
            if line != "#[cfg(test)]" {
                continue;
            }
            let declared = lines.next().unwrap_or_default();
            let name = declared
                .rsplit("mod ")
                .next()
                .and_then(|name| name.strip_suffix(';'));
            if let (true, Some(name)) = (declared.contains("mod "), name) {
                modules.insert(format!("{folder}/{name}"));
            }
        }
    }
    modules
}
