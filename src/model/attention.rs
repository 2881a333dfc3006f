//! Causal self-attention: fused QKV (column parallel), rotary embedding, softmax attention by
//! head with dropout of the probabilities, output projection (row parallel).
//!
//! Queries come in groups that share a key and a value: the fused rows are
//! `[groups, heads a group + 2, head_dim]` (Megatron-LM, transformer/attention.py,
//! `get_query_key_value_tensors`).

use crate::model::dropout::Site;
use crate::model::linear::Linear;
use crate::model::pass::Pass;
use crate::model::stage::Stage;
use crate::numerics::Dtype;
use crate::plan::Init;
use crate::world::{Family, Rank, SlotFold, Tensor};

#[derive(Clone, Debug)]
pub struct Attention {
    /// The module of the core attention.
    pub core: String,
    qkv: Linear,
    /// Its bias is added by the layer, after the tensor-parallel ranks have met.
    pub projection: Linear,
}

/// What backward needs of one microbatch.
#[derive(Clone, Copy, Debug)]
pub struct AttentionSaved {
    /// `[tokens, groups, heads a group + 2, head_dim]`, queries and keys rotated.
    qkv: Tensor,
    /// `[batch, heads, seq, seq]`, before dropout.
    probs: Tensor,
    /// `[tokens, heads, head_dim]`.
    context: Tensor,
    /// Where a second forward writes the context; the first one's is still kept.
    context_again: Tensor,
}

impl AttentionSaved {
    /// What the core attention computes again lies in `shared`, all but its output.
    pub fn allocate(
        rank: &mut Rank,
        stage: &Stage,
        name: &str,
        shared: Option<&AttentionSaved>,
    ) -> AttentionSaved {
        let shape = &stage.shape;
        let (tokens, width) = (shape.tokens(), shape.local_width());
        let scores = tokens * shape.local_heads() * shape.seq_length;
        let dtype: Dtype = shape.params_dtype;
        let mut new = |part: &str, len| rank.alloc(&format!("{name}.{part}"), dtype, len);
        let (qkv, context) = (
            new("qkv", tokens * shape.local_qkv()),
            new("context", tokens * width),
        );
        AttentionSaved {
            qkv,
            probs: match shared {
                Some(shared) => shared.probs,
                None => new("probs", scores),
            },
            context,
            context_again: shared.map_or(context, |shared| shared.context),
        }
    }

