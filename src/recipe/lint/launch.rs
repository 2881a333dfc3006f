//! What Megatron's validator refuses before the first step, beside deterministic mode
//! (`validate_args` in `megatron/training/arguments.py`, `TransformerConfig.__post_init__`).

mod asserted;
mod evaluation;
mod graphs;
mod groups;
mod optimizer;
mod refused;
mod saving;

use super::rule::{Found, Job, Rule};
use crate::diagnostic::Severity::{Error, Warning};
use crate::recipe::megatron::GivenKind;
use optimizer::{decay, gather_with_step, learning_rate, optimizer_state, param_gather, seed};

const VALIDATOR: &str = "validate_args, megatron/training/arguments.py";
const CONFIG: &str = "TransformerConfig.__post_init__";
const PARALLEL_STATE: &str = "initialize_model_parallel, megatron/core/parallel_state.py";
const SCHEDULER: &str =
    "OptimizerParamScheduler.__init__, megatron/core/optimizer_param_scheduler.py";
const OPTIMIZER: &str =
    "OptimizerConfig.__post_init__, megatron/core/optimizer/optimizer_config.py";

pub(super) use asserted::RULES as ASSERTED;
pub(super) use evaluation::RULES as EVALUATION;
pub(super) use graphs::RULES as GRAPHS;
pub(super) use groups::RULES as GROUPS;
pub(super) use refused::RULES as REFUSED;
pub(super) use saving::RULES as SAVING;

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "param-gather-alone",
        severity: Error,
        reason: "parameters are gathered where the distributed optimizer sharded them, after \
            overlapped gradient reduction",
        source: VALIDATOR,
        fix: "add `--use-distributed-optimizer` and `--overlap-grad-reduce`",
        find: param_gather,
    },
    Rule {
        id: "gather-with-step",
        severity: Error,
        reason: "the first chunk's parameters are gathered while the optimizer steps on the others",
        source: VALIDATOR,
        fix: "add what is missing, or leave `--overlap-param-gather-with-optimizer-step` out",
        find: gather_with_step,
    },
    Rule {
        id: "interleaving-too-short",
        severity: Error,
        reason: "without overlapped sends two ranks would send to each other twice in one batch",
        source: VALIDATOR,
        fix: "use more than two pipeline stages, or leave `--no-overlap-p2p-communication` out",
        find: interleaving,
    },
    Rule {
        id: "several-virtual-stages",
        severity: Error,
        reason: "each of the three says how layers are cut into virtual stages",
        source: VALIDATOR,
        fix: "keep one of them",
        find: several_stages,
    },
    Rule {
        id: "learning-rate-order",
        severity: Error,
        reason: "the least learning rate is not above the greatest",
        source: VALIDATOR,
        fix: "lower `--min-lr`",
        find: learning_rate,
    },
    Rule {
        id: "decay-without-steps",
        severity: Error,
        reason: "the learning rate decays over at least one step, and the warm-up ends before",
        source: SCHEDULER,
        fix: "leave the decay out, to let it take the whole run, or make it longer",
        find: decay,
    },
    Rule {
        id: "seed-not-positive",
        severity: Error,
        reason: "generators take positive seeds of 32 bits only",
        source: "_set_random_seed, megatron/training/initialize.py",
        fix: "use a seed from 1 to 4294967295",
        find: seed,
    },
    Rule {
        id: "narrow-optimizer-state",
        severity: Error,
        reason: "only the precision-aware optimizer keeps its state in another type than fp32",
        source: OPTIMIZER,
        fix: "add `--use-precision-aware-optimizer`, or leave the type out",
        find: optimizer_state,
    },
    Rule {
        id: "save-without-interval",
        severity: Error,
        reason: "where to save is said, and not when",
        source: VALIDATOR,
        fix: "add `--save-interval`",
        find: save_interval,
    },
    Rule {
        id: "retain-interval",
        severity: Error,
        reason: "only saved checkpoints are retained",
        source: VALIDATOR,
        fix: "make `--save-retain-interval` a multiple of `--save-interval`",
        find: retain_interval,
    },
    Rule {
        id: "selective-recompute",
        severity: Error,
        reason: "selective recompute takes all layers",
        source: CONFIG,
        fix: "leave `--recompute-method` and `--recompute-num-layers` out",
        find: selective,
    },
    Rule {
        id: "tp-overlap-without-sequence-parallel",
        severity: Error,
        reason: "the overlap is with the gathers and scatters of sequence parallelism",
        source: VALIDATOR,
        fix: "add `--sequence-parallel`",
        find: tp_overlap,
    },
    Rule {
        id: "local-attention-needs-local-spec",
        severity: Error,
        reason: "Core's own attention is built by the local specification only",
        source: VALIDATOR,
        fix: "add `--spec local`",
        find: local_attention,
    },
    Rule {
        id: "grouped-queries-with-latent-attention",
        severity: Error,
        reason: "latent attention has its own heads",
        source: VALIDATOR,
        fix: "leave `--group-query-attention` out",
        find: |job| {
            let both = job.values.flag("group_query_attention")
                && job.values.flag("multi_latent_attention");
            let dest = "group_query_attention";
            both.then(|| {
                job.argument_found(dest, "grouped queries in latent attention", "with MLA")
            })?
        },
    },
    Rule {
        id: "attention-backend-variables",
        severity: Error,
        reason: "Megatron sets NVTE_FLASH_ATTN, NVTE_FUSED_ATTN and NVTE_UNFUSED_ATTN by \
            `--attention-backend`, and asserts that they are not set to something else",
        source: "LanguageModule._set_attention_backend, megatron/core/models/common",
        fix: "leave the variable out, and say `--attention-backend`",
        find: attention_variables,
    },
    Rule {
        id: "query-key-scaling-variable",
        severity: Error,
        reason: "Transformer Engine reads NVTE_APPLY_QK_LAYER_SCALING, Megatron the argument: \
            they must say the same",
        source: "TEDotProductAttention, megatron/core/extensions/transformer_engine.py",
        fix: "set NVTE_APPLY_QK_LAYER_SCALING=1 with `--apply-query-key-layer-scaling` only",
        find: query_key_scaling,
    },
    Rule {
        id: "said-twice",
        severity: Error,
        reason: "the encoder's argument stands for the plain one where that is not given",
        source: VALIDATOR,
        fix: "keep `--num-layers` and `--seq-length`",
        find: said_twice,
    },
    Rule {
        id: "experts-without-sequence-parallel",
        severity: Error,
        reason: "in training, experts with tensor parallelism take tokens that are split by \
            sequence parallelism",
        source: "MoELayer.forward, megatron/core/transformer/moe/moe_layer.py",
        fix: "add `--sequence-parallel`",
        find: experts_sequence,
    },
    Rule {
        id: "cuda-graph-allocator",
        severity: Error,
        reason: "graphs keep addresses of registered buffers, which expandable segments move",
        source: VALIDATOR,
        fix: "set NCCL_GRAPH_REGISTER=0, or leave expandable_segments out",
        find: graph_allocator,
    },
    Rule {
        id: "several-data-sources",
        severity: Error,
        reason: "batches come from one source",
        source: VALIDATOR,
        fix: "keep one of `--mock-data`, `--data-path` and the paths of single splits",
        find: data_sources,
    },
    Rule {
        id: "experts-do-not-divide",
        severity: Error,
        reason: "experts are dealt evenly to expert-parallel ranks",
        source: VALIDATOR,
        fix: "make `--num-experts` a multiple of `--expert-model-parallel-size`",
        find: experts,
    },
    Rule {
        id: "two-formats",
        severity: Error,
        reason: "parameters have one format",
        source: VALIDATOR,
        fix: "leave `--fp16` or `--bf16` out",
        find: |job| {
            let both = job.values.flag("bf16") && job.values.flag("fp16");
            both.then(|| job.argument_found("fp16", "bf16 and fp16", "beside bf16"))?
        },
    },
    Rule {
        id: "te-cross-entropy",
        severity: Error,
        reason: "Megatron switched Transformer Engine's fused cross entropy off",
        source: VALIDATOR,
        fix: "use `--cross-entropy-fusion-impl native`, or no fusion",
        find: te_cross_entropy,
    },
    Rule {
        id: "one-connection-needed",
        severity: Warning,
        reason: "before Blackwell tensor and context parallelism need one hardware queue, so that \
            kernels start in the order of their launch",
        source: VALIDATOR,
        fix: "set CUDA_DEVICE_MAX_CONNECTIONS=1",
        find: one_connection,
    },
    Rule {
        id: "one-connection-with-fsdp",
        severity: Error,
        reason: "with one hardware queue FSDP's transfers cannot overlap",
        source: VALIDATOR,
        fix: "leave CUDA_DEVICE_MAX_CONNECTIONS out",
        find: fsdp_connection,
    },
    Rule {
        id: "fsdp-checkpoint",
        severity: Error,
        reason: "Megatron-FSDP saves distributed tensors",
        source: VALIDATOR,
        fix: "use `--ckpt-format fsdp_dtensor`",
        find: fsdp_checkpoint,
    },
    Rule {
        id: "integrity-format",
        severity: Error,
        reason: "hashes are kept by the distributed format only",
        source: "CheckpointConfig.__post_init__",
        fix: "use `--ckpt-format torch_dist`",
        find: integrity,
    },
    Rule {
        id: "fp8-gather-unsharded",
        severity: Error,
        reason: "there is nothing to gather",
        source: VALIDATOR,
        fix: "add `--use-distributed-optimizer`",
        find: fp8_gather,
    },
    Rule {
        id: "async-save-dropped",
        severity: Warning,
        reason: "Megatron switches asynchronous saves off without a persistent worker",
        source: VALIDATOR,
        fix: "add `--use-persistent-ckpt-worker`",
        find: async_save,
    },
    Rule {
        id: "async-save-legacy",
        severity: Error,
        reason: "asynchronous saves are not implemented for the torch format: the first save \
            ends the job",
        source: "save_checkpoint, megatron/training/checkpointing.py",
        fix: "use `--ckpt-format torch_dist`, or leave `--async-save` out",
        find: async_save_legacy,
    },
    Rule {
        id: "memory-log-interval",
        severity: Error,
        reason: "memory is reported when a step is",
        source: VALIDATOR,
        fix: "make `--log-memory-interval` a multiple of `--log-interval`",
        find: memory_log,
    },
];

