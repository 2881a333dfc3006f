//! Arguments of logs (`LoggerConfig`, `StragglerDetectionConfig`, `_add_one_logger_args`).

use super::argument::{Argument, Effect::*, Kind::*, arg, default_on, flag, negation};

const LOG: super::Effect =
    NoBits("read when a finished step is reported (training_log, megatron/training/training.py)");
const NORM: super::Effect = NoBits(
    "reads parameters or gradients into a number of its own, with its own all-reduce, and writes \
     none (megatron/training/utils.py)",
);
const STRAGGLER: super::Effect = NoBits("times ranks (megatron/core/utils.py: StragglerDetector)");
const SERVICE: super::Effect = NoBits("reports to a service outside the job");

pub(super) const ARGUMENTS: &[Argument] = &[
    arg("log-interval", Int, "100", LOG),
    flag("log-params-norm", NORM),
    flag("log-num-zeros-in-grad", NORM),
    flag("log-throughput", LOG),
    flag("log-progress", LOG),
    flag("log-energy", LOG),
    flag("log-device-memory-used", LOG),
    arg("log-memory-interval", Int, "", LOG),
    flag("log-per-layer-resource-usage", LOG),
    arg("log-per-layer-resource-usage-interval", Int, "", LOG),
    // Transformer Engine takes FlashAttention out where the largest logit is asked for.
    flag(
        "log-max-attention-logit",
        Needs("the attention kernel that returns its largest logit"),
    ),
    flag("log-activations", LOG),
    arg("log-activations-interval", Int, "", LOG),
    arg("timing-log-level", Word(&["0", "1", "2"]), "0", LOG),
    arg(
        "timing-log-option",
        Word(&["max", "minmax", "all"]),
        "minmax",
        LOG,
    ),
    negation(
        "no-barrier-with-level-1-timing",
        "barrier_with_L1_time",
        NoBits("a barrier before a timer: when, not what (megatron/core/timers.py)"),
    ),
    arg("tensorboard-dir", Text, "", LOG),
    arg("tensorboard-log-interval", Int, "1", LOG),
    arg("tensorboard-queue-size", Int, "1000", LOG),
    flag("log-timers-to-tensorboard", LOG),
    default_on("log-loss-scale-to-tensorboard", LOG),
    flag("log-validation-ppl-to-tensorboard", LOG),
    flag("log-memory-to-tensorboard", LOG),
    flag("log-world-size-to-tensorboard", LOG),
    flag("log-batch-size-to-tensorboard", LOG),
    default_on("log-learning-rate-to-tensorboard", LOG),
    // So spelled in earlier versions.
    negation(
        "no-log-learnig-rate-to-tensorboard",
        "log_learning_rate_to_tensorboard",
        LOG,
    ),
    arg("wandb-project", Text, "", LOG),
    arg("wandb-exp-name", Text, "", LOG),
    arg("wandb-save-dir", Text, "", LOG),
    arg("wandb-entity", Text, "", LOG),
    arg("logging-level", Int, "", LOG),
    flag("log-straggler", STRAGGLER),
    flag("disable-straggler-on-startup", STRAGGLER),
    arg("straggler-ctrlr-port", Int, "65535", STRAGGLER),
    arg("straggler-minmax-count", Int, "1", STRAGGLER),
    negation("no-one-logger", "enable_one_logger", SERVICE),
    arg("one-logger-project", Text, "megatron-lm", SERVICE),
    arg("one-logger-run-name", Text, "", SERVICE),
    flag("one-logger-async", SERVICE),
    arg("app-tag-run-name", Text, "", SERVICE),
    arg("app-tag-run-version", Text, "0.0.0", SERVICE),
    flag("otel-enabled", SERVICE),
    arg("otel-service-name", Text, "", SERVICE),
    arg("otel-span-groups", Text, "", SERVICE),
    // Traces of pull request NVIDIA/Megatron-LM#6610.
    arg("determinism-trace-dir", Text, "", LOG),
    arg(
        "determinism-trace-mode",
        Word(&["metadata", "summary", "sampled", "full"]),
        "metadata",
        LOG,
    ),
    arg("determinism-trace-sample-count", Int, "256", LOG),
    arg("determinism-trace-flush-every", Int, "0", LOG),
    flag("determinism-trace-append", LOG),
    arg("determinism-trace-ranks", Text, "", LOG),
    arg("determinism-trace-iterations", Text, "", LOG),
];
