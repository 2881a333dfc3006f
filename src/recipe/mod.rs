//! What is trained and how: Megatron-LM's arguments with underscores.
//!
//! A recipe that exists is sound: every rule of `rules` holds for it, so later code may divide
//! without asking. Argument names and defaults: `megatron/training/arguments.py` of NVIDIA's
//! Megatron-LM; where a default here differs, the field says so.

mod argument;
mod buffers;
mod environment;
mod graph_rules;
mod in_code;
mod limits;
pub mod lint;
mod loss_scaling;
pub mod megatron;
pub mod nccl;
mod read;
mod reshard;
mod rules;
mod scale;
mod schedule_rules;
mod shape;
mod torch_rules;

pub(crate) use buffers::buffer_sizes_of;
pub(crate) use environment::CUBLAS_WORKSPACES;

pub use argument::{
    CUDA_GRAPH_WARMUP_STEPS, CudaGraphImpl, DataParallelKind, DistributedBackend, LrDecayStyle,
    Normalization, PositionEmbedding, RecomputeGranularity, RecomputeMethod, RecomputeModule,
    TransformerImpl,
};
pub use buffers::{BUFFER_WORDS_MAX, BufferSizes, QUERY_GRAD_BLOCKS, StepSizes};
pub use limits::*;
pub use loss_scaling::LossScaling;
pub use read::is_recipe;
pub use reshard::{ReshardLayout, ReshardLayoutError};
pub use scale::{Change, GrowError, ScaleOptions, Scaled, scaled};
pub use shape::default_ddp_bucket_size;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::diagnostic::document::Table;
use crate::diagnostic::{Diagnostic, Findings, Source};

/// Who chooses the order in which the parts of a local reduction land.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LocalOrder {
    /// Parts in ascending order: the deterministic twin.
    Ordered,
    /// The order in which writers arrive, as atomics do it: any permutation, at each call.
    Arrival,
    /// The order that follows from how many parts a block takes, which each rank has chosen by
    /// timing at its first call. No switch of its own: see [`Determinism::autotune`].
    Timed,
}

impl LocalOrder {
    pub(crate) const WORDS: [(&str, LocalOrder); 2] = [
        ("ordered", LocalOrder::Ordered),
        ("arrival", LocalOrder::Arrival),
    ];
}

/// The kernels whose order is not fixed by the arithmetic, and how each is run.
///
/// Megatron and Transformer Engine pick these through `--deterministic-mode` and
/// `NVTE_ALLOW_NONDETERMINISTIC_ALGO`, all at once; here each has a switch of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Determinism {
    /// Token rows added into the embedding gradient.
    pub embedding_backward: LocalOrder,
    /// Token contributions to the gradient of a norm's weight.
    pub norm_weight_grad: LocalOrder,
    /// Parts of a weight gradient that is split along its tokens.
    pub wgrad_split_k: LocalOrder,
    /// Gradients of the microbatches of a step.
    pub microbatch_accumulation: LocalOrder,
    /// Blocks of keys added into the gradient of a query (FlashAttention's dQ).
    pub attention_backward: LocalOrder,
    /// Number of split-K parts of each weight gradient.
    pub wgrad_splits: u32,
    /// Who chooses the configuration of kernels that are tuned: `norm_weight_grad`,
    /// `wgrad_split_k`.
    #[serde(skip_serializing_if = "Autotune::is_fixed")]
    pub autotune: Autotune,
}

/// How the configuration of a tuned kernel is chosen, as Triton's autotuner does it
/// (`TRITON_CACHE_AUTOTUNING` and a cache that all ranks share make it one table).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Autotune {
    /// One table of configurations, for every rank and every run.
    Fixed,
    /// Each rank times the configurations at its first call of a kernel with a shape, and keeps
    /// the fastest: which one that is may differ by rank and by run (NVIDIA/Megatron-LM#6966).
    Timed,
}

impl Autotune {
    pub(crate) const WORDS: [(&str, Autotune); 2] =
        [("fixed", Autotune::Fixed), ("timed", Autotune::Timed)];

    fn is_fixed(&self) -> bool {
        *self == Autotune::Fixed
    }
}

impl Determinism {
    /// Keys of the orders that a configuration decides.
    pub const TUNED: [&str; 2] = ["norm_weight_grad", "wgrad_split_k"];

