//! Causal self-attention: fused QKV (column parallel), rotary embedding, softmax attention by
//! head, output projection (row parallel).

use crate::model::linear::Linear;
use crate::model::stage::Stage;
use crate::numerics::Dtype;
use crate::world::{Rank, Tensor};

#[derive(Clone, Debug)]
pub struct Attention {
    core: String,
    qkv: Linear,
    projection: Linear,
}

/// What backward needs of one microbatch.
#[derive(Clone, Copy, Debug)]
pub struct AttentionSaved {
    /// `[tokens, heads, 3, head_dim]`, queries and keys rotated.
    qkv: Tensor,
    /// `[batch, heads, seq, seq]`.
    probs: Tensor,
    /// `[tokens, heads, head_dim]`.
    context: Tensor,
}

impl AttentionSaved {
    pub fn allocate(rank: &mut Rank, stage: &Stage, name: &str) -> AttentionSaved {
        let shape = &stage.shape;
        let (tokens, width) = (shape.tokens(), shape.local_width());
        let scores = tokens * shape.local_heads() * shape.seq_length;
        let dtype: Dtype = shape.params_dtype;
        let mut new = |part: &str, len| rank.alloc(&format!("{name}.{part}"), dtype, len);
        AttentionSaved {
            qkv: new("qkv", 3 * tokens * width),
            probs: new("probs", scores),
            context: new("context", tokens * width),
        }
    }
}

impl Attention {
    pub fn new(stage: &Stage, module: &str) -> Attention {
        Attention {
            core: format!("{module}.core_attention"),
            qkv: Linear::new(stage, format!("{module}.linear_qkv")),
            projection: Linear::new(stage, format!("{module}.linear_proj")),
        }
    }

    /// Writes this rank's partial output `[tokens, hidden]` for `x [tokens, hidden]`.
    pub fn forward(
        &self,
        rank: &mut Rank,
        stage: &Stage,
        saved: &AttentionSaved,
        x: Tensor,
        partial: Tensor,
    ) {
        self.qkv.forward(rank, stage, x, saved.qkv);
        rank.module(&self.core, |rank| {
            let rotated = stage.shape.tokens() * stage.shape.local_width() / 2;
            let operands = [saved.qkv, stage.rope_cosines, stage.rope_sines];
            rank.launch(
                "rope",
                "rope_forward",
                [rotated, 1, 1],
                &operands,
                &rope_params(stage),
            );
            let scores = stage.scratch.scores;
            let [queries, seq, batch, heads, dim, scale, round] = attention_params(stage);
            let params = [scores.len, seq, batch, heads, dim, scale];
            let operands = [saved.qkv, scores];
            rank.launch(
                "scores",
                "attention_scores",
                [scores.len, 1, 1],
                &operands,
                &params,
            );
            let params = [queries, seq, batch, heads, dim, round];
            let operands = [saved.qkv, scores, saved.probs, saved.context];
            rank.launch(
                "forward",
                "attention_forward",
                [queries, 1, 1],
                &operands,
                &params,
            );
        });
        self.projection.forward(rank, stage, saved.context, partial);
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
        saved: &AttentionSaved,
        x: Tensor,
        grad_y: Tensor,
        grad_x: Tensor,
        microbatch: u32,
    ) {
        let scratch = &stage.scratch;
        let (grad_context, grad_qkv) = (scratch.grad_context, scratch.grad_qkv);
        self.projection
            .input_gradient(rank, stage, grad_y, grad_context);
        self.projection
            .weight_gradient(rank, stage, grad_y, saved.context, microbatch);
        rank.module(&self.core, |rank| {
            let queries = stage.shape.tokens() * stage.shape.local_heads();
            let operands = [
                saved.qkv,
                saved.probs,
                grad_context,
                stage.rope_cosines,
                stage.rope_sines,
                scratch.scores,
                grad_qkv,
            ];
            let params = attention_params(stage);
            let grid = [queries, 1, 1];
            rank.launch(
                "query_grad",
                "attention_backward_query",
                grid,
                &operands,
                &params,
            );
            rank.launch(
                "key_grad",
                "attention_backward_key",
                grid,
                &operands,
                &params,
            );
        });
        self.qkv.input_gradient(rank, stage, grad_qkv, grad_x);
        self.qkv
            .weight_gradient(rank, stage, grad_qkv, x, microbatch);
    }
}

fn rope_params(stage: &Stage) -> [u32; 5] {
    let shape = &stage.shape;
    let half = shape.head_dim() / 2;
    let count = shape.tokens() * shape.local_heads() * half;
    [
        count,
        shape.local_heads(),
        half,
        shape.micro_batch_size,
        stage.round_code(),
    ]
}

fn attention_params(stage: &Stage) -> [u32; 7] {
    let shape = &stage.shape;
    let scale = 1.0 / (shape.head_dim() as f32).sqrt();
    [
        shape.tokens() * shape.local_heads(),
        shape.seq_length,
        shape.micro_batch_size,
        shape.local_heads(),
        shape.head_dim(),
        scale.to_bits(),
        stage.round_code(),
    ]
}
