//! What breaks each rule, and what is nearest and does not.

use super::PINNED;

/// A rule, what breaks it, and the nearest that does not: environment and arguments each.
pub(super) type Pair = (&'static str, [&'static str; 2], [&'static str; 2]);

pub(super) const DET: &str = "--deterministic-mode: true\n";
const TP2: &str = "--tensor-model-parallel-size: 2\n";
const FSDP: &str = "--use-megatron-fsdp: true\n--ckpt-format: fsdp_dtensor\n";

const OVERLAPPED_STEP: &str = "--overlap-param-gather-with-optimizer-step: true\n\
    --use-distributed-optimizer: true\n--overlap-param-gather: true\n\
    --overlap-grad-reduce: true\n--pipeline-model-parallel-size: 2\n";
const INTERLEAVED_STEP: &str = "--overlap-param-gather-with-optimizer-step: true\n\
    --use-distributed-optimizer: true\n--overlap-param-gather: true\n\
    --overlap-grad-reduce: true\n--pipeline-model-parallel-size: 2\n\
    --num-virtual-stages-per-pipeline-rank: 2\n--ckpt-format: torch\n";

const FULL: &str = "--tensor-model-parallel-size: 2\n--distribute-saved-activations: true\n\
    --recompute-granularity: full\n--recompute-num-layers: 1\n";
const FULL_BY_METHOD: &str = "--tensor-model-parallel-size: 2\n\
    --distribute-saved-activations: true\n--recompute-granularity: full\n\
    --recompute-num-layers: 1\n--recompute-method: uniform\n";
const NO_GLOO: &str = "--disable-gloo-process-groups: true\n\
    --use-distributed-optimizer: true\n--ckpt-format: torch\n";
const LOCAL: &str =
    "--non-persistent-ckpt-type: local\n--non-persistent-local-ckpt-dir: /a\n--replication: true\n";

pub(super) const PAIRS: &[Pair] = &[
    (
        "no-positions",
        ["", "--no-position-embedding: true\n"],
        [
            "",
            "--no-position-embedding: true\n--position-embedding-type: rope\n",
        ],
    ),
    (
        "distributed-activations",
        ["", "--distribute-saved-activations: true\n"],
        ["", FULL_BY_METHOD],
    ),
    ("distributed-activations", ["", FULL], ["", FULL_BY_METHOD]),
    (
        "distributed-activations",
        [
            "",
            "--tensor-model-parallel-size: 2\n--distribute-saved-activations: true\n",
        ],
        ["", ""],
    ),
    (
        "weight-decay-ends",
        ["", "--start-weight-decay: 0.1\n"],
        ["", "--weight-decay: 0.1\n"],
    ),
    (
        "weight-decay-ends",
        [
            "",
            "--weight-decay-incr-style: linear\n--start-weight-decay: 0.1\n",
        ],
        [
            "",
            "--weight-decay-incr-style: linear\n--start-weight-decay: 0.1\n\
             --end-weight-decay: 0.1\n",
        ],
    ),
    (
        "main-params-with-optimizer",
        ["", "--load-main-params-from-ckpt: true\n"],
        [
            "",
            "--load-main-params-from-ckpt: true\n--no-load-optim: true\n",
        ],
    ),
    (
        "dcp-without-fsdp2",
        ["", "--ckpt-format: torch_dcp\n"],
        ["", "--ckpt-format: torch_dcp\n--use-torch-fsdp2: true\n"],
    ),
    (
        "legacy-checkpoint-without-gloo",
        ["", NO_GLOO],
        [
            "",
            "--disable-gloo-process-groups: true\n--use-distributed-optimizer: true\n",
        ],
    ),
    (
        "local-checkpoint-without-folder",
        ["", "--non-persistent-ckpt-type: local\n"],
        ["", LOCAL],
    ),
    (
        "replication-incomplete",
        ["", LOCAL],
        ["", "--replication-jump: 2\n"],
    ),
    (
        "replication-incomplete",
        ["", "--replication: true\n--replication-jump: 2\n"],
        ["", ""],
    ),
    (
        "no-dataset-builders",
        ["", "--num-dataset-builder-threads: 0\n"],
        ["", "--num-dataset-builder-threads: 1\n"],
    ),
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
        ["NCCL_TUNER_PLUGIN: none\n", ""],
    ),
    (
        "nccl-tuner-open",
        ["NCCL_TUNER_PLUGIN: \"\"\n", ""],
        ["NCCL_TUNER_PLUGIN: None\n", ""],
    ),
    (
        "nccl-tuner-plugin",
        ["NCCL_TUNER_PLUGIN: libnccl-tuner.so\n", ""],
        ["NCCL_TUNER_PLUGIN: NONE\n", ""],
    ),
    (
        "nccl-tuner-plugin",
        ["NCCL_TUNER_PLUGIN: none-of-these\n", ""],
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
        ["GPUS_PER_NODE: 2\n", ""],
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
    (
        "attention-arrival",
        ["NCCL_ALGO: Ring\n", "--bf16: true\n"],
        [PINNED, "--bf16: true\n"],
    ),
    (
        "attention-arrival",
        ["NCCL_ALGO: Ring\n", ""],
        ["NCCL_ALGO: Ring\n", "--bf16: false\n"],
    ),
    (
        "attention-arrival",
        [
            "NCCL_ALGO: Ring\n",
            "--bf16: true\n--attention-backend: flash\n",
        ],
        [
            "NCCL_ALGO: Ring\n",
            "--bf16: true\n--attention-backend: unfused\n",
        ],
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
        "bf16-gradient-sums",
        ["", "--grad-reduce-in-bf16: true\n"],
        [
            "",
            "--grad-reduce-in-bf16: true\n--use-distributed-optimizer: true\n\
            --ddp-reduce-scatter-with-fp32-accumulation: true\n",
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
        [
            "",
            "--save: /a\n--save-interval: 5\n--save-retain-interval: 7\n",
        ],
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
        "async-save-legacy",
        [
            "",
            "--async-save: true\n--ckpt-format: torch\n--save: x\n--save-interval: 5\n",
        ],
        ["", "--async-save: true\n--ckpt-format: torch\n"],
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
