//! Vocab-parallel cross-entropy: the greatest logit, the softmax denominator and the target's logit
//! meet over tensor-parallel ranks in fp32 (Megatron-LM, tensor_parallel/cross_entropy.py).

use crate::model::stage::Stage;
use crate::numerics::Dtype;
use crate::plan::Combine;
use crate::world::{Family, Rank, Tensor};

const MODULE: &str = "output_layer.cross_entropy";

/// Per-token fp32 values, `[tokens]` each; kept from forward to backward.
#[derive(Clone, Copy, Debug)]
pub struct CrossEntropy {
    greatest: Tensor,
    sum_exp: Tensor,
    predicted: Tensor,
}

/// What token losses are multiplied by before the sum that is differentiated.
#[derive(Clone, Copy, Debug)]
pub struct LossFactor {
    /// One over the tokens of a step.
    pub each: f32,
    /// `[1]` fp32: the loss scaler's, or 1.
    pub loss_scale: Tensor,
}

impl CrossEntropy {
    pub fn allocate(rank: &mut Rank, stage: &Stage, name: &str) -> CrossEntropy {
        let tokens = stage.shape.tokens();
        let mut new = |what: &str| rank.alloc(&format!("{name}.{what}"), Dtype::F32, tokens);
        CrossEntropy {
            greatest: new("greatest"),
            sum_exp: new("sum_exp"),
            predicted: new("predicted"),
        }
    }

    /// `losses [tokens]` of `logits [tokens, local vocab]` against `targets [tokens]`.
    pub fn forward(
        &self,
        rank: &mut Rank,
        stage: &Stage,
        logits: Tensor,
        targets: Tensor,
        losses: Tensor,
    ) {
        let (tokens, rows) = (stage.shape.tokens(), stage.shape.local_vocab());
        let grid = [tokens, 1, 1];
        rank.module(MODULE, |rank| {
            let operands = [logits, self.greatest];
            rank.launch("max", "cross_entropy_max", grid, &operands, &[tokens, rows]);
            self.meet(rank, stage, "all_reduce_max", self.greatest, Combine::Max);
            let operands = [logits, targets, self.greatest, self.sum_exp, self.predicted];
            let params = [tokens, rows, stage.tensor_rank * rows];
            rank.launch("sums", "cross_entropy_sums", grid, &operands, &params);
            self.meet(
                rank,
                stage,
                "all_reduce_target",
                self.predicted,
                Combine::Sum,
            );
            self.meet(
                rank,
                stage,
                "all_reduce_sum_exp",
                self.sum_exp,
                Combine::Sum,
            );
            let operands = [self.sum_exp, self.predicted, losses];
            rank.launch("loss", "cross_entropy_loss", grid, &operands, &[tokens]);
        });
    }

    /// `grad_logits = (softmax - one at target) * scale * loss_scale`.
    pub fn backward(
        &self,
        rank: &mut Rank,
        stage: &Stage,
        logits: Tensor,
        targets: Tensor,
        scale: LossFactor,
        grad_logits: Tensor,
    ) {
        let rows = stage.shape.local_vocab();
        let count = stage.shape.tokens() * rows;
        let first = stage.tensor_rank * rows;
        rank.module(MODULE, |rank| {
            let operands = [
                logits,
                targets,
                self.greatest,
                self.sum_exp,
                scale.loss_scale,
                grad_logits,
            ];
            let scale = scale.each.to_bits();
            let params = [count, rows, first, scale, stage.round_code()];
            rank.launch(
                "backward",
                "cross_entropy_backward",
                [count, 1, 1],
                &operands,
                &params,
            );
        });
    }

    fn meet(&self, rank: &mut Rank, stage: &Stage, op: &str, tensor: Tensor, combine: Combine) {
        if stage.shape.tensor_model_parallel_size > 1 {
            let family = Family::VocabCrossEntropy;
            let handle = rank.all_reduce(op, family, stage.tensor_group, tensor, combine);
            rank.wait(handle);
        }
    }
}
