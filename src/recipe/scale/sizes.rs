//! The sizes of a small model with the structure of a large one.

use crate::recipe::{PositionEmbedding, Recipe};

/// Width of the residual stream that the small model is given, about; and a narrower one for many
/// layers.
const HIDDEN: u32 = 32;
const HIDDEN_OF_MANY: u32 = 16;
/// Layers that are many.
const LAYERS_MANY: u32 = 5;
/// Model chunks over all stages above which each has one layer only.
const CHUNKS_MANY: u32 = 8;
/// Layers of a model of which some are offloaded.
const LAYERS_OFFLOADING: u32 = 4;
const SEQ_LENGTH: u32 = 32;
/// Samples of a microbatch, and their length, where positions are learned: a position's gradient
/// is a sum over the samples.
const SAMPLES: u32 = 4;
const SEQ_LENGTH_OF_SAMPLES: u32 = 16;
/// Bytes.
const VOCABULARY: u32 = 256;
/// Query heads of a group, at most.
const HEADS_OF_GROUP: u32 = 4;
/// Kernels read four words at once.
const LANES: u32 = 4;

/// Never larger than those of the job.
pub(super) struct Sizes {
    pub num_layers: u32,
    pub hidden_size: u32,
    pub ffn_hidden_size: u32,
    pub num_attention_heads: u32,
    pub num_query_groups: u32,
    pub kv_channels: u32,
    pub seq_length: u32,
    pub max_position_embeddings: u32,
    pub padded_vocab_size: u32,
    pub micro_batch_size: u32,
}

/// Model chunks over all stages.
pub(super) fn chunks(full: &Recipe) -> u32 {
    full.pipeline_model_parallel_size * full.num_virtual_stages_per_pipeline_rank
}

/// What sizes are shared out to: the least numbers that every layout divides.
struct Parts {
    tensor: u32,
    chunks: u32,
}

impl Parts {
    /// Other layouts count as far as the full-size model divides into them.
    fn of(full: &Recipe, resumed_on: &[(u32, u32)]) -> Parts {
        let mut parts = Parts {
            tensor: full.tensor_model_parallel_size,
            chunks: chunks(full),
        };
        for (tensor, chunks) in resumed_on {
            let tensor = least_common_multiple(parts.tensor, *tensor);
            let chunks = least_common_multiple(parts.chunks, *chunks);
            if full.num_query_groups.is_multiple_of(tensor) {
                parts.tensor = tensor;
            }
            if full.num_layers.is_multiple_of(chunks) {
                parts.chunks = chunks;
            }
        }
        parts
    }
}

fn least_common_multiple(a: u32, b: u32) -> u32 {
    let (mut divisor, mut rest) = (a, b);
    while rest != 0 {
        (divisor, rest) = (rest, divisor % rest);
    }
    (a / divisor.max(1)).saturating_mul(b)
}

impl Sizes {
    pub fn of(full: &Recipe, resumed_on: &[(u32, u32)]) -> Sizes {
        let parts = Parts::of(full, resumed_on);
        let tensor = parts.tensor;
        let num_layers = layers(full, parts.chunks);
        let (seq_length, micro_batch_size) = tokens(full, tensor);
        let vocabulary = VOCABULARY.next_multiple_of(LANES * tensor);
        let positions = full.max_position_embeddings / full.seq_length;
        Sizes {
            num_layers,
            seq_length,
            max_position_embeddings: (seq_length * positions.clamp(1, 4))
                .min(full.max_position_embeddings),
            padded_vocab_size: vocabulary.min(full.padded_vocab_size),
            micro_batch_size,
            ..width(full, num_layers, tensor)
        }
    }
}

fn layers(full: &Recipe, chunks: u32) -> u32 {
    let most = match chunks {
        // One stage: some leave, and some stay.
        _ if full.cpu_offloading_num_layers > 0 => LAYERS_OFFLOADING,
        CHUNKS_MANY.. => 1,
        _ => 2,
    };
    (full.num_layers / chunks).min(most) * chunks
}

/// Sequence length and microbatch size.
fn tokens(full: &Recipe, tensor: u32) -> (u32, u32) {
    let (length, samples) = match full.position_embedding_type {
        // One sample alone is as long as elsewhere: in fewer tokens hardly one occurs three times.
        PositionEmbedding::LearnedAbsolute if full.micro_batch_size > 1 => {
            (SEQ_LENGTH_OF_SAMPLES, SAMPLES)
        }
        _ => (SEQ_LENGTH, 1),
    };
    // Sequence parallelism gives each rank its part, and every part is read in fours.
    let seq = length.next_multiple_of(LANES * tensor);
    if full.seq_length > seq {
        (seq, full.micro_batch_size.min(samples))
    } else if samples > 1 {
        (full.seq_length, full.micro_batch_size)
    } else if full.seq_length.is_multiple_of(LANES) {
        (full.seq_length, 1)
    } else {
        (full.seq_length, full.micro_batch_size)
    }
}

/// Heads, groups and what they make up. The other sizes are those of `full`.
fn width(full: &Recipe, num_layers: u32, tensor: u32) -> Sizes {
    let own = Sizes {
        num_layers: full.num_layers,
        hidden_size: full.hidden_size,
        ffn_hidden_size: full.ffn_hidden_size,
        num_attention_heads: full.num_attention_heads,
        num_query_groups: full.num_query_groups,
        kv_channels: full.kv_channels,
        seq_length: full.seq_length,
        max_position_embeddings: full.max_position_embeddings,
        padded_vocab_size: full.padded_vocab_size,
        micro_batch_size: full.micro_batch_size,
    };
    let wanted = if num_layers >= LAYERS_MANY {
        HIDDEN_OF_MANY
    } else {
        HIDDEN
    };
    let ratio = (full.num_attention_heads / full.num_query_groups).min(HEADS_OF_GROUP);
    // One group a rank; two where there is one rank, so that heads are told apart.
    let groups = tensor.max(2).min(full.num_query_groups);
    let heads = groups * ratio;
    let channels = wanted.div_ceil(heads).next_multiple_of(LANES);
    let attention = heads * channels;
    let whole = full.num_attention_heads * full.kv_channels;
    let step = LANES * tensor;
    let hidden = proportion(attention, full.hidden_size, whole).next_multiple_of(step);
    let ffn = proportion(hidden, full.ffn_hidden_size, full.hidden_size).next_multiple_of(step);
    if hidden >= full.hidden_size || ffn >= full.ffn_hidden_size || channels > full.kv_channels {
        return own;
    }
    Sizes {
        hidden_size: hidden,
        ffn_hidden_size: ffn,
        num_attention_heads: heads,
        num_query_groups: groups,
        kv_channels: channels,
        ..own
    }
}

/// `of * part / whole`, to the nearest, at least 1.
fn proportion(of: u32, part: u32, whole: u32) -> u32 {
    let (of, part, whole) = (u64::from(of), u64::from(part), u64::from(whole.max(1)));
    let nearest = (of * part + whole / 2) / whole;
    u32::try_from(nearest).unwrap_or(u32::MAX >> 1).max(1)
}
