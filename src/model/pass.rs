//! A microbatch's way through a stage, and who is told of the parameters that it uses.
//!
//! Megatron-LM's DDP hangs a hook before the forward of every module and one behind the gradient of
//! every parameter (distributed_data_parallel.py, `_make_forward_pre_hook`,
//! `_make_backward_post_hook`).

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use crate::model::parameter::ParameterId;
use crate::model::stage::Stage;
use crate::world::{Handle, Rank, Tensor};

/// What is done around a use of a parameter. Called outside of every module's name.
pub trait ParameterHooks {
    /// A module that holds the parameter is about to run forward.
    fn before_forward(&mut self, rank: &mut Rank, parameter: ParameterId);

    /// The whole gradient that the microbatch gives the parameter is in its slot.
    fn after_gradient(&mut self, rank: &mut Rank, parameter: ParameterId);

    /// The same of a graph's parameter: the gradient is there once `replayed` is over.
    fn after_replay(&mut self, rank: &mut Rank, parameter: ParameterId, replayed: Handle);
}

/// Static buffers that a graph's backward leaves gradients of parameters in.
pub(super) type StaticGradients = Arc<BTreeMap<ParameterId, Tensor>>;

/// A graph that is being replayed: nobody hears of what happens inside.
struct Replay {
    gradients: StaticGradients,
    /// Parameters whose gradients were made, in order.
    written: Vec<ParameterId>,
}

/// A stage at work on one microbatch.
pub struct Pass<'a> {
    stage: &'a Stage,
    microbatch: u32,
    hooks: &'a mut dyn ParameterHooks,
    replay: Option<Replay>,
}

impl Deref for Pass<'_> {
    type Target = Stage;

    fn deref(&self) -> &Stage {
        self.stage
    }
}

impl<'a> Pass<'a> {
    pub fn new(stage: &'a Stage, microbatch: u32, hooks: &'a mut dyn ParameterHooks) -> Pass<'a> {
        Pass {
            stage,
            microbatch,
            hooks,
            replay: None,
        }
    }

    pub(super) fn microbatch(&self) -> u32 {
        self.microbatch
    }

    /// A module is about to run forward with these parameters of its own.
    pub(super) fn enter(
        &mut self,
        rank: &mut Rank,
        parameters: impl IntoIterator<Item = ParameterId>,
    ) {
        if self.replay.is_some() {
            return;
        }
        for parameter in parameters {
            self.hooks.before_forward(rank, parameter);
        }
    }

    /// Where the microbatch's gradient of a parameter goes.
    pub(super) fn slot(&self, parameter: ParameterId) -> Tensor {
        let replay = self.replay.as_ref();
        let fixed = replay.and_then(|replay| replay.gradients.get(&parameter));
        match fixed {
            Some(fixed) => *fixed,
            None => self.stage.store.slot(parameter, self.microbatch),
        }
    }

    /// The gradient is whole.
    pub(super) fn leave(&mut self, rank: &mut Rank, parameter: ParameterId) {
        match &mut self.replay {
            Some(replay) => replay.written.push(parameter),
            None => self.hooks.after_gradient(rank, parameter),
        }
    }

    /// Runs `body` as one graph, which leaves the gradients of these parameters in these buffers.
    /// Returns the parameters whose gradients it has made.
    pub(super) fn replay(
        &mut self,
        gradients: StaticGradients,
        body: impl FnOnce(&mut Self),
    ) -> Vec<ParameterId> {
        let written = Vec::new();
        self.replay = Some(Replay { gradients, written });
        body(self);
        let replay = self.replay.take();
        replay.expect("no graph is replayed within another").written
    }

    /// The hooks of a graph's gradients, behind its replay.
    pub(super) fn leave_replay(
        &mut self,
        rank: &mut Rank,
        written: Vec<ParameterId>,
        replayed: Option<Handle>,
    ) {
        for parameter in written {
            match replayed {
                Some(replayed) => self.hooks.after_replay(rank, parameter, replayed),
                None => self.hooks.after_gradient(rank, parameter),
            }
        }
    }
}
