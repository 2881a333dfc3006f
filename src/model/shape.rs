//! The sizes of the model, whole and on one rank. Field names are Megatron-LM's arguments.

use crate::numerics::Dtype;
use crate::world::LocalOrder;

/// The whole model and how it is split. Every size is checked once, by `ModelShape::check`.
#[derive(Clone, Debug, PartialEq)]
pub struct ModelShape {
    pub num_layers: u32,
    pub hidden_size: u32,
    pub ffn_hidden_size: u32,
    pub num_attention_heads: u32,
    pub padded_vocab_size: u32,
    pub seq_length: u32,
    pub micro_batch_size: u32,
    pub norm_epsilon: f32,
    pub rotary_base: f32,
    /// Probability of dropping an element of the residual stream's additions; 0 is none.
    pub hidden_dropout: f32,
    /// Type of parameters and activations as the model computes with them.
    pub params_dtype: Dtype,
    pub tensor_model_parallel_size: u32,
    pub pipeline_model_parallel_size: u32,
    pub sequence_parallel: bool,
    /// Parts that the tokens of a weight gradient are split into.
    pub wgrad_splits: u32,
    pub orders: Orders,
}

/// Who chooses the order of each local sum that real kernels make with atomics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Orders {
    pub embedding_backward: LocalOrder,
    pub norm_weight_grad: LocalOrder,
    pub wgrad_split_k: LocalOrder,
    pub microbatch_accumulation: LocalOrder,
}

impl Orders {
    /// Every sum in ascending order.
    pub const ORDERED: Orders = Orders {
        embedding_backward: LocalOrder::Ordered,
        norm_weight_grad: LocalOrder::Ordered,
        wgrad_split_k: LocalOrder::Ordered,
        microbatch_accumulation: LocalOrder::Ordered,
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
    #[error(
        "hidden_size / num_attention_heads is {0}, more than the attention kernels' {HEAD_DIM_MAX}"
    )]
    HeadTooWide(u32),
    #[error("{name} is {value}, but must be {rule}")]
    Number {
        name: &'static str,
        value: String,
        rule: &'static str,
    },
}

/// Greatest width of an attention head.
pub const HEAD_DIM_MAX: u32 = 128;

/// Words that one buffer of one rank may have.
const BUFFER_LIMIT: u64 = 1 << 28;

impl ModelShape {
    /// Checks every size and that the layout divides them.
    pub fn check(&self) -> Result<(), ShapeError> {
        self.check_positive()?;
        self.check_divisible()?;
        if self.wgrad_splits > self.tokens() {
            let (splits, tokens) = (self.wgrad_splits, self.tokens());
            return Err(ShapeError::TooManySplits { splits, tokens });
        }
        if self.head_dim() > HEAD_DIM_MAX {
            return Err(ShapeError::HeadTooWide(self.head_dim()));
        }
        self.check_numbers()
    }

    fn check_positive(&self) -> Result<(), ShapeError> {
        let sizes = [
            ("num_layers", self.num_layers),
            ("hidden_size", self.hidden_size),
            ("ffn_hidden_size", self.ffn_hidden_size),
            ("num_attention_heads", self.num_attention_heads),
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
        let dropout = self.hidden_dropout;
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

    /// The greatest buffers, in 64 bits, before anything multiplies in 32.
    fn check_words(&self) -> Result<(), ShapeError> {
        let product = |sizes: &[u32]| {
            sizes
                .iter()
                .fold(1u64, |words, size| words.saturating_mul(u64::from(*size)))
        };
        let (seq, batch) = (self.seq_length, self.micro_batch_size);
        let buffers = [
            (
                "wgrad parts of fc1",
                product(&[self.wgrad_splits, 2, self.ffn_hidden_size, self.hidden_size]),
            ),
            (
                "wgrad parts of qkv",
                product(&[self.wgrad_splits, 3, self.hidden_size, self.hidden_size]),
            ),
            (
                "wgrad parts of the head",
                product(&[self.wgrad_splits, self.padded_vocab_size, self.hidden_size]),
            ),
            ("the logits", product(&[seq, batch, self.padded_vocab_size])),
            (
                "fc1's output",
                product(&[seq, batch, 2, self.ffn_hidden_size]),
            ),
            (
                "the attention's qkv",
                product(&[seq, batch, 3, self.hidden_size]),
            ),
            ("the rotary tables", product(&[seq, 1 << 8])),
            (
                "the attention's probabilities",
                product(&[seq, seq, batch, self.num_attention_heads]),
            ),
        ];
        match buffers.into_iter().find(|(_, words)| *words > BUFFER_LIMIT) {
            Some((name, words)) => Err(ShapeError::TooLarge {
                name,
                words,
                limit: BUFFER_LIMIT,
            }),
            None => Ok(()),
        }
    }

    fn check_divisible(&self) -> Result<(), ShapeError> {
        let tp = (
            "tensor_model_parallel_size",
            self.tensor_model_parallel_size,
        );
        let heads = ("num_attention_heads", self.num_attention_heads);
        let two_each = (
            "2 * num_attention_heads",
            self.num_attention_heads.saturating_mul(2),
        );
        // Kernels take four columns at a time.
        let fours = ("4 * tensor_model_parallel_size", tp.1.saturating_mul(4));
        let pp = (
            "pipeline_model_parallel_size",
            self.pipeline_model_parallel_size,
        );
        let mut rules = vec![
            ("num_attention_heads", self.num_attention_heads, tp),
            ("hidden_size", self.hidden_size, heads),
            ("hidden_size", self.hidden_size, two_each),
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

    pub fn head_dim(&self) -> u32 {
        self.hidden_size / self.num_attention_heads
    }

    pub fn local_heads(&self) -> u32 {
        self.num_attention_heads / self.tensor_model_parallel_size
    }

    /// Width of this rank's heads joined.
    pub fn local_width(&self) -> u32 {
        self.local_heads() * self.head_dim()
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
