//! What is known of each environment variable of a job.

use super::Effect::{self, *};

/// A variable, or all that start alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// A name; with `*` at its end, the start of names.
    pub name: &'static str,
    pub effect: Effect,
    /// Values at which nothing follows from it, beside the empty one.
    pub inert: &'static [&'static str],
}

impl Variable {
    /// Whether nothing follows from it at `value`.
    pub fn is_inert(&self, value: &str) -> bool {
        let value = value.trim();
        let is_named = |inert: &&str| inert.eq_ignore_ascii_case(value);
        value.is_empty() || self.inert.iter().any(is_named)
    }

    /// What bits follow from it that are not simulated, at `value`.
    pub fn open(&self, value: &str) -> Option<&'static str> {
        match self.effect {
            Open(what) if !self.is_inert(value) => Some(what),
            _ => None,
        }
    }
}

const TRANSPORT: Effect = NoBits(
    "how bytes travel; the plan of a sum follows from algorithm, protocol, channels and chunks",
);
const GRAPH: Effect = Open(
    "which links, NICs and nodes NCCL sees, and with them its rings, trees and channels; \
     bitproof's are the scenario's topology's",
);
const CHOICE: Effect =
    Open("which algorithm or protocol NCCL chooses where NCCL_ALGO and NCCL_PROTO leave several");
const CHANNELS: Effect = Open("how many channels cut a buffer; bitproof's follow NCCL's defaults");
const CHUNKS: Effect = Open("chunks of other protocols; bitproof's follow NCCL's defaults");
const REGISTERED: Effect =
    Open("whether buffers are registered: NCCL may then take other kernels and channels for them");
const SWITCH: Effect = Open("whether NCCL may sum in switches, whose order is not simulated; 0 is");
const SETTINGS: Effect = Open("a file may set any NCCL variable, and is not read");
const LOG: Effect = NoBits("what is logged");
const HARNESS: Effect = NoBits("read by Megatron's test harness, not by Megatron");
const MEMORY: Effect =
    NoBits("where buffers lie; values follow only where uninitialised memory is read");
const NORM_SM: Effect = Open(
    "on how many SMs a norm runs, and so into how many blocks of rows its weight's gradient is \
     cut (Transformer Engine's layer_norm kernels); bitproof cuts it its own way",
);
const NORM_KERNEL: Effect = Open(
    "whose kernel normalises, cuDNN's or Transformer Engine's (common/normalization): they sum a \
     row and a weight's gradient in orders of their own, bitproof in one",
);
const ATTENTION_KERNEL: Effect = Open(
    "which attention kernel runs, and into which blocks it cuts keys; that its order is fixed or \
     free is determinism.attention_backward",
);
const GEMM: Effect =
    Open("which matrix product cuBLAS picks, and how it splits it; bitproof's split is its own");
const COMPILED: Effect = Open(
    "whether operations are compiled into one kernel, which may round once where several round \
     twice",
);
const DEVICES: Effect =
    Open("which GPU a rank gets, and so its place in a ring; bitproof's is the placement's");
const BUILD: Effect = Open("which build of a library is loaded; bitproof's kernels are its own");
const EXPERTS: Effect = NoBits(
    "read by the expert dispatcher (HybridEP, DeepEP), which this recipe's \
    layout decides on",
);
const PYTHON: Effect = NoBits("read by Python or its tools at start-up");

const fn var(name: &'static str, effect: Effect) -> Variable {
    Variable {
        name,
        effect,
        inert: &[],
    }
}

/// A variable that says nothing at the values `inert`.
const fn but(inert: &'static [&'static str], name: &'static str, effect: Effect) -> Variable {
    Variable {
        name,
        effect,
        inert,
    }
}

/// Exact names first; of starts the longest wins.
fn variables() -> impl Iterator<Item = &'static Variable> {
    [NCCL, LIBRARIES, OTHERS].into_iter().flatten()
}

