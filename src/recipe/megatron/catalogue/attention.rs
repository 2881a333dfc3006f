//! Arguments of attention and of its variants (`megatron/core/transformer/transformer_config.py`,
//! `_add_mla_args`).

use super::Feature::*;
use super::argument::{Argument, Effect::*, Kind::*, arg, default_on, flag};

pub(super) const ARGUMENTS: &[Argument] = &[
    // Attention.
    arg(
        "attention-backend",
        Word(&["flash", "fused", "unfused", "local", "auto"]),
        "auto",
        Used("determinism.attention_backward"),
    ),
    flag("use-flash-attn", Used("determinism.attention_backward")),
    arg(
        "transformer-impl",
        Word(&["local", "transformer_engine", "inference_optimized"]),
        "transformer_engine",
        Used(
            "determinism.attention_backward, as `local` is unfused; whose norms run is not \
             simulated: determinism.norm_weight_grad stands for all",
        ),
    ),
    flag(
        "fallback-to-eager-attn",
        Needs("eager attention within Transformer Engine"),
    ),
    arg(
        "softmax-type",
        Word(&["vanilla", "off-by-one", "learnable"]),
        "vanilla",
        Needs("another softmax"),
    ),
    arg("window-size", Text, "", Needs("attention windows")),
    arg(
        "window-attn-skip-freq",
        Text,
        "",
        Needs("attention windows"),
    ),
    flag("attention-output-gate", Needs("gated attention")),
    arg(
        "gated-attention-proj-granularity",
        Word(&["elementwise", "headwise"]),
        "elementwise",
        // Another one is refused in every job without a gate.
        Needs("gated attention"),
    ),
    flag("head-wise-attn-gate", Needs("gated attention")),
    flag("qk-clip", Needs("clipping of query and key weights")),
    arg("qk-clip-alpha", Float, "0.5", Part(QkClip)),
    arg("qk-clip-threshold", Float, "100", Part(QkClip)),
    flag(
        "apply-query-key-layer-scaling",
        Needs("scores scaled by layer"),
    ),
    flag(
        "attention-softmax-in-fp32",
        Replaced("bitproof always takes the softmax in fp32, as fused attention does"),
    ),
    flag("batch-invariant-mode", Needs("batch-invariant kernels")),
    flag("fp32-residual-connection", Needs("an fp32 residual stream")),
    default_on(
        "clone-scatter-output-in-embedding",
        NoBits(
            "a copy of the embedding's output, to free its input earlier \
             (language_model_embedding.py)",
        ),
    ),
    arg("mlp-chunks-for-prefill", Int, "1", Part(Inference)),
    arg(
        "mlp-chunks-for-training",
        Int,
        "1",
        Needs("an MLP in chunks of the sequence"),
    ),
    // Multi-latent attention.
    flag("multi-latent-attention", Needs("multi-latent attention")),
    arg("q-lora-rank", Int, "", Part(Mla)),
    arg("kv-lora-rank", Int, "32", Part(Mla)),
    arg("qk-head-dim", Int, "128", Part(Mla)),
    arg("qk-pos-emb-head-dim", Int, "64", Part(Mla)),
    arg("v-head-dim", Int, "128", Part(Mla)),
    arg("rotary-scaling-factor", Float, "1.0", Part(Mla)),
    arg("mscale", Float, "1.0", Part(Mla)),
    arg("mscale-all-dim", Float, "0.0", Part(Mla)),
    flag("cache-mla-latents", Part(Mla)),
    flag("mla-down-proj-fusion", Only(Mla)),
    // Attention variants.
    arg(
        "experimental-attention-variant",
        Word(&["gdn", "kda", "gated_delta_net", "dsa", "dsv4_hybrid"]),
        "",
        Needs("experimental attention variants"),
    ),
    arg("linear-attention-type", Text, "", Needs("linear attention")),
    arg("linear-attention-freq", Text, "", Needs("linear attention")),
    arg("linear-conv-kernel-dim", Int, "4", Part(SparseAttention)),
    arg("linear-key-head-dim", Int, "128", Part(SparseAttention)),
    arg("linear-value-head-dim", Int, "128", Part(SparseAttention)),
    arg("linear-num-key-heads", Int, "16", Part(SparseAttention)),
    arg("linear-num-value-heads", Int, "32", Part(SparseAttention)),
    flag("kda-safe-gate", Part(SparseAttention)),
    arg("kda-lower-bound", Float, "", Part(SparseAttention)),
    flag("gdn-pre-gated-delta-rule-fusion", Only(SparseAttention)),
    arg("gdn-conv-pad-alignment", Int, "", Part(SparseAttention)),
    arg("dsa-indexer-n-heads", Int, "", Part(SparseAttention)),
    arg("dsa-indexer-head-dim", Int, "", Part(SparseAttention)),
    arg("dsa-indexer-topk", Int, "", Part(SparseAttention)),
    arg("dsa-indexer-topk-freq", Int, "1", Part(SparseAttention)),
    arg(
        "dsa-indexer-skip-topk-offset",
        Int,
        "0",
        Part(SparseAttention),
    ),
    arg("dsa-indexer-loss-coeff", Float, "", Part(SparseAttention)),
    flag("dsa-indexer-use-sparse-loss", Part(SparseAttention)),
    arg(
        "dsa-indexer-precision",
        Word(&["bf16", "mxfp8"]),
        "bf16",
        Part(SparseAttention),
    ),
    arg(
        "dsa-kernel-backend",
        Word(&["none", "tilelang", "cudnn"]),
        "none",
        Part(SparseAttention),
    ),
    flag("dsa-indexer-rope-interleaved", Part(SparseAttention)),
    default_on("dsa-indexer-rotate-activation", Part(SparseAttention)),
    default_on("dsa-indexer-scoring-relu", Part(SparseAttention)),
    arg(
        "dsa-indexer-k-norm-epsilon",
        Float,
        "",
        Part(SparseAttention),
    ),
    flag("dsa-indexer-k-norm-fp32", Part(SparseAttention)),
    default_on(
        "dsa-indexer-weights-proj-use-quantization",
        Part(SparseAttention),
    ),
    arg(
        "dsa-indexer-weights-proj-output-dtype",
        Word(&["bf16", "fp32"]),
        "bf16",
        Only(SparseAttention),
    ),
    arg("csa-window-size", Int, "128", Part(SparseAttention)),
    arg("csa-compress-ratios", Ints, "", Part(SparseAttention)),
    arg(
        "csa-compress-rotary-base",
        Float,
        "40000.0",
        Part(SparseAttention),
    ),
    flag("csa-dense-mode", Part(SparseAttention)),
    // Its default is None: `--no-apply-dsa-kernel-fusion` is what there is.
    default_on("apply-dsa-kernel-fusion", Part(SparseAttention)),
];
