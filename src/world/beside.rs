//! Two observers of one run.

use crate::engine::{Engine, EngineError, Span};
use crate::world::fold::{FoldLab, FoldNode};
use crate::world::{CopyNode, Drift, ExchangeNode, LaunchNode, Observer, ShownMetric, UploadNode};

/// Shows everything to the first, then to the second. Neither sees what the other does, for no
/// observer changes a run.
pub struct Beside<'a> {
    pub first: &'a mut dyn Observer,
    pub second: &'a mut dyn Observer,
}

impl Observer for Beside<'_> {
    fn on_fold(&mut self, node: &FoldNode, lab: &mut FoldLab<'_>) -> Result<(), EngineError> {
        self.first.on_fold(node, lab)?;
        self.second.on_fold(node, lab)
    }

    fn on_launch(
        &mut self,
        node: &LaunchNode<'_>,
        engine: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        self.first.on_launch(node, engine)?;
        self.second.on_launch(node, engine)
    }

    fn on_copies(
        &mut self,
        copies: &[CopyNode<'_>],
        engine: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        self.first.on_copies(copies, engine)?;
        self.second.on_copies(copies, engine)
    }

    fn on_exchange(
        &mut self,
        node: &ExchangeNode<'_>,
        engine: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        self.first.on_exchange(node, engine)?;
        self.second.on_exchange(node, engine)
    }

    fn on_upload(
        &mut self,
        node: &UploadNode<'_>,
        engine: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        self.first.on_upload(node, engine)?;
        self.second.on_upload(node, engine)
    }

    fn on_ran(&mut self, engine: &mut dyn Engine) -> Result<(), EngineError> {
        self.first.on_ran(engine)?;
        self.second.on_ran(engine)
    }

    fn on_boundary(&mut self, step: Option<u32>, ranks: &[u32], metrics: &[ShownMetric]) {
        self.first.on_boundary(step, ranks, metrics);
        self.second.on_boundary(step, ranks, metrics);
    }

    fn on_drift(
        &mut self,
        drift: &Drift,
        spans: (Span, Span),
        engine: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        self.first.on_drift(drift, spans, engine)?;
        self.second.on_drift(drift, spans, engine)
    }
}