fn interleaving(job: &Job<'_>) -> Option<Found> {
    let fields = job.asked();
    let overlapped = job.values.flag("overlap_p2p_comm");
    let least = if overlapped { 2 } else { 3 };
    if fields.vpp.is_none() || fields.pp >= least {
        return None;
    }
    let message = format!("an interleaved pipeline of {} stages", fields.pp);
    let label = format!("expected at least {least}");
    job.argument_found("pipeline_model_parallel_size", &message, &label)
}

fn several_stages(job: &Job<'_>) -> Option<Found> {
    let given: Vec<&str> = [
        "num_layers_per_virtual_pipeline_stage",
        "num_virtual_stages_per_pipeline_rank",
        "pipeline_model_parallel_layout",
    ]
    .into_iter()
    .filter(|dest| job.values.is_given(dest))
    .collect();
    let last = given.get(1)?;
    job.argument_found(last, &given.join(" and "), "exclude each other")
}

fn save_interval(job: &Job<'_>) -> Option<Found> {
    let unset = job.values.is_given("save") && job.count("save_interval") == 0;
    unset.then(|| job.argument_found("save", "checkpoints without an interval", "never saved"))?
}

fn retain_interval(job: &Job<'_>) -> Option<Found> {
    let dest = "save_retain_interval";
    job.values.is_given("save").then_some(())?;
    let (retain, save) = (job.values.count(dest)?, job.values.count("save_interval")?);
    let divides = save > 0 && retain > 0 && retain.is_multiple_of(save);
    let message = format!("{dest} {retain}, save_interval {save}");
    (!divides).then(|| job.argument_found(dest, &message, "expected a multiple"))?
}

