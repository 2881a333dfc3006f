//! Megatron-LM's configurations as bitproof's recipes: functional-test files, argument blocks of
//! job logs, launch lines.

mod command_line;
mod functional_test;
mod given;
mod launch;
mod log;
mod log_file;
mod python;
mod read;
mod spelling;
mod yaml;

pub use given::{GivenArgument, GivenJob, GivenKind, GivenPhase, GivenValue, GivenVariable};
pub use log_file::open;
pub use read::{is_megatron, kind_of};
