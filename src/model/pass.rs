//! A microbatch's way through a stage, and who is told of the parameters that it uses: Megatron-LM's
//! DDP hangs a hook before the forward of every module and one behind the gradient of every
//! parameter (distributed_data_parallel.py, `_make_forward_pre_hook`, `_make_backward_post_hook`).

use std::ops::Deref;

use crate::model::parameter::ParameterId;
use crate::model::stage::Stage;
use crate::world::{Rank, Tensor};

/// What is done around a use of a parameter. Called outside of every module's name.
pub trait ParameterHooks {
    /// A module that holds the parameter is about to run forward.
    fn before_forward(&mut self, rank: &mut Rank, parameter: ParameterId);

    /// The whole gradient that the microbatch gives the parameter is in its slot.
    fn after_gradient(&mut self, rank: &mut Rank, parameter: ParameterId);
}

/// A stage at work on one microbatch.
pub struct Pass<'a> {
    stage: &'a Stage,
    microbatch: u32,
    hooks: &'a mut dyn ParameterHooks,
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
        }
    }

    /// A module is about to run forward with these parameters of its own.
    pub(super) fn enter(
        &mut self,
        rank: &mut Rank,
        parameters: impl IntoIterator<Item = ParameterId>,
    ) {
        for parameter in parameters {
            self.hooks.before_forward(rank, parameter);
        }
    }

    /// Where the microbatch's gradient of a parameter goes.
    pub(super) fn slot(&self, parameter: ParameterId) -> Tensor {
        self.stage.store.slot(parameter, self.microbatch)
    }

    /// The gradient is whole.
    pub(super) fn leave(&mut self, rank: &mut Rank, parameter: ParameterId) {
        self.hooks.after_gradient(rank, parameter);
    }
}