fn selective(job: &Job<'_>) -> Option<Found> {
    if job.asked().recompute.as_deref() != Some("selective") {
        return None;
    }
    let odd = ["recompute_method", "recompute_num_layers"];
    let dest = odd.into_iter().find(|dest| job.values.is_given(dest))?;
    job.argument_found(
        dest,
        &format!("{dest} with selective recompute"),
        "not for selective",
    )
}

fn tp_overlap(job: &Job<'_>) -> Option<Found> {
    let alone = job.values.flag("tp_comm_overlap") && !job.asked().sequence_parallel;
    let message = "overlapped tensor parallelism without sequence parallelism";
    alone.then(|| job.argument_found("tp_comm_overlap", message, "needs --sequence-parallel"))?
}

fn local_attention(job: &Job<'_>) -> Option<Found> {
    let local = job.values.text("attention_backend") == Some("local");
    let spec = job.values.list("spec").first().map(String::as_str);
    let alone = local && spec != Some("local");
    let message = "local attention without the local specification";
    alone.then(|| job.argument_found("attention_backend", message, "needs --spec local"))?
}

fn attention_variables(job: &Job<'_>) -> Option<Found> {
    let backend = job.values.text("attention_backend").unwrap_or("auto");
    let names = ["NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN"];
    let expected = match backend {
        "flash" => ["1", "0", "0"],
        "fused" => ["0", "1", "0"],
        "unfused" => ["0", "0", "1"],
        "local" => ["0", "0", "0"],
        _ => ["1", "1", "1"],
    };
    let (name, expected) = names.into_iter().zip(expected).find(|(name, expected)| {
        let given = job.variable(name);
        given.is_some_and(|given| given.value != *expected)
    })?;
    let message = format!("{name} is not {expected}, with the attention backend {backend}");
    job.variable_found(name, message, &format!("expected {expected}, or nothing"))
}

