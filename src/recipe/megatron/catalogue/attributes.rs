//! What an argument dump lists beside the arguments: attributes that `validate_args` derives, and
//! arguments of earlier versions. Written by the attribute's name.

use super::Feature;
use super::argument::{Argument, Effect::*, Kind::*, arg, flag, negation};

const DERIVED: super::Effect =
    NoBits("derived from other arguments, which are judged themselves (validate_args)");
const PROCESS: super::Effect = NoBits("which process wrote the dump");
const REMOVED: super::Effect =
    NoBits("of an earlier version; it chose between paths that gave the same values");

const REALIGNED: super::Effect =
    Needs("--no-align-grad-reduce or --no-align-param-gather, as it is called today");

pub(super) const ATTRIBUTES: &[Argument] = &[
    arg("rank", Int, "0", PROCESS),
    arg("world-size", Int, "1", Used("the number of ranks")),
    arg("data-parallel-size", Int, "", DERIVED),
    arg("transformer-pipeline-model-parallel-size", Int, "", DERIVED),
    arg(
        "virtual-pipeline-model-parallel-size",
        Int,
        "",
        Used("the layout"),
    ),
    arg("gtp-weight-remat-size", Int, "1", DERIVED),
    arg("expert-gtp-weight-remat-size", Int, "1", DERIVED),
    arg("params-dtype", Text, "", DERIVED),
    flag("variable-seq-lengths", DERIVED),
    arg("consumed-train-samples", Int, "0", DERIVED),
    arg("skipped-train-samples", Int, "0", DERIVED),
    arg("consumed-valid-samples", Int, "0", DERIVED),
    arg("consumed-train-bins", Int, "0", DERIVED),
    arg("iteration", Int, "0", DERIVED),
    arg("num-floating-point-operations-so-far", Float, "0", DERIVED),
    arg("use-dist-ckpt", Toggle, "", DERIVED).dest_of("use_dist_ckpt"),
    flag("use-layer-wise-distributed-optimizer", DERIVED),
    flag("cpu-offloading", DERIVED),
    arg("grpo-samples-per-iteration", Int, "", DERIVED),
    flag("-is-global-batch-size-explicitly-specified", DERIVED)
        .dest_of("_is_global_batch_size_explicitly_specified"),
    flag("do-train", DERIVED),
    flag("do-valid", DERIVED),
    flag("do-test", DERIVED),
    arg("train-valid-test-num-samples", Texts, "", DERIVED),
];

pub(super) const EARLIER: &[Argument] = &[
    flag("no-async-tensor-model-parallel-allreduce", REMOVED),
    flag("async-tensor-model-parallel-allreduce", REMOVED),
    flag(
        "no-contiguous-buffers-in-local-ddp",
        Needs("gradients that are flattened and reduced type by type"),
    ),
    flag("overlap-p2p-communication", REMOVED),
    flag("delay-grad-reduce", REALIGNED),
    flag("no-delay-grad-reduce", REALIGNED),
    flag("delay-param-gather", REALIGNED),
    negation(
        "no-scatter-gather-tensors-in-pipeline",
        "scatter_gather_tensors_in_pipeline",
        REMOVED,
    ),
    flag("enable-gloo-process-groups", REMOVED),
    flag(
        "keep-fp8-transpose-cache-when-using-custom-fsdp",
        Part(Feature::MegatronFsdp),
    ),
    flag("fp8-e4m3", Needs("FP8")),
    flag("fp8-hybrid", Needs("FP8")),
    arg("one-logger-entity", Text, "", REMOVED),
    arg(
        "DDP-impl",
        Word(&["local", "torch"]),
        "local",
        Needs("PyTorch's DDP, which sums gradients in their own format and in buckets of its own"),
    ),
];
