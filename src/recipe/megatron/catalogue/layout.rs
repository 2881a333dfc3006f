//! Arguments of the parallel layout (`ModelParallelConfig`, `_add_distributed_args`).

use super::Feature::{self, TpOverlap};
use super::argument::{Argument, Effect::*, Kind::*, arg, default_on, flag, negation};

const OVERLAP: super::Effect =
    Used("run overlapped, as DistributedDataParallel does, and looked through for hazards");
const ALIGNED: super::Effect =
    Used("when overlapped collectives are launched, and what they can race with (schedules.py)");
const INTERLEAVED_SENDS: super::Effect = Replaced(
    "Megatron's default: sends overlap with computation in an interleaved pipeline, and 1F1B \
     sends are waited for at once",
);
const UNEVEN: super::Effect = Needs("pipeline stages of unequal depth");
const TP: super::Effect = Part(TpOverlap);

pub(super) const ARGUMENTS: &[Argument] = &[
    arg("tensor-model-parallel-size", Int, "1", Used("the layout")),
    arg("pipeline-model-parallel-size", Int, "1", Used("the layout")),
    arg(
        "num-virtual-stages-per-pipeline-rank",
        Int,
        "",
        Used("the layout"),
    ),
    arg(
        "num-layers-per-virtual-pipeline-stage",
        Int,
        "",
        Used("the number of virtual stages"),
    ),
    arg(
        "microbatch-group-size-per-virtual-pipeline-stage",
        Int,
        "",
        Used("the schedule"),
    )
    .dest_of("microbatch_group_size_per_vp_stage"),
    arg(
        "pipeline-model-parallel-layout",
        Text,
        "",
        Needs("a custom pipeline layout"),
    ),
    arg("decoder-first-pipeline-num-layers", Int, "", UNEVEN),
    arg("decoder-last-pipeline-num-layers", Int, "", UNEVEN),
    flag("account-for-embedding-in-pipeline-split", UNEVEN),
    flag("account-for-loss-in-pipeline-split", UNEVEN),
    flag(
        "sequence-parallel",
        Used("the layout; Megatron switches it off at tp 1"),
    ),
    arg(
        "context-parallel-size",
        Int,
        "1",
        Needs("context parallelism"),
    ),
    arg(
        "expert-model-parallel-size",
        Int,
        "1",
        Needs("expert parallelism"),
    ),
    arg("expert-tensor-parallel-size", Int, "", Part(Feature::Moe)),
    arg("cp-comm-type", Texts, "p2p", Part(Feature::ContextParallel)),
    arg(
        "hierarchical-context-parallel-sizes",
        Ints,
        "",
        Part(Feature::ContextParallel),
    ),
    arg(
        "max-seqlen-per-dp-cp-rank",
        Int,
        "",
        Part(Feature::ContextParallel),
    ),
    flag(
        "hybrid-context-parallel",
        Needs("hybrid context parallelism"),
    ),
    arg(
        "cp-partition-mode",
        Word(&["zigzag", "contiguous"]),
        "zigzag",
        Part(Feature::ContextParallel),
    ),
    arg(
        "linear-cp-mode",
        Text,
        "chunkwise",
        Part(Feature::ContextParallel),
    ),
    arg(
        "sequence-packing-scheduler",
        Word(&["dp_balanced"]),
        "",
        Needs("packed sequences"),
    ),
    flag("use-tp-pp-dp-mapping", Used("the order of ranks")),
    arg(
        "tensor-parallel-num-weight-shards",
        Int,
        "",
        Needs("weight shards along tensor parallelism"),
    ),
    arg(
        "expert-tensor-parallel-num-weight-shards",
        Int,
        "",
        Needs("weight shards along tensor parallelism"),
    ),
    flag(
        "gtp-remat-reduce-scatter-with-fp32-accumulation",
        Part(Feature::WeightShards),
    ),
    flag("gtp-remat-nccl-ub", Part(Feature::WeightShards)),
    flag("gtp-expert-remat-nccl-ub", Part(Feature::WeightShards)),
    arg(
        "model-parallel-size",
        Int,
        "",
        Needs("--tensor-model-parallel-size instead: Megatron refuses this old name"),
    ),
    // Pipeline.
    negation(
        "no-overlap-p2p-communication",
        "overlap_p2p_comm",
        INTERLEAVED_SENDS,
    ),
    // Without an interleaved pipeline and overlapped sends Megatron refuses it.
    flag(
        "overlap-p2p-communication-warmup-flush",
        Needs("sends that overlap in a pipeline's warm-up and flush, too"),
    )
    .dest_of("overlap_p2p_comm_warmup_flush"),
    arg(
        "pipeline-model-parallel-comm-backend",
        Word(&["nccl", "ucc"]),
        "",
        NoBits("sends between stages copy bytes, whichever library moves them"),
    ),
    flag(
        "use-ring-exchange-p2p",
        Needs("a build of PyTorch of its own, with `ring_exchange`"),
    ),
    flag(
        "defer-embedding-wgrad-compute",
        Needs("deferred embedding gradients"),
    ),
    arg(
        "wgrad-deferral-limit",
        Int,
        "0",
        Part(Feature::EmbeddingWgradDeferral),
    ),
    flag("mtp-standalone", Part(Feature::Mtp)),
    flag(
        "delay-wgrad-compute",
        Needs("weight gradients computed later than their layer"),
    ),
    // Data parallel.
    flag("use-distributed-optimizer", Used("sharded optimizer state")),
    arg(
        "num-distributed-optimizer-instances",
        Int,
        "1",
        Used("replicas of the sharded optimizer state"),
    ),
    flag("overlap-grad-reduce", OVERLAP),
    flag("overlap-param-gather", OVERLAP),
    flag(
        "overlap-param-gather-with-optimizer-step",
        // Its model chunks have one bucket each (get_model, megatron/training/training.py).
        Needs("parameters gathered during the optimizer's step"),
    ),
    negation("no-align-param-gather", "align_param_gather", ALIGNED),
    default_on("align-grad-reduce", ALIGNED),
    arg(
        "ddp-bucket-size",
        Int,
        "",
        Used("buckets, where gradients are reduced as they come"),
    ),
    arg("ddp-num-buckets", Int, "", Needs("buckets by their number")),
    flag(
        "ddp-pad-buckets-for-high-nccl-busbw",
        Needs("padded buckets"),
    ),
    flag(
        "ddp-average-in-collective",
        Needs("averages inside the collective"),
    ),
    flag(
        "ddp-reduce-scatter-with-fp32-accumulation",
        Used("a reduce-scatter by all-to-all and local sums; no effect where gradients are fp32"),
    ),
    arg(
        "ddp-param-name-patterns-for-fp32-local-accumulation",
        Texts,
        "",
        Needs("single parameters accumulated in fp32"),
    ),
    flag(
        "create-all-gather-group",
        NoBits("gathers copy bytes, in whichever group (parallel_state.py)"),
    ),
    negation(
        "no-use-layer-wise-param-layout",
        "use_layer_wise_param_layout",
        Part(Feature::Muon),
    ),
    // Tensor parallel overlap.
    flag(
        "tp-comm-overlap",
        Needs("tensor-parallel GEMMs overlapped with their communication"),
    ),
    arg("tp-comm-overlap-cfg", Text, "", TP),
    default_on("tp-comm-bulk-wgrad", TP),
    default_on("tp-comm-bulk-dgrad", TP),
    default_on("tp-comm-overlap-ag", TP),
    default_on("tp-comm-overlap-rs", TP),
    flag("tp-comm-overlap-rs-dgrad", TP),
    default_on("tp-comm-split-ag", TP),
    default_on("tp-comm-split-rs", TP),
    arg(
        "tp-comm-bootstrap-backend",
        Word(&["nccl", "mpi", "gloo"]),
        "nccl",
        TP,
    ),
    // FSDP.
    flag("use-torch-fsdp2", Needs("PyTorch FSDP2")),
    negation(
        "torch-fsdp2-no-reshard-after-forward",
        "torch_fsdp2_reshard_after_forward",
        Part(Feature::TorchFsdp2),
    ),
    flag("use-megatron-fsdp", Needs("Megatron-FSDP")).also(&["use-custom-fsdp"]),
    arg(
        "megatron-fsdp-version",
        Word(&["1", "2"]),
        "1",
        Part(Feature::MegatronFsdp),
    ),
    arg(
        "data-parallel-sharding-strategy",
        Word(&["no_shard", "optim", "optim_grads", "optim_grads_params"]),
        "optim_grads_params",
        Part(Feature::MegatronFsdp),
    ),
    arg(
        "outer-dp-sharding-strategy",
        Word(&["no_shard", "optim"]),
        "no_shard",
        Part(Feature::MegatronFsdp),
    ),
    negation(
        "no-gradient-reduce-div-fusion",
        "gradient_reduce_div_fusion",
        Part(Feature::MegatronFsdp),
    ),
    flag("fsdp-double-buffer", Part(Feature::MegatronFsdp)),
    flag("fsdp-manual-registration", Only(Feature::MegatronFsdp)),
    flag(
        "fsdp-db-use-persist-buf-on-alloc-fail",
        Part(Feature::MegatronFsdp),
    ),
    flag(
        "megatron-fsdp-max-pool-double-buffer",
        Part(Feature::MegatronFsdp),
    ),
    flag(
        "megatron-fsdp-enable-fine-grained-param-gather",
        Part(Feature::MegatronFsdp),
    ),
    arg(
        "megatron-fsdp-main-params-dtype",
        Word(&["fp32", "bf16", "fp16", "auto"]),
        "fp32",
        Part(Feature::MegatronFsdp),
    ),
    arg(
        "megatron-fsdp-main-grads-dtype",
        Word(&["fp32", "bf16", "fp16", "auto"]),
        "auto",
        Part(Feature::MegatronFsdp),
    ),
    arg(
        "megatron-fsdp-grad-comm-dtype",
        Word(&["fp32", "bf16", "fp16", "auto"]),
        "auto",
        Part(Feature::MegatronFsdp),
    ),
    arg(
        "suggested-communication-unit-size",
        Int,
        "",
        Part(Feature::MegatronFsdp),
    ),
    flag("keep-fp8-transpose-cache", Part(Feature::MegatronFsdp)),
    flag("enable-full-sharding-in-hsdp", Part(Feature::MegatronFsdp)),
    // get_model makes its parameters of empty memory where no FSDP does (training.py).
    flag(
        "init-model-with-meta-device",
        Needs("weights that nobody initialises: each run starts from what its memory holds"),
    ),
];