fn query_key_scaling(job: &Job<'_>) -> Option<Found> {
    let (dest, name) = (
        "apply_query_key_layer_scaling",
        "NVTE_APPLY_QK_LAYER_SCALING",
    );
    let asked = job.values.flag(dest);
    if job.values.text("transformer_impl") != Some("transformer_engine") {
        return None;
    }
    match job.variable(name) {
        None if asked && job.shows_environment() => {
            job.argument_found(dest, &format!("{dest} without {name}=1"), "not set")
        }
        None => None,
        // bool(int(value)).
        Some(given) => match given.value.trim().parse::<i64>() {
            Ok(number) if (number != 0) == asked => None,
            _ => {
                let message = format!("{name} and {dest} do not say the same");
                job.variable_found(name, message, "refused when a layer is built")
            }
        },
    }
}

fn said_twice(job: &Job<'_>) -> Option<Found> {
    // A log shows both: the validator fills one in from the other.
    if job.given.kind == GivenKind::ArgumentDump {
        return None;
    }
    let pairs = [
        ("encoder_num_layers", "num_layers"),
        ("encoder_seq_length", "seq_length"),
    ];
    let both = |(one, other): &(&str, &str)| job.values.is_given(one) && job.values.is_given(other);
    let (dest, other) = pairs.into_iter().find(both)?;
    let message = format!("{dest} beside {other}");
    job.argument_found(dest, &message, "expected one of them")
}

fn experts_sequence(job: &Job<'_>) -> Option<Found> {
    let fields = job.asked();
    let is_split = fields.tp > 1 && fields.num_experts.is_some();
    if !is_split || fields.sequence_parallel {
        return None;
    }
    let message = "experts and tensor parallelism without sequence parallelism";
    job.argument_found("num_experts", message, "needs --sequence-parallel")
}

fn graph_allocator(job: &Job<'_>) -> Option<Found> {
    job.asked().cuda_graph.as_ref()?;
    let name = "PYTORCH_CUDA_ALLOC_CONF";
    let expands = job.text(name)?.contains("expandable_segments:True");
    if !expands || job.text("NCCL_GRAPH_REGISTER") == Some("0") {
        return None;
    }
    let message = "expandable segments with CUDA graphs".to_string();
    job.variable_found(
        name,
        message,
        "refused with NCCL_GRAPH_REGISTER other than 0",
    )
}

fn data_sources(job: &Job<'_>) -> Option<Found> {
    let values = job.values;
    let splits = ["train_data_path", "valid_data_path", "test_data_path"];
    let of_splits = splits
        .into_iter()
        .find(|dest| !values.list(dest).is_empty());
    let blend = (!values.list("data_path").is_empty()).then_some("data_path");
    let mock = values.flag("mock_data").then_some("mock_data");
    let sources: Vec<&str> = [mock, blend, of_splits].into_iter().flatten().collect();
    let second = sources.get(1)?;
    job.argument_found(second, &sources.join(" and "), "expected one source")
}

