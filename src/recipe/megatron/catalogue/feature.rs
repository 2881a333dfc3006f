//! Parts of Megatron that bitproof does not simulate, and what switches each on.

/// A part of Megatron with arguments of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    Moe,
    Mla,
    ContextParallel,
    Fp8,
    Fp4,
    Fp16,
    MegatronFsdp,
    TorchFsdp2,
    Hybrid,
    Mtp,
    Muon,
    Sgd,
    Lion,
    Rl,
    Yarn,
    RopeScaling,
    RelativePosition,
    Mrope,
    Mup,
    LinearAttention,
    SparseAttention,
    HyperConnections,
    QkClip,
    TpOverlap,
    CpuOffload,
    OptimizerOffload,
    PrecisionAware,
    WsdSchedule,
    WeightDecaySchedule,
    FillInTheMiddle,
    Sft,
    Distillation,
    FaultInjection,
    WeightShards,
    Kitchen,
    EmbeddingWgradDeferral,
    Inference,
    Biencoder,
    Vision,
    EncoderDecoder,
}

use Feature::*;

/// A feature, its name, and the attributes that switch it on when not at their defaults.
type Row = (Feature, &'static str, &'static [&'static str]);

const ROWS: &[Row] = &[
    (
        Moe,
        "mixture of experts",
        &["num_experts", "moe_use_upcycling"],
    ),
    (Mla, "multi-latent attention", &["multi_latent_attention"]),
    (
        ContextParallel,
        "context parallelism",
        &["context_parallel_size", "hybrid_context_parallel"],
    ),
    (Fp8, "FP8", &["fp8"]),
    (Fp4, "FP4", &["fp4"]),
    (Fp16, "fp16 with loss scaling", &["fp16"]),
    (MegatronFsdp, "Megatron-FSDP", &["use_megatron_fsdp"]),
    (TorchFsdp2, "PyTorch FSDP2", &["use_torch_fsdp2"]),
    (
        Hybrid,
        "hybrid Mamba models",
        &[
            "hybrid_layer_pattern",
            "hybrid_override_pattern",
            "is_hybrid_model",
        ],
    ),
    (Mtp, "multi-token prediction", &["mtp_num_layers"]),
    (
        Muon,
        "the Muon optimizer",
        &["optimizer=muon", "optimizer=dist_muon"],
    ),
    (Sgd, "the SGD optimizer", &["optimizer=sgd"]),
    (Lion, "the Lion optimizer", &["optimizer=lion"]),
    (Rl, "reinforcement learning", &["perform_rl_step"]),
    (
        Yarn,
        "YaRN position embeddings",
        &["position_embedding_type=yarn", "rope_type=yarn"],
    ),
    (RopeScaling, "RoPE scaling", &["use_rope_scaling"]),
    (
        RelativePosition,
        "relative position embeddings",
        &["position_embedding_type=relative"],
    ),
    (
        Mrope,
        "multimodal rotary embeddings",
        &["position_embedding_type=mrope"],
    ),
    (Mup, "maximal update parameterization", &["use_mup"]),
    (
        LinearAttention,
        "linear attention",
        &["linear_attention_type", "linear_attention_freq"],
    ),
    (
        SparseAttention,
        "experimental attention variants",
        &["experimental_attention_variant"],
    ),
    (
        HyperConnections,
        "hyper-connections",
        &["enable_hyper_connections"],
    ),
    (QkClip, "clipping of query and key weights", &["qk_clip"]),
    (
        TpOverlap,
        "tensor-parallel GEMMs overlapped with their communication",
        &["tp_comm_overlap"],
    ),
    (
        CpuOffload,
        "activations of single modules offloaded to the host",
        &["fine_grained_activation_offloading"],
    ),
    (
        OptimizerOffload,
        "an optimizer on the host",
        &["optimizer_cpu_offload"],
    ),
    (
        PrecisionAware,
        "the precision-aware optimizer",
        &["use_precision_aware_optimizer"],
    ),
    (WsdSchedule, "the WSD schedule", &["lr_decay_style=WSD"]),
    (
        WeightDecaySchedule,
        "a weight-decay schedule",
        &["weight_decay_incr_style"],
    ),
    (FillInTheMiddle, "fill-in-the-middle data", &["fim_data"]),
    (Sft, "supervised fine-tuning data", &["sft"]),
    (
        Distillation,
        "logits distillation",
        &["logits_save_dir", "logits_load_dir"],
    ),
    (
        FaultInjection,
        "injected faults",
        &["fault_injector_ranks", "fault_injector_num_ranks"],
    ),
    (
        WeightShards,
        "weight shards along tensor parallelism",
        &[
            "tensor_parallel_num_weight_shards",
            "expert_tensor_parallel_num_weight_shards",
        ],
    ),
    (
        Kitchen,
        "Kitchen quantization",
        &["kitchen_config_file", "kitchen_recipe_number"],
    ),
    (
        EmbeddingWgradDeferral,
        "deferred embedding gradients",
        &["defer_embedding_wgrad_compute"],
    ),
    (Inference, "inference", &[]),
    (Biencoder, "biencoder models", &["ict_head_size"]),
    (Vision, "vision models", &["vision_pretraining"]),
    (
        EncoderDecoder,
        "encoder-decoder models",
        &["decoder_num_layers", "decoder_seq_length"],
    ),
];

impl Feature {
    fn row(self) -> &'static Row {
        let row = ROWS.iter().find(|(feature, ..)| *feature == self);
        row.expect("every feature has a row")
    }

    /// As the end of "it needs ...".
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// Attributes that switch it on when they are not at their default, or at `name=value`.
    pub fn switches(self) -> &'static [&'static str] {
        self.row().2
    }

    pub fn all() -> impl Iterator<Item = Feature> {
        ROWS.iter().map(|(feature, ..)| *feature)
    }
}
