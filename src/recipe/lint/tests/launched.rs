//! What breaks the rules of groups, graphs, saves and evaluation, as in [`super::pairs`].

use super::pairs::Pair;

/// One of arguments alone.
const fn of(rule: &'static str, broken: &'static str, sound: &'static str) -> Pair {
    (rule, ["", broken], ["", sound])
}

const INSTANCES: &str = "--grad-reduce-in-bf16: true\n--use-distributed-optimizer: true\n\
    --ddp-reduce-scatter-with-fp32-accumulation: true\n\
    --num-distributed-optimizer-instances: 2\n";
/// Wide gradients switch the flag off.
const WIDE_INSTANCES: &str = "--use-distributed-optimizer: true\n\
    --ddp-reduce-scatter-with-fp32-accumulation: true\n\
    --num-distributed-optimizer-instances: 2\n";
const LOCAL_SAVES: &str = "--save: /a\n--save-interval: 5\n\
    --non-persistent-save-interval: 1\n--non-persistent-ckpt-type: local\n\
    --non-persistent-local-ckpt-dir: /b\n--use-distributed-optimizer: true\n\
    --dist-ckpt-optim-fully-reshardable: true\n";
const GLOBAL_SAVES: &str = "--save: /a\n--save-interval: 5\n\
    --non-persistent-save-interval: 1\n--non-persistent-ckpt-type: global\n";
const TORCH_SAVES: &str = "--save: /a\n--save-interval: 5\n--ckpt-format: torch\n\
    --non-persistent-save-interval: 1\n--non-persistent-ckpt-type: global\n";
const DUMPED: &str = "--save: /a\n--save-interval: 5\n--save-params-interval: 1\n";
const DUMPED_WHILE_GATHERED: &str = "--save: /a\n--save-interval: 5\n\
    --save-params-interval: 1\n--use-distributed-optimizer: true\n\
    --overlap-grad-reduce: true\n--overlap-param-gather: true\n";

