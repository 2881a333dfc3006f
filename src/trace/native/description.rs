//! What a recording says of itself: in `run.json`, and at the head of each of its files.

use serde::{Deserialize, Serialize};

/// What `format` says in `run.json` and in headers.
pub(super) const FORMAT: &str = "bitproof-trace";
/// The version that is written and read.
pub(super) const FORMAT_VERSION: u32 = 1;

/// How tensors are digested: `numerics::Digest`, position-aware. `digest` holds the first 64 bits,
/// `bytes64` all 128.
pub const DIGEST_RULE: &str = "bitproof 1: the first 128 bits of BLAKE3 of the elements in order, \
    each as a little-endian 32-bit word (values of 16 bits widened to f32)";

/// How much is recorded, as Megatron-LM pull request 7262 narrows a search down.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The numbers of a step that engineers watch.
    Metrics,
    /// And collectives, messages, data, losses, gradients and the optimizer.
    Semantic,
    /// And every op of forward and backward.
    Op,
    /// And what each op was launched with.
    Kernel,
}

impl Level {
    pub fn slug(self) -> &'static str {
        match self {
            Level::Metrics => "metrics",
            Level::Semantic => "semantic",
            Level::Op => "op",
            Level::Kernel => "kernel",
        }
    }

    /// The streams that every rank has.
    pub fn streams(self) -> &'static [Stream] {
        match self {
            Level::Metrics => &[Stream::Boundary],
            Level::Semantic | Level::Op | Level::Kernel => &Stream::ALL,
        }
    }
}

/// What was recorded, and of what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunDescription {
    /// `bitproof-trace`.
    pub format: String,
    pub format_version: u32,
    /// The version of the program that wrote it.
    pub bitproof: String,
    /// Which run of a check: `reference` is the straight run of the canonical schedule.
    pub run: String,
    pub scenario: String,
    /// In hexadecimal, as the three below.
    pub scenario_hash: String,
    /// Over kernels, engine and data: what a replay token is bound to.
    pub build_hash: String,
    /// Over all kernels' linked texts.
    pub kernels_hash: String,
    pub engine: String,
    pub adapter: String,
    /// Whether the engine's arithmetic is strict.
    pub strict: bool,
    pub level: Level,
    /// The first and the last iteration that were to be recorded, where not all were.
    pub iterations: Option<(u32, u32)>,
    pub digest: String,
    pub world_size: u32,
    /// The ranks that were to be recorded, where not all were.
    pub ranks: Option<Vec<u32>>,
}

impl RunDescription {
    /// The format's own fields.
    pub fn format() -> (String, u32, String) {
        let version = env!("CARGO_PKG_VERSION").to_string();
        (FORMAT.to_string(), FORMAT_VERSION, version)
    }

    /// Without the list of ranks, which may be long: what headers repeat.
    pub(super) fn in_header(&self) -> RunDescription {
        RunDescription {
            ranks: None,
            ..self.clone()
        }
    }
}

/// Which of a rank's two streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    Ops,
    Boundary,
}

impl Stream {
    pub(super) const ALL: [Stream; 2] = [Stream::Ops, Stream::Boundary];

    pub(super) fn words(self) -> &'static str {
        match self {
            Stream::Ops => "an op stream",
            Stream::Boundary => "a boundary stream",
        }
    }
}

/// What stands at the head of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Header {
    pub stream: Stream,
    pub rank: u32,
    pub run: RunDescription,
}
