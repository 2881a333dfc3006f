//! SwiGLU MLP (Shazeer, arXiv:2002.05202): gate and up fused in `linear_fc1` (column parallel),
//! `linear_fc2` (row parallel).

use crate::model::linear::Linear;
use crate::model::stage::Stage;
use crate::world::{Rank, Tensor};

#[derive(Clone, Debug)]
pub struct Mlp {
    activation: String,
    fc1: Linear,
    fc2: Linear,
}

/// What backward needs of one microbatch.
#[derive(Clone, Copy, Debug)]
pub struct MlpSaved {
    /// `[tokens, 2, ffn]`: gate, then up.
    fc1: Tensor,
    /// `[tokens, ffn]`.
    activation: Tensor,
}

impl MlpSaved {
    pub fn allocate(rank: &mut Rank, stage: &Stage, name: &str) -> MlpSaved {
        let words = stage.shape.tokens() * stage.shape.local_ffn();
        let dtype = stage.shape.params_dtype;
        MlpSaved {
            fc1: rank.alloc(&format!("{name}.fc1"), dtype, 2 * words),
            activation: rank.alloc(&format!("{name}.activation"), dtype, words),
        }
    }
}

impl Mlp {
    pub fn new(stage: &Stage, module: &str) -> Mlp {
        Mlp {
            activation: format!("{module}.swiglu"),
            fc1: Linear::new(stage, format!("{module}.linear_fc1")),
            fc2: Linear::new(stage, format!("{module}.linear_fc2")),
        }
    }

    /// Writes this rank's partial output `[tokens, hidden]` for `x [tokens, hidden]`.
    pub fn forward(
        &self,
        rank: &mut Rank,
        stage: &Stage,
        saved: &MlpSaved,
        x: Tensor,
        partial: Tensor,
    ) {
        self.fc1.forward(rank, stage, x, saved.fc1);
        rank.module(&self.activation, |rank| {
            let operands = [saved.fc1, saved.activation];
            let (grid, params) = swiglu_launch(stage);
            rank.launch("forward", "swiglu_forward", grid, &operands, &params);
        });
        self.fc2.forward(rank, stage, saved.activation, partial);
    }

    /// Writes the partial gradient `[tokens, hidden]` of the input `x`, from `grad_y` of all
    /// tokens.
    #[allow(
        clippy::too_many_arguments,
        reason = "a backward has its forward's tensors and more"
    )]
    pub fn backward(
        &self,
        rank: &mut Rank,
        stage: &Stage,
        saved: &MlpSaved,
        x: Tensor,
        grad_y: Tensor,
        grad_x: Tensor,
        microbatch: u32,
    ) {
        let (grad_activation, grad_fc1) = (stage.scratch.grad_activation, stage.scratch.grad_fc1);
        self.fc2
            .input_gradient(rank, stage, grad_y, grad_activation);
        self.fc2
            .weight_gradient(rank, stage, grad_y, saved.activation, microbatch);
        rank.module(&self.activation, |rank| {
            let operands = [saved.fc1, grad_activation, grad_fc1];
            let (grid, params) = swiglu_launch(stage);
            rank.launch("backward", "swiglu_backward", grid, &operands, &params);
        });
        self.fc1.input_gradient(rank, stage, grad_fc1, grad_x);
        self.fc1
            .weight_gradient(rank, stage, grad_fc1, x, microbatch);
    }
}

fn swiglu_launch(stage: &Stage) -> ([u32; 3], [u32; 3]) {
    let ffn = stage.shape.local_ffn();
    let count = stage.shape.tokens() * ffn;
    ([count, 1, 1], [count, ffn, stage.round_code()])
}
