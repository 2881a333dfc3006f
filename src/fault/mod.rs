//! What can be planted into a run, and what a checkpoint can lack: kinds of mutants, the oracle
//! that has to catch each, and the components of the training state.

mod component;
mod mutant;
mod reshard;

pub use component::Component;
pub use mutant::MutantKind;
pub use reshard::ReshardFault;
