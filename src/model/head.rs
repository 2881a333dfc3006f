//! The end of the last stage: final norm, vocab-parallel output layer, loss. The output layer has a
//! matrix of its own, a copy of the first stage's word embedding, or the embedding itself.

use crate::model::cross_entropy::{CrossEntropy, LossFactor};
use crate::model::linear::Linear;
use crate::model::norm::{Norm, stats_a_row};
use crate::model::pass::Pass;
use crate::model::stage::Stage;
use crate::numerics::Dtype;
use crate::world::{Phase, Rank, Tensor};

/// Final norm, output layer and loss.
#[derive(Clone, Debug)]
pub struct Head {
    norm: Norm,
    output: Linear,
    /// `[tokens, local vocab]`: lives within one backward.
    grad_logits: Tensor,
}

/// What the head keeps of one microbatch from forward to backward. The last chunk of most schedules
/// goes backward at once after each forward, and keeps one; in an interleaved pipeline whose last
/// group of microbatches is short, more are on their way.
#[derive(Clone, Copy, Debug)]
pub struct HeadSaved {
    cross_entropy: CrossEntropy,
    /// `[local tokens, 1 or 2]` fp32.
    stats: Tensor,
    /// `[tokens, hidden]`.
    normed: Tensor,
    /// `[tokens, local vocab]`.
    pub logits: Tensor,
}

impl HeadSaved {
    pub fn allocate(rank: &mut Rank, stage: &Stage, name: &str) -> HeadSaved {
        let shape = &stage.shape;
        let (tokens, dtype) = (shape.tokens(), shape.params_dtype);
        let logits = tokens * shape.local_vocab();
        let stats = shape.local_tokens() * stats_a_row(stage);
        let normed = tokens * shape.hidden_size;
        HeadSaved {
            cross_entropy: CrossEntropy::allocate(rank, stage, name),
            stats: rank.alloc(&format!("{name}.stats"), Dtype::F32, stats),
            normed: rank.alloc(&format!("{name}.normed"), dtype, normed),
            logits: rank.alloc(&format!("{name}.logits"), dtype, logits),
        }
    }
}

impl Head {
    pub fn new(rank: &mut Rank, stage: &Stage) -> Head {
        let shape = &stage.shape;
        let matrix = if shape.ties_on_one_stage() {
            "embedding.word_embeddings.weight"
        } else {
            "output_layer.weight"
        };
        let matrix = stage.store.find(matrix);
        let logits = shape.tokens() * shape.local_vocab();
        Head {
            norm: Norm::new(stage, "decoder.final_layernorm".to_string()),
            output: Linear::with_weight(stage, "output_layer".to_string(), matrix),
            grad_logits: rank.alloc("head.grad_logits", shape.params_dtype, logits),
        }
    }

    /// `losses [tokens]` of the residual stream `x [local tokens, hidden]`.
    pub fn forward(
        &self,
        rank: &mut Rank,
        stage: &mut Pass<'_>,
        kept: &HeadSaved,
        x: Tensor,
        targets: Tensor,
        losses: Tensor,
    ) {
        let local = stage.local_for(kept.normed);
        self.norm.forward(rank, stage, x, kept.stats, local);
        rank.module(&self.output.module, |rank| {
            stage.gather(rank, local, kept.normed)
        });
        self.output.forward(rank, stage, kept.normed, kept.logits);
        rank.set_phase(Phase::Loss);
        kept.cross_entropy
            .forward(rank, stage, kept.logits, targets, losses);
    }

    /// `grad_x [local tokens, hidden]` of the loss times `scale`.
    #[allow(
        clippy::too_many_arguments,
        reason = "a backward has its forward's tensors and more"
    )]
    pub fn backward(
        &self,
        rank: &mut Rank,
        stage: &mut Pass<'_>,
        kept: &HeadSaved,
        x: Tensor,
        targets: Tensor,
        scale: LossFactor,
        grad_x: Tensor,
    ) {
        let (grad_logits, reduced) = (self.grad_logits, stage.scratch.reduced);
        kept.cross_entropy
            .backward(rank, stage, kept.logits, targets, scale, grad_logits);
        let partial = stage.partial_for(reduced);
        self.output
            .input_gradient(rank, stage, grad_logits, partial);
        self.output
            .weight_gradient(rank, stage, grad_logits, kept.normed);
        rank.module(&self.output.module, |rank| {
            stage.reduce(rank, partial, reduced)
        });
        self.norm
            .backward(rank, stage, (x, kept.stats), reduced, None, grad_x);
    }
}
