//! Arguments with a fixed set of words, spelled as Megatron-LM spells them
//! (`megatron/training/arguments.py`).

use serde::Serialize;

/// `--normalization`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Normalization {
    LayerNorm,
    RMSNorm,
}

impl Normalization {
    pub const WORDS: [(&str, Normalization); 2] = [
        ("LayerNorm", Normalization::LayerNorm),
        ("RMSNorm", Normalization::RMSNorm),
    ];
}

/// `--transformer-impl`: whose modules a layer is built of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TransformerImpl {
    TransformerEngine,
    Local,
}

impl TransformerImpl {
    pub const WORDS: [(&str, TransformerImpl); 2] = [
        ("transformer_engine", TransformerImpl::TransformerEngine),
        ("local", TransformerImpl::Local),
    ];
}

/// `--position-embedding-type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PositionEmbedding {
    LearnedAbsolute,
    Rope,
    None,
}

impl PositionEmbedding {
    pub const WORDS: [(&str, PositionEmbedding); 3] = [
        ("learned_absolute", PositionEmbedding::LearnedAbsolute),
        ("rope", PositionEmbedding::Rope),
        ("none", PositionEmbedding::None),
    ];
}

/// `--lr-decay-style`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum LrDecayStyle {
    Constant,
    Linear,
    Cosine,
}

impl LrDecayStyle {
    pub const WORDS: [(&str, LrDecayStyle); 3] = [
        ("constant", LrDecayStyle::Constant),
        ("linear", LrDecayStyle::Linear),
        ("cosine", LrDecayStyle::Cosine),
    ];
}

/// `--recompute-granularity`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RecomputeGranularity {
    /// Whole layers.
    Full,
    /// The modules of `recompute_modules`.
    Selective,
}

impl RecomputeGranularity {
    pub const WORDS: [(&str, RecomputeGranularity); 2] = [
        ("full", RecomputeGranularity::Full),
        ("selective", RecomputeGranularity::Selective),
    ];
}

/// `--recompute-method`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum RecomputeMethod {
    /// Every unit of `recompute_num_layers` layers.
    Uniform,
    /// The first `recompute_num_layers` layers of each stage or chunk.
    Block,
}

impl RecomputeMethod {
    pub const WORDS: [(&str, RecomputeMethod); 2] = [
        ("uniform", RecomputeMethod::Uniform),
        ("block", RecomputeMethod::Block),
    ];
}

/// A word of `--recompute-modules`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RecomputeModule {
    CoreAttn,
    Mlp,
    Layernorm,
}

impl RecomputeModule {
    pub const WORDS: [(&str, RecomputeModule); 3] = [
        ("core_attn", RecomputeModule::CoreAttn),
        ("mlp", RecomputeModule::Mlp),
        ("layernorm", RecomputeModule::Layernorm),
    ];
}

/// `--cuda-graph-impl`, for graphs of whole transformer layers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CudaGraphImpl {
    /// Every kernel is launched by itself.
    #[default]
    None,
    /// Megatron-LM's own (`CudaGraphManager`).
    Local,
    /// Transformer Engine's `make_graphed_callables`.
    TransformerEngine,
}

/// Megatron-LM's default of `--cuda-graph-warmup-steps`.
pub const CUDA_GRAPH_WARMUP_STEPS: u32 = 3;

impl CudaGraphImpl {
    pub const WORDS: [(&str, CudaGraphImpl); 3] = [
        ("none", CudaGraphImpl::None),
        ("local", CudaGraphImpl::Local),
        ("transformer_engine", CudaGraphImpl::TransformerEngine),
    ];

    /// Steps of a process before its first replay. Megatron-LM records its own graphs in the first
    /// step and captures them at its end; Transformer Engine's are captured after
    /// `cuda_graph_warmup_steps`. `None` where nothing is replayed.
    pub fn eager_steps(self, warmup_steps: u32) -> Option<u32> {
        match self {
            CudaGraphImpl::None => None,
            CudaGraphImpl::Local => Some(1),
            CudaGraphImpl::TransformerEngine => Some(warmup_steps),
        }
    }

    pub(super) fn is_default(&self) -> bool {
        *self == CudaGraphImpl::default()
    }
}

/// Whose data parallelism reduces the gradients. Not an argument of Megatron-LM.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DataParallelKind {
    /// Megatron-LM's `DistributedDataParallel`.
    #[default]
    Megatron,
    /// `torch.nn.parallel.DistributedDataParallel`.
    Torch,
}

impl DataParallelKind {
    pub const WORDS: [(&str, DataParallelKind); 2] = [
        ("megatron", DataParallelKind::Megatron),
        ("torch", DataParallelKind::Torch),
    ];

    pub(super) fn is_default(&self) -> bool {
        *self == DataParallelKind::default()
    }
}

/// `--distributed-backend`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DistributedBackend {
    #[default]
    Nccl,
    Gloo,
}

impl DistributedBackend {
    pub const WORDS: [(&str, DistributedBackend); 2] = [
        ("nccl", DistributedBackend::Nccl),
        ("gloo", DistributedBackend::Gloo),
    ];

    pub(super) fn is_default(&self) -> bool {
        *self == DistributedBackend::default()
    }
}
