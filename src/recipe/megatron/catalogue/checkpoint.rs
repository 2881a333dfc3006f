//! Arguments of checkpoints (`CheckpointConfig`, `_add_checkpointing_args`).

use super::argument::{Argument, Effect::*, Kind::*, arg, default_on, flag, negation};

const LAYOUT_ON_DISK: super::Effect = NoBits(
    "how the bytes of a checkpoint lie on disk and who moves them; what is loaded is what was \
     saved (megatron/core/dist_checkpointing)",
);
const LOADED: super::Effect = Replaced(
    "bitproof starts from weights of its own; a resumed run loads what its first run saved",
);
const STATE: super::Effect =
    Needs("a checkpoint without some of the state: resuming from it is another run");
const DUMP: super::Effect = NoBits(
    "copies tensors to files, by hooks of such a step (training.py, activation_logging.py, \
     dgrad_logging.py)",
);

pub(super) const ARGUMENTS: &[Argument] = &[
    arg("save", Text, "", NoBits("where checkpoints lie")),
    arg("load", Text, "", LOADED),
    arg(
        "save-interval",
        Int,
        "",
        Used("whether there is a checkpoint at half the steps, where a test resumes"),
    )
    .also(&["persistent-save-interval"]),
    arg(
        "save-retain-interval",
        Int,
        "",
        NoBits("which old checkpoints are deleted (checkpointing.py)"),
    ),
    arg("save-params-interval", Int, "", DUMP),
    arg("save-activations-interval", Int, "", DUMP),
    // `force_all_reduce`: the buckets of these steps are all-reduced, not reduce-scattered.
    arg(
        "save-wgrads-interval",
        Int,
        "",
        Needs("steps whose gradients are all-reduced whole (training.py, train_step)"),
    ),
    arg("save-dgrads-interval", Int, "", DUMP),
    flag("no-save-optim", STATE),
    flag("no-save-rng", STATE),
    flag("no-load-optim", LOADED),
    flag("no-load-rng", LOADED),
    flag("load-main-params-from-ckpt", LOADED),
    flag("finetune", LOADED),
    arg("pretrained-checkpoint", Text, "", LOADED),
    arg("ckpt-step", Int, "", LOADED),
    arg(
        "override-ckpt-iteration",
        Int,
        "",
        Needs("another step count than the checkpoint's"),
    ),
    flag(
        "use-checkpoint-args",
        Needs("arguments that stand in a checkpoint, not here"),
    ),
    flag(
        "use-mp-args-from-checkpoint-args",
        Needs("arguments that stand in a checkpoint, not here"),
    ),
    default_on("use-tokenizer-model-from-checkpoint-args", LOADED),
    flag(
        "exit-on-missing-checkpoint",
        NoBits("stops the job where a checkpoint is missing"),
    ),
    arg(
        "ckpt-format",
        Word(&["torch", "torch_dist", "torch_dcp", "fsdp_dtensor", "zarr"]),
        "torch_dist",
        LAYOUT_ON_DISK,
    ),
    flag("auto-detect-ckpt-format", LAYOUT_ON_DISK),
    arg(
        "ckpt-convert-format",
        Word(&["torch", "torch_dist"]),
        "",
        Needs("a converter of checkpoints"),
    ),
    arg(
        "ckpt-convert-save",
        Text,
        "",
        NoBits("read only with --ckpt-convert-format"),
    ),
    flag("ckpt-convert-update-legacy-dist-opt-format", LAYOUT_ON_DISK),
    negation(
        "no-ckpt-fully-parallel-save",
        "ckpt_fully_parallel_save",
        LAYOUT_ON_DISK,
    ),
    flag(
        "ckpt-fully-parallel-save",
        NoBits("deprecated, without effect (arguments.py)"),
    )
    .dest_of("ckpt_fully_parallel_save_deprecated"),
    flag("ckpt-fully-parallel-load", LAYOUT_ON_DISK),
    arg(
        "ckpt-fully-parallel-load-exchange-algo",
        Word(&["broadcast", "gather_rounds", "gather_object"]),
        "broadcast",
        Needs("an exchange of which Megatron says that it guarantees no stability"),
    ),
    arg(
        "ckpt-fully-parallel-save-process-group",
        Word(&["dp", "ep_dp"]),
        "dp",
        LAYOUT_ON_DISK,
    ),
    arg(
        "ckpt-fully-parallel-load-process-group",
        Word(&["dp", "ep_dp"]),
        "dp",
        LAYOUT_ON_DISK,
    ),
    flag("ckpt-fully-parallel-save-replicate-local", LAYOUT_ON_DISK),
    flag("ckpt-fully-parallel-load-replicate-local", LAYOUT_ON_DISK),
    flag("ckpt-assume-constant-structure", LAYOUT_ON_DISK),
    default_on("ckpt-load-validate-sharding-integrity", LAYOUT_ON_DISK),
    flag("ckpt-drop-redundant-extra-state", LAYOUT_ON_DISK),
    arg("ckpt-pg-tensors-cache-path", Text, "", LAYOUT_ON_DISK),
    default_on("strict-fsdp-dtensor-load", LAYOUT_ON_DISK),
    arg(
        "dist-ckpt-strictness",
        Word(&[
            "assume_ok_unexpected",
            "log_unexpected",
            "log_all",
            "raise_unexpected",
            "raise_all",
            "return_unexpected",
            "return_all",
            "ignore_all",
        ]),
        "assume_ok_unexpected",
        NoBits(
            "what is said about keys that do not match; none differ between a run and its \
             resumption",
        ),
    ),
    arg("dist-ckpt-workers", Int, "1", LAYOUT_ON_DISK),
    flag("dist-ckpt-save-pre-mcore-014", LAYOUT_ON_DISK),
    flag("dist-ckpt-optim-fully-reshardable", LAYOUT_ON_DISK),
    flag(
        "distrib-optim-fully-reshardable-mem-efficient",
        LAYOUT_ON_DISK,
    ),
    flag(
        "use-dist-ckpt",
        NoBits("deprecated, without effect (arguments.py)"),
    )
    .dest_of("use_dist_ckpt_deprecated"),
    arg(
        "dist-ckpt-format",
        Text,
        "",
        NoBits("deprecated, without effect (arguments.py)"),
    )
    .dest_of("dist_ckpt_format_deprecated"),
    flag(
        "async-save",
        Used("saves by a background writer, whose files are compared with what was asked for"),
    ),
    arg(
        "async-strategy",
        Word(&["nvrx", "mcore"]),
        "nvrx",
        LAYOUT_ON_DISK,
    ),
    flag("use-persistent-ckpt-worker", LAYOUT_ON_DISK),
    arg("async-ckpt-cpu-priority", Int, "10", LAYOUT_ON_DISK),
    arg("async-ckpt-io-priority", Int, "3", LAYOUT_ON_DISK),
    flag("async-ckpt-use-cpu-shm", LAYOUT_ON_DISK),
    flag(
        "verify-integrity",
        NoBits("hashes the files and compares the hashes"),
    ),
    default_on("save-tokenizer-assets", LAYOUT_ON_DISK),
    arg("non-persistent-save-interval", Int, "", LAYOUT_ON_DISK),
    arg(
        "non-persistent-ckpt-type",
        Word(&["global", "local", "in_memory"]),
        "",
        LAYOUT_ON_DISK,
    ),
    arg("non-persistent-global-ckpt-dir", Text, "", LAYOUT_ON_DISK),
    arg("non-persistent-local-ckpt-dir", Text, "", LAYOUT_ON_DISK),
    arg(
        "non-persistent-local-ckpt-algo",
        Word(&["fully_parallel", "atomic"]),
        "fully_parallel",
        LAYOUT_ON_DISK,
    ),
    flag("replication", LAYOUT_ON_DISK),
    arg("replication-jump", Int, "", LAYOUT_ON_DISK),
    arg("replication-factor", Int, "2", LAYOUT_ON_DISK),
];
