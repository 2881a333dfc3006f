//! A scenario's identity, and its self-contained text.

use std::collections::BTreeSet;

use serde::Serialize;

use super::{CheckpointPlan, Data, Expectation, Free, FullSize, OracleKind, Scenario};
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
    #[serde(skip_serializing_if = "Option::is_none")]
    data: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    data_blake3: Option<String>,
    allocations: Vec<InlineAllocation<'a>>,
    checkpoint: &'a CheckpointPlan,
    #[serde(skip_serializing_if = "Option::is_none")]
    full_size: &'a Option<FullSize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expect: &'a Option<Expectation>,
    recipe: &'a Recipe,
}

#[derive(Serialize)]
struct InlineAllocation<'a> {
    name: &'a str,
    text: &'a str,
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

    /// The scenario as one TOML file that needs no other file but its data. Reading it back gives
    /// the same content hash.
    pub fn to_toml(&self) -> String {
        let data = match &self.data {
            Data::BuiltIn => None,
            Data::File { path, .. } => Some(
                std::path::absolute(path)
                    .unwrap_or(path.clone())
                    .display()
                    .to_string(),
            ),
        };
        let file = SelfContained {
            name: &self.name,
            about: &self.about,
            steps: self.steps,
            seed: self.seed,
            free: &self.free,
            oracles: &self.oracles,
            accept: if self.accept_input { &["input"] } else { &[] },
            data,
            data_blake3: self.data.blake3().map(|hash| hash.to_string()),
            allocations: self
                .allocations
                .iter()
                .map(|file| InlineAllocation {
                    name: &file.name,
                    text: &file.source.text,
                })
                .collect(),
            checkpoint: &self.checkpoint,
            full_size: &self.full_size,
            expect: &self.expect,
            recipe: &self.recipe,
        };
        toml::to_string(&file).expect("plain data has a TOML form")
    }
}
