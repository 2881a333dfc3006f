use std::collections::BTreeSet;
use std::path::Path;

use super::*;
use crate::diagnostic::Source;
use crate::recipe::megatron::{UnderstandOptions, understand};

/// A job whose environment pins all that can be pinned.
const PINNED: &str = "NCCL_ALGO: Ring\nNCCL_PROTO: Simple\nNCCL_MIN_NCHANNELS: 4\n\
    NCCL_MAX_NCHANNELS: 4\nNCCL_BUFFSIZE: 4194304\nNCCL_TUNER_PLUGIN: none-of-these\n\
    NVTE_ALLOW_NONDETERMINISTIC_ALGO: 0\nCUBLAS_WORKSPACE_CONFIG: :4096:8\n\
    CUDA_DEVICE_MAX_CONNECTIONS: 1\nTORCH_NCCL_AVOID_RECORD_STREAMS: 1\n";

const MODEL: &str = "--num-layers: 4\n--hidden-size: 64\n--num-attention-heads: 4\n\
    --seq-length: 64\n--max-position-embeddings: 64\n--micro-batch-size: 1\n\
    --global-batch-size: 8\n--train-iters: 10\n--lr: 1e-3\n--bf16: true\n";

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// Findings of a functional test, by code, with severities.
fn findings(case: &str, env: &str, args: &str, tail: &str) -> Vec<Diagnostic> {
    let env = indented(env);
    let args = indented(&format!("{MODEL}{args}"));
    let text = format!("ENV_VARS:\n{env}MODEL_ARGS:\n{args}{tail}");
    let path = format!("test_cases/gpt/{case}/model_config.yaml");
    let source = Source::new(path.as_str(), text.as_str());
    let mut told = Findings::default();
    let job = GivenJob::read(&source, Path::new(&path), &mut told);
    let job = job.unwrap_or_else(|| panic!("{:?}", told.into_vec()));
    let mut told = Findings::default();
    let understood = understand(&job, &UnderstandOptions::default(), &mut told);
    lint(&job, &understood)
}

fn codes(case: &str, env: &str, args: &str, tail: &str) -> BTreeSet<&'static str> {
    findings(case, env, args, tail)
        .iter()
        .map(|finding| finding.code)
        .collect()
}