/// NCCL's own (NCCL documentation, environment variables; `NCCL_PARAM` in its source).
const NCCL: &[Variable] = &[
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
        "NCCL_MIN_NRINGS",
        Needs("channel limits other than NCCL_MIN_NCHANNELS"),
    ),
    var(
        "NCCL_MAX_NRINGS",
        Needs("channel limits other than NCCL_MAX_NCHANNELS"),
    ),
    but(&["0"], "NCCL_NVLS_ENABLE", SWITCH),
    but(&["0"], "NCCL_COLLNET_ENABLE", SWITCH),
    but(
        &["none"],
        "NCCL_TUNER_PLUGIN",
        Open("a plugin chooses algorithm, protocol and channels, whatever NCCL_ALGO says"),
    ),
    var(
        "NCCL_TUNER_CONFIG_FILE",
        Open("what a tuner plugin chooses"),
    ),
    var("NCCL_CONF_FILE", SETTINGS),
    but(&["0"], "NCCL_WIN_ENABLE", REGISTERED),
    but(&["0"], "NCCL_GRAPH_REGISTER", REGISTERED),
    but(&["0"], "NCCL_LOCAL_REGISTER", REGISTERED),
    var("NCCL_SYM_*", REGISTERED),
    but(&["0"], "NCCL_CTA_POLICY", CHANNELS),
    var("NCCL_NTHREADS", CHANNELS),
    var("NCCL_LL128_NTHREADS", CHANNELS),
    var("NCCL_THREAD_THRESHOLDS", CHANNELS),
    var("NCCL_NCHANNELS_PER_NET_PEER", CHANNELS),
    var("NCCL_UNPACK_DOUBLE_NCHANNELS", CHANNELS),
    var("NCCL_LL_BUFFSIZE", CHUNKS),
    var("NCCL_LL128_BUFFSIZE", CHUNKS),
    var("NCCL_NVLS_*", SWITCH),
    var("NCCL_NVLSTREE_*", SWITCH),
    but(&["0"], "NCCL_PAT_ENABLE", CHOICE),
    var("NCCL_NET_OVERHEAD", CHOICE),
    var("NCCL_TOPO_FILE", GRAPH),
    var("NCCL_GRAPH_FILE", GRAPH),
    var("NCCL_CROSS_NIC", GRAPH),
    var("NCCL_MNNVL_*", GRAPH),
    var("NCCL_CUMEM_ENABLE", GRAPH),
    var("NCCL_HOSTID", GRAPH),
    var("NCCL_PXN_DISABLE", GRAPH),
    var("NCCL_NVB_DISABLE", GRAPH),
    var("NCCL_SHM_DISABLE", GRAPH),
    var("NCCL_P2P_DISABLE", GRAPH),
    var("NCCL_P2P_LEVEL", GRAPH),
    var("NCCL_NET*", GRAPH),
    var("NCCL_IB_*", GRAPH),
    var("NCCL_SOCKET_IFNAME", GRAPH),
    but(
        &["1"],
        "NCCL_RUNTIME_CONNECT",
        Open("when connections are made: sums in switches follow from it (NVIDIA/nccl#2360)"),
    ),
    var("NCCL_IB_TIMEOUT", TRANSPORT),
    var("NCCL_IB_RETRY_CNT", TRANSPORT),
    var("NCCL_IB_GID_INDEX", TRANSPORT),
    var("NCCL_IB_SL", TRANSPORT),
    var("NCCL_IB_TC", TRANSPORT),
    var("NCCL_IB_FIFO_TC", TRANSPORT),
    var("NCCL_IB_PKEY", TRANSPORT),
    var("NCCL_IB_ADAPTIVE_ROUTING", TRANSPORT),
    var("NCCL_IB_AR_THRESHOLD", TRANSPORT),
    var("NCCL_IB_QPS_PER_CONNECTION", TRANSPORT),
    var("NCCL_IB_SPLIT_DATA_ON_QPS", TRANSPORT),
    var("NCCL_IB_PCI_RELAXED_ORDERING", TRANSPORT),
    var("NCCL_IB_ROCE_VERSION_NUM", TRANSPORT),
    var("NCCL_IB_USE_INLINE", TRANSPORT),
    var("NCCL_IB_ECE_ENABLE", TRANSPORT),
    var("NCCL_IB_RETURN_ASYNC_EVENTS", TRANSPORT),
    var("NCCL_SOCKET_*", TRANSPORT),
    var("NCCL_SHM_*", TRANSPORT),
    var("NCCL_P2P_*", TRANSPORT),
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
    var("NCCL_CUMEM_HOST_ENABLE", MEMORY),
    // Without it and without nv_peermem no GPU is reached directly, and paths are others (topo.cc).
    var("NCCL_DMABUF_ENABLE", GRAPH),
    // A child's channels are then at most its parent's (connect.cc).
    var("NCCL_COMM_SPLIT_SHARE_RESOURCES", CHANNELS),
    var("NCCL_COMM_SHRINK_SHARE_RESOURCES", CHANNELS),
    var("NCCL_OOB_NET_*", TRANSPORT),
    var("NCCL_DEBUG*", LOG),
    var("NCCL_RAS_*", LOG),
    var("NCCL_PROFILER_*", LOG),
    var("NCCL_TOPO_DUMP_FILE*", LOG),
    var("NCCL_GRAPH_DUMP_FILE*", LOG),
    var("NCCL_CHECK*", NoBits("which pointers are checked")),
    var("NCCL_COMM_*", NoBits("how and when a communicator is made")),
    var(
        "NCCL_ASYNC_ERROR_HANDLING",
        NoBits("what PyTorch does when a call fails"),
    ),
    var(
        "NCCL_BLOCKING_WAIT",
        NoBits("whether the host waits for a call"),
    ),
    var("NCCL_LAUNCH_MODE", NoBits("how kernels are launched")),
    var("NCCL_SET_STACK_SIZE", NoBits("memory of a kernel's stack")),
    var(
        "NCCL_IGNORE_CPU_AFFINITY",
        NoBits("on which cores NCCL's threads run"),
    ),
];

