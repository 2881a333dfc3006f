//! Megatron-LM's configurations as bitproof's recipes: functional-test files, argument blocks of
//! job logs, launch lines.

mod given;

pub use given::{GivenArgument, GivenJob, GivenKind, GivenPhase, GivenValue, GivenVariable};
