//! A folder stands for the scenarios in it: its `.toml` files, by name. Folders inside it, such as
//! one of recipes, are not looked into.

use std::path::{Path, PathBuf};

use crate::diagnostic::Diagnostic;

/// Scenarios that one folder may stand for.
const SCENARIOS_MAX: usize = 10_000;

/// The files that `paths` stand for, in order.
///
/// # Errors
/// A folder that cannot be read, that holds no scenario, or too many.
pub(super) fn scenarios(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Box<Diagnostic>> {
    let mut all = Vec::new();
    for path in paths {
        match path.is_dir() {
            true => all.extend(inside(path)?),
            false => all.push(path.clone()),
        }
    }
    Ok(all)
}

fn inside(folder: &Path) -> Result<Vec<PathBuf>, Box<Diagnostic>> {
    let name = folder.display();
    let unreadable = |error: std::io::Error| {
        let message = format!("the folder {name} cannot be read: {error}");
        Box::new(Diagnostic::error("unreadable-folder", message))
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|ending| ending == "toml") && path.is_file() {
            files.push(path);
        }
        if files.len() > SCENARIOS_MAX {
            let message = format!("the folder {name} holds more than {SCENARIOS_MAX} scenarios");
            let help = "name fewer of them";
            return Err(Box::new(
                Diagnostic::error("many-scenarios", message).with_help(help),
            ));
        }
    }
    if files.is_empty() {
        let message = format!("the folder {name} holds no scenario");
        let help = "name a folder with `.toml` files in it (those of folders inside it do not \
            count), or a file";
        return Err(Box::new(
            Diagnostic::error("no-scenario", message).with_help(help),
        ));
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_stands_for_its_scenarios_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        assert!(scenarios(&[folder.path().into()]).is_err());
        std::fs::create_dir(path("recipes")).unwrap();
        for name in ["b.toml", "a.toml", "notes.md", "recipes/r.toml"] {
            std::fs::write(path(name), "").unwrap();
        }
        let found = scenarios(&[path("x.toml"), folder.path().into()]).unwrap();
        assert_eq!(found, [path("x.toml"), path("a.toml"), path("b.toml")]);
        assert!(scenarios(&[path("recipes"), path("missing.toml")]).is_ok());
    }
}
