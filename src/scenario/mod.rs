//! A scenario: a recipe, the allocations it may run on, what is free, what is compared, and what
//! is expected.

mod allocation;
mod choice;
mod content;
mod faults;
mod find;
mod full_size;
mod grade;
mod import;
mod imported;
mod in_code;
mod job;
mod load;
mod origin;
mod read;
mod reshard;
mod restarts;
#[cfg(feature = "strategies")]
pub mod strategies;
mod topo;

pub use choice::{ChoiceVariable, Scope, Values};
pub use faults::Faults;
pub use find::{Found, find_by_hash, toml_files};
pub use full_size::{FullModel, FullSize};
pub use grade::Grade;
pub use import::{Import, import};
pub use imported::Imported;
pub use job::{Job, placed, placed_any};
pub use load::{Loaded, Overrides, unreadable};
pub use origin::OriginClass;
pub use topo::Variation;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use serde::Serialize;

use crate::diagnostic::Source;
use crate::fault::Component;
use crate::recipe::{Recipe, ReshardLayout};
use crate::topology::Allocation;

/// Allocation files of one scenario.
pub const ALLOCATIONS_MAX: usize = 64;
/// Lists of restarts, and restarts in one list.
pub const RESTARTS_MAX: usize = 64;
/// Layouts that one scenario is resumed on.
pub const RESHARDS_MAX: usize = 8;
/// Other sizes and places that one scenario is compared with.
pub const VARIATIONS_MAX: usize = 16;
/// Faults of one scenario.
pub const FAULTS_MAX: usize = 64;
/// Longest training text: 1 GiB.
pub const DATA_BYTES_MAX: u64 = 1 << 30;

/// A comparison that exposes a fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum OracleKind {
    /// Run to run.
    R2R,
    /// Straight against resumed.
    RES,
    /// Copies that must agree across ranks.
    XR,
    /// Other sizes and places of the same job.
    TOPO,
    /// What a serial run would add: each contribution to each gradient exactly once.
    REF,
}

impl OracleKind {
    pub const ALL: [OracleKind; 5] = [
        OracleKind::R2R,
        OracleKind::RES,
        OracleKind::XR,
        OracleKind::TOPO,
        OracleKind::REF,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            OracleKind::R2R => "R2R",
            OracleKind::RES => "RES",
            OracleKind::XR => "XR",
            OracleKind::TOPO => "TOPO",
            OracleKind::REF => "REF",
        }
    }
}

/// What a scenario leaves open beyond its recipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Free {
    /// Any of the scenario's allocations may be given to the job.
    Placement,
}

/// One allocation: a file of `topologies/`, or a text inside the scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllocationFile {
    /// The allocation's own name, unlike that of any other of the scenario.
    pub name: String,
    pub source: Source,
    /// What the text says; it places exactly the recipe's ranks.
    pub allocation: Allocation,
}

/// Checkpoints of the RES oracle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CheckpointPlan {
    /// Components that a checkpoint leaves out.
    pub omit: BTreeSet<Component>,
    /// Runs to compare with the straight one: the steps after which each is killed and resumed.
    pub restarts: Vec<Vec<u32>>,
    /// Layouts on which the run is resumed, too, after each step that a restart names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub reshard: Vec<ReshardLayout>,
    /// Before each step ranks ask whether the background writer is done, and do not wait for it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub polls: bool,
}

impl CheckpointPlan {
    /// The steps after which a run is resumed, in any list.
    pub fn cuts(&self) -> BTreeSet<u32> {
        self.restarts.iter().flatten().copied().collect()
    }
}

/// What the ranks are trained on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// The text that comes with bitproof.
    BuiltIn,
    File {
        path: PathBuf,
        bytes: Arc<[u8]>,
    },
}

/// What the author of a scenario expects of a check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Expectation {
    pub grade: Grade,
    /// The op of the first node where bits part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<String>,
    /// The comparison that shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oracle: Option<OracleKind>,
    /// Where it comes from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<OriginClass>,
    /// What the sentence about its origin has to name: an edge, a module, a component.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub names: Option<String>,
}

impl Expectation {
    /// This grade, whatever it comes from.
    pub const fn of(grade: Grade) -> Expectation {
        Expectation {
            grade,
            first: None,
            oracle: None,
            class: None,
            names: None,
        }
    }
}

impl std::fmt::Display for Expectation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.grade.words())?;
        if let Some(first) = &self.first {
            write!(f, " first at {first}")?;
        }
        if let Some(oracle) = self.oracle {
            write!(f, " by {}", oracle.name())?;
        }
        if let Some(class) = self.class {
            write!(f, " of class {class}")?;
        }
        match &self.names {
            Some(names) => write!(f, " naming {names}"),
            None => Ok(()),
        }
    }
}

/// A scenario whose rules hold.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// For people: control characters are written out, as `\u{1b}`.
    pub name: String,
    pub about: Option<String>,
    /// Steps that are checked: at most the recipe's `train_iters`.
    pub steps: u32,
    pub recipe: Recipe,
    /// Empty: hosts of eight GPUs, filled in rank order.
    pub allocations: Vec<AllocationFile>,
    pub free: BTreeSet<Free>,
    pub oracles: BTreeSet<OracleKind>,
    pub checkpoint: CheckpointPlan,
    /// Other sizes and places of the job, of which TOPO compares each with this one.
    pub topo: Vec<Variation>,
    /// What is wrong with the recipe, on purpose.
    pub faults: Faults,
    /// The job that this scenario stands for.
    pub full_size: Option<FullSize>,
    pub data: Data,
    /// Seed of the orders that are sampled where not all can be tried.
    pub seed: u64,
    /// *Proved on this input* counts as a pass.
    pub accept_input: bool,
    pub expect: Option<Expectation>,
    /// What else a pass leaves open, a sentence each: of a job, what its libraries or files decide
    /// that are not read. It decides nothing.
    pub not_covered: Vec<String>,
    /// False where the job reads what is not read here, and that may set its variables.
    pub environment_known: bool,
    /// The job that the scenario was made from; decides nothing, and is not part of its text.
    pub imported: Option<Imported>,
}

impl Scenario {
    /// Where a job may run that was begun on the first allocation; none where placement is not
    /// free.
    pub fn other_allocations(&self) -> &[AllocationFile] {
        match self.free.contains(&Free::Placement) {
            true => self.allocations.get(1..).unwrap_or_default(),
            false => &[],
        }
    }

    /// Whether a killed run is resumed on other allocations, too.
    pub fn resumes_elsewhere(&self) -> bool {
        let resumes = self.oracles.contains(&OracleKind::RES) && !self.checkpoint.cuts().is_empty();
        resumes && !self.other_allocations().is_empty()
    }

    /// Whether a check would compare nothing at all.
    pub fn compares_nothing(&self) -> bool {
        let restarts = self.checkpoint.restarts.is_empty();
        let is_idle = |oracle: &OracleKind| match oracle {
            OracleKind::RES => restarts,
            OracleKind::TOPO => self.topo.is_empty(),
            OracleKind::R2R | OracleKind::XR | OracleKind::REF => false,
        };
        self.oracles.iter().all(is_idle)
    }
}

#[cfg(test)]
mod tests;