pub(super) const PAIRS: &[Pair] = &[
    of(
        "sharp-group-alone",
        "--sharp-enabled-group: dp\n",
        "--sharp-enabled-group: dp\n--use-sharp: true\n",
    ),
    (
        "ucc-with-one-connection",
        [
            "CUDA_DEVICE_MAX_CONNECTIONS: 1\n",
            "--pipeline-model-parallel-comm-backend: ucc\n",
        ],
        [
            "CUDA_DEVICE_MAX_CONNECTIONS: 8\n",
            "--pipeline-model-parallel-comm-backend: ucc\n",
        ],
    ),
    of("fp32-accumulation-of-instances", INSTANCES, WIDE_INSTANCES),
    (
        "expert-tensor-ranks",
        [
            "GPUS_PER_NODE: 8\n",
            "--tensor-model-parallel-size: 2\n--pipeline-model-parallel-size: 2\n\
             --use-tp-pp-dp-mapping: true\n--expert-tensor-parallel-size: 1\n",
        ],
        [
            "GPUS_PER_NODE: 8\n",
            "--tensor-model-parallel-size: 2\n--pipeline-model-parallel-size: 2\n\
             --use-tp-pp-dp-mapping: true\n--expert-tensor-parallel-size: 2\n",
        ],
    ),
    (
        "expert-tensor-ranks",
        [
            "GPUS_PER_NODE: 8\n",
            "--expert-tensor-parallel-size: 4\n--use-distributed-optimizer: true\n\
             --num-distributed-optimizer-instances: 4\n",
        ],
        [
            "GPUS_PER_NODE: 8\n",
            "--expert-tensor-parallel-size: 4\n--use-distributed-optimizer: true\n\
             --num-distributed-optimizer-instances: 2\n",
        ],
    ),
    of(
        "virtual-stages-of-no-layers",
        "--num-layers: None\n--encoder-num-layers: 8\n--pipeline-model-parallel-size: 2\n\
         --num-layers-per-virtual-pipeline-stage: 2\n",
        "--num-layers: 8\n--pipeline-model-parallel-size: 2\n\
         --num-layers-per-virtual-pipeline-stage: 2\n",
    ),
    (
        "ranks-in-reserve",
        [
            "GPUS_PER_NODE: 8\n",
            "--inprocess-restart: true\n--inprocess-active-world-size: 4\n",
        ],
        [
            "GPUS_PER_NODE: 8\n",
            "--inprocess-restart: true\n--inprocess-active-world-size: 8\n",
        ],
    ),
    of(
        "graph-words",
        "--cuda-graph-modules: foo\n",
        "--cuda-graph-modules: attn\n",
    ),
    of(
        "graph-words",
        "--cuda-graph-modules: \"[full attn]\"\n",
        "--cuda-graph-modules: \"[attn mlp]\"\n",
    ),
    of(
        "graph-words",
        "--cuda-graph-modules: attn\n--cuda-graph-scope: attn\n",
        "--cuda-graph-scope: attn\n",
    ),
    of(
        "graph-said-twice",
        "--enable-cuda-graph: true\n--cuda-graph-impl: local\n",
        "--enable-cuda-graph: true\n",
    ),
    of(
        "graph-said-twice",
        "--enable-cuda-graph: true\n--external-cuda-graph: true\n",
        "--external-cuda-graph: true\n",
    ),
    of(
        "inference-graph-scope",
        "--inference-cuda-graph-scope: block\n",
        "--inference-cuda-graph-scope: none\n",
    ),
    of(
        "inference-graph-scope",
        "--cuda-graph-impl: local\n--inference-cuda-graph-scope: none\n",
        "--cuda-graph-impl: local\n--inference-cuda-graph-scope: layer\n",
    ),
    of(
        "no-inference-graphs",
        "--cuda-graph-impl: local\n--inference-dynamic-batching-num-cuda-graphs: 0\n",
        "--cuda-graph-impl: local\n--inference-dynamic-batching-num-cuda-graphs: -1\n",
    ),
    of(
        "microbatched-inference",
        "--inference-batch-times-seqlen-threshold: 5\n--pipeline-model-parallel-size: 2\n\
         --cuda-graph-impl: local\n",
        "--inference-batch-times-seqlen-threshold: 5\n--pipeline-model-parallel-size: 2\n",
    ),
    of("parameters-while-gathered", DUMPED_WHILE_GATHERED, DUMPED),
    of(
        "dump-without-folder",
        "--save-dgrads-interval: 1\n",
        "--save: /a\n--save-interval: 5\n--save-dgrads-interval: 1\n",
    ),
    of(
        "non-persistent-save",
        "--save: /a\n--save-interval: 5\n--non-persistent-save-interval: 1\n",
        "--non-persistent-save-interval: 1\n",
    ),
    of("non-persistent-save", LOCAL_SAVES, GLOBAL_SAVES),
    of("non-persistent-save", TORCH_SAVES, GLOBAL_SAVES),
    of(
        "strictness-that-returns",
        "--load: /a\n--dist-ckpt-strictness: return_all\n",
        "--load: /a\n--dist-ckpt-strictness: log_all\n",
    ),
    of(
        "checkpoint-group-cache",
        "--ckpt-pg-tensors-cache-path: /a\n--ckpt-fully-parallel-save-process-group: ep_dp\n",
        "--ckpt-pg-tensors-cache-path: /a\n",
    ),
    of(
        "service-without-folder",
        "--enable-ft-package: true\n",
        "--enable-ft-package: true\n--save: /a\n--save-interval: 5\n",
    ),
    of(
        "service-without-folder",
        "--wandb-project: a\n",
        "--wandb-project: a\n--wandb-save-dir: /a\n",
    ),
    (
        "evaluation-batch",
        ["GPUS_PER_NODE: 8\n", "--eval-global-batch-size: 12\n"],
        ["GPUS_PER_NODE: 8\n", "--eval-global-batch-size: 16\n"],
    ),
    (
        "evaluation-batch",
        ["GPUS_PER_NODE: 8\n", "--eval-micro-batch-size: 0\n"],
        ["GPUS_PER_NODE: 8\n", "--eval-micro-batch-size: 1\n"],
    ),
    of(
        "several-validation-sets",
        "--multiple-validation-sets: true\n",
        "--multiple-validation-sets: true\n--full-validation: true\n",
    ),
    of(
        "several-validation-sets",
        "--validation-set-names: a\n",
        "--validation-set-names: a\n--multiple-validation-sets: true\n\
         --full-validation: true\n",
    ),
    of(
        "data-set-cache",
        "--dataloader-defer-npy-index-mmap: true\n",
        "--dataloader-defer-npy-index-mmap: true\n--data-cache-path: /a\n",
    ),
    of(
        "data-set-cache",
        "--dataloader-fast-cache-load: true\n--data-cache-path: /a\n--data-path: /b\n",
        "--dataloader-fast-cache-load: true\n--data-cache-path: /a\n--train-data-path: /b\n",
    ),
    of(
        "split-of-splits",
        "--split: 1,1,1\n--train-data-path: /a\n",
        "--split: 1,1,1\n--data-path: /a\n",
    ),
    of(
        "split-of-splits",
        "--data-args-path: /a\n",
        "--data-args-path: /a\n--split: 1,1,1\n",
    ),
    of(
        "split-without-training",
        "--split: 0,100,0\n",
        "--split: 100,0,0\n",
    ),
    of(
        "split-without-training",
        "--split: 90,5,4,1\n",
        "--split: 0.9,.1\n",
    ),
    of(
        "split-without-training",
        "--split: all\n",
        "--split: '99982, 9, 9'\n",
    ),
    of(
        "collector-interval",
        "--manual-gc: true\n--manual-gc-interval: -1\n",
        "--manual-gc-interval: -1\n",
    ),
    of(
        "profiled-steps",
        "--profile: true\n--use-pytorch-profiler: true\n--profile-step-end: 10\n",
        "--profile: true\n--profile-step-end: 10\n",
    ),
    of(
        "signal-by-name",
        "--exit-signal: 15\n",
        "--exit-signal: SIGTERM\n",
    ),
    of(
        "seed-of-last-stage",
        "--seed: 4294967200\n--pipeline-model-parallel-size: 2\n",
        "--seed: 4294967200\n",
    ),
    of(
        "interval-of-nothing",
        "--tensorboard-log-interval: 0\n--tensorboard-dir: /a\n",
        "--tensorboard-log-interval: 0\n",
    ),
    of(
        "interval-of-nothing",
        "--check-weight-hash-across-dp-replicas-interval: 0\n",
        "--check-weight-hash-across-dp-replicas-interval: 1\n",
    ),
];
