//! The sizes of the model, whole and on one rank. Field names are Megatron-LM's arguments.

use crate::numerics::Dtype;
use crate::recipe::{
    BUFFER_WORDS_MAX, BufferSizes, KV_CHANNELS_MAX, Normalization, PositionEmbedding,
    QUERY_GRAD_BLOCKS, buffer_sizes_of,
};
use crate::world::LocalOrder;

/// The whole model and how it is split. Every size is checked once, by `ModelShape::check`.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelShape {
    pub num_layers: u32,
    pub hidden_size: u32,
    pub ffn_hidden_size: u32,
    pub num_attention_heads: u32,
    /// Heads of keys and values; each serves as many heads of queries.
    pub num_query_groups: u32,
    /// Width of one head.
    pub kv_channels: u32,
    pub padded_vocab_size: u32,
    pub seq_length: u32,
    /// Rows of the learned position table.
    pub max_position_embeddings: u32,
    pub micro_batch_size: u32,
    /// The order of a layer's parameters.
    pub module_order: ModuleOrder,
    pub normalization: Normalization,
    pub norm_epsilon: f32,
    /// A gated MLP; else the tanh approximation of GELU.
    pub swiglu: bool,
    /// Biases of all linears but the output layer: the opposite of `disable_bias_linear`.
    pub add_bias_linear: bool,
    pub position_embedding_type: PositionEmbedding,
    pub rotary_base: f32,
    /// Probability of dropping a probability of the attention; 0 is none.
    pub attention_dropout: f32,
    /// Probability of dropping an element of the residual stream's additions; 0 is none.
    pub hidden_dropout: f32,
    /// The output layer has a matrix of its own; else it uses the word embedding.
    pub untie_embeddings_and_output_weights: bool,
    /// Type of parameters and activations as the model computes with them.
    pub params_dtype: Dtype,
    pub tensor_model_parallel_size: u32,
    pub pipeline_model_parallel_size: u32,
    pub sequence_parallel: bool,
    /// Parts that the tokens of a weight gradient are split into.
    pub wgrad_splits: u32,
    pub orders: Orders,
}

/// In which order a layer's parameters stand in `named_parameters()`, and so in every flat buffer.
///
/// Megatron-Core's `Attention.__init__` makes `linear_proj` before `SelfAttention.__init__` makes
/// `linear_qkv` (`megatron/core/transformer/attention.py`). Transformer Engine's linears hold the
/// norm before them (`LayerNormLinear`), where the local layers have norms of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModuleOrder {
    TransformerEngine,
    Local,
    /// As they are computed with: a model of plain PyTorch.
    Computed,
}

/// Who chooses the order of each local sum that real kernels make with atomics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orders {
    pub embedding_backward: LocalOrder,
    pub norm_weight_grad: LocalOrder,
    pub wgrad_split_k: LocalOrder,
    pub microbatch_accumulation: LocalOrder,
    pub attention_backward: LocalOrder,
}

impl Orders {
    /// Every sum in ascending order.
    pub const ORDERED: Orders = Orders {
        embedding_backward: LocalOrder::Ordered,
        norm_weight_grad: LocalOrder::Ordered,
        wgrad_split_k: LocalOrder::Ordered,
        microbatch_accumulation: LocalOrder::Ordered,
        attention_backward: LocalOrder::Ordered,
    };
}

/// A size that the kernels or the layout cannot take.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ShapeError {
    #[error("{name} is {value}, but must be at least 1")]
    Zero { name: &'static str, value: u32 },
    #[error("{name} is {value}, which {by_name} = {by} does not divide")]
    NotDivisible {
        name: &'static str,
        value: u32,
        by_name: &'static str,
        by: u32,
    },
    #[error("{name} has {words} words on one rank, more than the {limit} that a buffer may have")]
    TooLarge {
        name: &'static str,
        words: u64,
        limit: u64,
    },
    #[error("wgrad_splits is {splits}, but a microbatch has only {tokens} tokens")]
    TooManySplits { splits: u32, tokens: u32 },
    #[error("an attention head is {0} wide, more than the attention kernels' {HEAD_DIM_MAX}")]
    HeadTooWide(u32),
    #[error("seq_length is {seq_length}, but max_position_embeddings only {positions}")]
    TooFewPositions { seq_length: u32, positions: u32 },
    #[error("{name} is {value}, but must be {rule}")]
    Number {
        name: &'static str,
        value: String,
        rule: &'static str,
    },
}

