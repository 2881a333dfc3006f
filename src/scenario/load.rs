//! Scenarios from files and flags.

use std::path::{Path, PathBuf};

use super::{Scenario, imported, read};
use crate::diagnostic::document::{Entry, Item, Table, Value};
use crate::diagnostic::{Diagnostic, Findings, Place, Source, SourceError};
use crate::recipe::is_recipe;
use crate::recipe::megatron::{is_megatron, open};

/// What the command line changes.
#[derive(Clone, Debug, Default)]
pub struct Overrides {
    /// `KEY=VALUE`, dotted keys of the scenario; `recipe.KEY` reaches into the recipe.
    pub set: Vec<String>,
    /// Trains on this file.
    pub data: Option<PathBuf>,
    /// Replaces the scenario's `seed`, not the recipe's.
    pub seed: Option<u64>,
    pub steps: Option<u32>,
    /// Ranks of the job.
    pub world: Option<u32>,
    /// Data-parallel ranks to check with: the layout is kept, and so are a rank's microbatches.
    pub grow_dp: Option<u32>,
    /// Which run of a file with several, by number from 1 or by name.
    pub phase: Option<String>,
}

/// A scenario and the warnings about it.
#[derive(Clone, Debug)]
pub struct Loaded {
    pub scenario: Scenario,
    pub warnings: Vec<Diagnostic>,
}

impl Scenario {
    /// Loads a scenario, or a bare recipe as the scenario around it.
    pub fn load(path: &Path, overrides: &Overrides) -> Result<Loaded, Vec<Diagnostic>> {
        let source = open(path).map_err(|error| vec![unreadable(&error, path)])?;
        Scenario::from_source(&source, path, overrides)
    }

    /// A scenario from a text that stands for the file at `path`; other files are looked for
    /// beside it.
    pub fn from_source(
        source: &Source,
        path: &Path,
        overrides: &Overrides,
    ) -> Result<Loaded, Vec<Diagnostic>> {
        if is_megatron(source) {
            return imported::scenario(source, path, overrides);
        }
        let mut findings = Findings::default();
        let scenario = document(source, overrides, &mut findings)
            .and_then(|document| read::scenario(&document, &site(path), overrides, &mut findings));
        findings
            .finish(scenario)
            .map(|(scenario, warnings)| Loaded { scenario, warnings })
    }

    /// Everything that can be said about a file without running it, errors included.
    pub fn lint(path: &Path, overrides: &Overrides) -> Vec<Diagnostic> {
        let source = match open(path) {
            Ok(source) => source,
            Err(error) => return vec![unreadable(&error, path)],
        };
        if is_megatron(&source) {
            return imported::linted(&source, path, overrides);
        }
        match Scenario::from_source(&source, path, overrides) {
            Ok(loaded) => loaded.warnings,
            Err(findings) => findings,
        }
    }
}

/// Where the document at `path` stands.
pub(super) fn site(path: &Path) -> read::Site<'_> {
    let stem = path.file_stem();
    let stem = stem.map(|stem| stem.to_string_lossy().into_owned());
    read::Site {
        folder: path.parent().unwrap_or(Path::new("")),
        stem: stem.unwrap_or_default(),
    }
}

/// Says that a file cannot be read, and which one may have been meant.
pub fn unreadable(error: &SourceError, path: &Path) -> Diagnostic {
    let named = Source::new(path.display().to_string(), "");
    let finding =
        Diagnostic::error("unreadable-file", error.to_string()).at(&Place::new(&named, 0..0), "");
    if !error.is_missing() {
        return finding;
    }
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let folder = parent.unwrap_or(Path::new("."));
    match nearest_file(folder, path) {
        Some(name) => {
            let name = folder.join(name);
            finding.with_help(format!("did you mean `{}`?", name.display()))
        }
        None => finding.with_help("scenarios come with bitproof in the folder `scenarios`"),
    }
}

/// Most directory entries that are looked through for a suggestion.
const FOLDER_ENTRIES_MAX: usize = 1_000;

