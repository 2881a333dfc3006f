//! What is asserted of arguments that say nothing without others, or that contradict each other,
//! when the model, its gradients' buffers, its groups or its schedule are made.

use super::{CONFIG, Found, Job, PARALLEL_STATE, Rule, SCHEDULER, VALIDATOR};
use crate::diagnostic::Severity::Error;

const BUFFERS: &str = "DistributedDataParallelConfig.__post_init__, megatron/core/distributed";
const TOKENIZER: &str = "build_tokenizer, megatron/core/tokenizers";

pub(in super::super) const RULES: &[Rule] = &[
    Rule {
        id: "schedule-from-both",
        severity: Error,
        reason: "a resumed run takes its schedule from the arguments or from the checkpoint",
        source: SCHEDULER,
        fix: "leave one of the two out",
        find: schedule_from_both,
    },
    Rule {
        id: "fp16-cross-entropy",
        severity: Error,
        reason: "the cross entropy is taken in fp16 where the model is in fp16 only",
        source: VALIDATOR,
        fix: "leave `--fp16-lm-cross-entropy` out",
        find: fp16_cross_entropy,
    },
    Rule {
        id: "hierarchical-context-parallel",
        severity: Error,
        reason: "the sizes of a context-parallel hierarchy are those of its levels, and `a2a+p2p` \
            has levels",
        source: VALIDATOR,
        fix: "make the product of the sizes the context-parallel size, or leave them out",
        find: hierarchy,
    },
    Rule {
        id: "microbatched-inference",
        severity: Error,
        reason: "what it cuts into microbatches goes through a pipeline",
        source: VALIDATOR,
        fix: "leave `--inference-batch-times-seqlen-threshold` out",
        find: microbatched_inference,
    },
    Rule {
        id: "checkpoint-type",
        severity: Error,
        reason: "checkpoints in memory are not implemented",
        source: "load_base_checkpoint and save_checkpoint, megatron/training/checkpointing.py",
        fix: "use `global` or `local`",
        find: checkpoint_type,
    },
    Rule {
        id: "reshardable-without-gloo",
        severity: Error,
        reason: "to save memory the optimizer's state is collected by Gloo",
        source: VALIDATOR,
        fix: "leave `--distrib-optim-fully-reshardable-mem-efficient` out",
        find: reshardable_without_gloo,
    },
    Rule {
        id: "activation-fused-twice",
        severity: Error,
        reason: "Transformer Engine's activation and the one fused with its bias exclude each \
            other, and the second is on by default",
        source: CONFIG,
        fix: "add `--no-bias-gelu-fusion`, or `--no-bias-swiglu-fusion` with `--swiglu`",
        find: activation,
    },
    Rule {
        id: "fused-residual-norm",
        severity: Error,
        reason: "the residual is fused with RMSNorm only",
        source: CONFIG,
        fix: "use `--normalization RMSNorm`, or leave `--fused-residual-rmsnorm` out",
        find: fused_norm,
    },
    Rule {
        id: "expert-ranks-do-not-divide",
        severity: Error,
        reason: "expert groups are made in every job: ranks are a multiple of expert tensor, \
            expert and pipeline parallel size",
        source: PARALLEL_STATE,
        fix: "leave `--expert-tensor-parallel-size` out, or make it a divisor",
        find: expert_ranks,
    },
    Rule {
        id: "flash-attention-in-fp32",
        severity: Error,
        reason: "Transformer Engine has flash and fused attention for fp16 and bf16, and no other \
            backend is left",
        source: "get_attention_backend, transformer_engine/pytorch/attention",
        fix: "use `--attention-backend auto` or `unfused`",
        find: flash_in_fp32,
    },
    Rule {
        id: "local-rmsnorm",
        severity: Error,
        reason: "the local RMSNorm is torch's, which is not persistent and knows no sequence \
            parallelism",
        source: "WrappedTorchNorm, megatron/core/transformer/torch_norm.py",
        fix: "add `--no-persist-layer-norm` and leave `--sequence-parallel` out, or use \
            Transformer Engine's layers",
        find: local_rmsnorm,
    },
    Rule {
        id: "lazy-groups",
        severity: Error,
        reason: "process groups and seeds are left to the caller, and no training program of \
            Megatron makes them",
        source: "initialize_megatron, megatron/training/initialize.py",
        fix: "leave `--lazy-mpu-init` out",
        find: lazy_groups,
    },
    Rule {
        id: "expert-overlap-alone",
        severity: Error,
        reason: "the communication that is overlapped is that between expert-parallel ranks",
        source: CONFIG,
        fix: "leave `--overlap-moe-expert-parallel-comm` out",
        find: expert_overlap,
    },
    Rule {
        id: "fp8-alone",
        severity: Error,
        reason: "parameters and the output layer are FP8 in an FP8 job only",
        source: CONFIG,
        fix: "add `--fp8-format`, or leave the argument out",
        find: fp8_parts,
    },
    Rule {
        id: "interval-of-nothing",
        severity: Error,
        reason: "steps are divided by it",
        source: "train_step, training_log, post_training_step_callbacks and \
            get_train_valid_test_num_samples, megatron/training/training.py",
        fix: "leave it out, or make it 1 or more",
        find: no_interval,
    },
    Rule {
        id: "workers-below-none",
        severity: Error,
        reason: "a data loader has no worker or more",
        source: "torch.utils.data.DataLoader",
        fix: "make `--num-workers` 0 or more",
        find: workers,
    },
    Rule {
        id: "fp4-gather-alone",
        severity: Error,
        reason: "parameters are FP4 in an FP4 job only",
        source: VALIDATOR,
        fix: "add `--fp4-format`, or leave the argument out",
        find: fp4_parameters,
    },
    Rule {
        id: "mxfp8-buffer-alone",
        severity: Error,
        reason: "the buffer is shared with parameters that are gathered in FP8",
        source: BUFFERS,
        fix: "add `--fp8-param-gather`, or leave the argument out",
        find: mxfp8_buffer,
    },
    Rule {
        id: "data-paths-twice",
        severity: Error,
        reason: "paths stand among the arguments or in a file of their own",
        source: VALIDATOR,
        fix: "keep one of the two",
        find: data_paths,
    },
    Rule {
        id: "vocabulary-without-size",
        severity: Error,
        reason: "this tokenizer has no file: its words are as many as `--vocab-size` says",
        source: TOKENIZER,
        fix: "add `--vocab-size`",
        find: vocabulary,
    },
];

