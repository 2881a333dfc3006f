//! Where a scenario's keys are written: what a finding about a key points at.

use std::collections::BTreeMap;
use std::path::Path;

use crate::diagnostic::document::{Entry, Table, Value};
use crate::diagnostic::{Findings, Place, Source};

/// The keys of a scenario file and of the recipe file that it names.
#[derive(Clone, Debug)]
pub struct KeyPlaces {
    /// The file itself.
    whole: Place,
    /// By dotted key as a bare recipe would have it: `determinism.wgrad_splits`.
    keys: BTreeMap<String, Place>,
}

impl KeyPlaces {
    /// The keys of the file at `path`. A file that is no TOML, or can no longer be read, has none:
    /// findings then point at the file.
    pub fn of(path: &Path) -> KeyPlaces {
        let source = match Source::read(path) {
            Ok(source) => source,
            Err(_) => Source::new(path.display().to_string(), ""),
        };
        let mut places = KeyPlaces {
            whole: Place::new(&source, 0..source.text.len()),
            keys: BTreeMap::new(),
        };
        let Some(document) = Table::parse(&source, &mut Findings::default()) else {
            return places;
        };
        if let Some(Value::Text(name)) = document.get("recipe").map(|entry| &entry.item.value) {
            let folder = path.parent().unwrap_or(Path::new(""));
            let recipe = Source::read(&folder.join(name)).ok();
            let table = recipe.and_then(|source| Table::parse(&source, &mut Findings::default()));
            places.take("", &table.map(|table| table.entries).unwrap_or_default());
        }
        places.take("", &document.entries);
        // What lies on top comes last.
        for name in ["recipe", "override"] {
            if let Some(table) = document.table(name) {
                places.take("", &table.entries);
            }
        }
        places
    }

    fn take(&mut self, path: &str, entries: &BTreeMap<String, Entry>) {
        for (key, entry) in entries {
            let name = match path {
                "" => key.clone(),
                path => format!("{path}.{key}"),
            };
            self.keys.insert(name.clone(), entry.key.clone());
            if let (Value::Table(table), true) = (&entry.item.value, name != "recipe") {
                self.take(&name, &table.entries);
            }
        }
    }

    /// Where the first of `keys` that is written stands, or the file.
    pub fn find(&self, keys: &[&str]) -> &Place {
        let written = keys.iter().find_map(|key| self.keys.get(*key));
        written.unwrap_or(&self.whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_where_they_count() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let recipe = "world_size = 4\n[determinism]\nwgrad_splits = 3\n";
        std::fs::write(path("recipe.toml"), recipe).unwrap();
        let scenario = "recipe = \"recipe.toml\"\nfree = []\n[override]\nworld_size = 8\n";
        std::fs::write(path("scenario.toml"), scenario).unwrap();
        let line = |file: &str, keys: &[&str]| {
            let places = KeyPlaces::of(&path(file));
            let place = places.find(keys);
            let name = place.source.name.rsplit('/').next().unwrap().to_string();
            (name, place.source.line_column(place.span.start).0)
        };
        let of = |name: &str, line| (name.to_string(), line);
        assert_eq!(line("scenario.toml", &["free"]), of("scenario.toml", 2));
        assert_eq!(
            line("scenario.toml", &["world_size"]),
            of("scenario.toml", 4)
        );
        let splits = ["missing", "determinism.wgrad_splits"];
        assert_eq!(line("scenario.toml", &splits), of("recipe.toml", 3));
        assert_eq!(line("recipe.toml", &splits), of("recipe.toml", 3));
        assert_eq!(line("recipe.toml", &["free"]), of("recipe.toml", 1));
        assert_eq!(line("absent.toml", &["free"]), of("absent.toml", 1));
        let inline = "[recipe.determinism]\nwgrad_splits = 1\n";
        std::fs::write(path("inline.toml"), inline).unwrap();
        assert_eq!(line("inline.toml", &splits), of("inline.toml", 2));
    }
}
