//! Arguments of process groups, restarts, faults and profiling (`DistributedInitConfig`,
//! `ProfilingConfig`, `_add_inprocess_restart_args`, `_add_ft_package_args`).

use super::Feature;
use super::argument::{Argument, Effect::*, Kind::*, arg, default_on, flag, negation};

const PROCESS: super::Effect =
    NoBits("read when processes and groups are made (megatron/training/initialize.py)");
const RECORDER: super::Effect =
    NoBits("NCCL's flight recorder notes calls after they are made (initialize.py)");
const PROFILER: super::Effect =
    NoBits("the profiler brackets steps and changes no launch (megatron/training/training.py)");
const RESTART: super::Effect = NoBits(
    "read by the in-process restart wrapper (inprocess_restart.py), outside the training step",
);
const FAULT_TOLERANCE: super::Effect =
    NoBits("read by the fault-tolerance client (ft_integration.py), which only watches");
const FAULTS: super::Effect = Part(Feature::FaultInjection);

pub(super) const ARGUMENTS: &[Argument] = &[
    arg(
        "distributed-backend",
        Word(&["nccl", "gloo"]),
        "nccl",
        Needs("Gloo collectives on GPUs"),
    ),
    arg("distributed-timeout-minutes", Int, "10", PROCESS),
    arg("distributed-timeout-seconds-after-init", Int, "", PROCESS),
    arg("local-rank", Int, "0", PROCESS),
    flag("lazy-mpu-init", PROCESS),
    arg(
        "nccl-communicator-config-path",
        Text,
        "",
        Needs("NCCL settings of single communicators"),
    ),
    negation(
        "disable-gloo-process-groups",
        "use_gloo_process_groups",
        PROCESS,
    ),
    flag(
        "use-nccl-ub",
        Needs("registered NCCL buffers, which switch to other kernels"),
    )
    .dest_of("nccl_ub"),
    flag(
        "disable-symmetric-registration",
        NoBits("read only with --use-nccl-ub"),
    ),
    flag(
        "use-sharp",
        Needs("SHARP, whose switches add in an order of their own"),
    ),
    arg(
        "sharp-enabled-group",
        Word(&["dp", "dp_replica"]),
        "",
        NoBits("read only with --use-sharp"),
    ),
    arg(
        "high-priority-stream-groups",
        Texts,
        "",
        NoBits("priorities of communication streams: when, not what (parallel_state.py)"),
    ),
    flag(
        "fake-process-group",
        Needs("real collectives: this job skips them"),
    ),
    flag(
        "disable-jit-fuser",
        Replaced(
            "elementwise operations, fused or one by one, which may round at other places: \
             bitproof has one form of each",
        ),
    ),
    flag(
        "enable-experimental",
        NoBits("permits experimental arguments; those are judged themselves"),
    )
    .dest_of("enable_megatron_core_experimental")
    .also(&["enable-megatron-core-experimental"]),
    arg(
        "symmetric-ar-type",
        Word(&["two_shot", "one_shot", "multimem_all_reduce"]),
        "",
        Needs("all-reduces in symmetric memory"),
    ),
    flag("nccl-all-reduce-for-prefill", Part(Feature::Inference)),
    // Flight recorder.
    arg("flight-recorder-dump-path", Text, "", RECORDER),
    arg("flight-recorder-trace-buffer-size", Int, "2000", RECORDER),
    default_on("flight-recorder-dump-on-timeout", RECORDER),
    flag("flight-recorder-include-stack-trace", RECORDER),
    default_on("flight-recorder-include-only-active", RECORDER),
    default_on("flight-recorder-extra-dump-on-exec", RECORDER),
    // Profiling.
    flag("profile", PROFILER).also(&["use-nsys-profiler"]),
    arg("profile-step-start", Int, "10", PROFILER),
    arg("profile-step-end", Int, "12", PROFILER),
    arg("profile-ranks", Ints, "", PROFILER),
    flag("use-pytorch-profiler", PROFILER),
    flag("pytorch-profiler-collect-shapes", PROFILER),
    flag("pytorch-profiler-collect-callstack", PROFILER),
    flag("pytorch-profiler-collect-chakra", PROFILER),
    flag("record-memory-history", PROFILER),
    arg("memory-snapshot-path", Text, "snapshot.pickle", PROFILER),
    flag("record-shapes", PROFILER),
    flag("nvtx-ranges", PROFILER),
    flag("run-workload-inspector-server", PROFILER),
    // Restarts and faults.
    flag("inprocess-restart", RESTART),
    arg("inprocess-max-iterations", Int, "", RESTART),
    arg("inprocess-monitor-thread-interval", Float, "1.0", RESTART),
    arg("inprocess-monitor-process-interval", Float, "1.0", RESTART),
    arg(
        "inprocess-progress-watchdog-interval",
        Float,
        "1.0",
        RESTART,
    ),
    arg("inprocess-heartbeat-interval", Float, "30", RESTART),
    arg("inprocess-soft-timeout", Float, "60", RESTART),
    arg("inprocess-hard-timeout", Float, "90", RESTART),
    arg("inprocess-heartbeat-timeout", Float, "60", RESTART),
    arg("inprocess-barrier-timeout", Float, "120", RESTART),
    arg("inprocess-completion-timeout", Float, "120", RESTART),
    arg("inprocess-last-call-wait", Float, "1", RESTART),
    arg("inprocess-termination-grace-time", Float, "1", RESTART),
    arg(
        "inprocess-granularity",
        Word(&["node", "rank"]),
        "node",
        RESTART,
    ),
    arg("inprocess-active-world-size", Int, "", RESTART),
    flag("inprocess-empty-cuda-cache", RESTART),
    flag("enable-ft-package", FAULT_TOLERANCE),
    flag("calc-ft-timeouts", FAULT_TOLERANCE),
    arg("ft-num-warmup-iters", Int, "5", FAULT_TOLERANCE),
    arg("fault-injector-ranks", Text, "", Needs("injected faults")),
    arg(
        "fault-injector-num-ranks",
        Int,
        "",
        Needs("injected faults"),
    ),
    arg("fault-injector-fault-types", Text, "", FAULTS),
    arg("fault-injector-fault-probabilities", Text, "", FAULTS),
    arg("fault-injector-fault-delay", Float, "", FAULTS),
    arg("fault-injector-delay-start-iteration", Int, "", FAULTS),
    arg("fault-injector-mtti-seconds", Float, "", FAULTS),
    arg("fault-injector-offset-seconds", Float, "", FAULTS),
    arg("fault-injector-seed", Int, "", FAULTS),
    flag(
        "adlr-autoresume",
        NoBits("asks the cluster whether to stop (checkpointing.py)"),
    ),
    arg(
        "adlr-autoresume-interval",
        Int,
        "1000",
        NoBits("asks the cluster whether to stop"),
    ),
];
