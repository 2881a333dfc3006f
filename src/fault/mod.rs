//! What can be taken out of, or planted into, a run: named waits' kin, checkpoint components and
//! mutants.

mod component;
mod mutant;

pub use component::Component;
pub use mutant::{Catcher, MutantKind, Target};