/// A rule, what breaks it, and the nearest that does not: environment and arguments each.
type Pair = (&'static str, [&'static str; 2], [&'static str; 2]);

const DET: &str = "--deterministic-mode: true\n";
const TP2: &str = "--tensor-model-parallel-size: 2\n";
const FSDP: &str = "--use-megatron-fsdp: true\n--ckpt-format: fsdp_dtensor\n";

const OVERLAPPED_STEP: &str = "--overlap-param-gather-with-optimizer-step: true\n\
    --use-distributed-optimizer: true\n--overlap-param-gather: true\n\
    --overlap-grad-reduce: true\n--pipeline-model-parallel-size: 2\n";
const INTERLEAVED_STEP: &str = "--overlap-param-gather-with-optimizer-step: true\n\
    --use-distributed-optimizer: true\n--overlap-param-gather: true\n\
    --overlap-grad-reduce: true\n--pipeline-model-parallel-size: 2\n\
    --num-virtual-stages-per-pipeline-rank: 2\n";

const PAIRS: &[Pair] = &[
    (
        "decay-without-steps",
        ["", "--lr-decay-iters: 0\n"],
        ["", "--lr-decay-iters: 1\n"],
    ),
    (
        "decay-without-steps",
        ["", "--lr-warmup-fraction: 1.0\n"],
        ["", "--lr-warmup-fraction: 0.5\n"],
    ),
    (
        "seed-not-positive",
        ["", "--seed: 0\n"],
        ["", "--seed: 1\n"],
    ),
    (
        "narrow-optimizer-state",
        ["", "--exp-avg-dtype: bf16\n"],
        ["", "--exp-avg-dtype: fp32\n"],
    ),
    (
        "narrow-optimizer-state",
        ["", "--exp-avg-sq-dtype: fp8\n"],
        [
            "",
            "--exp-avg-sq-dtype: fp8\n--use-precision-aware-optimizer: true\n",
        ],
    ),
    (
        "gather-with-step",
        ["", OVERLAPPED_STEP],
        ["", INTERLEAVED_STEP],
    ),
    (
        "nccl-protocol-open",
        ["NCCL_ALGO: Ring\n", ""],
        ["NCCL_PROTO: Simple\n", ""],
    ),
    (
        "nccl-channels-open",
        ["NCCL_MIN_NCHANNELS: 2\n", ""],
        ["NCCL_MIN_NCHANNELS: 2\nNCCL_MAX_NCHANNELS: 2\n", ""],
    ),
    (
        "nccl-buffer-open",
        ["NCCL_ALGO: Ring\n", ""],
        ["NCCL_BUFFSIZE: 4194304\n", ""],
    ),
    (
        "nccl-tuner-open",
        ["NCCL_ALGO: Ring\n", ""],
        ["NCCL_TUNER_PLUGIN: \"\"\n", ""],
    ),
    (
        "nccl-tuner-plugin",
        ["NCCL_TUNER_PLUGIN: libnccl-tuner.so\n", ""],
        ["NCCL_TUNER_PLUGIN: \"\"\n", ""],
    ),
    (
        "nvls-tree-left-on",
        ["NCCL_ALGO: ^NVLS\n", ""],
        ["NCCL_ALGO: ^NVLS,NVLSTree\n", ""],
    ),
    (
        "nvls-tree-left-on",
        ["NCCL_ALGO: \"ring;allreduce:^nvls\"\n", ""],
        ["NCCL_ALGO: \"ring;broadcast:^nvls\"\n", ""],
    ),
    (
        "nvls-open",
        ["NCCL_ALGO: ^Tree\n", ""],
        ["NCCL_ALGO: \"^NVLS,nvlstree\"\n", ""],
    ),
    (
        "nccl-function-without-algorithm",
        ["NCCL_ALGO: Tree\n", ""],
        ["NCCL_ALGO: Ring;AllReduce:Tree\n", ""],
    ),
    (
        "nvls-open",
        ["CUDA_DEVICE_MAX_CONNECTIONS: 1\n", ""],
        ["NCCL_NVLS_ENABLE: 0\n", ""],
    ),
    (
        "nvls-open",
        ["NCCL_ALGO: NVLS\n", ""],
        ["NCCL_ALGO: Ring\n", ""],
    ),
    (
        "collnet-on",
        ["NCCL_COLLNET_ENABLE: 1\n", ""],
        ["NCCL_COLLNET_ENABLE: 0\n", ""],
    ),
    (
        "collnet-on",
        ["NCCL_ALGO: CollnetDirect\n", ""],
        ["NCCL_ALGO: Ring\n", ""],
    ),
    ("collnet-on", ["", "--use-sharp: true\n"], ["", ""]),
    (
        "rank-map-open",
        ["NCCL_ALGO: Ring\n", ""],
        ["WORLD_SIZE: 2\n", ""],
    ),
    (
        "set-inside-the-process",
        ["NCCL_ALGO: Ring\n", DET],
        [PINNED, DET],
    ),
    ("record-streams", ["NCCL_ALGO: Ring\n", ""], [PINNED, ""]),
    (
        "half-deterministic",
        ["NVTE_ALLOW_NONDETERMINISTIC_ALGO: 0\n", ""],
        ["NVTE_ALLOW_NONDETERMINISTIC_ALGO: 0\n", DET],
    ),
    ("embedding-arrival", [PINNED, ""], [PINNED, DET]),
    ("attention-arrival", ["NCCL_ALGO: Ring\n", ""], [PINNED, ""]),
    (
        "attention-arrival",
        ["NCCL_ALGO: Ring\n", "--attention-backend: flash\n"],
        ["NCCL_ALGO: Ring\n", "--attention-backend: unfused\n"],
    ),
    (
        "cublas-workspace-open",
        ["NCCL_ALGO: Ring\n", ""],
        ["NCCL_ALGO: Ring\n", DET],
    ),
    (
        "causal-conv1d-version",
        [
            "",
            "--deterministic-mode: true\n--hybrid-layer-pattern: M-M*\n",
        ],
        ["", "--hybrid-layer-pattern: M-M*\n"],
    ),
    (
        "grouped-gemm-accumulation",
        ["", "--num-experts: 8\n--moe-grouped-gemm: true\n"],
        [
            "",
            "--num-experts: 8\n--moe-grouped-gemm: true\n--no-gradient-accumulation-fusion: true\n",
        ],
    ),
    (
        "gated-delta-net-packed",
        [
            "",
            "--deterministic-mode: true\n--experimental-attention-variant: gdn\n--sft: true\n",
        ],
        [
            "",
            "--deterministic-mode: true\n--experimental-attention-variant: gdn\n",
        ],
    ),
    (
        "expert-combine-arrival",
        ["", "--num-experts: 8\n"],
        ["", "--num-experts: 8\n--deterministic-mode: true\n"],
    ),
    (
        "mamba-arrival",
        ["", "--hybrid-layer-pattern: M-M*\n"],
        [
            "",
            "--deterministic-mode: true\n--hybrid-layer-pattern: M-M*\n",
        ],
    ),
    (
        "cublas-workspace-open",
        ["CUBLAS_WORKSPACE_CONFIG: :0:0\n", ""],
        ["CUBLAS_WORKSPACE_CONFIG: :16:8\n", ""],
    ),
    (
        "nccl-channels-open",
        ["NCCL_MIN_NCHANNELS: 8\nNCCL_MAX_NCHANNELS: 4\n", ""],
        ["NCCL_MIN_NCHANNELS: 8\nNCCL_MAX_NCHANNELS: 8\n", ""],
    ),
    (
        "attention-backend-variables",
        ["NVTE_FLASH_ATTN: 0\n", ""],
        ["NVTE_FLASH_ATTN: 1\n", ""],
    ),
    (
        "attention-backend-variables",
        ["NVTE_FUSED_ATTN: 1\n", "--attention-backend: flash\n"],
        [
            "NVTE_FLASH_ATTN: 1\nNVTE_FUSED_ATTN: 0\n",
            "--attention-backend: flash\n",
        ],
    ),
    (
        "query-key-scaling-variable",
        ["NVTE_APPLY_QK_LAYER_SCALING: 1\n", ""],
        [
            "NVTE_APPLY_QK_LAYER_SCALING: 1\n",
            "--apply-query-key-layer-scaling: true\n",
        ],
    ),
    (
        "query-key-scaling-variable",
        ["", "--apply-query-key-layer-scaling: true\n"],
        [
            "",
            "--apply-query-key-layer-scaling: true\n--transformer-impl: local\n",
        ],
    ),
    (
        "said-twice",
        ["", "--encoder-seq-length: 64\n"],
        ["", "--decoder-seq-length: 64\n"],
    ),
    (
        "gather-with-optimizer-step",
        [
            "",
            "--overlap-param-gather-with-optimizer-step: true\n--overlap-param-gather: true\n\
            --overlap-grad-reduce: true\n--use-distributed-optimizer: true\n",
        ],
        [
            "",
            "--overlap-param-gather-with-optimizer-step: true\n--overlap-param-gather: true\n\
            --overlap-grad-reduce: true\n--use-distributed-optimizer: true\n\
            --pipeline-model-parallel-size: 2\n--num-virtual-stages-per-pipeline-rank: 2\n",
        ],
    ),
    (
        "experts-without-sequence-parallel",
        ["", "--num-experts: 8\n--tensor-model-parallel-size: 2\n"],
        [
            "",
            "--num-experts: 8\n--tensor-model-parallel-size: 2\n--sequence-parallel: true\n",
        ],
    ),
    (
        "cuda-graph-allocator",
        [
            "PYTORCH_CUDA_ALLOC_CONF: expandable_segments:True\n",
            "--cuda-graph-impl: local\n",
        ],
        [
            "PYTORCH_CUDA_ALLOC_CONF: expandable_segments:True\nNCCL_GRAPH_REGISTER: 0\n",
            "--cuda-graph-impl: local\n",
        ],
    ),
    (
        "several-data-sources",
        ["", "--mock-data: true\n--data-path: /a\n"],
        ["", "--data-path: /a\n"],
    ),
    (
        "param-gather-alone",
        ["", "--overlap-param-gather: true\n"],
        [
            "",
            "--overlap-param-gather: true\n--overlap-grad-reduce: true\n\
            --use-distributed-optimizer: true\n",
        ],
    ),
    (
        "interleaving-too-short",
        [
            "",
            "--pipeline-model-parallel-size: 2\n--num-virtual-stages-per-pipeline-rank: 2\n\
            --no-overlap-p2p-communication: true\n",
        ],
        [
            "",
            "--pipeline-model-parallel-size: 2\n--num-virtual-stages-per-pipeline-rank: 2\n",
        ],
    ),
    (
        "several-virtual-stages",
        [
            "",
            "--pipeline-model-parallel-size: 2\n--num-virtual-stages-per-pipeline-rank: 2\n\
            --num-layers-per-virtual-pipeline-stage: 1\n",
        ],
        [
            "",
            "--pipeline-model-parallel-size: 2\n--num-virtual-stages-per-pipeline-rank: 2\n",
        ],
    ),
    (
        "learning-rate-order",
        ["", "--min-lr: 1\n"],
        ["", "--min-lr: 1e-4\n"],
    ),
    (
        "save-without-interval",
        ["", "--save: /a\n"],
        ["", "--save: /a\n--save-interval: 5\n"],
    ),
    (
        "retain-interval",
        ["", "--save-interval: 5\n--save-retain-interval: 7\n"],
        ["", "--save-interval: 5\n--save-retain-interval: 10\n"],
    ),
    (
        "selective-recompute",
        [
            "",
            "--recompute-granularity: selective\n--recompute-num-layers: 1\n",
        ],
        ["", "--recompute-granularity: selective\n"],
    ),
    (
        "tp-overlap-without-sequence-parallel",
        [
            "",
            "--tensor-model-parallel-size: 2\n--tp-comm-overlap: true\n",
        ],
        [
            "",
            "--tensor-model-parallel-size: 2\n--tp-comm-overlap: true\n--sequence-parallel: true\n",
        ],
    ),
    (
        "local-attention-needs-local-spec",
        ["", "--attention-backend: local\n"],
        ["", "--attention-backend: local\n--spec: local\n"],
    ),
    (
        "grouped-queries-with-latent-attention",
        [
            "",
            "--multi-latent-attention: true\n--group-query-attention: true\n",
        ],
        ["", "--multi-latent-attention: true\n"],
    ),
    (
        "experts-do-not-divide",
        ["", "--expert-model-parallel-size: 4\n--num-experts: 6\n"],
        ["", "--expert-model-parallel-size: 4\n--num-experts: 8\n"],
    ),
    (
        "experts-do-not-divide",
        ["", "--expert-model-parallel-size: 4\n"],
        ["", ""],
    ),
    ("two-formats", ["", "--fp16: true\n"], ["", ""]),
    (
        "te-cross-entropy",
        [
            "",
            "--cross-entropy-loss-fusion: true\n--cross-entropy-fusion-impl: te\n",
        ],
        [
            "",
            "--cross-entropy-loss-fusion: true\n--cross-entropy-fusion-impl: native\n",
        ],
    ),
    (
        "one-connection-needed",
        ["", TP2],
        ["CUDA_DEVICE_MAX_CONNECTIONS: 1\n", TP2],
    ),
    (
        "one-connection-needed",
        ["CUDA_DEVICE_MAX_CONNECTIONS: 32\n", TP2],
        ["CUDA_DEVICE_MAX_CONNECTIONS: 32\n", ""],
    ),
    (
        "one-connection-with-fsdp",
        ["CUDA_DEVICE_MAX_CONNECTIONS: 1\n", FSDP],
        ["", FSDP],
    ),
    (
        "fsdp-checkpoint",
        ["", "--use-megatron-fsdp: true\n"],
        ["", FSDP],
    ),
    (
        "integrity-format",
        ["", "--verify-integrity: true\n--ckpt-format: torch\n"],
        ["", "--verify-integrity: true\n"],
    ),
    (
        "fp8-gather-unsharded",
        ["", "--fp8-param-gather: true\n"],
        [
            "",
            "--fp8-param-gather: true\n--use-distributed-optimizer: true\n",
        ],
    ),
    (
        "async-save-dropped",
        ["", "--async-save: true\n"],
        [
            "",
            "--async-save: true\n--use-persistent-ckpt-worker: true\n",
        ],
    ),
    (
        "memory-log-interval",
        ["", "--log-interval: 10\n--log-memory-interval: 15\n"],
        ["", "--log-interval: 10\n--log-memory-interval: 20\n"],
    ),
    (
        "tolerant-test",
        ["NON_DETERMINSTIC_RESULTS: 1\n", DET],
        ["NON_DETERMINSTIC_RESULTS: 1\n", ""],
    ),
    (
        "deterministic-mode",
        ["NCCL_ALGO: Tree\n", ""],
        ["NCCL_ALGO: Ring,CollnetChain\n", ""],
    ),
];

#[test]
fn every_rule_fires_on_what_breaks_it_and_not_beside_it() {
    let mut tried = BTreeSet::new();
    for (rule, broken, sound) in PAIRS {
        let fired = codes("a", broken[0], broken[1], "");
        assert!(
            fired.contains(rule),
            "{rule} does not fire on {broken:?}: {fired:?}"
        );
        let fired = codes("a", sound[0], sound[1], "");
        assert!(!fired.contains(rule), "{rule} fires on {sound:?}");
        tried.insert(*rule);
    }
    for (rule, ..) in HARNESS_CASES {
        tried.insert(*rule);
    }
    tried.insert("environment-unknown");
    for rule in rules() {
        assert!(tried.contains(rule.id), "no test of {}", rule.id);
    }
}

/// Rules that look at the case: its name, the arguments and the rest of the file; broken, sound.
type Case = (&'static str, [&'static str; 3], [&'static str; 3]);

const RESUME: &str = "TEST_TYPE: ckpt-resume\n";
const SAVED: &str = "--save: /a\n--load: /a\n--save-interval: 5\n";

const HARNESS_CASES: &[Case] = &[
    (
        "resume-without-checkpoint",
        ["a", "", RESUME],
        ["a", SAVED, RESUME],
    ),
    (
        "resume-without-checkpoint",
        ["a", "--save: /a\n--load: /a\n--save-interval: 10\n", RESUME],
        ["a", SAVED, RESUME],
    ),
    (
        "resume-without-state",
        [
            "a",
            "--save: /a\n--load: /a\n--save-interval: 5\n--no-load-rng: true\n",
            RESUME,
        ],
        ["a", SAVED, RESUME],
    ),
    (
        "resume-not-tested",
        ["gpt_resume_dist", "", "TEST_TYPE: regular\n"],
        ["gpt_resume_dist", SAVED, RESUME],
    ),
    (
        "case-name",
        ["gpt_tp4_pp1", "", ""],
        ["gpt_tp1_pp1", "", ""],
    ),
    (
        "several-phases",
        ["a", "", "MODEL_ARGS_2:\n  --num-layers: 2\n"],
        ["a", "", ""],
    ),
];

#[test]
fn rules_about_the_test_fire_too() {
    for (rule, broken, sound) in HARNESS_CASES {
        let fired = codes(broken[0], "", broken[1], broken[2]);
        assert!(
            fired.contains(rule),
            "{rule} does not fire on {broken:?}: {fired:?}"
        );
        let fired = codes(sound[0], "", sound[1], sound[2]);
        assert!(!fired.contains(rule), "{rule} fires on {sound:?}");
    }
}

#[test]
fn a_broken_rule_of_deterministic_mode_is_an_error_where_the_mode_is_asked_for() {
    let severity = |args: &str, env: &str| {
        let found = findings("a", env, args, "");
        let of_mode = found
            .iter()
            .find(|finding| finding.code == "deterministic-mode");
        of_mode.map(|finding| finding.severity)
    };
    let fused = "--cross-entropy-loss-fusion: true\n";
    assert_eq!(severity(fused, ""), Some(Severity::Note));
    assert_eq!(
        severity(&format!("{DET}{fused}"), ""),
        Some(Severity::Error)
    );
    let pending = format!("{DET}--num-experts: 8\n--moe-router-fusion: true\n");
    assert_eq!(severity(&pending, ""), Some(Severity::Warning));
    let explicit = format!("{pending}--moe-router-aux-loss-fusion: false\n");
    assert_eq!(severity(&explicit, ""), None);
    for (env, broken) in [
        ("NVTE_ALLOW_NONDETERMINISTIC_ALGO: 1\n", true),
        ("NVTE_ALLOW_NONDETERMINISTIC_ALGO: 0\n", false),
        ("CUBLAS_WORKSPACE_CONFIG: :8:8\n", true),
        ("CUBLAS_WORKSPACE_CONFIG: :16:8\n", false),
        ("MAMBA_DETERMINISTIC: 0\n", true),
        ("MAMBA_DETERMINISTIC: 1\n", false),
        ("NCCL_ALGO: Ring,Tree\n", true),
        ("NCCL_ALGO: \"^NVLS\"\n", false),
        ("NCCL_ALGO: \",\"\n", true),
        ("TRITON_CACHE_AUTOTUNING: 1\n", true),
        (
            "TRITON_CACHE_AUTOTUNING: 1\nTRITON_CACHE_DIR: /shared\n",
            false,
        ),
        ("TRITON_CACHE_AUTOTUNING: 0\n", false),
    ] {
        assert_eq!(severity(DET, env).is_some(), broken, "{env}");
    }
}

#[test]
fn errors_stand_first_and_everything_has_a_place_a_reason_and_a_remedy() {
    let args = "--deterministic-mode: true\n--cross-entropy-loss-fusion: true\n--min-lr: 1\n";
    let found = findings("a", "NVTE_ALLOW_NONDETERMINISTIC_ALGO: 1\n", args, "");
    assert!(found.len() > 6);
    for pair in found.windows(2) {
        assert!(pair[0].severity >= pair[1].severity);
    }
    for finding in &found {
        assert!(finding.place.is_some() && !finding.notes.is_empty() && !finding.help.is_empty());
    }
}

#[test]
fn a_log_shows_no_environment_and_is_not_told_that_it_lacks_one() {
    let text = "------------------------ arguments ------------------------\n  \
        num_layers ...................................... 4\n  \
        deterministic_mode .............................. True\n\
        -------------------- end of arguments ---------------------\n";
    let source = Source::new("job.log", text);
    let mut told = Findings::default();
    let job = GivenJob::read(&source, Path::new("job.log"), &mut told).unwrap();
    let understood = understand(&job, &UnderstandOptions::default(), &mut told);
    let found = lint(&job, &understood);
    let codes: Vec<&str> = found.iter().map(|finding| finding.code).collect();
    assert!(codes.contains(&"environment-unknown"), "{codes:?}");
    for code in [
        "nccl-protocol-open",
        "set-inside-the-process",
        "record-streams",
        "nvls-open",
    ] {
        assert!(!codes.contains(&code), "{code}");
    }
    assert!(!self::codes("a", "", "", "").contains("environment-unknown"));
}
