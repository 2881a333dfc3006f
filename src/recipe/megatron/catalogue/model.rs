//! Arguments of the model's shape (`megatron/core/transformer/transformer_config.py`,
//! `_add_network_size_args`).

use super::Feature::{self, *};
use super::argument::{Argument, Effect::*, Kind::*, arg, default_on, flag, negation};

const SHAPE: super::Effect = Used("the model's shape");
const ELEMENTWISE: super::Effect = Replaced(
    "an elementwise operation in one kernel or in several, which may round at other places: \
     bitproof has one form of it; the same in every run, and no sum is in it",
);
const NORM_KERNEL: super::Effect = Replaced(
    "which kernel norms are is not simulated: determinism.norm_weight_grad stands for all",
);
const INITIAL: super::Effect =
    Replaced("bitproof draws initial weights of its own, from the recipe's seed");

pub(super) const ARGUMENTS: &[Argument] = &[
    arg("num-layers", Int, "", SHAPE),
    arg(
        "encoder-num-layers",
        Int,
        "",
        Used("the number of layers, where --num-layers is not given"),
    ),
    arg(
        "decoder-num-layers",
        Int,
        "",
        Needs("an encoder-decoder model"),
    ),
    arg("hidden-size", Int, "", SHAPE),
    arg("ffn-hidden-size", Int, "", SHAPE),
    arg("num-attention-heads", Int, "", SHAPE),
    arg("kv-channels", Int, "", SHAPE),
    flag("group-query-attention", SHAPE),
    arg(
        "num-query-groups",
        Int,
        "1",
        Used("the model's shape, with --group-query-attention"),
    ),
    arg(
        "max-position-embeddings",
        Int,
        "",
        Used("rows of the learned position table"),
    ),
    arg(
        "position-embedding-type",
        Word(&[
            "learned_absolute",
            "rope",
            "yarn",
            "mrope",
            "relative",
            "none",
        ]),
        "learned_absolute",
        SHAPE,
    ),
    flag(
        "use-rotary-position-embeddings",
        Used("the position embedding: rope"),
    ),
    negation(
        "no-position-embedding",
        "add_position_embedding",
        NoBits(
            "deprecated: Megatron refuses it but with rope, where it changes nothing \
             (validate_args)",
        ),
    ),
    arg("rotary-base", Int, "10000", Used("the rotary embedding")),
    arg(
        "rotary-percent",
        Float,
        "1.0",
        Needs("rotary embeddings of a part of the head"),
    ),
    flag("rotary-interleaved", Needs("interleaved rotary embeddings")),
    arg(
        "rotary-base-per-layer",
        Floats,
        "",
        Needs("rotary bases by layer"),
    ),
    arg(
        "rotary-seq-len-interpolation-factor",
        Int,
        "1",
        Needs("interpolated rotary embeddings"),
    ),
    flag("use-rope-scaling", Needs("RoPE scaling")),
    arg("rope-scaling-factor", Float, "8.0", Part(RopeScaling)),
    arg("no-rope-freq", Text, "", Needs("layers without RoPE")),
    arg(
        "rope-type",
        Word(&["rope", "yarn"]),
        "",
        Used("the rotary embedding"),
    ),
    arg("yarn-original-max-position-embeddings", Int, "", Part(Yarn)),
    arg("yarn-beta-fast", Float, "", Part(Yarn)),
    arg("yarn-beta-slow", Float, "", Part(Yarn)),
    arg("yarn-correction-range-round-to-int", Toggle, "", Part(Yarn)),
    arg(
        "relative-attention-num-buckets",
        Int,
        "32",
        Part(RelativePosition),
    ),
    arg(
        "relative-attention-max-distance",
        Int,
        "128",
        Part(RelativePosition),
    ),
    arg("mrope-section", Ints, "", Part(Mrope)),
    flag("mrope-interleaved", Part(Mrope)),
    arg(
        "normalization",
        Word(&["LayerNorm", "RMSNorm"]),
        "LayerNorm",
        SHAPE,
    ),
    arg("norm-epsilon", Float, "1e-5", Used("the norms"))
        .dest_of("layernorm_epsilon")
        .also(&["layernorm-epsilon"]),
    flag("apply-layernorm-1p", Needs("norm weights centred at zero"))
        .dest_of("layernorm_zero_centered_gamma"),
    flag(
        "apply-residual-connection-post-layernorm",
        Needs("residuals taken after the norm"),
    ),
    flag("qk-layernorm", Needs("norms of queries and keys")),
    flag("qk-l2-norm", Needs("norms of queries and keys")),
    negation("disable-bias-linear", "add_bias_linear", SHAPE).also(&["no-bias-linear"]),
    flag("add-qkv-bias", Needs("biases in the attention alone")),
    flag("swiglu", SHAPE),
    flag("squared-relu", Needs("squared ReLU")),
    flag("quick-geglu", Needs("quick GEGLU")),
    flag("openai-gelu", Needs("OpenAI's GELU")),
    arg(
        "glu-linear-offset",
        Float,
        "0.0",
        Needs("a gated activation with an offset"),
    ),
    // Every gated activation is clamped by it, with an offset or without (mlp.py).
    arg(
        "activation-func-clamp-value",
        Float,
        "",
        Needs("clamped activations"),
    ),
    flag("use-te-activation-func", ELEMENTWISE),
    arg(
        "hidden-dropout",
        Float,
        "0.1",
        Used("dropout of the residual stream"),
    ),
    arg(
        "attention-dropout",
        Float,
        "0.1",
        Used("dropout of the attention"),
    ),
    flag("untie-embeddings-and-output-weights", SHAPE),
    arg(
        "make-vocab-size-divisible-by",
        Int,
        "128",
        Used("the padded vocabulary"),
    ),
    // `type=bool`: it takes a word.
    arg(
        "onnx-safe",
        Text,
        "",
        NoBits("read when a model is exported to ONNX"),
    ),
    // Fusions.
    negation(
        "no-masked-softmax-fusion",
        "masked_softmax_fusion",
        Replaced(
            "one row's softmax in one kernel or several (fused_softmax.py), in every run alike: \
             bitproof has one form of it",
        ),
    ),
    negation(
        "no-bias-gelu-fusion",
        "bias_gelu_fusion",
        Replaced(
            "a tanh GELU, where Megatron without the fusion takes an erf one: elementwise either \
             way",
        ),
    ),
    negation("no-bias-swiglu-fusion", "bias_swiglu_fusion", ELEMENTWISE),
    negation("no-bias-dropout-fusion", "bias_dropout_fusion", ELEMENTWISE),
    negation("no-rope-fusion", "apply_rope_fusion", ELEMENTWISE),
    flag("no-persist-layer-norm", NORM_KERNEL),
    flag("use-fused-weighted-squared-relu", Part(Moe)),
    flag("fused-residual-rmsnorm", NORM_KERNEL),
    flag(
        "use-transformer-engine-op-fuser",
        Needs("Transformer Engine's operation fuser"),
    )
    .also(&["use-te-op-fuser"]),
    flag("dense-grouped-gemm", Needs("grouped GEMMs")),
    flag("use-grouped-gemm-for-dense-mlp", Needs("grouped GEMMs")),
    flag(
        "cross-entropy-loss-fusion",
        Needs("the fused cross entropy, whose sums Megatron's deterministic mode refuses"),
    ),
    arg(
        "cross-entropy-fusion-impl",
        Word(&["native", "te"]),
        "native",
        NoBits("read only with --cross-entropy-loss-fusion"),
    ),
    // Initial weights.
    arg("init-method-std", Float, "0.02", INITIAL),
    arg("embedding-init-method-std", Float, "", INITIAL),
    flag("init-method-xavier-uniform", INITIAL),
    default_on(
        "perform-initialization",
        Needs("weights that nobody initialises: each run starts from what its memory holds"),
    )
    .also(&["no-initialization"]),
    flag("use-cpu-initialization", INITIAL),
    // Multi-token prediction.
    arg("mtp-num-layers", Int, "", Needs("multi-token prediction")),
    arg("mtp-loss-scaling-factor", Float, "0.1", Part(Mtp)),
    flag("mtp-use-repeated-layer", Part(Mtp)),
    flag("mtp-detach-heads", Part(Mtp)),
    flag("mtp-hsm", Part(Mtp)),
    arg("mtp-hybrid-override-pattern", Text, "", Part(Mtp)),
    // MuP, hyper-connections, heterogeneous layers.
    flag("use-mup", Needs("maximal update parameterization")),
    arg("mup-width-mult", Float, "1.0", Part(Mup)),
    arg("mup-base-hidden-size", Int, "", Part(Mup)),
    arg("mup-embedding-mult", Float, "1.0", Part(Mup)),
    arg("mup-output-mult", Float, "1.0", Part(Mup)),
    arg("mup-base-head-dim", Float, "", Part(Mup)),
    arg("mup-attn-scale-power", Float, "1.0", Part(Mup)),
    flag("enable-hyper-connections", Needs("hyper-connections")),
    arg("num-residual-streams", Int, "4", Part(HyperConnections)),
    arg("mhc-sinkhorn-iterations", Int, "20", Part(HyperConnections)),
    arg(
        "mhc-init-gating-factor",
        Float,
        "0.01",
        Part(HyperConnections),
    ),
    flag("use-fused-mhc", Only(HyperConnections)),
    arg("mhc-recompute-layer-num", Int, "", Part(HyperConnections)),
    flag(
        "mhc-recompute-attn-cuda-graph-split",
        Part(HyperConnections),
    ),
    arg(
        "heterogeneous-layers-config-path",
        Text,
        "",
        Needs("layers of different shapes"),
    ),
    arg(
        "heterogeneous-layers-config-encoded-json",
        Text,
        "",
        Needs("layers of different shapes"),
    ),
    // Hybrid models.
    arg(
        "hybrid-layer-pattern",
        Text,
        "",
        Needs("hybrid Mamba models"),
    ),
    arg(
        "hybrid-override-pattern",
        Text,
        "",
        Needs("hybrid Mamba models"),
    ),
    flag("is-hybrid-model", Needs("hybrid Mamba models")),
    arg("hybrid-attention-ratio", Float, "0.0", Part(Hybrid)),
    arg("hybrid-mlp-ratio", Float, "0.0", Part(Hybrid)),
    arg("mamba-state-dim", Int, "128", Part(Hybrid)),
    arg("mamba-head-dim", Int, "64", Part(Hybrid)),
    arg("mamba-num-groups", Int, "8", Part(Hybrid)),
    arg("mamba-num-heads", Int, "", Part(Hybrid)),
    negation(
        "disable-mamba-mem-eff-path",
        "use_mamba_mem_eff_path",
        Part(Hybrid),
    ),
    arg(
        "mamba-training-ssm-states-dtype",
        Word(&["fp32", "bf16"]),
        "",
        Part(Hybrid),
    ),
    arg(
        "spec",
        Texts,
        "",
        Needs("a module specification of the user's own"),
    ),
    // Others.
    arg(
        "config-logger-dir",
        Text,
        "",
        NoBits("writes configurations to files (config_logger.py)"),
    ),
    flag(
        "disable-bf16-reduced-precision-matmul",
        Used("the partial sums of matrix products: fp32, as bitproof's are"),
    ),
    flag("deterministic-mode", Used("every order of [determinism]")),
    flag(
        "calculate-per-token-loss",
        Needs("losses averaged over tokens of all ranks"),
    ),
    flag("test-mode", NoBits("runs checks beside the training")),
    flag(
        "use-legacy-models",
        Needs("Megatron's removed legacy models"),
    ),
    flag(
        "use-mcore-models",
        NoBits("deprecated and ignored: Core models are the default (arguments.py)"),
    )
    .dest_of("deprecated_use_mcore_models"),
    arg(
        "yaml-cfg",
        Text,
        "",
        Needs(
            "a second configuration file, which Megatron reads instead of these \
        arguments",
        ),
    ),
    flag("freeze-all-layers", Needs("frozen layers")),
    negation(
        "bert-no-binary-head",
        "bert_binary_head",
        Part(Feature::Biencoder),
    ),
];
