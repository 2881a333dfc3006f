//! What is known of each environment variable of a job.

use super::Effect::{self, *};

/// A variable, or all that start alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// A name; with `*` at its end, the start of names.
    pub name: &'static str,
    pub effect: Effect,
}

const TRANSPORT: Effect = NoBits(
    "how bytes travel; the plan of a sum follows from algorithm, protocol, channels and chunks",
);
const LOG: Effect = NoBits("what is logged");
const HARNESS: Effect = NoBits("read by Megatron's test harness, not by Megatron");
const MEMORY: Effect =
    NoBits("where buffers lie; values follow only where uninitialised memory is read");
const SM: Effect =
    NoBits("how many SMs a kernel may take; norms' orders are determinism.norm_weight_grad");
const EXPERTS: Effect = NoBits(
    "read by the expert dispatcher (HybridEP, DeepEP), which this recipe's \
    layout decides on",
);
const PYTHON: Effect = NoBits("read by Python or its tools at start-up");

const fn var(name: &'static str, effect: Effect) -> Variable {
    Variable { name, effect }
}

/// Exact names first; of starts the longest wins.
const VARIABLES: &[Variable] = &[
    var("NCCL_ALGO", Used("the plans of collectives")),
    var("NCCL_PROTO", Used("the plans of collectives")),
    var("NCCL_BUFFSIZE", Used("the chunks of collectives")),
    var("NCCL_MIN_NCHANNELS", Used("the channels of collectives")),
    var("NCCL_MAX_NCHANNELS", Used("the channels of collectives")),
    var(
        "NCCL_MIN_CTAS",
        Needs("channel limits other than NCCL_MIN_NCHANNELS"),
    ),
    var(
        "NCCL_MAX_CTAS",
        Needs("channel limits other than NCCL_MAX_NCHANNELS"),
    ),
    var(
        "NCCL_NVLS_ENABLE",
        NoBits(
            "bitproof plans Ring, Tree and what NCCL_ALGO names; in-switch sums are not among them",
        ),
    ),
    var(
        "NCCL_COLLNET_ENABLE",
        NoBits("bitproof plans Ring, Tree and what NCCL_ALGO names; SHARP is not among them"),
    ),
    var(
        "NCCL_TUNER_PLUGIN",
        NoBits("a plugin's choices are not simulated; an empty name loads none"),
    ),
    var("NCCL_TOPO_FILE", NoBits("the topology is the scenario's")),
    var("NCCL_GRAPH_FILE", NoBits("rings are the topology's")),
    var(
        "NCCL_P2P_NET_CHUNKSIZE",
        NoBits("chunks of sends, which copy bytes"),
    ),
    var(
        "NCCL_P2P_NVL_CHUNKSIZE",
        NoBits("chunks of sends, which copy bytes"),
    ),
    var(
        "NCCL_P2P_PCI_CHUNKSIZE",
        NoBits("chunks of sends, which copy bytes"),
    ),
    var("NCCL_GRAPH_REGISTER", MEMORY),
    var("NCCL_CUMEM_ENABLE", MEMORY),
    var("NCCL_CUMEM_HOST_ENABLE", MEMORY),
    var("NCCL_LOCAL_REGISTER", MEMORY),
    var("NCCL_IB_*", TRANSPORT),
    var("NCCL_NET*", TRANSPORT),
    var("NCCL_SOCKET_*", TRANSPORT),
    var("NCCL_SHM_*", TRANSPORT),
    var("NCCL_P2P_*", TRANSPORT),
    var("NCCL_CROSS_NIC", TRANSPORT),
    var("NCCL_MNNVL_ENABLE", TRANSPORT),
    var("NCCL_DEBUG*", LOG),
    var("NCCL_LAUNCH_MODE", NoBits("how kernels are launched")),
    var("NCCL_CTA_POLICY", NoBits("SMs of a kernel")),
    var(
        "NVTE_ALLOW_NONDETERMINISTIC_ALGO",
        Used("determinism.attention_backward"),
    ),
    var("NVTE_FWD_LAYERNORM_SM_MARGIN", SM),
    var("NVTE_BWD_LAYERNORM_SM_MARGIN", SM),
    var("NVTE_NORM_FWD_USE_CUDNN", SM),
    var("NVTE_NORM_BWD_USE_CUDNN", SM),
    var("NVTE_FLASH_ATTN", Used("determinism.attention_backward")),
    var("NVTE_FUSED_ATTN", Used("determinism.attention_backward")),
    var("NVTE_UNFUSED_ATTN", Used("determinism.attention_backward")),
    var(
        "NVTE_APPLY_QK_LAYER_SCALING",
        NoBits("read with --apply-query-key-layer-scaling, which is judged itself"),
    ),
    var(
        "NVTE_CPU_OFFLOAD_V1",
        NoBits("read with activation offloading, which is judged itself"),
    ),
    var("NVTE_CUTEDSL_FUSED_GROUPED_MLP", EXPERTS),
    var("NVTE_DEBUG*", LOG),
    var(
        "NVTE_TORCH_COMPILE",
        NoBits("elementwise operations, fused or one by one"),
    ),
    var(
        "NVTE_BATCH_MHA_P2P_COMM",
        NoBits("read by context parallelism, which is judged itself"),
    ),
    var(
        "NVTE_FLASH_ATTN_VERSION",
        NoBits("which flash kernel; its order is determinism.attention_backward"),
    ),
    var("CUBLAS_WORKSPACE_CONFIG", Used("determinism.wgrad_split_k")),
    var(
        "CUBLASLT_WORKSPACE_SIZE",
        NoBits(
            "how large a workspace; which GEMM runs is \
        determinism.wgrad_split_k",
        ),
    ),
    var(
        "CUDA_DEVICE_MAX_CONNECTIONS",
        NoBits(
            "hardware queues: in which order independent kernels start; hazards between streams are \
         not checked",
        ),
    ),
    var(
        "CUDA_VISIBLE_DEVICES",
        NoBits("which GPUs; the placement is the scenario's"),
    ),
    var(
        "CUDA_LAUNCH_BLOCKING",
        NoBits("the host waits for each kernel"),
    ),
    var("CUDA_MODULE_LOADING", NoBits("when kernels are loaded")),
    var(
        "CUDA_GRAPHS_USE_NODE_PRIORITY",
        NoBits("priorities in CUDA graphs"),
    ),
    var("TORCH_NCCL_AVOID_RECORD_STREAMS", MEMORY),
    var(
        "TORCH_NCCL_HIGH_PRIORITY",
        NoBits("priority of NCCL's streams: when, not what"),
    ),
    var(
        "TORCH_NCCL_*",
        NoBits("how PyTorch watches NCCL: timeouts, traces, errors"),
    ),
    var("TORCH_DISTRIBUTED_DEBUG", LOG),
    var("TORCH_CPP_LOG_LEVEL", LOG),
    var(
        "TORCHINDUCTOR_WORKER_START",
        NoBits("how compiler processes start"),
    ),
    var(
        "TORCH_COMPILE_DISABLE",
        NoBits("elementwise operations, fused or one by one"),
    ),
    var(
        "TORCHDYNAMO_DISABLE",
        NoBits("elementwise operations, fused or one by one"),
    ),
    var("TORCH_SHOW_CPP_STACKTRACES", LOG),
    var("PYTORCH_CUDA_ALLOC_CONF", MEMORY),
    var("PYTORCH_ALLOC_CONF", MEMORY),
    var("PYTORCH_NO_CUDA_MEMORY_CACHING", MEMORY),
    var(
        "MAMBA_DETERMINISTIC",
        NoBits("read by Mamba layers, which are judged themselves"),
    ),
    var(
        "CAUSAL_CONV1D_DETERMINISTIC",
        NoBits("read by Mamba layers, which are judged themselves"),
    ),
    var(
        "TRITON_CACHE_AUTOTUNING",
        NoBits("read by Triton kernels, of which a dense GPT has none"),
    ),
    var(
        "TRITON_CACHE_DIR",
        NoBits("read by Triton kernels, of which a dense GPT has none"),
    ),
    var("NUM_OF_HYBRID_EP_RANKS_PER_NVLINK_DOMAIN", EXPERTS),
    var("NUM_OF_TOKENS_PER_CHUNK_COMBINE_API", EXPERTS),
    var("NVLINK_DOMAIN_SIZE", EXPERTS),
    var("USE_MNNVL", EXPERTS),
    var("NVSHMEM_*", EXPERTS),
    var(
        "QUANTIZATION_TYPE_DEBUG",
        NoBits("read where a module is quantized, which is judged itself"),
    ),
    var(
        "OMP_NUM_THREADS",
        NoBits("threads of the host; sums are made on the device"),
    ),
    var(
        "MKL_NUM_THREADS",
        NoBits("threads of the host; sums are made on the device"),
    ),
    var("PYTHONWARNINGS", PYTHON),
    var("PYTHONPATH", PYTHON),
    var("PYTHONUNBUFFERED", PYTHON),
    var("PYTHONHASHSEED", PYTHON),
    var("PYTHONDONTWRITEBYTECODE", PYTHON),
    var("TOKENIZERS_PARALLELISM", PYTHON),
    var("HF_*", PYTHON),
    var("TRANSFORMERS_OFFLINE", PYTHON),
    var("WANDB_*", LOG),
    var("ONE_LOGGER_JOB_CATEGORY", LOG),
    var("MEGATRON_OTEL_*", LOG),
    var("OTEL_*", LOG),
    var("MEGATRON_LOGGING_LEVEL", LOG),
    var("LOGLEVEL", LOG),
    var("SKIP_PYTEST", HARNESS),
    var("NON_DETERMINSTIC_RESULTS", HARNESS),
    var("NON_DETERMINISTIC_RESULTS", HARNESS),
    var("REPEAT", HARNESS),
    var("N_REPEAT", HARNESS),
    var("ENABLE_LIGHTWEIGHT_MODE", HARNESS),
    var("RECORD_CHECKPOINTS", HARNESS),
    var("TRAINING_EXIT_CODE", HARNESS),
    var("GPUS_PER_NODE", Used("the number of ranks")),
    var("NNODES", Used("the number of ranks")),
    var("NUM_NODES", Used("the number of ranks")),
    var("WORLD_SIZE", Used("the number of ranks")),
    var("MASTER_ADDR", NoBits("where processes meet")),
    var("MASTER_PORT", NoBits("where processes meet")),
    var(
        "UB_*",
        NoBits("read by overlapped tensor parallelism, which is judged itself"),
    ),
    var("GLOO_*", TRANSPORT),
    var("UCX_*", TRANSPORT),
    var(
        "LD_LIBRARY_PATH",
        NoBits("which build of a library is loaded: the certificate's assumption"),
    ),
];

/// What is known of the variable `name`.
pub fn variable(name: &str) -> Option<&'static Variable> {
    let exact = VARIABLES.iter().find(|variable| variable.name == name);
    exact.or_else(|| {
        let starts = VARIABLES.iter().filter(|variable| {
            variable
                .name
                .strip_suffix('*')
                .is_some_and(|start| name.starts_with(start))
        });
        starts.max_by_key(|variable| variable.name.len())
    })
}

/// Every name, for a suggestion; starts of names left out.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    VARIABLES
        .iter()
        .map(|variable| variable.name)
        .filter(|name| !name.ends_with('*'))
}