fn schedule_from_both(job: &Job<'_>) -> Option<Found> {
    let dest = "use_checkpoint_opt_param_scheduler";
    let both = job.values.flag(dest) && job.values.flag("override_opt_param_scheduler");
    let message = "the checkpoint's schedule, and the arguments'";
    both.then(|| job.argument_found(dest, message, "exclude each other"))?
}

fn fp16_cross_entropy(job: &Job<'_>) -> Option<Found> {
    let dest = "fp16_lm_cross_entropy";
    let alone = job.values.flag(dest) && !job.values.flag("fp16");
    alone.then(|| job.argument_found(dest, "a cross entropy in fp16", "without `--fp16`"))?
}

fn hierarchy(job: &Job<'_>) -> Option<Found> {
    let (values, dest) = (job.values, "hierarchical_context_parallel_sizes");
    let sizes = values.list(dest);
    let cp = job.asked().cp;
    if sizes.is_empty() {
        let kind = "cp_comm_type";
        let asked = values.list(kind).iter().any(|word| word == "a2a+p2p");
        let message = "context parallelism in levels whose sizes are not said";
        return asked.then(|| job.argument_found(kind, message, "no sizes"))?;
    }
    let sizes = sizes.iter().map(|size| size.trim().parse::<u64>().ok());
    let product = sizes.reduce(|all, size| all?.checked_mul(size?)).flatten();
    let message = format!("levels of another size than context_parallel_size {cp}");
    let is_same = product == Some(u64::from(cp));
    (!is_same).then(|| job.argument_found(dest, &message, "expected their product"))?
}