/// Transformer Engine's, cuBLAS's, CUDA's and PyTorch's.
const LIBRARIES: &[Variable] = &[
    var(
        "NVTE_ALLOW_NONDETERMINISTIC_ALGO",
        Used("determinism.attention_backward"),
    ),
    var("NVTE_FWD_LAYERNORM_SM_MARGIN", NORM_SM),
    var("NVTE_BWD_LAYERNORM_SM_MARGIN", NORM_SM),
    but(&["0"], "NVTE_NORM_FWD_USE_CUDNN", NORM_KERNEL),
    but(&["0"], "NVTE_NORM_BWD_USE_CUDNN", NORM_KERNEL),
    var("NVTE_FLASH_ATTN", Used("determinism.attention_backward")),
    var("NVTE_FUSED_ATTN", Used("determinism.attention_backward")),
    var(
        "NVTE_UNFUSED_ATTN",
        NoBits(
            "whether Transformer Engine may fall back to unfused attention: Megatron refuses a \
             value that is not --attention-backend's",
        ),
    ),
    var("NVTE_FUSED_ATTN_*", ATTENTION_KERNEL),
    var("NVTE_FLASH_ATTN_VERSION", ATTENTION_KERNEL),
    var("NVTE_FLASH_ATTN_V3", ATTENTION_KERNEL),
    var(
        "NVTE_APPLY_QK_LAYER_SCALING",
        NoBits("read with --apply-query-key-layer-scaling, which is judged itself"),
    ),
    var(
        "NVTE_ZERO_CENTERED_GAMMA_IN_WTYPE",
        NoBits("read with --apply-layernorm-1p, which is judged itself"),
    ),
    but(
        &["0"],
        "NVTE_CPU_OFFLOAD_V1",
        Open("when the older offloading of activations copies; bitproof's is the newer one's"),
    ),
    var("NVTE_CUTEDSL_FUSED_GROUPED_MLP", EXPERTS),
    var("NVTE_DEBUG*", LOG),
    but(&["1"], "NVTE_TORCH_COMPILE", COMPILED),
    but(&["1"], "NVTE_BIAS_GELU_NVFUSION", COMPILED),
    var(
        "NVTE_BATCH_MHA_P2P_COMM",
        NoBits("read by context parallelism, which is judged itself"),
    ),
    var("CUBLAS_WORKSPACE_CONFIG", Used("determinism.wgrad_split_k")),
    var("CUBLASLT_WORKSPACE_SIZE", GEMM),
    var("CUBLASLT_LOG*", LOG),
    var("CUBLAS_LOG*", LOG),
    var("CUDNN_LOG*", LOG),
    var("NVIDIA_TF32_OVERRIDE", GEMM),
    var("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", GEMM),
    var("TORCH_BLAS_PREFER_CUBLASLT", GEMM),
    var("DISABLE_ADDMM_CUDA_LT", GEMM),
    var(
        "CUDA_DEVICE_MAX_CONNECTIONS",
        NoBits(
            "hardware queues: in which order independent kernels start; what waits for what is \
             checked for any order",
        ),
    ),
    but(
        &["0", "0,1", "0,1,2,3", "0,1,2,3,4,5,6,7"],
        "CUDA_VISIBLE_DEVICES",
        DEVICES,
    ),
    var("CUDA_DEVICE_ORDER", DEVICES),
    but(&["all"], "NVIDIA_VISIBLE_DEVICES", DEVICES),
    var(
        "NVIDIA_DRIVER_CAPABILITIES",
        NoBits("what a container sees of the driver"),
    ),
    var("CUDA_HOME", BUILD),
    var("CUDA_PATH", BUILD),
    var("TORCH_CUDA_ARCH_LIST", BUILD),
    var("TORCH_HOME", NoBits("where downloads are kept")),
    var(
        "TORCH_EXTENSIONS_DIR",
        NoBits("where compiled extensions are kept"),
    ),
    var(
        "CUDA_LAUNCH_BLOCKING",
        NoBits("the host waits for each kernel"),
    ),
    var("CUDA_MODULE_LOADING", NoBits("when kernels are loaded")),
    var("CUDA_CACHE_*", NoBits("where compiled kernels are kept")),
    but(&["0"], "CUDA_FORCE_PTX_JIT", BUILD),
    var(
        "CUDA_GRAPHS_USE_NODE_PRIORITY",
        NoBits("priorities in CUDA graphs"),
    ),
    var("TORCH_NCCL_AVOID_RECORD_STREAMS", MEMORY),
    var(
        "TORCH_NCCL_HIGH_PRIORITY",
        NoBits("priority of NCCL's streams: when, not what"),
    ),
    but(
        &["0"],
        "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK",
        REGISTERED,
    ),
    var(
        "TORCH_NCCL_*",
        NoBits("how PyTorch watches NCCL: timeouts, traces, errors"),
    ),
    var("TORCH_DISTRIBUTED_DEBUG", LOG),
    var("TORCH_CPP_LOG_LEVEL", LOG),
    var("TORCH_LOGS", LOG),
    var(
        "TORCHINDUCTOR_WORKER_START",
        NoBits("how compiler processes start"),
    ),
    var(
        "TORCHINDUCTOR_CACHE_DIR",
        NoBits("where compiled kernels are kept"),
    ),
    var("TORCHINDUCTOR_*", COMPILED),
    but(&["0"], "TORCH_COMPILE_DISABLE", COMPILED),
    but(&["0"], "TORCHDYNAMO_DISABLE", COMPILED),
    var("TORCH_SHOW_CPP_STACKTRACES", LOG),
    var("PYTORCH_CUDA_ALLOC_CONF", MEMORY),
    var("PYTORCH_ALLOC_CONF", MEMORY),
    var("PYTORCH_NO_CUDA_MEMORY_CACHING", MEMORY),
    but(&["0"], "PYTORCH_JIT_USE_NNC_NOT_NVFUSER", COMPILED),
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
        NoBits("what Triton keeps of its kernels; torch.compile's are judged there"),
    ),
    var(
        "TRITON_CACHE_DIR",
        NoBits("what Triton keeps of its kernels; torch.compile's are judged there"),
    ),
    var("LD_LIBRARY_PATH", BUILD),
    var("LD_PRELOAD", BUILD),
    var("PYTHONPATH", BUILD),
];

