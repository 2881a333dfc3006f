//! What breaks the rules of [`launch::ASSERTED`](super::super::launch), as in [`super::pairs`].

use super::pairs::Pair;

const GATHERED: &str = "--use-distributed-optimizer: true\n--overlap-param-gather: true\n\
    --overlap-grad-reduce: true\n--pipeline-model-parallel-size: 2\n\
    --num-virtual-stages-per-pipeline-rank: 2\n\
    --overlap-param-gather-with-optimizer-step: true\n";
const GATHERED_OF_TORCH: &str = "--use-distributed-optimizer: true\n--ckpt-format: torch\n\
    --overlap-param-gather: true\n--overlap-grad-reduce: true\n\
    --pipeline-model-parallel-size: 2\n--num-virtual-stages-per-pipeline-rank: 2\n\
    --overlap-param-gather-with-optimizer-step: true\n";
const CUT: &str = "--tensor-model-parallel-size: 2\n--distribute-saved-activations: true\n\
    --recompute-granularity: full\n--recompute-num-layers: 1\n--recompute-method: uniform\n";
const CUT_OF_SEQUENCE: &str = "--tensor-model-parallel-size: 2\n--sequence-parallel: true\n\
    --distribute-saved-activations: true\n--recompute-granularity: full\n\
    --recompute-num-layers: 1\n--recompute-method: uniform\n";
const NO_GLOO: &str = "--use-distributed-optimizer: true\n--disable-gloo-process-groups: true\n\
    --distrib-optim-fully-reshardable-mem-efficient: true\n\
    --dist-ckpt-optim-fully-reshardable: true\n";
const GLOO: &str = "--use-distributed-optimizer: true\n\
    --distrib-optim-fully-reshardable-mem-efficient: true\n\
    --dist-ckpt-optim-fully-reshardable: true\n";

/// One of arguments alone.
const fn of(rule: &'static str, broken: &'static str, sound: &'static str) -> Pair {
    (rule, ["", broken], ["", sound])
}

pub(super) const PAIRS: &[Pair] = &[
    of(
        "schedule-from-both",
        "--override-opt_param-scheduler: true\n--use-checkpoint-opt_param-scheduler: true\n",
        "--use-checkpoint-opt_param-scheduler: true\n",
    ),
    of(
        "fp16-cross-entropy",
        "--fp16-lm-cross-entropy: true\n",
        "--fp16: true\n--fp16-lm-cross-entropy: true\n",
    ),
    of(
        "hierarchical-context-parallel",
        "--cp-comm-type: a2a+p2p\n",
        "--cp-comm-type: a2a\n",
    ),
    of(
        "hierarchical-context-parallel",
        "--hierarchical-context-parallel-sizes: \"[2 2]\"\n",
        "--hierarchical-context-parallel-sizes: \"[2 2]\"\n--context-parallel-size: 4\n",
    ),
    of(
        "microbatched-inference",
        "--inference-batch-times-seqlen-threshold: 5\n",
        "--inference-batch-times-seqlen-threshold: 5\n--pipeline-model-parallel-size: 2\n",
    ),
    of(
        "checkpoint-type",
        "--non-persistent-ckpt-type: in_memory\n",
        "--non-persistent-ckpt-type: global\n",
    ),
    of("reshardable-without-gloo", NO_GLOO, GLOO),
    of("gather-with-step", GATHERED, GATHERED_OF_TORCH),
    of("distributed-activations", CUT_OF_SEQUENCE, CUT),
    of(
        "activation-fused-twice",
        "--use-te-activation-func: true\n",
        "--use-te-activation-func: true\n--no-bias-gelu-fusion: true\n",
    ),
    of(
        "activation-fused-twice",
        "--use-te-activation-func: true\n--swiglu: true\n--no-bias-gelu-fusion: true\n",
        "--use-te-activation-func: true\n--swiglu: true\n--no-bias-swiglu-fusion: true\n",
    ),
    of(
        "fused-residual-norm",
        "--fused-residual-rmsnorm: true\n",
        "--fused-residual-rmsnorm: true\n--normalization: RMSNorm\n",
    ),
    (
        "expert-ranks-do-not-divide",
        ["GPUS_PER_NODE: 8\n", "--expert-tensor-parallel-size: 3\n"],
        ["GPUS_PER_NODE: 8\n", "--expert-tensor-parallel-size: 4\n"],
    ),
    of(
        "flash-attention-in-fp32",
        "--attention-backend: flash\n--bf16: false\n",
        "--attention-backend: flash\n",
    ),
    of(
        "local-rmsnorm",
        "--transformer-impl: local\n--normalization: RMSNorm\n",
        "--transformer-impl: local\n--normalization: RMSNorm\n--no-persist-layer-norm: true\n",
    ),
    of("lazy-groups", "--lazy-mpu-init: true\n", ""),
    of(
        "expert-overlap-alone",
        "--overlap-moe-expert-parallel-comm: true\n",
        "--overlap-moe-expert-parallel-comm: true\n--num-experts: 4\n\
         --expert-model-parallel-size: 2\n",
    ),
    of(
        "fp8-alone",
        "--fp8-param-gather: true\n",
        "--fp8-param-gather: true\n--fp8-format: hybrid\n",
    ),
    of(
        "fp8-alone",
        "--fp8-output-proj: true\n",
        "--fp8-output-proj: true\n--fp8-format: hybrid\n",
    ),
    of(
        "interval-of-nothing",
        "--log-interval: 0\n",
        "--log-interval: 1\n",
    ),
    of(
        "interval-of-nothing",
        "--eval-interval: 0\n",
        "--eval-interval: 1\n",
    ),
    of(
        "workers-below-none",
        "--num-workers: -1\n",
        "--num-workers: 0\n",
    ),
    of(
        "fp4-gather-alone",
        "--fp4-param-gather: true\n",
        "--fp4-param-gather: true\n--fp4-format: e2m1\n",
    ),
    of(
        "mxfp8-buffer-alone",
        "--reuse-grad-buf-for-mxfp8-param-ag: true\n",
        "--reuse-grad-buf-for-mxfp8-param-ag: true\n--fp8-param-gather: true\n\
         --fp8-format: e4m3\n",
    ),
    of(
        "data-paths-twice",
        "--data-path: /a\n--data-args-path: /b\n",
        "--data-path: /a\n",
    ),
    of(
        "data-paths-twice",
        "--train-data-path: /a\n--per-split-data-args-path: /b\n",
        "--per-split-data-args-path: /b\n",
    ),
    of(
        "vocabulary-without-size",
        "--tokenizer-type: NullTokenizer\n",
        "--tokenizer-type: NullTokenizer\n--vocab-size: 1023\n",
    ),
    of(
        "seed-not-positive",
        "--seed: 4294967296\n",
        "--seed: 4294967295\n",
    ),
];