fn microbatched_inference(job: &Job<'_>) -> Option<Found> {
    let dest = "inference_batch_times_seqlen_threshold";
    let asked = job.values.integer(dest).is_some_and(|least| least > -1);
    let label = match (job.asked().pp, &job.asked().cuda_graph) {
        (..=1, _) => "without a pipeline",
        (_, Some(_)) => "with CUDA graphs",
        _ => return None,
    };
    asked.then(|| job.argument_found(dest, "microbatched inference", label))?
}

fn checkpoint_type(job: &Job<'_>) -> Option<Found> {
    let dest = "non_persistent_ckpt_type";
    let refused = job.values.text(dest) == Some("in_memory");
    refused.then(|| job.argument_found(dest, "checkpoints in memory", "refused"))?
}

fn reshardable_without_gloo(job: &Job<'_>) -> Option<Found> {
    let (values, dest) = (job.values, "distrib_optim_fully_reshardable_mem_efficient");
    let refused = values.flag(dest)
        && values.flag("dist_ckpt_optim_fully_reshardable")
        && values.flag("use_distributed_optimizer")
        && !values.flag("use_gloo_process_groups");
    refused.then(|| job.argument_found(dest, "state collected by Gloo", "no Gloo groups"))?
}

fn activation(job: &Job<'_>) -> Option<Found> {
    let (values, dest) = (job.values, "use_te_activation_func");
    let is_fused = match values.flag("swiglu") {
        true => values.flag("bias_swiglu_fusion"),
        // `validate_args` switches it off without biases.
        false => values.flag("bias_gelu_fusion") && values.flag("add_bias_linear"),
    };
    let both = values.flag(dest) && is_fused;
    let message = "Transformer Engine's activation beside the fused one";
    both.then(|| job.argument_found(dest, message, "exclude each other"))?
}

fn fused_norm(job: &Job<'_>) -> Option<Found> {
    let dest = "fused_residual_rmsnorm";
    let other = job.values.text("normalization") != Some("RMSNorm");
    let refused = job.values.flag(dest) && other;
    refused.then(|| job.argument_found(dest, "a fused RMSNorm", "without RMSNorm"))?
}

fn expert_ranks(job: &Job<'_>) -> Option<Found> {
    let (fields, ranks) = (job.asked(), job.understood.world.size);
    let product = fields.expert_model_parallel_size;
    let is_asked = fields.etp_given || fields.ep > 1;
    if !is_asked || ranks.is_multiple_of(product.max(1)) {
        return None;
    }
    let dest = match fields.etp_given {
        true => "expert_tensor_parallel_size",
        false => "expert_model_parallel_size",
    };
    let message = format!("{ranks} ranks in expert groups of {product}");
    job.argument_found(dest, &message, "expected a divisor of the ranks")
}

fn flash_in_fp32(job: &Job<'_>) -> Option<Found> {
    let dest = "attention_backend";
    let values = job.values;
    let fields = job.asked();
    let is_single = !fields.bf16 && !fields.fp16 && fields.fp8_format.is_none();
    let is_engines = values.text("transformer_impl") == Some("transformer_engine");
    let asked = matches!(values.text(dest), Some("flash" | "fused"));
    let refused = is_single && is_engines && asked;
    refused.then(|| job.argument_found(dest, "16-bit attention in an fp32 job", "refused"))?
}

fn local_rmsnorm(job: &Job<'_>) -> Option<Found> {
    let (values, dest) = (job.values, "normalization");
    let is_local = values.text("transformer_impl") == Some("local");
    let is_torchs = is_local && values.text(dest) == Some("RMSNorm");
    let persists = !values.flag("no_persist_layer_norm");
    let refused = is_torchs && (persists || job.asked().sequence_parallel);
    refused.then(|| job.argument_found(dest, "a local RMSNorm", "refused"))?
}

