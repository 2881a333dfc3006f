//! What can be planted into a run, and what a checkpoint can lack: kinds of mutants, the faults
//! that a scenario names, and the components of the training state.

mod component;
mod mutant;
mod named;
mod reshard;

pub use component::Component;
pub use mutant::MutantKind;
pub use named::{BitFlip, Fault, FaultFacts, FaultKind, FlipTarget};
pub use reshard::ReshardFault;
