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
    pub fn find(&self, keys: &[&str]) -> Place {
        let found = match self.keys.is_empty() {
            true => keys.iter().find_map(|key| self.argument(key)),
            false => keys.iter().find_map(|key| self.keys.get(*key).cloned()),
        };
        found.unwrap_or_else(|| self.whole.clone())
    }

    /// A key in a file that is no TOML: a launch script, a log or YAML has it as an argument of
    /// Megatron-LM, `--tensor-model-parallel-size`.
    fn argument(&self, key: &str) -> Option<Place> {
        let source = &self.whole.source;
        let argument = format!("--{}", key.replace('_', "-"));
        let is_name = |c: char| c.is_alphanumeric() || c == '-' || c == '_';
        let mut starts = source.text.match_indices(&argument).map(|(at, _)| at);
        let start = starts.find(|at| {
            let rest = &source.text[at + argument.len()..];
            !rest.starts_with(is_name)
        })?;
        Some(Place::new(source, start..start + argument.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_found_in_files_that_are_no_toml() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("model_config.yaml");
        let text = "MODEL_ARGS:\n  --num-layers-per-stage: 2\n  --num-layers: 12\n";
        std::fs::write(&path, text).unwrap();
        let places = KeyPlaces::of(&path);
        let line = |key: &str| {
            let place = places.find(&[key]);
            place.source.line_column(place.span.start)
        };
        assert_eq!(line("num_layers"), (3, 3));
        assert_eq!(line("world_size"), (1, 1));
    }

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