/// Greatest width of an attention head.
pub const HEAD_DIM_MAX: u32 = KV_CHANNELS_MAX;

impl ModelShape {
    /// Checks every size and that the layout divides them.
    pub fn check(&self) -> Result<(), ShapeError> {
        self.check_positive()?;
        self.check_divisible()?;
        if self.wgrad_splits > self.tokens() {
            let (splits, tokens) = (self.wgrad_splits, self.tokens());
            return Err(ShapeError::TooManySplits { splits, tokens });
        }
        if self.kv_channels > HEAD_DIM_MAX {
            return Err(ShapeError::HeadTooWide(self.kv_channels));
        }
        if self.max_position_embeddings < self.seq_length {
            return Err(ShapeError::TooFewPositions {
                seq_length: self.seq_length,
                positions: self.max_position_embeddings,
            });
        }
        self.check_numbers()
    }

    fn check_positive(&self) -> Result<(), ShapeError> {
        let sizes = [
            ("num_layers", self.num_layers),
            ("hidden_size", self.hidden_size),
            ("ffn_hidden_size", self.ffn_hidden_size),
            ("num_attention_heads", self.num_attention_heads),
            ("num_query_groups", self.num_query_groups),
            ("kv_channels", self.kv_channels),
            ("padded_vocab_size", self.padded_vocab_size),
            ("seq_length", self.seq_length),
            ("micro_batch_size", self.micro_batch_size),
            (
                "tensor_model_parallel_size",
                self.tensor_model_parallel_size,
            ),
            (
                "pipeline_model_parallel_size",
                self.pipeline_model_parallel_size,
            ),
            ("wgrad_splits", self.wgrad_splits),
        ];
        match sizes.into_iter().find(|(_, value)| *value == 0) {
            Some((name, value)) => Err(ShapeError::Zero { name, value }),
            None => self.check_words(),
        }
    }

    fn check_numbers(&self) -> Result<(), ShapeError> {
        let (dropout, attention) = (self.hidden_dropout, self.attention_dropout);
        let base = self.rotary_base;
        let epsilon = self.norm_epsilon;
        let rules = [
            (
                "hidden_dropout",
                dropout,
                "at least 0 and below 1",
                (0.0..1.0).contains(&dropout),
            ),
            (
                "attention_dropout",
                attention,
                "at least 0 and below 1",
                (0.0..1.0).contains(&attention),
            ),
            (
                "rotary_base",
                base,
                "finite and at least 1",
                base >= 1.0 && base.is_finite(),
            ),
            (
                "norm_epsilon",
                epsilon,
                "above 0 and finite",
                epsilon > 0.0 && epsilon.is_finite(),
            ),
        ];
        match rules.into_iter().find(|(.., good)| !good) {
            Some((name, value, rule, _)) => Err(ShapeError::Number {
                name,
                value: value.to_string(),
                rule,
            }),
            None => Ok(()),
        }
    }

    fn check_words(&self) -> Result<(), ShapeError> {
        match self.buffer_sizes().too_large() {
            Some((name, words)) => Err(ShapeError::TooLarge {
                name,
                words,
                limit: BUFFER_WORDS_MAX,
            }),
            None => Ok(()),
        }
    }

    pub fn buffer_sizes(&self) -> BufferSizes {
        buffer_sizes_of!(self, self.wgrad_splits)
    }

