//! Arguments of number formats (`_add_mixed_precision_args`, `_add_transformer_engine_args`).

use super::Feature::{Fp4, Fp8, Fp16, Kitchen, PrecisionAware};
use super::argument::{Argument, Effect::*, Kind::*, arg, default_on, flag, negation};

pub(super) const ARGUMENTS: &[Argument] = &[
    flag("bf16", Used("the number format")),
    flag("fp16", Needs("fp16 with loss scaling")),
    flag(
        "grad-reduce-in-bf16",
        Used("the number format of gradient sums"),
    ),
    flag(
        "accumulate-allreduce-grads-in-fp32",
        NoBits(
            "with --bf16 Megatron sets it itself, and --grad-reduce-in-bf16 clears it \
             (validate_args); without, gradients are fp32",
        ),
    ),
    negation(
        "no-gradient-accumulation-fusion",
        "gradient_accumulation_fusion",
        Replaced(
            "microbatches are added in order, unrounded, as by the fused kernel; without the \
         fusion Megatron rounds each weight gradient to the model's format first (layers.py)",
        ),
    ),
    // A constant scale is taken whatever the number format (get_megatron_optimizer).
    arg("loss-scale", Float, "", Needs("a constant loss scale")),
    arg("initial-loss-scale", Float, "4294967296", Part(Fp16)),
    arg("min-loss-scale", Float, "1.0", Part(Fp16)),
    arg("loss-scale-window", Float, "1000", Part(Fp16)),
    arg("hysteresis", Int, "2", Part(Fp16)),
    flag("fp16-lm-cross-entropy", Part(Fp16)),
    arg(
        "output-logit-dtype",
        Word(&["bf16", "fp32"]),
        "",
        Needs("logits of another number format"),
    )
    .dest_of("logit_dtype"),
    // FP8.
    arg("fp8-format", Word(&["e4m3", "hybrid"]), "", Needs("FP8")).dest_of("fp8"),
    arg(
        "fp8-recipe",
        Word(&["tensorwise", "delayed", "mxfp8", "blockwise", "custom"]),
        "delayed",
        Part(Fp8),
    ),
    flag("fp8-param-gather", Part(Fp8)),
    arg("fp8-quantizer-factory", Text, "", Part(Fp8)),
    arg("fp8-margin", Int, "0", Part(Fp8)),
    arg("fp8-interval", Int, "1", Part(Fp8)),
    arg("fp8-amax-history-len", Int, "1", Part(Fp8)),
    arg(
        "fp8-amax-compute-algo",
        Word(&["most_recent", "max"]),
        "most_recent",
        Part(Fp8),
    ),
    default_on("fp8-wgrad", Part(Fp8)),
    flag("fp8-output-proj", Part(Fp8)),
    flag("first-last-layers-bf16", Part(Fp8)),
    arg("num-layers-at-start-in-bf16", Int, "1", Part(Fp8)),
    arg("num-layers-at-end-in-bf16", Int, "1", Part(Fp8)),
    flag("reuse-grad-buf-for-mxfp8-param-ag", Part(Fp8)),
    arg(
        "te-precision-config-file",
        Text,
        "",
        Needs("number formats by module"),
    ),
    // FP4.
    arg("fp4-format", Word(&["e2m1"]), "", Needs("FP4")).dest_of("fp4"),
    arg("fp4-recipe", Word(&["nvfp4", "custom"]), "nvfp4", Part(Fp4)),
    flag("fp4-param-gather", Part(Fp4)),
    flag("fp4-param", Part(Fp4)),
    arg("fp4-quantizer-factory", Text, "", Part(Fp4)),
    // Kitchen.
    arg(
        "kitchen-config-file",
        Text,
        "",
        Needs("Kitchen quantization"),
    ),
    arg(
        "kitchen-recipe-number",
        Int,
        "",
        Needs("Kitchen quantization"),
    ),
    flag("use-kitchen-attention", Needs("Kitchen attention")),
    arg(
        "kitchen-attention-backend",
        Word(&["sdpa", "fa"]),
        "sdpa",
        Part(Kitchen),
    ),
    // Optimizer state.
    flag(
        "use-precision-aware-optimizer",
        Needs("the precision-aware optimizer"),
    ),
    arg(
        "main-grads-dtype",
        Word(&["fp32", "bf16"]),
        "fp32",
        Needs("main gradients of another format"),
    ),
    arg(
        "main-params-dtype",
        Word(&["fp32", "fp16"]),
        "fp32",
        Part(PrecisionAware),
    ),
    arg(
        "exp-avg-dtype",
        Word(&["fp32", "fp16", "bf16", "fp8"]),
        "fp32",
        Part(PrecisionAware),
    ),
    arg(
        "exp-avg-sq-dtype",
        Word(&["fp32", "fp16", "bf16", "fp8"]),
        "fp32",
        Part(PrecisionAware),
    ),
];
