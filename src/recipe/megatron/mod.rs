//! Megatron-LM's configurations as bitproof's recipes: functional-test files, argument blocks of
//! job logs, launch lines.

/// The program of Megatron-LM whose training is simulated.
const SIMULATED: &str = "pretrain_gpt.py";

mod catalogue;
mod command_line;
mod functional_test;
mod given;
mod launch;
mod log;
mod log_file;
mod meaning;
mod python;
mod read;
mod spelling;
mod yaml;

pub use catalogue::{
    Argument, Catalogue, Effect, Feature, Kind, Spelling, Variable, not_covered, variable,
};
pub(crate) use given::setting;
pub use given::{GivenArgument, GivenJob, GivenKind, GivenPhase, GivenValue, GivenVariable};
pub use log_file::open;
pub use meaning::{
    CaseFields, Derivation, JudgedArgument, Rerun, UnderstandOptions, Understood, Verdict, World,
    WorldBasis, tally, understand,
};
pub(crate) use meaning::{Value, Values};
pub use read::{is_megatron, kind_of};