fn experts(job: &Job<'_>) -> Option<Found> {
    let fields = job.asked();
    if fields.ep <= 1 {
        return None;
    }
    let dest = "expert_model_parallel_size";
    match fields.num_experts {
        None => job.argument_found(
            dest,
            "expert parallelism without experts",
            "no --num-experts",
        ),
        Some(count) if !count.is_multiple_of(fields.ep) => {
            let message = format!("{count} experts on {} ranks", fields.ep);
            job.argument_found(dest, &message, "expected a divisor of the experts")
        }
        Some(_) => None,
    }
}

fn te_cross_entropy(job: &Job<'_>) -> Option<Found> {
    let dest = "cross_entropy_fusion_impl";
    let fused = job.values.flag("cross_entropy_loss_fusion");
    let te = fused && job.values.text(dest) == Some("te");
    te.then(|| job.argument_found(dest, "Transformer Engine's fused cross entropy", "refused"))?
}

fn is_fsdp(job: &Job<'_>) -> bool {
    job.values.flag("use_megatron_fsdp") || job.values.flag("use_torch_fsdp2")
}

fn one_connection(job: &Job<'_>) -> Option<Found> {
    let fields = job.asked();
    let name = "CUDA_DEVICE_MAX_CONNECTIONS";
    let exempt = is_fsdp(job) || job.values.flag("overlap_moe_expert_parallel_comm");
    if (fields.tp <= 1 && fields.cp <= 1) || exempt || job.text(name) == Some("1") {
        return None;
    }
    job.unset(name).or_else(|| {
        let message = format!("{name} is not 1, with tensor or context parallelism");
        job.variable_found(name, message, "refused before Blackwell")
    })
}

fn fsdp_connection(job: &Job<'_>) -> Option<Found> {
    let name = "CUDA_DEVICE_MAX_CONNECTIONS";
    let refused = is_fsdp(job) && job.text(name) == Some("1");
    refused.then(|| job.variable_found(name, format!("{name}=1 with FSDP"), "expected more"))?
}

fn fsdp_checkpoint(job: &Job<'_>) -> Option<Found> {
    let dest = "ckpt_format";
    let fsdp = job.values.flag("use_megatron_fsdp");
    let format = job.values.text(dest).unwrap_or_default();
    match (fsdp, format == "fsdp_dtensor") {
        (true, false) => job.argument_found(dest, "Megatron-FSDP with another format", "refused"),
        (false, true) => job.argument_found(dest, "fsdp_dtensor without Megatron-FSDP", "refused"),
        _ => None,
    }
}

fn integrity(job: &Job<'_>) -> Option<Found> {
    let dest = "verify_integrity";
    let format = job.values.text("ckpt_format").unwrap_or_default();
    let refused = job.values.flag(dest) && format != "torch_dist";
    refused.then(|| job.argument_found(dest, &format!("hashes of {format} files"), "refused"))?
}

fn fp8_gather(job: &Job<'_>) -> Option<Found> {
    let sharded = job.values.flag("use_distributed_optimizer") || is_fsdp(job);
    let refused = job.values.flag("fp8_param_gather") && !sharded;
    let message = "parameters gathered in FP8 that nobody sharded";
    refused.then(|| job.argument_found("fp8_param_gather", message, "no distributed optimizer"))?
}

fn async_save(job: &Job<'_>) -> Option<Found> {
    let dropped = job.values.flag("async_save")
        && job.values.resolved("async_save").is_none()
        && !job.values.flag("use_persistent_ckpt_worker")
        && job.values.text("ckpt_format") != Some("torch");
    let message = "asynchronous saves are switched off";
    dropped.then(|| job.argument_found("async_save", message, "without a persistent worker"))?
}

fn async_save_legacy(job: &Job<'_>) -> Option<Found> {
    let refused = job.values.flag("async_save")
        && job.values.is_given("save")
        && job.values.text("ckpt_format") == Some("torch");
    let message = "asynchronous saves in the torch format";
    refused.then(|| job.argument_found("async_save", message, "refused at the first save"))?
}

fn memory_log(job: &Job<'_>) -> Option<Found> {
    let dest = "log_memory_interval";
    let (memory, log) = (job.values.count(dest)?, job.count("log_interval"));
    let divides = log > 0 && memory.is_multiple_of(log);
    (!divides)
        .then(|| job.argument_found(dest, &format!("{memory} steps, every {log}"), "refused"))?
}
