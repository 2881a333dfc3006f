//! The end of the last stage: final norm, untied vocab-parallel output layer, loss.

use crate::model::cross_entropy::CrossEntropy;
use crate::model::linear::Linear;
use crate::model::norm::RmsNorm;
use crate::model::stage::Stage;
use crate::numerics::Dtype;
use crate::world::{Phase, Rank, Tensor};

/// Final norm, output layer and loss, with the buffers of the one microbatch that is in them: the
/// last stage goes backward at once after each forward.
#[derive(Clone, Debug)]
pub struct Head {
    norm: RmsNorm,
    output: Linear,
    cross_entropy: CrossEntropy,
    rstd: Tensor,
    /// `[tokens, hidden]`.
    normed: Tensor,
    /// `[tokens, local vocab]`.
    pub logits: Tensor,
    grad_logits: Tensor,
}

impl Head {
    pub fn new(rank: &mut Rank, stage: &Stage) -> Head {
        let shape = &stage.shape;
        let (tokens, dtype) = (shape.tokens(), shape.params_dtype);
        let logits = tokens * shape.local_vocab();
        Head {
            norm: RmsNorm::new(stage, "decoder.final_layernorm".to_string()),
            output: Linear::new(stage, "output_layer".to_string()),
            cross_entropy: CrossEntropy::allocate(rank, stage),
            rstd: rank.alloc("head.rstd", Dtype::F32, shape.local_tokens()),
            normed: rank.alloc("head.normed", dtype, tokens * shape.hidden_size),
            logits: rank.alloc("head.logits", dtype, logits),
            grad_logits: rank.alloc("head.grad_logits", dtype, logits),
        }
    }

    /// `losses [tokens]` of the residual stream `x [local tokens, hidden]`.
    pub fn forward(
        &self,
        rank: &mut Rank,
        stage: &Stage,
        x: Tensor,
        targets: Tensor,
        losses: Tensor,
    ) {
        let local = stage.local_for(self.normed);
        self.norm.forward(rank, stage, x, self.rstd, local);
        rank.module(&self.output.module, |rank| {
            stage.gather(rank, local, self.normed)
        });
        self.output.forward(rank, stage, self.normed, self.logits);
        rank.set_phase(Phase::Loss);
        self.cross_entropy
            .forward(rank, stage, self.logits, targets, losses);
    }

    /// `grad_x [local tokens, hidden]` of the loss times `scale`.
    #[allow(
        clippy::too_many_arguments,
        reason = "a backward has its forward's tensors and more"
    )]
    pub fn backward(
        &self,
        rank: &mut Rank,
        stage: &Stage,
        x: Tensor,
        targets: Tensor,
        scale: f32,
        grad_x: Tensor,
        microbatch: u32,
    ) {
        let (grad_logits, reduced) = (self.grad_logits, stage.scratch.reduced);
        self.cross_entropy
            .backward(rank, stage, self.logits, targets, scale, grad_logits);
        let partial = stage.partial_for(reduced);
        self.output
            .input_gradient(rank, stage, grad_logits, partial);
        self.output
            .weight_gradient(rank, stage, grad_logits, self.normed, microbatch);
        rank.module(&self.output.module, |rank| {
            stage.reduce(rank, partial, reduced)
        });
        self.norm.backward(
            rank,
            stage,
            (x, self.rstd),
            reduced,
            None,
            grad_x,
            microbatch,
        );
    }
}
