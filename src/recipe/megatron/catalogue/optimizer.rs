//! Arguments of the optimizer, the schedule, the batch and the loop (`_add_regularization_args`,
//! `TrainingConfig`, `SchedulerConfig`, `RNGConfig`, `RerunStateMachineConfig`).

use super::Feature::*;
use super::argument::{Argument, Effect::*, Kind::*, arg, default_on, flag, negation};

const ADAM: super::Effect = Used("the optimizer");
const SCHEDULE: super::Effect = Used("the learning rate");
const COLLECTOR: super::Effect =
    NoBits("Python's garbage collector, between steps (megatron/training/training.py)");
const LOOP: super::Effect =
    NoBits("ends the job sooner or later; no step follows from it (training.py)");
const SHADOWED: super::Effect = NoBits(
    "whose schedule a resumed run takes, the checkpoint's or the arguments': here both come from \
     the same arguments (optimizer_param_scheduler.py)",
);
const CHECKS: super::Effect = NoBits(
    "reads losses and gradients; a step that it rejects is repeated from the same state, or ends \
     the job (rerun_state_machine.py)",
);

pub(super) const ARGUMENTS: &[Argument] = &[
    arg(
        "optimizer",
        Word(&[
            "adam",
            "sgd",
            "muon",
            "dist_muon",
            "lion",
            "soap",
            "adaptive_muon",
        ]),
        "adam",
        Needs("another optimizer than Adam"),
    ),
    arg("lr", Float, "", SCHEDULE),
    arg("min-lr", Float, "0.0", SCHEDULE),
    arg(
        "decoupled-lr",
        Float,
        "",
        Needs("a learning rate of the embeddings' own"),
    ),
    arg(
        "decoupled-min-lr",
        Float,
        "",
        Needs("a learning rate of the embeddings' own"),
    ),
    arg(
        "lr-decay-style",
        Word(&["constant", "linear", "cosine", "inverse-square-root", "WSD"]),
        "linear",
        SCHEDULE,
    ),
    arg("lr-decay-iters", Int, "", SCHEDULE),
    arg("lr-decay-samples", Int, "", SCHEDULE),
    arg("lr-warmup-fraction", Float, "", SCHEDULE),
    arg("lr-warmup-iters", Int, "0", SCHEDULE),
    arg("lr-warmup-samples", Int, "0", SCHEDULE),
    arg(
        "lr-warmup-init",
        Float,
        "0.0",
        Needs("a warm-up that starts above zero"),
    ),
    arg(
        "lr-wsd-decay-style",
        Word(&["exponential", "linear", "cosine", "minus_sqrt"]),
        "exponential",
        Part(WsdSchedule),
    ),
    arg("lr-wsd-decay-iters", Int, "", Part(WsdSchedule)),
    arg("lr-wsd-decay-samples", Int, "", Part(WsdSchedule)),
    arg(
        "warmup",
        Int,
        "",
        Needs("--lr-warmup-fraction instead: Megatron refuses this old name"),
    ),
    flag("override-opt_param-scheduler", SHADOWED).also(&["override-opt-param-scheduler"]),
    flag("use-checkpoint-opt_param-scheduler", SHADOWED)
        .also(&["use-checkpoint-opt-param-scheduler"]),
    arg("weight-decay", Float, "0.01", ADAM),
    arg("start-weight-decay", Float, "", Part(WeightDecaySchedule)),
    arg("end-weight-decay", Float, "", Part(WeightDecaySchedule)),
    arg(
        "weight-decay-incr-style",
        Word(&["constant", "linear", "cosine"]),
        "constant",
        Needs("a weight-decay schedule"),
    ),
    arg(
        "no-weight-decay-cond-type",
        Text,
        "",
        Needs("weight decay by kind of parameter"),
    ),
    flag(
        "apply-wd-to-qk-layernorm",
        NoBits("read of parameters that only --qk-layernorm makes"),
    ),
    arg(
        "clip-grad",
        Float,
        "1.0",
        Used("clipping by the global norm"),
    ),
    arg("adam-beta1", Float, "0.9", ADAM),
    arg("adam-beta2", Float, "0.999", ADAM),
    arg("adam-eps", Float, "1e-08", ADAM),
    arg("sgd-momentum", Float, "0.9", Part(Sgd)),
    arg("lion-beta1", Float, "0.95", Part(Lion)),
    arg("lion-beta2", Float, "0.98", Part(Lion)),
    arg("muon-momentum", Float, "0.9", Part(Muon)).also(&["muon-momentum-beta"]),
    negation("muon-no-split-qkv", "muon_split_qkv", Part(Muon)),
    arg("muon-nesterov", On, "", Part(Muon)).also(&["muon-use-nesterov"]),
    arg(
        "muon-scale-mode",
        Word(&["spectral", "unit_rms_norm", "shape_scaling"]),
        "spectral",
        Part(Muon),
    ),
    arg(
        "muon-fp32-matmul-prec",
        Word(&["low", "medium", "high"]),
        "medium",
        Part(Muon),
    ),
    arg("muon-coefficient-type", Text, "quintic", Part(Muon)),
    arg("muon-num-ns-steps", Int, "5", Part(Muon)),
    arg(
        "muon-tp-mode",
        Word(&["blockwise", "duplicated", "distributed", "auto"]),
        "duplicated",
        Part(Muon),
    ),
    flag("muon-use-syrk", Part(Muon)),
    arg("muon-extra-scale-factor", Float, "1.0", Part(Muon)),
    arg(
        "muon-scalar-optimizer",
        Word(&["adam", "lion"]),
        "adam",
        Part(Muon),
    ),
    flag("optimizer-cpu-offload", Needs("an optimizer on the host")),
    flag(
        "optimizer-cuda-graph",
        Needs("a CUDA graph of the optimizer's step"),
    ),
    arg(
        "optimizer-offload-fraction",
        Float,
        "1.0",
        Part(OptimizerOffload),
    ),
    flag(
        "use-torch-optimizer-for-cpu-offload",
        Part(OptimizerOffload),
    ),
    flag("overlap-cpu-optimizer-d2h-h2d", Part(OptimizerOffload)),
    negation("no-pin-cpu-grads", "pin_cpu_grads", Part(OptimizerOffload)),
    negation(
        "no-pin-cpu-params",
        "pin_cpu_params",
        Part(OptimizerOffload),
    ),
    arg(
        "dump-param-to-param-group-map",
        Text,
        "",
        NoBits("writes a file (megatron/core/optimizer)"),
    ),
    // Batch and loop.
    arg("micro-batch-size", Int, "", Used("the batch")),
    arg("global-batch-size", Int, "", Used("the batch")),
    arg(
        "batch-size",
        Int,
        "",
        Needs("--micro-batch-size instead: Megatron refuses this old name"),
    ),
    arg("rampup-batch-size", Ints, "", Needs("a batch that grows")),
    arg(
        "step-batch-size-schedule",
        Text,
        "",
        Needs("a batch that grows"),
    ),
    flag(
        "decrease-batch-size-if-needed",
        Needs("a batch that shrinks to fit"),
    ),
    arg("train-iters", Int, "", Used("the number of steps")),
    arg("train-samples", Int, "", Used("the number of steps")),
    arg("iterations-to-skip", Ints, "", Needs("skipped steps")),
    arg(
        "phase-transition-iterations",
        Text,
        "",
        Needs("data in phases"),
    ),
    arg("exit-interval", Int, "", LOOP),
    arg(
        "exit-duration-in-mins",
        Int,
        "",
        Used("clocks: the job may end after any step"),
    ),
    flag("exit-signal-handler", LOOP),
    arg("exit-signal", Text, "15", LOOP),
    flag("exit-signal-handler-for-dataloader", LOOP),
    flag("exit-signal-handler-for-training", LOOP),
    arg(
        "train-sync-interval",
        Int,
        "",
        NoBits("the host waits for the device; no value moves (training.py)"),
    ),
    arg(
        "gpu-sniff-test-interval",
        Int,
        "",
        Needs("a test between steps that draws from dropout's generator (gpu_sniff_test.py)"),
    ),
    arg(
        "check-weight-hash-across-dp-replicas-interval",
        Int,
        "",
        NoBits("hashes weights and compares them; writes none (megatron/core/utils.py)"),
    ),
    arg(
        "empty-unused-memory-level",
        Word(&["0", "1", "2"]),
        "0",
        NoBits("frees cached memory: addresses change, values do not (training.py)"),
    ),
    flag("manual-gc", COLLECTOR),
    arg("manual-gc-interval", Int, "0", COLLECTOR),
    default_on("manual-gc-eval", COLLECTOR),
    // Random numbers.
    arg("seed", Int, "1234", Used("initial weights, dropout")),
    flag(
        "te-rng-tracker",
        NoBits("who keeps the generators' states; the same Philox streams are drawn (random.py)"),
    ),
    // Read by _set_random_seed of every job: its fork() forks nothing (random.py).
    flag(
        "inference-rng-tracker",
        Needs("generators that are not forked by tensor-parallel rank"),
    ),
    flag(
        "data-parallel-random-init",
        Needs("different initial weights by data-parallel rank"),
    ),
    // Re-runs.
    negation(
        "no-check-for-nan-in-loss-and-grad",
        "check_for_nan_in_loss_and_grad",
        CHECKS,
    ),
    flag("check-for-spiky-loss", CHECKS),
    flag("check-for-large-grads", CHECKS),
    arg(
        "rerun-mode",
        Word(&["disabled", "validate_results", "report_stats"]),
        "validate_results",
        CHECKS,
    ),
    arg("error-injection-rate", Int, "0", Needs("injected errors")),
    arg(
        "error-injection-type",
        Word(&["correct_result", "transient_error", "persistent_error"]),
        "transient_error",
        NoBits("read only with --error-injection-rate"),
    ),
    arg(
        "result-rejected-tracker-filename",
        Text,
        "",
        Needs("skipped steps"),
    ),
];
