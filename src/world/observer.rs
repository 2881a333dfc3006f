//! What may watch a run: called when a node is about to run, before in-place results destroy its
//! inputs.

use std::sync::Arc;

use crate::engine::{CopyWords, Engine, EngineError, Span};
use crate::kernel::Kernel;
use crate::numerics::Dtype;
use crate::world::command::CollectiveKind;
use crate::world::exec::Drift;
use crate::world::fold::{FoldLab, FoldNode};
use crate::world::rank::{GroupId, StreamId, Tensor};
use crate::world::site::Site;

/// A launch that is about to run.
#[derive(Clone, Copy, Debug)]
pub struct LaunchNode<'a> {
    pub rank: u32,
    pub site: &'a Arc<Site>,
    pub stream: StreamId,
    pub kernel: &'a Kernel,
    /// In the kernel's order.
    pub operands: &'a [Span],
    /// The same, as the program calls them.
    pub tensors: &'a [Tensor],
    pub params: &'a [u32],
}

/// Words that are about to be copied.
#[derive(Clone, Copy, Debug)]
pub struct CopyNode<'a> {
    pub site: &'a Arc<Site>,
    /// Of the rank that gets them.
    pub stream: StreamId,
    /// The rank that has the words, and the one that gets them.
    pub from: u32,
    pub to: u32,
    pub copy: CopyWords,
    pub dtype: Dtype,
    pub way: Way<'a>,
}

/// How words come from one place to another.
#[derive(Clone, Copy, Debug)]
pub enum Way<'a> {
    /// Within a rank.
    Local,
    /// By a message, which the sender sent at `sent`, on the stream `outlet`.
    Message {
        sent: &'a Arc<Site>,
        outlet: StreamId,
    },
    /// Part of an exchange.
    Exchange,
}

/// A collective that adds nothing, and is about to run. Its copies are shown as well.
#[derive(Clone, Copy, Debug)]
pub struct ExchangeNode<'a> {
    pub site: &'a Arc<Site>,
    pub stream: StreamId,
    pub group: GroupId,
    pub kind: CollectiveKind,
    pub dtype: Dtype,
    /// In the group's order.
    pub members: &'a [Member],
}

/// One rank's part in an exchange.
#[derive(Clone, Copy, Debug)]
pub struct Member {
    pub rank: u32,
    pub input: Span,
    pub output: Span,
}

/// A scalar that a rank shows its user when a step ends.
#[derive(Clone, Debug, PartialEq)]
pub struct ShownMetric {
    pub rank: u32,
    pub name: String,
    pub value: f32,
}

/// Words that are about to be written from the host.
#[derive(Clone, Copy, Debug)]
pub struct UploadNode<'a> {
    pub rank: u32,
    pub site: &'a Arc<Site>,
    pub stream: StreamId,
    pub span: Span,
    pub dtype: Dtype,
    pub words: &'a [u32],
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
    fn on_copies(
        &mut self,
        _copies: &[CopyNode<'_>],
        _engine: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        Ok(())
    }

    /// A collective that adds nothing is about to run.
    fn on_exchange(
        &mut self,
        _node: &ExchangeNode<'_>,
        _engine: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        Ok(())
    }

    /// These ranks have ended a step, or set-up where there is none.
    fn on_boundary(&mut self, _step: Option<u32>, _ranks: &[u32], _metrics: &[ShownMetric]) {}

    /// Words are about to be written from the host.
    fn on_upload(
        &mut self,
        _node: &UploadNode<'_>,
        _engine: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        Ok(())
    }

    /// All that was shown so far has run.
    fn on_ran(&mut self, _engine: &mut dyn Engine) -> Result<(), EngineError> {
        Ok(())
    }

    /// Copies were found to differ: those of `drift`, at `spans`.
    fn on_drift(
        &mut self,
        _drift: &Drift,
        _spans: (Span, Span),
        _engine: &mut dyn Engine,
    ) -> Result<(), EngineError> {
        Ok(())
    }
}

/// Watches nothing.
pub struct Unobserved;

impl Observer for Unobserved {
    fn on_fold(&mut self, _: &FoldNode, _: &mut FoldLab<'_>) -> Result<(), EngineError> {
        Ok(())
    }
}
