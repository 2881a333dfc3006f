//! A scenario's identity, and its self-contained text.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;

use super::{
    AllocationFile, CheckpointPlan, Data, Expectation, Faults, Free, FullSize, OracleKind,
    Scenario, Variation,
};
use crate::recipe::Recipe;

/// Changes whenever the meaning of a hashed field changes; part of every content hash.
const CONTENT_VERSION: u32 = 1;

/// What decides the bits of a check, in a fixed order. The name, the description and the
/// expectation do not.
#[derive(Serialize)]
struct Content<'a> {
    version: u32,
    recipe: &'a Recipe,
    /// The texts, byte for byte.
    allocations: Vec<&'a str>,
    free: &'a BTreeSet<Free>,
    oracles: &'a BTreeSet<OracleKind>,
    steps: u32,
    checkpoint: &'a CheckpointPlan,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    topo: Vec<InlineVariation<'a>>,
    #[serde(skip_serializing_if = "Faults::is_empty")]
    fault: &'a Faults,
    full_size: &'a Option<FullSize>,
    data: String,
    seed: u64,
}

/// A scenario as one file, written so that its fields stand before its tables.
#[derive(Serialize)]
struct SelfContained<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    about: &'a Option<String>,
    steps: u32,
    seed: u64,
    free: &'a BTreeSet<Free>,
    oracles: &'a BTreeSet<OracleKind>,
    accept: &'a [&'static str],
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    not_covered: &'a [String],
    #[serde(skip_serializing_if = "is_true")]
    environment_known: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_blake3: Option<String>,
    allocations: Vec<InlineAllocation<'a>>,
    checkpoint: &'a CheckpointPlan,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    topo: Vec<InlineVariation<'a>>,
    #[serde(skip_serializing_if = "Faults::is_empty")]
    fault: &'a Faults,
    #[serde(skip_serializing_if = "Option::is_none")]
    full_size: &'a Option<FullSize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expect: &'a Option<Expectation>,
    recipe: &'a Recipe,
}

/// For the writer of TOML, which asks by reference.
pub(super) fn is_true(value: &bool) -> bool {
    *value
}

#[derive(Serialize)]
struct InlineAllocation<'a> {
    name: &'a str,
    text: &'a str,
}

#[derive(Serialize)]
struct InlineVariation<'a> {
    name: &'a str,
    may_differ: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    allocation: Option<InlineAllocation<'a>>,
    recipe: &'a Recipe,
}

impl<'a> InlineVariation<'a> {
    fn of(variation: &'a Variation) -> InlineVariation<'a> {
        InlineVariation {
            name: &variation.name,
            may_differ: variation.may_differ,
            allocation: variation.allocation.as_ref().map(InlineAllocation::of),
            recipe: &variation.recipe,
        }
    }
}

impl<'a> InlineAllocation<'a> {
    fn of(file: &'a AllocationFile) -> InlineAllocation<'a> {
        InlineAllocation {
            name: &file.name,
            text: &file.source.text,
        }
    }
}

impl Data {
    /// BLAKE3 of the file; `None` for the built-in text, which belongs to the program.
    pub fn blake3(&self) -> Option<blake3::Hash> {
        match self {
            Data::BuiltIn => None,
            Data::File { bytes, .. } => Some(blake3::hash(bytes)),
        }
    }
}

/// `path` as a file of `folder` would name it.
fn from_folder(folder: &Path, path: &Path) -> String {
    let relative = || {
        let working = std::env::current_dir().ok()?.canonicalize().ok()?;
        let (folder, path) = (folder.canonicalize().ok()?, path.canonicalize().ok()?);
        let up = folder.strip_prefix(&working).ok()?.components().count();
        let down = path.strip_prefix(&working).ok()?.to_path_buf();
        let steps = std::iter::repeat_n(Path::new(".."), up);
        Some(steps.chain([down.as_path()]).collect())
    };
    let absolute = || std::path::absolute(path).unwrap_or(path.to_path_buf());
    relative().unwrap_or_else(absolute).display().to_string()
}

impl Scenario {
    /// BLAKE3 over everything in the scenario that decides bits, files' contents included.
    /// The kernels, the engine and the built-in text are bound by a token's other hash.
    pub fn content_hash(&self) -> [u8; 32] {
        let content = Content {
            version: CONTENT_VERSION,
            recipe: &self.recipe,
            allocations: self
                .allocations
                .iter()
                .map(|file| &*file.source.text)
                .collect(),
            free: &self.free,
            oracles: &self.oracles,
            steps: self.steps,
            checkpoint: &self.checkpoint,
            topo: self.topo.iter().map(InlineVariation::of).collect(),
            fault: &self.faults,
            full_size: &self.full_size,
            data: match self.data.blake3() {
                None => "built-in".to_string(),
                Some(hash) => hash.to_string(),
            },
            seed: self.seed,
        };
        let json = serde_json::to_vec(&content).expect("plain data has a JSON form");
        *blake3::hash(&json).as_bytes()
    }

    /// The scenario as one TOML file of `folder` that needs no other file but its data. Reading it
    /// back gives the same content hash.
    ///
    /// Data inside the working directory is named relative to `folder`, where that lies inside,
    /// too: the directory may be moved, or checked out elsewhere. Other data is named by its
    /// absolute path.
    pub fn to_toml(&self, folder: &Path) -> String {
        let data = match &self.data {
            Data::BuiltIn => None,
            Data::File { path, .. } => Some(from_folder(folder, path)),
        };
        let file = SelfContained {
            name: &self.name,
            about: &self.about,
            steps: self.steps,
            seed: self.seed,
            free: &self.free,
            oracles: &self.oracles,
            accept: if self.accept_input { &["input"] } else { &[] },
            not_covered: &self.not_covered,
            environment_known: self.environment_known,
            data,
            data_blake3: self.data.blake3().map(|hash| hash.to_string()),
            allocations: self.allocations.iter().map(InlineAllocation::of).collect(),
            checkpoint: &self.checkpoint,
            topo: self.topo.iter().map(InlineVariation::of).collect(),
            fault: &self.faults,
            full_size: &self.full_size,
            expect: &self.expect,
            recipe: &self.recipe,
        };
        toml::to_string(&file).expect("plain data has a TOML form")
    }
}
