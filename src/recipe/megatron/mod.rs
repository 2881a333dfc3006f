//! Megatron-LM's configurations as bitproof's recipes: functional-test files, argument blocks of
//! job logs, launch lines.

mod given;
mod meaning;

pub use given::{GivenArgument, GivenJob, GivenKind, GivenPhase, GivenValue, GivenVariable};
pub use meaning::{
    CaseFields, Derivation, JudgedArgument, Rerun, Resharding, UnderstandOptions, Understood,
    Verdict, World, WorldBasis, understand,
};