/// Those of tools around training.
const OTHERS: &[Variable] = &[
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
    // _run_training.sh starts another program with it.
    but(
        &["false"],
        "IS_NEMO_TEST",
        Needs("NeMo's launcher, whose arguments are others"),
    ),
    var(
        "TRAINING_SCRIPT_PATH",
        Used("the program that the test runs"),
    ),
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
    var("SLURM_NNODES", Used("the number of ranks")),
    var("WORLD_SIZE", Used("the number of ranks")),
    var("MASTER_ADDR", NoBits("where processes meet")),
    var("MASTER_PORT", NoBits("where processes meet")),
    var(
        "UB_*",
        NoBits("read by overlapped tensor parallelism, which is judged itself"),
    ),
    var("GLOO_*", TRANSPORT),
    var("UCX_*", TRANSPORT),
];

/// What is known of the variable `name`.
pub fn variable(name: &str) -> Option<&'static Variable> {
    let exact = variables().find(|variable| variable.name == name);
    exact.or_else(|| {
        let starts = variables().filter(|variable| {
            variable
                .name
                .strip_suffix('*')
                .is_some_and(|start| name.starts_with(start))
        });
        starts.max_by_key(|variable| variable.name.len())
    })
}

/// Libraries whose variables decide bits: of one that nobody here knows it is said so in the
/// certificate.
const WATCHED: [&str; 9] = [
    "NCCL_", "NVTE_", "CUBLAS", "CUDNN_", "CUDA_", "NVIDIA_", "TORCH", "PYTORCH_", "TRITON_",
];

/// What follows from a variable at a value that no simulation shows: words for the certificate.
/// `None` where nothing does, or where it is simulated.
pub fn not_covered(name: &str, value: &str) -> Option<&'static str> {
    match variable(name) {
        Some(known) => known.open(value),
        None if WATCHED.iter().any(|start| name.starts_with(start)) => {
            Some("bitproof does not know it")
        }
        None => None,
    }
}

/// Every name, for a suggestion; starts of names left out.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    variables()
        .map(|variable| variable.name)
        .filter(|name| !name.ends_with('*'))
}
