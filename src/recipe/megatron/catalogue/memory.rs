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
        Needs("CUDA graphs"),
    ),
    flag("enable-cuda-graph", Needs("CUDA graphs")),
    flag("external-cuda-graph", Needs("CUDA graphs")),
    arg("cuda-graph-modules", Texts, "", Part(CudaGraph)),
    arg("cuda-graph-scope", Texts, "", Part(CudaGraph)).dest_of("cuda_graph_scope_deprecated"),
    arg("cuda-graph-warmup-steps", Int, "3", Part(CudaGraph)),
    flag("cuda-graph-dynamic-microbatches", Part(CudaGraph)),
    arg("thd-max-packed-sequences", Int, "", Part(CudaGraph)),
    flag("cuda-graph-use-single-mempool", Part(CudaGraph)),
    flag("cuda-graph-retain-backward-graph", Part(CudaGraph)),
    arg(
        "inference-cuda-graph-scope",
        Word(&["none", "layer", "block"]),
        "",
        Part(Inference),
    ),
];