fn nearest_file(folder: &Path, path: &Path) -> Option<String> {
    let wanted = path.file_name()?.to_str()?;
    let entries = std::fs::read_dir(folder).ok()?.take(FOLDER_ENTRIES_MAX);
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .collect();
    names.retain(|name| name != wanted);
    names.sort();
    crate::diagnostic::nearest(wanted, names.iter().map(String::as_str)).map(str::to_string)
}

/// The scenario's document with the command line's assignments on top. A bare recipe becomes the
/// `recipe` table of a document.
pub(super) fn document(
    source: &Source,
    overrides: &Overrides,
    findings: &mut Findings,
) -> Option<Table> {
    let mut document = Table::parse(source, findings)?;
    let bare = is_recipe(&document);
    if bare {
        document = wrapped("recipe", document);
    }
    if let Some(phase) = &overrides.phase {
        let asked = Source::new("--phase", phase.as_str());
        let place = Place::new(&asked, 0..asked.text.len());
        let message = "`--phase` is for files of Megatron-LM with several runs";
        findings.push(Diagnostic::error("no-such-phase", message).at(&place, "a recipe has one"));
    }
    assigned(document, bare, overrides, findings)
}

/// Keys of a scenario that no recipe has: what `--set` means by them around a bare recipe, too.
const SCENARIO_KEYS: [&str; 12] = [
    "recipe",
    "accept",
    "allocations",
    "checkpoint",
    "data",
    "expect",
    "fault",
    "free",
    "full_size",
    "oracles",
    "steps",
    "topo",
];

/// `document` with the command line's assignments on top. In a document made from a bare recipe
/// every other key than [`SCENARIO_KEYS`] is one of the recipe.
pub(super) fn assigned(
    mut document: Table,
    bare: bool,
    overrides: &Overrides,
    findings: &mut Findings,
) -> Option<Table> {
    let world = overrides
        .world
        .map(|ranks| ("--world", format!("recipe.world_size={ranks}")));
    let set = overrides.set.iter().map(|text| ("--set", text.clone()));
    for (flag, text) in world.into_iter().chain(set) {
        let mut assignment = Table::parse_assignment(flag, &text, findings)?;
        if let Some(refused) = of_the_file(&assignment) {
            findings.push(refused);
            return None;
        }
        let mut keys = assignment.entries.keys();
        if bare && !keys.any(|key| SCENARIO_KEYS.contains(&&**key)) {
            assignment = wrapped("recipe", assignment);
        }
        // A recipe may be a file name in the document: what is set goes on top of the file.
        if let Some(recipe) = assignment.entries.remove("recipe") {
            match recipe.item.value {
                Value::Table(_) => {
                    let place = recipe.key.clone();
                    let entries = [("override".to_string(), recipe)].into();
                    document.overlay(&Table { place, entries });
                }
                _ => {
                    document.entries.insert("recipe".into(), recipe);
                }
            }
        }
        document.overlay(&assignment);
    }
    Some(document)
}

/// What a file leaves open is its own to say: an assignment must not take it out of the verdict.
fn of_the_file(assignment: &Table) -> Option<Diagnostic> {
    let keys = ["not_covered", "environment_known"];
    let (key, entry) = keys
        .into_iter()
        .find_map(|key| Some((key, assignment.entries.get(key)?)))?;
    Some(
        Diagnostic::error(
            "said-by-the-file",
            format!("`{key}` is not for an assignment"),
        )
        .at(&entry.key, "what is left open is said with every verdict")
        .with_help(format!("set `{key}` in the scenario's file")),
    )
}

fn wrapped(key: &str, table: Table) -> Table {
    let place = table.place.clone();
    let start = Place::new(&place.source, 0..0);
    let item = Item {
        value: Value::Table(table),
        place: place.clone(),
    };
    Table {
        place,
        entries: [(key.to_string(), Entry { key: start, item })].into(),
    }
}