    /// Keys of tuned kernels whose order is that of arrival.
    pub(crate) fn tuned_and_free(&self) -> impl Iterator<Item = &'static str> {
        let orders = self.orders().into_iter();
        let free = orders.filter(|(_, order)| *order == LocalOrder::Arrival);
        free.map(|(key, _)| key)
            .filter(|key| Determinism::TUNED.contains(key))
    }

    /// The order of a kernel that is tuned, whose switch says `order`.
    pub(crate) fn tuned(&self, order: LocalOrder) -> LocalOrder {
        match self.autotune {
            Autotune::Fixed => order,
            Autotune::Timed => LocalOrder::Timed,
        }
    }

    /// Every order switch by its key, in a fixed order: replay tokens count on it.
    pub fn orders(&self) -> [(&'static str, LocalOrder); 5] {
        [
            ("embedding_backward", self.embedding_backward),
            ("norm_weight_grad", self.norm_weight_grad),
            ("wgrad_split_k", self.wgrad_split_k),
            ("microbatch_accumulation", self.microbatch_accumulation),
            ("attention_backward", self.attention_backward),
        ]
    }
}

/// A training recipe whose rules hold.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Recipe {
    // --- layout ---
    /// Ranks in all.
    pub world_size: u32,
    pub tensor_model_parallel_size: u32,
    pub pipeline_model_parallel_size: u32,
    /// Model chunks of a pipeline stage; 1 is no interleaving.
    pub num_virtual_stages_per_pipeline_rank: u32,
    /// Microbatches that pass a chunk before the next chunk's turn.
    pub microbatch_group_size_per_virtual_pipeline_stage: u32,
    pub sequence_parallel: bool,
    /// Ranks are numbered tp-cp-ep-pp-dp rather than tp-cp-ep-dp-pp.
    pub use_tp_pp_dp_mapping: bool,

    // --- model ---
    pub num_layers: u32,
    pub hidden_size: u32,
    pub ffn_hidden_size: u32,
    pub num_attention_heads: u32,
    /// Key and value heads; equal to `num_attention_heads` without grouped queries.
    pub num_query_groups: u32,
    /// Width of one head.
    pub kv_channels: u32,
    pub seq_length: u32,
    /// Rows of the learned position table.
    pub max_position_embeddings: u32,
    /// 256 unless given: the model reads bytes.
    pub padded_vocab_size: u32,
    /// Where a layer's norms stand among its parameters, and so in the buffers of gradients.
    pub transformer_impl: TransformerImpl,
    /// RMSNorm unless given; Megatron's default is LayerNorm.
    pub normalization: Normalization,
    pub norm_epsilon: f32,
    /// True unless given; Megatron's default is a tanh GELU.
    pub swiglu: bool,
    /// True unless given; Megatron's default is biases.
    pub disable_bias_linear: bool,
    /// Rotary unless given; Megatron's default is a learned table.
    pub position_embedding_type: PositionEmbedding,
    pub rotary_base: f32,
    /// Of the attention's probabilities; 0 unless given, 0.1 in Megatron.
    pub attention_dropout: f32,
    /// Of what is added to the residual stream; 0 unless given, 0.1 in Megatron.
    pub hidden_dropout: f32,
    /// True unless given; Megatron's default is one matrix for both.
    pub untie_embeddings_and_output_weights: bool,

    // --- batch and optimizer ---
    /// Sequences in one microbatch of one data-parallel rank.
    pub micro_batch_size: u32,
    /// Sequences in one step, over all data-parallel ranks and microbatches.
    pub global_batch_size: u32,
    pub train_iters: u32,
    pub lr: f32,
    /// Constant unless given; Megatron's default is linear.
    pub lr_decay_style: LrDecayStyle,
    /// Steps of the decay; `train_iters` unless given.
    pub lr_decay_iters: u32,
    /// Steps of the linear warm-up.
    pub lr_warmup_iters: u32,
    pub min_lr: f32,
    pub adam_beta1: f32,
    pub adam_beta2: f32,
    pub adam_eps: f32,
    pub weight_decay: f32,
    /// Greatest global gradient norm; 0 switches clipping off.
    pub clip_grad: f32,
    pub seed: u64,

    // --- precision and gradient reduction ---
    /// bf16 activations and weights with fp32 main parameters; fp32 throughout in neither format.
    pub bf16: bool,
    /// fp16, and what the loss is scaled by.
    #[serde(flatten)]
    pub loss_scaling: LossScaling,
    pub accumulate_allreduce_grads_in_fp32: bool,
    pub grad_reduce_in_bf16: bool,
    pub use_distributed_optimizer: bool,
    /// Replicas of the sharded optimizer state along data parallelism.
    pub num_distributed_optimizer_instances: u32,
    pub overlap_grad_reduce: bool,
    /// The stages behind the first one reduce in the pipeline's bubble; true unless given, as in
    /// Megatron.
    pub align_grad_reduce: bool,
    pub overlap_param_gather: bool,
    /// An interleaved pipeline gathers a chunk's buckets together; true unless given.
    pub align_param_gather: bool,
    pub ddp_reduce_scatter_with_fp32_accumulation: bool,
    /// Parameters in a bucket; one bucket when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ddp_bucket_size: Option<u32>,

    // --- torch's DistributedDataParallel ---
    #[serde(skip_serializing_if = "DataParallelKind::is_default")]
    pub ddp: DataParallelKind,
    /// MiB at which its buckets close.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bucket_cap_mb: Option<f32>,
    /// Its buckets are never laid out anew.
    #[serde(skip_serializing_if = "is_false")]
    pub find_unused_parameters: bool,
    #[serde(skip_serializing_if = "DistributedBackend::is_default")]
    pub distributed_backend: DistributedBackend,

    // --- recompute, offloading and checkpoints ---
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recompute_granularity: Option<RecomputeGranularity>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recompute_method: Option<RecomputeMethod>,
    /// Layers of a checkpointed unit (uniform), or layers recomputed a stage (block).
    pub recompute_num_layers: u32,
    /// What selective recompute runs again.
    pub recompute_modules: Vec<RecomputeModule>,
    /// First layers whose activations wait in the host's memory for their backward.
    #[serde(skip_serializing_if = "is_zero")]
    pub cpu_offloading_num_layers: u32,
    /// Activations come back into two buffers in turn.
    #[serde(skip_serializing_if = "is_false")]
    pub cpu_offloading_double_buffering: bool,
    /// Whether layers are captured as CUDA graphs and replayed, and by whom.
    #[serde(skip_serializing_if = "CudaGraphImpl::is_default")]
    pub cuda_graph_impl: CudaGraphImpl,
    /// Steps of a process before Transformer Engine's graphs are captured.
    #[serde(skip_serializing_if = "is_default_warmup")]
    pub cuda_graph_warmup_steps: u32,
    pub async_save: bool,
    /// The job ends after a step at which a rank's clock says that it has run for longer. Clocks
    /// are free here, so any number of minutes is any other.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_duration_in_mins: Option<u32>,

    /// Data-parallel ranks have RNG seeds of their own.
    #[serde(skip_serializing_if = "is_false")]
    pub data_parallel_random_init: bool,

    // --- data loader ---
    /// Worker processes; 0 unless given, 2 in Megatron.
    #[serde(skip_serializing_if = "is_zero")]
    pub num_workers: u32,
    /// Samples of an epoch, shuffled in each; one endless epoch in order when absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch_samples: Option<u32>,

    pub determinism: Determinism,
    /// Environment of the job: `NCCL_ALGO` and its kin.
    pub env: BTreeMap<String, String>,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