fn lazy_groups(job: &Job<'_>) -> Option<Found> {
    let dest = "lazy_mpu_init";
    let asked = job.values.flag(dest);
    asked.then(|| job.argument_found(dest, "process groups that nobody makes", "refused"))?
}

fn expert_overlap(job: &Job<'_>) -> Option<Found> {
    let dest = "overlap_moe_expert_parallel_comm";
    let alone = job.values.flag(dest) && job.asked().ep <= 1;
    let message = "overlapped communication of experts";
    alone.then(|| job.argument_found(dest, message, "no expert parallelism"))?
}

fn fp8_parts(job: &Job<'_>) -> Option<Found> {
    let mut flags = ["fp8_param_gather", "fp8_output_proj"].into_iter();
    let dest = flags.find(|dest| job.values.flag(dest))?;
    let alone = !job.values.is_given("fp8");
    alone.then(|| job.argument_found(dest, "parts in FP8", "without `--fp8-format`"))?
}

fn no_interval(job: &Job<'_>) -> Option<Found> {
    // What reads each; nothing where every job does.
    const INTERVALS: [(&str, Option<&str>); 10] = [
        ("log_interval", None),
        ("eval_interval", None),
        ("log_memory_interval", None),
        ("check_weight_hash_across_dp_replicas_interval", None),
        ("save_params_interval", None),
        ("save_activations_interval", None),
        ("save_dgrads_interval", None),
        ("save_tokens_per_expert_interval", None),
        ("tensorboard_log_interval", Some("tensorboard_dir")),
        ("adlr_autoresume_interval", Some("adlr_autoresume")),
    ];
    let is_none = |dest: &str| job.values.integer(dest) == Some(0);
    let is_read = |by: Option<&str>| by.is_none_or(|by| !job.values.is_default(by));
    let found = INTERVALS
        .into_iter()
        .find(|(dest, by)| is_none(dest) && is_read(*by));
    let (dest, _) = found?;
    job.argument_found(dest, "an interval of no steps", "steps are divided by it")
}

fn workers(job: &Job<'_>) -> Option<Found> {
    let dest = "num_workers";
    let is_below = job.values.integer(dest).is_some_and(|workers| workers < 0);
    is_below.then(|| job.argument_found(dest, "fewer workers than none", "refused"))?
}

fn fp4_parameters(job: &Job<'_>) -> Option<Found> {
    let mut flags = ["fp4_param_gather", "fp4_param"].into_iter();
    let dest = flags.find(|dest| job.values.flag(dest))?;
    let alone = !job.values.is_given("fp4");
    alone.then(|| job.argument_found(dest, "FP4 parameters", "without `--fp4-format`"))?
}

fn mxfp8_buffer(job: &Job<'_>) -> Option<Found> {
    let dest = "reuse_grad_buf_for_mxfp8_param_ag";
    let alone = job.values.flag(dest) && !job.values.flag("fp8_param_gather");
    alone.then(|| job.argument_found(dest, "a shared FP8 buffer", "no FP8 parameters"))?
}

fn data_paths(job: &Job<'_>) -> Option<Found> {
    let given = |dest: &str| job.values.is_given(dest);
    let splits = ["train_data_path", "valid_data_path", "test_data_path"];
    let dest = if given("data_path") && given("data_args_path") {
        "data_args_path"
    } else if splits.into_iter().any(given) && given("per_split_data_args_path") {
        "per_split_data_args_path"
    } else {
        return None;
    };
    job.argument_found(dest, "paths, and a file of paths", "beside the paths")
}

fn vocabulary(job: &Job<'_>) -> Option<Found> {
    let dest = "tokenizer_type";
    let kind = job.values.text(dest)?;
    let is_null = matches!(kind, "NullTokenizer" | "NullMultimodalTokenizer");
    // Nought is none to `if args.vocab_size`.
    let refused = is_null && job.count("vocab_size") == 0;
    refused.then(|| job.argument_found(dest, "a vocabulary of no size", "no `--vocab-size`"))?
}
