//! The parts of a recipe that are drawn, and how each is laid on top of a recipe: layout first,
//! then the model, the batch, and types.

use proptest::prelude::*;
use proptest::sample::select;

use super::Limits;
use crate::recipe::{Determinism, LossScaling, Normalization, PositionEmbedding, Recipe};

/// Sizes of the layout.
#[derive(Clone, Debug)]
pub(super) struct Layout {
    tensor: u32,
    pipeline: u32,
    /// Chunks of a stage, of several stages.
    chunks: u32,
    data: u32,
    sequence_parallel: bool,
    use_tp_pp_dp_mapping: bool,
}

pub(super) fn layouts(limits: Limits) -> impl Strategy<Value = Layout> {
    let ranks = limits.ranks.max(2);
    let exponent = 0..=limits.tensor.clamp(1, 64).min(ranks).ilog2();
    // Two replicas are the least with a gradient sum, so one is no simplification of them.
    let data: Vec<u32> = match limits.data {
        0 | 1 => vec![1],
        most => [2, 1].into_iter().chain(3..=most).collect(),
    };
    // Interleaving multiplies the layers, and with them a case's time: one in four.
    let chunks = prop_oneof![3 => Just(1), 1 => 1..=limits.virtual_stages.max(1)];
    let stages = (1..=limits.pipeline.max(1), chunks);
    let sizes = (exponent, stages, select(data));
    (sizes, any::<[bool; 2]>()).prop_map(move |((exponent, (pipeline, chunks), data), flags)| {
        let tensor = 1 << exponent;
        let pipeline = pipeline.min(ranks / tensor);
        Layout {
            tensor,
            pipeline,
            chunks: if pipeline > 1 { chunks } else { 1 },
            data: data.min(ranks / tensor / pipeline),
            sequence_parallel: flags[0] && tensor > 1,
            use_tp_pp_dp_mapping: flags[1],
        }
    })
}

impl Layout {
    pub fn applied(&self, recipe: Recipe) -> Recipe {
        Recipe {
            world_size: self.tensor * self.pipeline * self.data,
            tensor_model_parallel_size: self.tensor,
            pipeline_model_parallel_size: self.pipeline,
            num_virtual_stages_per_pipeline_rank: self.chunks,
            microbatch_group_size_per_virtual_pipeline_stage: self.pipeline,
            sequence_parallel: self.sequence_parallel,
            use_tp_pp_dp_mapping: self.use_tp_pp_dp_mapping,
            ..recipe
        }
    }
}

/// Sizes of the model, as multiples of what the layout splits.
#[derive(Clone, Debug)]
pub(super) struct Model {
    layers_a_chunk: u32,
    heads_a_rank: u32,
    /// In units of four: a head is a whole number of vec4s.
    head_width: u32,
    ffn_width: u32,
    sequence: u32,
    /// Heads share keys and values by pairs, where there are pairs.
    shares_groups: bool,
    parts: Parts,
}

/// What a layer is made of; `false` is the small recipe's choice.
#[derive(Clone, Debug)]
struct Parts {
    layer_norm: bool,
    gelu: bool,
    biases: bool,
    learned_positions: bool,
    tied_embedding: bool,
    attention_dropout: bool,
    hidden_dropout: bool,
}

pub(super) fn models(limits: Limits) -> impl Strategy<Value = Model> {
    let sizes = (
        1..=limits.layers_a_stage.max(1),
        1..=2u32,
        1..=2u32,
        1..=4u32,
    );
    (sizes, 1..=4u32, any::<[bool; 8]>()).prop_map(|(sizes, sequence, flags)| {
        let (layers_a_chunk, heads_a_rank, head_width, ffn_width) = sizes;
        let [
            shares_groups,
            layer_norm,
            gelu,
            biases,
            learned_positions,
            ..,
        ] = flags;
        let [.., tied_embedding, attention_dropout, hidden_dropout] = flags;
        Model {
            layers_a_chunk,
            heads_a_rank,
            head_width,
            ffn_width,
            sequence,
            shares_groups: shares_groups && heads_a_rank == 2,
            parts: Parts {
                layer_norm,
                gelu,
                biases,
                learned_positions,
                tied_embedding,
                attention_dropout,
                hidden_dropout,
            },
        }
    })
}

impl Parts {
    fn applied(&self, recipe: Recipe) -> Recipe {
        let dropout = |drops: bool| if drops { 0.1 } else { 0.0 };
        let mut recipe = Recipe {
            swiglu: !self.gelu,
            disable_bias_linear: !self.biases,
            untie_embeddings_and_output_weights: !self.tied_embedding,
            attention_dropout: dropout(self.attention_dropout),
            hidden_dropout: dropout(self.hidden_dropout),
            ..recipe
        };
        if self.layer_norm {
            recipe.normalization = Normalization::LayerNorm;
        }
        if self.learned_positions {
            recipe.position_embedding_type = PositionEmbedding::LearnedAbsolute;
        }
        recipe
    }
}

impl Model {
    pub fn applied(&self, recipe: Recipe) -> Recipe {
        let tensor = recipe.tensor_model_parallel_size;
        let heads = self.heads_a_rank * tensor;
        let width = 4 * self.head_width;
        // A multiple of four tokens, and of the ranks that sequence parallelism splits it over.
        let seq_length = self.sequence * tensor.max(4);
        let recipe = self.parts.applied(recipe);
        Recipe {
            num_layers: self.layers_a_chunk
                * recipe.pipeline_model_parallel_size
                * recipe.num_virtual_stages_per_pipeline_rank,
            hidden_size: heads * width,
            ffn_hidden_size: 4 * self.ffn_width * tensor,
            num_attention_heads: heads,
            num_query_groups: if self.shares_groups { tensor } else { heads },
            kv_channels: width,
            seq_length,
            max_position_embeddings: seq_length,
            ..recipe
        }
    }
}

