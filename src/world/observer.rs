//! What may watch a run: called when a node is about to run, before in-place results destroy its
//! inputs.

use crate::engine::{CopyWords, Engine, EngineError, Span};
use crate::kernel::Kernel;
use crate::world::fold::{FoldLab, FoldNode};
use crate::world::site::Site;

/// A launch that is about to run.
#[derive(Clone, Copy, Debug)]
pub struct LaunchNode<'a> {
    pub rank: u32,
    pub site: &'a Site,
    pub kernel: &'a Kernel,
    /// In the kernel's order.
    pub operands: &'a [Span],
    pub params: &'a [u32],
}

pub trait Observer {
    /// A fold is about to be executed in `node`'s reference order.
    fn on_fold(&mut self, node: &FoldNode, lab: &mut FoldLab<'_>) -> Result<(), EngineError>;

    /// A launch is about to run; `engine` holds what it will read.
    fn on_launch(
        &mut self,
        _node: &LaunchNode<'_>,
        _engine: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        Ok(())
    }

    /// Words are about to be copied, all at once: by a copy, a message or a collective that adds
    /// nothing.
    fn on_copies(&mut self, _copies: &[CopyWords]) {}

    /// Words are about to be written from the host.
    fn on_overwrite(&mut self, _span: Span) {}
}

/// Watches nothing.
pub struct Unobserved;

impl Observer for Unobserved {
    fn on_fold(&mut self, _: &FoldNode, _: &mut FoldLab<'_>) -> Result<(), EngineError> {
        Ok(())
    }
}
