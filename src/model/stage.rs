//! What every layer of one pipeline stage works with.

use crate::model::parameter::{ParameterId, ParameterStore};
use crate::model::shape::ModelShape;
use crate::numerics::Dtype;
use crate::world::{Family, GroupId, LocalOrder, Rank, SlotFold, Tensor};

/// One rank's stage: shapes, group, parameters, and scratch that no microbatch keeps.
#[derive(Clone, Debug)]
pub struct Stage {
    pub shape: ModelShape,
    pub stage: u32,
    pub tensor_rank: u32,
    pub tensor_group: GroupId,
    pub store: ParameterStore,
    pub rope_cosines: Tensor,
    pub rope_sines: Tensor,
    pub scratch: Scratch,
}

/// Buffers that live within one layer's forward or backward.
#[derive(Clone, Copy, Debug)]
pub struct Scratch {
    /// `[local tokens, hidden]`: a norm's output before it is gathered.
    pub normed: Tensor,
    /// `[tokens, hidden]`: a row-parallel output before it is reduce-scattered.
    pub partial: Tensor,
    /// `[local tokens, hidden]`: the same, reduced.
    pub reduced: Tensor,
    /// `[tokens, hidden]`: a gradient gathered over the sequence.
    pub gathered: Tensor,
    /// `[local tokens, hidden]`: a gradient after dropout's mask.
    pub masked: Tensor,
    /// `[local tokens, hidden]`: the gradient between attention and MLP.
    pub grad_middle: Tensor,
    /// `[local tokens, hidden]` fp32: each token's contribution to a gain's gradient.
    pub contributions: Tensor,
    /// `[splits, greatest weight]` fp32: split-K parts.
    pub parts: Tensor,
    /// `[tokens, ffn]`, `[tokens, 2 ffn]`, `[tokens, heads]`, `[tokens, 3 heads]`.
    pub grad_activation: Tensor,
    pub grad_fc1: Tensor,
    pub grad_context: Tensor,
    pub grad_qkv: Tensor,
    /// `[batch, heads, seq, seq]` fp32: scores in forward, their gradient in backward.
    pub scores: Tensor,
}

impl Scratch {
    pub fn allocate(rank: &mut Rank, shape: &ModelShape, greatest_weight: u32) -> Scratch {
        let dtype = shape.params_dtype;
        let (tokens, local) = (shape.tokens(), shape.local_tokens());
        let hidden = shape.hidden_size;
        let scores = tokens * shape.local_heads() * shape.seq_length;
        // Without a split the kernel writes the gradient's own slot.
        let parts = if shape.wgrad_splits > 1 {
            shape.wgrad_splits * greatest_weight
        } else {
            4
        };
        let mut new = |name: &str, len| rank.alloc(name, dtype, len);
        let normed = new("normed", local * hidden);
        let partial = new("partial", tokens * hidden);
        let reduced = new("reduced", local * hidden);
        let gathered = new("gathered", tokens * hidden);
        let masked = new("masked", local * hidden);
        let grad_middle = new("grad_middle", local * hidden);
        let grad_activation = new("grad_activation", tokens * shape.local_ffn());
        let grad_fc1 = new("grad_fc1", 2 * tokens * shape.local_ffn());
        let grad_context = new("grad_context", tokens * shape.local_width());
        let grad_qkv = new("grad_qkv", 3 * tokens * shape.local_width());
        Scratch {
            normed,
            partial,
            reduced,
            gathered,
            masked,
            grad_middle,
            contributions: rank.alloc("contributions", Dtype::F32, local * hidden),
            parts: rank.alloc("wgrad_parts", Dtype::F32, parts),
            grad_activation,
            grad_fc1,
            grad_context,
            grad_qkv,
            scores: rank.alloc("scores", Dtype::F32, scores),
        }
    }
}

impl Stage {
    /// Rounding code of parameters and activations.
    pub fn round_code(&self) -> u32 {
        self.shape.params_dtype.code()
    }

    /// Sums a gain's contributions, one row a token, into its gradient slot.
    pub fn fold_gain(&self, rank: &mut Rank, id: ParameterId, microbatch: u32) {
        let fold = SlotFold {
            family: Family::NormWeightGrad,
            addends: self.scratch.contributions,
            slots: self.shape.local_tokens(),
            out: self.store.slot(id, microbatch),
            init: crate::plan::Init::First,
            order: self.shape.orders.norm_weight_grad,
        };
        rank.fold("weight_grad", fold);
    }

    pub fn wgrad_order(&self) -> LocalOrder {
        self.shape.orders.wgrad_split_k
    }
}