    /// Everything that the forward writes, by name.
    pub fn tensors(&self) -> [(&'static str, Tensor); 3] {
        [
            ("self_attention.qkv", self.qkv),
            ("self_attention.probs", self.probs),
            ("self_attention.context", self.context),
        ]
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

    /// Writes this rank's partial output `[tokens, hidden]` for `x [tokens, hidden]`, without the
    /// projection's bias. `rng` are the microbatch's words, `site` names the dropout among them.
    #[allow(clippy::too_many_arguments, reason = "what attention depends on")]
    pub fn forward(
        &self,
        rank: &mut Rank,
        stage: &mut Pass<'_>,
        saved: &AttentionSaved,
        x: Tensor,
        partial: Tensor,
        site: Site,
        rng: Tensor,
    ) {
        self.qkv.forward(rank, stage, x, saved.qkv);
        self.qkv.add_bias(rank, stage, saved.qkv);
        rank.module(&self.core, |rank| {
            if stage.shape.rotates() {
                rotate(rank, stage, saved.qkv);
            }
            core_forward(rank, stage, saved, site, rng);
        });
        self.projection.forward(rank, stage, saved.context, partial);
    }

    /// What the core attention writes, by name.
    pub fn core_tensors(&self, saved: &AttentionSaved) -> [(&'static str, Tensor); 2] {
        [("probs", saved.probs), ("context", saved.context)]
    }

    /// The memory that a second run of the core attention writes.
    pub fn core_again(&self, saved: &AttentionSaved) -> AttentionSaved {
        AttentionSaved {
            context: saved.context_again,
            ..*saved
        }
    }

    /// The core attention alone, from rotated queries and keys.
    pub fn rerun_core(
        &self,
        rank: &mut Rank,
        stage: &Stage,
        saved: &AttentionSaved,
        site: Site,
        rng: Tensor,
    ) {
        rank.module(&self.core, |rank| {
            core_forward(rank, stage, saved, site, rng);
        });
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
        stage: &mut Pass<'_>,
        saved: &AttentionSaved,
        x: Tensor,
        grad_y: Tensor,
        grad_x: Tensor,
        site: Site,
        rng: Tensor,
    ) {
        let (grad_context, grad_qkv) = (stage.scratch.grad_context, stage.scratch.grad_qkv);
        self.projection
            .input_gradient(rank, stage, grad_y, grad_context);
        self.projection
            .weight_gradient(rank, stage, grad_y, saved.context);
        rank.module(&self.core, |rank| {
            core_backward(rank, stage, saved, site, rng);
        });
        self.qkv.bias_gradient(rank, stage, grad_qkv);
        self.qkv.input_gradient(rank, stage, grad_qkv, grad_x);
        self.qkv.weight_gradient(rank, stage, grad_qkv, x);
    }
}

fn rotate(rank: &mut Rank, stage: &Stage, qkv: Tensor) {
    let shape = &stage.shape;
    let (groups, each) = (shape.local_groups(), shape.heads_a_group());
    let pairs = shape.kv_channels / 2;
    let count = shape.tokens() * groups * (each + 1) * pairs;
    let operands = [qkv, stage.rope_cosines, stage.rope_sines];
    let (batch, round) = (shape.micro_batch_size, stage.round_code());
    let params = [count, groups, each, pairs, batch, round];
    rank.launch("rope", "rope_forward", [count, 1, 1], &operands, &params);
}

fn core_forward(rank: &mut Rank, stage: &Stage, saved: &AttentionSaved, site: Site, rng: Tensor) {
    let (scores, mask) = (stage.scratch.scores, stage.attention_mask());
    let scale = softmax_scale(stage);
    let grid = [scores.len, 1, 1];
    let params = sized(stage, scores.len, &[scale]);
    rank.launch(
        "scores",
        "attention_scores",
        grid,
        &[saved.qkv, scores],
        &params,
    );
    let drops = stage.make_attention_mask(rank, site, rng);
    let queries = stage.shape.tokens() * stage.shape.local_heads();
    let operands = [saved.qkv, scores, mask, saved.probs, saved.context];
    let params = sized(stage, queries, &[drops, stage.round_code()]);
    let grid = [queries, 1, 1];
    rank.launch("forward", "attention_forward", grid, &operands, &params);
}

/// The gradient of `saved.qkv`, into the stage's scratch. Contributions of blocks of keys to a
/// query's gradient are made apart and added by a fold: FlashAttention's workers add theirs with
/// atomics, unless it is asked for its deterministic form.
fn core_backward(rank: &mut Rank, stage: &Stage, saved: &AttentionSaved, site: Site, rng: Tensor) {
    let (shape, scratch) = (&stage.shape, &stage.scratch);
    let (scores, mask) = (scratch.scores, stage.attention_mask());
    let drops = stage.make_attention_mask(rank, site, rng);
    let queries = shape.tokens() * shape.local_heads();
    let operands = [saved.qkv, saved.probs, mask, scratch.grad_context, scores];
    let params = sized(stage, queries, &[drops]);
    let (kernel, grid) = ("attention_backward_scores", [queries, 1, 1]);
    rank.launch("score_grad", kernel, grid, &operands, &params);

    let blocks = shape.key_blocks();
    let operands = [saved.qkv, scores, scratch.query_parts];
    let params = sized(stage, queries, &[shape.keys_a_block()]);
    let (kernel, grid) = ("attention_backward_query", [queries, 1, blocks]);
    rank.launch("query_parts", kernel, grid, &operands, &params);
    let fold = SlotFold {
        family: Family::AttentionGrad,
        addends: scratch.query_parts,
        slots: blocks,
        out: scratch.grad_query,
        init: Init::First,
        order: shape.orders.attention_backward,
    };
    rank.fold("query_grad", fold);

    let places = shape.tokens() * shape.local_groups();
    let operands = [
        saved.qkv,
        saved.probs,
        mask,
        scratch.grad_context,
        stage.rope_cosines,
        stage.rope_sines,
        scores,
        scratch.grad_query,
        scratch.grad_qkv,
    ];
    let rotates = u32::from(shape.rotates());
    let rest = [softmax_scale(stage), drops, rotates, stage.round_code()];
    let params = sized(stage, places, &rest);
    let (kernel, grid) = ("attention_backward_qkv", [places, 1, 1]);
    rank.launch("qkv_grad", kernel, grid, &operands, &params);
}

/// Bits of `1 / sqrt(head_dim)`.
fn softmax_scale(stage: &Stage) -> u32 {
    (1.0 / (stage.shape.kv_channels as f32).sqrt()).to_bits()
}

/// The parameters that all kernels of the attention begin with, and the kernel's own.
fn sized(stage: &Stage, count: u32, own: &[u32]) -> Vec<u32> {
    let shape = &stage.shape;
    let mut params = vec![
        count,
        shape.seq_length,
        shape.micro_batch_size,
        shape.local_heads(),
        shape.heads_a_group(),
        shape.kv_channels,
    ];
    params.extend(own);
    params
}
