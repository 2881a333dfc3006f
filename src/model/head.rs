//! The end of the last stage: final norm, vocab-parallel output layer, loss. The output layer has a
//! matrix of its own, a copy of the first stage's word embedding, or the embedding itself.

use crate::model::cross_entropy::CrossEntropy;
use crate::model::linear::Linear;
use crate::model::norm::{Norm, stats_a_row};
use crate::model::stage::Stage;
use crate::numerics::Dtype;
use crate::world::{Phase, Rank, Tensor};

/// Final norm, output layer and loss, with the buffers of the one microbatch that is in them: the
/// last stage goes backward at once after each forward.
#[derive(Clone, Debug)]
pub struct Head {
    norm: Norm,
    output: Linear,
    cross_entropy: CrossEntropy,
    /// `[local tokens, 1 or 2]` fp32.
    stats: Tensor,
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
        let stats = shape.local_tokens() * stats_a_row(stage);
        let matrix = if shape.ties_on_one_stage() {
            "embedding.word_embeddings.weight"
        } else {
            "output_layer.weight"
        };
        let matrix = stage.store.find(matrix);
        Head {
            norm: Norm::new(stage, "decoder.final_layernorm".to_string()),
            output: Linear::with_weight(stage, "output_layer".to_string(), matrix),
            cross_entropy: CrossEntropy::allocate(rank, stage),
            stats: rank.alloc("head.stats", Dtype::F32, stats),
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
        self.norm.forward(rank, stage, x, self.stats, local);
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
            (x, self.stats),
            reduced,
            None,
            grad_x,
            microbatch,
        );
    }
}