    fn check_divisible(&self) -> Result<(), ShapeError> {
        let tp = (
            "tensor_model_parallel_size",
            self.tensor_model_parallel_size,
        );
        let groups = ("num_query_groups", self.num_query_groups);
        // Kernels take four columns at a time.
        let fours = ("4 * tensor_model_parallel_size", tp.1.saturating_mul(4));
        let pp = (
            "pipeline_model_parallel_size",
            self.pipeline_model_parallel_size,
        );
        let (heads, width) = (self.num_attention_heads, self.kv_channels);
        let keys = heads.saturating_add(self.num_query_groups.saturating_mul(2));
        let mut rules = vec![
            ("num_attention_heads", heads, tp),
            ("num_attention_heads", heads, groups),
            ("num_query_groups", self.num_query_groups, tp),
            ("kv_channels", width, ("the width of a pair", 2)),
            (
                "num_attention_heads * kv_channels",
                heads.saturating_mul(width),
                fours,
            ),
            (
                "(num_attention_heads + 2 * num_query_groups) * kv_channels",
                keys.saturating_mul(width),
                fours,
            ),
            ("hidden_size", self.hidden_size, fours),
            ("ffn_hidden_size", self.ffn_hidden_size, fours),
            ("padded_vocab_size", self.padded_vocab_size, fours),
            ("num_layers", self.num_layers, pp),
        ];
        if self.sequence_parallel {
            rules.push(("seq_length", self.seq_length, tp));
        }
        for (name, value, (by_name, by)) in rules {
            if value % by != 0 {
                return Err(ShapeError::NotDivisible {
                    name,
                    value,
                    by_name,
                    by,
                });
            }
        }
        Ok(())
    }

    /// Tokens of one microbatch.
    pub fn tokens(&self) -> u32 {
        self.seq_length * self.micro_batch_size
    }

    /// Whether activations between layers are split over tensor-parallel ranks.
    pub fn splits_sequence(&self) -> bool {
        self.sequence_parallel && self.tensor_model_parallel_size > 1
    }

    /// Tokens of the residual stream that one rank holds.
    pub fn local_tokens(&self) -> u32 {
        if self.splits_sequence() {
            self.tokens() / self.tensor_model_parallel_size
        } else {
            self.tokens()
        }
    }

    /// Heads of queries that share a key and a value.
    pub fn heads_a_group(&self) -> u32 {
        self.num_attention_heads / self.num_query_groups
    }

    pub fn local_heads(&self) -> u32 {
        self.num_attention_heads / self.tensor_model_parallel_size
    }

    pub fn local_groups(&self) -> u32 {
        self.num_query_groups / self.tensor_model_parallel_size
    }

    /// Width of this rank's heads joined.
    pub fn local_width(&self) -> u32 {
        self.local_heads() * self.kv_channels
    }

    /// Width of this rank's fused queries, keys and values:
    /// `[groups, heads a group + 2, kv_channels]`.
    pub fn local_qkv(&self) -> u32 {
        (self.local_heads() + 2 * self.local_groups()) * self.kv_channels
    }

    /// Keys of one block of the attention's backward.
    pub fn keys_a_block(&self) -> u32 {
        self.seq_length.div_ceil(QUERY_GRAD_BLOCKS)
    }

    /// Blocks of keys whose contributions make up the gradient of a query.
    pub fn key_blocks(&self) -> u32 {
        self.seq_length.div_ceil(self.keys_a_block())
    }

    pub fn rotates(&self) -> bool {
        self.position_embedding_type == PositionEmbedding::Rope
    }

    /// Blocks of `local_ffn` rows that fc1 has: gate and up, or one.
    pub fn fc1_halves(&self) -> u32 {
        if self.swiglu { 2 } else { 1 }
    }

    /// Whether the output layer uses the word embedding and both stand on one stage.
    pub fn ties_on_one_stage(&self) -> bool {
        !self.untie_embeddings_and_output_weights && self.pipeline_model_parallel_size == 1
    }

    /// Whether the last pipeline stage holds a copy of the first one's word embedding.
    pub fn copies_embedding(&self) -> bool {
        !self.untie_embeddings_and_output_weights && self.pipeline_model_parallel_size > 1
    }

    pub fn local_ffn(&self) -> u32 {
        self.ffn_hidden_size / self.tensor_model_parallel_size
    }

    pub fn local_vocab(&self) -> u32 {
        self.padded_vocab_size / self.tensor_model_parallel_size
    }

    pub fn layers_per_stage(&self) -> u32 {
        self.num_layers / self.pipeline_model_parallel_size
    }
}
