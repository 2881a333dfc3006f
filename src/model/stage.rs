//! What every layer of one pipeline stage works with.

use crate::model::parameter::ParameterStore;
use crate::model::recompute::Recompute;
use crate::model::shape::ModelShape;
use crate::numerics::Dtype;
use crate::recipe::CudaGraphImpl;
use crate::world::{GroupId, LocalOrder, Rank, Tensor};

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
    pub recompute: Recompute,
    /// First layers whose activations wait on the host.
    pub offloaded_layers: u32,
    /// They come back into two buffers in turn.
    pub double_buffering: bool,
    /// Whose CUDA graphs the layers are captured as.
    pub cuda_graph_impl: CudaGraphImpl,
    /// `[2, 4]`: RNG words that recomputed masks are made from, where anything is recomputed.
    pub rng_again: Option<Tensor>,
}

/// Buffers that live within one layer's forward or backward.
#[derive(Clone, Copy, Debug)]
pub struct Scratch {
    /// `[local tokens, hidden]`: a norm's output before it is gathered.
    pub normed: Tensor,
    /// `[tokens, hidden]`: a row-parallel output before it is reduce-scattered; word embeddings
    /// before positions are added.
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
    /// `[tokens, ffn]`, `[tokens, fc1's rows]`, `[tokens, heads]`, `[tokens, qkv's rows]`.
    pub grad_activation: Tensor,
    pub grad_fc1: Tensor,
    pub grad_context: Tensor,
    pub grad_qkv: Tensor,
    /// `[batch, heads, seq, seq]` fp32: scores in forward, their gradient in backward.
    pub scores: Tensor,
    /// The same shape, fp32: multipliers of the attention's dropout, where it drops.
    pub attention_mask: Option<Tensor>,
    /// `[key blocks, tokens, heads]` fp32, and their sum: the gradients of the rotated queries.
    pub query_parts: Tensor,
    pub grad_query: Tensor,
    /// `[local vocab, hidden]` fp32: the embedding's part of the gradient of a matrix that the
    /// output layer shares on this stage.
    pub grad_embedding: Option<Tensor>,
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
        let fc1 = shape.fc1_halves() * shape.local_ffn();
        let grad_fc1 = new("grad_fc1", tokens * fc1);
        let width = tokens * shape.local_width();
        let grad_context = new("grad_context", width);
        let grad_qkv = new("grad_qkv", tokens * shape.local_qkv());
        let mut new = |name: &str, len| rank.alloc(name, Dtype::F32, len);
        let embedding = shape.local_vocab() * hidden;
        Scratch {
            normed,
            partial,
            reduced,
            gathered,
            masked,
            grad_middle,
            contributions: new("contributions", local * hidden),
            parts: new("wgrad_parts", parts),
            grad_activation,
            grad_fc1,
            grad_context,
            grad_qkv,
            scores: new("scores", scores),
            attention_mask: (shape.attention_dropout > 0.0).then(|| new("attention_mask", scores)),
            query_parts: new("query_parts", shape.key_blocks() * width),
            grad_query: new("grad_query", width),
            grad_embedding: shape
                .ties_on_one_stage()
                .then(|| new("grad_embedding", embedding)),
        }
    }
}

impl Stage {
    /// Rounding code of parameters and activations.
    pub fn round_code(&self) -> u32 {
        self.shape.params_dtype.code()
    }

    pub fn wgrad_order(&self) -> LocalOrder {
        self.shape.orders.wgrad_split_k
    }
}
