//! What a folder of probe inputs is: `probe.json` in it.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::diagnostic::{Diagnostic, Place, Source};
use crate::numerics::Dtype;
use crate::plan::identify::{Operation, Probe};

/// The file in a folder that says what is probed.
pub(super) const FILE: &str = "probe.json";
/// What the script writes of each rank.
pub(super) const OUTPUTS: &str = "outputs";
/// What it reads.
pub(super) const INPUTS: &str = "inputs";

/// Changes where a folder of another version would be misread.
const VERSION: u32 = 1;

/// An operation by the name of its option.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Sum {
    #[default]
    AllReduce,
    ReduceScatter,
}

impl From<Sum> for Operation {
    fn from(sum: Sum) -> Operation {
        match sum {
            Sum::AllReduce => Operation::AllReduce,
            Sum::ReduceScatter => Operation::ReduceScatter,
        }
    }
}

/// A type by the name of its option.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Float {
    #[default]
    F32,
    Bf16,
    F16,
}

impl From<Float> for Dtype {
    fn from(float: Float) -> Dtype {
        match float {
            Float::F32 => Dtype::F32,
            Float::Bf16 => Dtype::Bf16,
            Float::F16 => Dtype::F16,
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    version: u32,
    pub ranks: u32,
    /// Of the whole reduced buffer.
    pub elements: u64,
    pub dtype: Float,
    pub operation: Sum,
    /// How often the collective is run.
    runs: u32,
}

impl Manifest {
    pub fn new(probe: Probe, elements: u64, dtype: Float, operation: Sum) -> Manifest {
        Manifest {
            version: VERSION,
            ranks: probe.ranks,
            elements,
            dtype,
            operation,
            runs: probe.runs(),
        }
    }

    /// What the folder says; `None` where it is no folder of a probe.
    pub fn read(folder: &Path) -> Option<Result<(Manifest, Probe), Vec<Diagnostic>>> {
        let path = folder.join(FILE);
        std::fs::symlink_metadata(&path).ok()?;
        Some(Manifest::of_file(&path))
    }

    fn of_file(path: &Path) -> Result<(Manifest, Probe), Vec<Diagnostic>> {
        let source = Source::read(path);
        let source = source
            .map_err(|error| vec![Diagnostic::error("unreadable-file", error.to_string())])?;
        let bad = |message: String| {
            let place = Place::new(&source, 0..source.text.len());
            let finding = Diagnostic::error("probe", message).at(&place, "of this probe");
            vec![finding.with_help("`bitproof plan probe` writes it")]
        };
        let manifest: Manifest = serde_json::from_str(&source.text)
            .map_err(|error| bad(format!("no probe's file: {error}")))?;
        let probe = Probe::new(manifest.ranks, manifest.dtype.into());
        let probe = probe.map_err(|error| bad(error.to_string()))?;
        if (manifest.version, manifest.runs) != (VERSION, probe.runs()) {
            return Err(bad("a probe of another version of bitproof".to_string()));
        }
        let is_even = manifest.elements.is_multiple_of(u64::from(manifest.ranks));
        if manifest.elements == 0 || (manifest.operation == Sum::ReduceScatter && !is_even) {
            return Err(bad(format!("{} elements", manifest.elements)));
        }
        Ok((manifest, probe))
    }
}