/// Sizes of the batch, and how it is trained on.
#[derive(Clone, Debug)]
pub(super) struct Batch {
    micro_batch_size: u32,
    microbatches: u32,
    /// Microbatches of a chunk's turn beyond one a stage.
    turn: u32,
    steps: u32,
    wgrad_splits: u32,
    clips: bool,
    seed: u32,
}

pub(super) fn batches(limits: Limits) -> impl Strategy<Value = Batch> {
    let sizes = (
        1..=limits.micro_batch_size.max(1),
        (1..=limits.microbatches.max(1), 0..=2u32),
        2..=limits.steps.max(2),
        1..=8u32,
    );
    (sizes, any::<bool>(), any::<u32>()).prop_map(|(sizes, clips, seed)| {
        let (micro_batch_size, (microbatches, turn), steps, wgrad_splits) = sizes;
        Batch {
            micro_batch_size,
            microbatches,
            turn,
            steps,
            wgrad_splits,
            clips,
            seed,
        }
    })
}

impl Batch {
    /// Microbatches of an interleaved pipeline, and of a chunk's turn: each turn fills the
    /// pipeline, a short last one, too.
    fn turns(&self, stages: u32) -> (u32, u32) {
        let microbatches = self.microbatches.max(stages);
        let group = (stages + self.turn).min(microbatches);
        let last = microbatches % group;
        match last != 0 && last < stages {
            true => (microbatches, microbatches),
            false => (microbatches, group),
        }
    }

    pub fn applied(&self, recipe: Recipe) -> Recipe {
        let tokens = recipe.seq_length * self.micro_batch_size;
        let stages = recipe.pipeline_model_parallel_size;
        let is_interleaved = recipe.num_virtual_stages_per_pipeline_rank > 1;
        let (microbatches, group) = match is_interleaved {
            true => self.turns(stages),
            false => (self.microbatches, stages),
        };
        let sequences = self.micro_batch_size * microbatches;
        Recipe {
            micro_batch_size: self.micro_batch_size,
            microbatch_group_size_per_virtual_pipeline_stage: group,
            global_batch_size: sequences * recipe.data_parallel_size(),
            train_iters: self.steps,
            lr_decay_iters: self.steps,
            clip_grad: if self.clips { 1.0 } else { 0.0 },
            seed: u64::from(self.seed),
            determinism: Determinism {
                wgrad_splits: self.wgrad_splits.min(tokens),
                ..Determinism::ORDERED
            },
            ..recipe
        }
    }
}

/// Types, and how gradients are reduced.
#[derive(Clone, Debug)]
pub(super) struct Precision {
    format: Format,
    grad_reduce_in_bf16: bool,
    use_distributed_optimizer: bool,
    with_fp32_accumulation: bool,
    bucket_size: Option<u32>,
}

/// What parameters and activations are in.
#[derive(Clone, Copy, Debug)]
enum Format {
    Fp32,
    Bf16,
    /// With a power of two as the first loss scale: small models do not overflow at once by it.
    Fp16 {
        scale_exponent: u8,
    },
}

fn formats() -> impl Strategy<Value = Format> {
    prop_oneof![
        2 => Just(Format::Fp32),
        2 => Just(Format::Bf16),
        1 => (0..10u8).prop_map(|scale_exponent| Format::Fp16 { scale_exponent }),
    ]
}

pub(super) fn precisions() -> impl Strategy<Value = Precision> {
    let sizes = prop::option::of(64..4096u32);
    (formats(), any::<[bool; 3]>(), sizes).prop_map(|(format, flags, bucket_size)| {
        let [
            grad_reduce_in_bf16,
            use_distributed_optimizer,
            with_fp32_accumulation,
        ] = flags;
        Precision {
            format,
            grad_reduce_in_bf16,
            use_distributed_optimizer,
            with_fp32_accumulation,
            bucket_size,
        }
    })
}

impl Precision {
    pub fn applied(&self, recipe: Recipe) -> Recipe {
        let bf16 = matches!(self.format, Format::Bf16);
        let in_bf16 = self.grad_reduce_in_bf16 && bf16;
        let sharded = self.use_distributed_optimizer;
        let loss_scaling = match self.format {
            Format::Fp16 { scale_exponent } => LossScaling {
                fp16: true,
                initial_loss_scale: f32::from(1u16 << scale_exponent),
                loss_scale_window: 2,
                hysteresis: 1,
                ..LossScaling::DEFAULT
            },
            Format::Fp32 | Format::Bf16 => LossScaling::DEFAULT,
        };
        // Of fp16 the flag says whether it accumulates in fp32.
        let narrow = in_bf16 || (self.grad_reduce_in_bf16 && loss_scaling.fp16);
        Recipe {
            bf16,
            loss_scaling,
            grad_reduce_in_bf16: in_bf16,
            accumulate_allreduce_grads_in_fp32: !narrow,
            use_distributed_optimizer: sharded,
            ddp_reduce_scatter_with_fp32_accumulation: self.with_fp32_accumulation && sharded,
            ddp_bucket_size: self.bucket_size,
            overlap_grad_reduce: self.bucket_size.is_some(),
            ..recipe
        }
    }
}
