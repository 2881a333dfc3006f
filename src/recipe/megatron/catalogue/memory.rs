//! Arguments of memory: recompute, offloading, CUDA graphs
//! (`megatron/core/transformer/transformer_config.py`).

use super::Feature::*;
use super::argument::{Argument, Effect::*, Kind::*, arg, flag};

pub(super) const ARGUMENTS: &[Argument] = &[
    // Recompute.
    flag("recompute-activations", Used("selective recompute")),
    arg(
        "recompute-granularity",
        Word(&["full", "selective"]),
        "",
        Used("recompute"),
    ),
    arg(
        "recompute-method",
        Word(&["uniform", "block"]),
        "",
        Used("recompute"),
    ),
    arg(
        "recompute-num-layers",
        Int,
        "",
        Used("recompute, where its granularity is full"),
    ),
    arg(
        "recompute-modules",
        Texts,
        "",
        Used("recompute, where its granularity is selective"),
    ),
    flag(
        "distribute-saved-activations",
        NoBits(
            "saved inputs are cut along tensor parallelism and gathered again, byte by byte \
             (random.py)",
        ),
    ),
    flag(
        "checkpoint-activations",
        Needs("--recompute-activations instead: Megatron exits at this old name"),
    ),
    arg(
        "cpu-offloading-num-layers",
        Int,
        "0",
        Used("layers whose activations wait on the host"),
    ),
    flag(
        "cpu-offloading-retain-pinned-cpu-buffers",
        NoBits(
            "pinned memory is kept here, too; the allocator that it comes from otherwise waits for \
             the copies of a block before it hands it out again",
        ),
    ),
    flag(
        "fine-grained-activation-offloading",
        Needs("activations of single modules offloaded to the host"),
    ),
    arg("offload-modules", Texts, "", Part(CpuOffload)),
    arg(
        "min-offloaded-tensor-size",
        Int,
        "1048576",
        Part(CpuOffload),
    ),
    flag("delay-offload-until-cuda-graph", Part(CpuOffload)),
    arg(
        "delta-offload-bytes-across-pp-ranks",
        Int,
        "0",
        Part(CpuOffload),
    ),
    arg(
        "activation-offload-fraction",
        Float,
        "1.0",
        Part(CpuOffload),
    ),
    arg(
        "fine-grained-offloading-max-inflight-offloads",
        Int,
        "",
        Part(CpuOffload),
    ),
    // CUDA graphs.
    arg(
        "cuda-graph-impl",
        Word(&["none", "local", "transformer_engine", "full_iteration"]),
        "none",
        Used("layers that are captured and replayed, from static buffers"),
    ),
    flag(
        "enable-cuda-graph",
        Used("as --cuda-graph-impl local (TransformerConfig)"),
    ),
    flag(
        "external-cuda-graph",
        Used("as --cuda-graph-impl transformer_engine (TransformerConfig)"),
    ),
    arg(
        "cuda-graph-modules",
        Texts,
        "",
        Used("modules of a layer that are captured: all, where none is named"),
    ),
    arg(
        "cuda-graph-scope",
        Texts,
        "",
        Used("modules of a layer that are captured: all, where none is named"),
    )
    .dest_of("cuda_graph_scope_deprecated"),
    arg(
        "cuda-graph-warmup-steps",
        Int,
        "3",
        Used("steps before Transformer Engine's graphs are captured"),
    ),
    flag(
        "cuda-graph-dynamic-microbatches",
        Used("whether CUDA graphs are captured for each number of microbatches"),
    ),
    arg(
        "thd-max-packed-sequences",
        Int,
        "",
        Used("the packed sequences of a CUDA graph"),
    ),
    flag(
        "cuda-graph-use-single-mempool",
        NoBits("where a graph's memory comes from (CudaGraphManager)"),
    ),
    flag(
        "cuda-graph-retain-backward-graph",
        NoBits("what a capture keeps of autograd's own graph (CudaGraphManager)"),
    ),
    arg(
        "inference-cuda-graph-scope",
        Word(&["none", "layer", "block"]),
        "",
        Part(Inference),
    ),
];
