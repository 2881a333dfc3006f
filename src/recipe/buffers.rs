//! The greatest buffers of a virtual rank, in 64 bits, before anything multiplies in 32: what no
//! recipe may exceed, whoever asks.

use super::Recipe;

/// Words that one buffer of one rank may have, and a step's gradients or tokens of one rank.
pub const BUFFER_WORDS_MAX: u64 = 1 << 28;

/// Blocks of keys that the gradient of a query is a sum over, at most. FlashAttention's blocks have
/// 64 to 128 keys; here a short sequence is cut too, so that the order of the sum can show.
pub const QUERY_GRAD_BLOCKS: u32 = 8;

/// The sizes that buffers follow from; Megatron-LM's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BufferSizes {
    pub num_layers: u32,
    pub hidden_size: u32,
    pub ffn_hidden_size: u32,
    pub num_attention_heads: u32,
    pub num_query_groups: u32,
    pub kv_channels: u32,
    pub padded_vocab_size: u32,
    pub seq_length: u32,
    pub max_position_embeddings: u32,
    pub micro_batch_size: u32,
    pub wgrad_splits: u32,
}

/// The sizes of anything whose fields have these names.
macro_rules! buffer_sizes_of {
    ($of:expr, $wgrad_splits:expr) => {
        $crate::recipe::BufferSizes {
            num_layers: $of.num_layers,
            hidden_size: $of.hidden_size,
            ffn_hidden_size: $of.ffn_hidden_size,
            num_attention_heads: $of.num_attention_heads,
            num_query_groups: $of.num_query_groups,
            kv_channels: $of.kv_channels,
            padded_vocab_size: $of.padded_vocab_size,
            seq_length: $of.seq_length,
            max_position_embeddings: $of.max_position_embeddings,
            micro_batch_size: $of.micro_batch_size,
            wgrad_splits: $wgrad_splits,
        }
    };
}
pub(crate) use buffer_sizes_of;

/// What a step does with its gradients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepSizes {
    pub microbatches: u32,
    pub data_parallel_size: u32,
    pub ddp_bucket_size: Option<u32>,
}

fn product(sizes: &[u32]) -> u64 {
    let sizes = sizes.iter().map(|size| u64::from(*size));
    sizes.fold(1, u64::saturating_mul)
}

impl BufferSizes {
    /// The first buffer with more than [`BUFFER_WORDS_MAX`] words, and how many.
    pub fn too_large(&self) -> Option<(&'static str, u64)> {
        let (hidden, ffn, vocab) = (
            self.hidden_size,
            self.ffn_hidden_size,
            self.padded_vocab_size,
        );
        let (heads, width) = (self.num_attention_heads, self.kv_channels);
        let seq = self.seq_length;
        // Queries, keys and values: there are at most as many groups as heads.
        let qkv = [3, heads, width];
        let splits = u64::from(self.wgrad_splits);
        let wgrad = |sizes: &[u32]| product(sizes).saturating_mul(splits);
        let tokens = |sizes: &[u32]| product(sizes).saturating_mul(self.tokens());
        let buffers = [
            ("wgrad parts of fc1", wgrad(&[2, ffn, hidden])),
            (
                "wgrad parts of qkv",
                wgrad(&[hidden]).saturating_mul(product(&qkv)),
            ),
            ("wgrad parts of the head", wgrad(&[vocab, hidden])),
            ("the logits", tokens(&[vocab])),
            ("fc1's output", tokens(&[2, ffn])),
            ("the residual stream", tokens(&[hidden])),
            ("the attention's qkv", tokens(&qkv)),
            (
                "the attention's query gradients",
                tokens(&[QUERY_GRAD_BLOCKS, heads, width]),
            ),
            ("the rotary tables", product(&[seq, 1 << 8])),
            (
                "the position table",
                product(&[self.max_position_embeddings, hidden]),
            ),
            ("the attention's probabilities", tokens(&[seq, heads])),
        ];
        let mut buffers = buffers.into_iter();
        buffers.find(|(_, words)| *words > BUFFER_WORDS_MAX)
    }

    fn tokens(&self) -> u64 {
        product(&[self.seq_length, self.micro_batch_size])
    }

    /// At least the words of the whole model's parameters, whatever its options.
    pub fn parameter_words_max(&self) -> u64 {
        let of = |size: u32| u64::from(size);
        let hidden = of(self.hidden_size);
        let heads = of(self.num_attention_heads) + 2 * of(self.num_query_groups);
        let width = of(self.kv_channels);
        let qkv = (hidden + 1).saturating_mul(heads.saturating_mul(width));
        let projection = hidden.saturating_mul(of(self.num_attention_heads) * width + 1);
        let fc1 = 2 * of(self.ffn_hidden_size) * (hidden + 1);
        let fc2 = hidden * (of(self.ffn_hidden_size) + 1);
        let layer = [qkv, projection, fc1, fc2, 4 * hidden];
        let rows = 2 * of(self.padded_vocab_size) + of(self.max_position_embeddings) + 2;
        let layer = layer.into_iter().fold(0, u64::saturating_add);
        layer
            .saturating_mul(of(self.num_layers))
            .saturating_add(hidden.saturating_mul(rows))
    }

    /// At least the words that a step's gradients, or its tokens, take on one rank.
    pub fn step_words_max(&self, step: &StepSizes) -> u64 {
        let whole = self.parameter_words_max();
        // What alignment may add: to each parameter, and to each bucket. A layer has two norms and
        // four linears, each with a bias; the ends have two tables, a norm and a matrix.
        let parameters = 12 * u64::from(self.num_layers) + 5;
        let full = |size: u32| (whole / u64::from(size) + 3).min(parameters);
        // A shared embedding may cut a bucket in three.
        let buckets = step.ddp_bucket_size.map_or(3, full);
        let padding = parameters + buckets * u64::from(step.data_parallel_size);
        let flat = whole.saturating_add(padding.saturating_mul(128));
        let microbatches = u64::from(step.microbatches);
        let tokens = microbatches.saturating_mul(self.tokens());
        flat.saturating_mul(microbatches).max(tokens)
    }
}

impl Recipe {
    pub fn buffer_sizes(&self) -> BufferSizes {
        buffer_sizes_of!(self, self.determinism.wgrad_splits)
    }

    pub(super) fn step_sizes(&self) -> StepSizes {
        StepSizes {
            microbatches: self.microbatch_count(),
            data_parallel_size: self.data_parallel_size(),
            ddp_bucket_size: self.ddp_bucket_size,
        }
    }
}