fn is_default_warmup(steps: &u32) -> bool {
    *steps == CUDA_GRAPH_WARMUP_STEPS
}

fn is_false(flag: &bool) -> bool {
    !flag
}

impl Recipe {
    /// Reads a recipe from a table. `path` is the table's dotted name, empty for a document.
    /// `None` if any rule is broken; `findings` then says which.
    pub fn from_table(table: &Table, path: &str, findings: &mut Findings) -> Option<Recipe> {
        read::recipe(table, path, findings)
    }

    /// As [`Recipe::from_table`], for a recipe that is scaled before it runs: the training state
    /// of its virtual ranks may have any size, and what is not simulated yet is not refused.
    pub fn full_size_from_table(
        table: &Table,
        path: &str,
        findings: &mut Findings,
    ) -> Option<Recipe> {
        read::full_size_recipe(table, path, findings)
    }

    /// Reads a recipe file. `Ok` carries the warnings.
    pub fn from_source(source: &Source) -> Result<(Recipe, Vec<Diagnostic>), Vec<Diagnostic>> {
        let mut findings = Findings::default();
        let recipe = Table::parse(source, &mut findings)
            .and_then(|table| Recipe::from_table(&table, "", &mut findings));
        findings.finish(recipe)
    }
}

#[cfg(test)]
mod tests;
