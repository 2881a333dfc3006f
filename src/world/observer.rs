//! What may watch a run: called when a node is about to run, before in-place results destroy its
//! inputs.

use crate::engine::EngineError;
use crate::world::fold::{FoldLab, FoldNode};

pub trait Observer {
    /// A fold is about to be executed in `node`'s reference order.
    fn on_fold(&mut self, node: &FoldNode, lab: &mut FoldLab<'_>) -> Result<(), EngineError>;
}

/// Watches nothing.
pub struct Unobserved;

impl Observer for Unobserved {
    fn on_fold(&mut self, _: &FoldNode, _: &mut FoldLab<'_>) -> Result<(), EngineError> {
        Ok(())
    }
}
