//! What a job's log shows of its arguments, and what it does not.
//!
//! Megatron prints every attribute of its arguments (`_print_args`, called by `validate_args` in
//! `megatron/training/arguments.py`): one that is not there was lost on the way, or is younger than
//! the job's Megatron.

use std::collections::BTreeSet;

use super::super::GivenPhase;
use super::super::catalogue::{Catalogue, Effect};
use super::values::Values;
use crate::diagnostic::{Diagnostic, Findings};

/// Attributes that decide bits and that each version prints from Megatron-Core 0.8 (July 2024) up
/// to the catalogue's, by today's names.
pub(super) const CORE: [&str; 96] = [
    "accumulate_allreduce_grads_in_fp32",
    "adam_beta1",
    "adam_beta2",
    "adam_eps",
    "add_bias_linear",
    "add_qkv_bias",
    "apply_query_key_layer_scaling",
    "apply_residual_connection_post_layernorm",
    "async_save",
    "attention_dropout",
    "bf16",
    "calculate_per_token_loss",
    "clip_grad",
    "context_parallel_size",
    "data_parallel_random_init",
    "data_parallel_size",
    "ddp_average_in_collective",
    "ddp_bucket_size",
    "decoupled_lr",
    "decoupled_min_lr",
    "deterministic_mode",
    "distributed_backend",
    "eod_mask_loss",
    "expert_model_parallel_size",
    "ffn_hidden_size",
    "fp16",
    "fp32_residual_connection",
    "fp8",
    "global_batch_size",
    "group_query_attention",
    "hidden_dropout",
    "hidden_size",
    "init_method_std",
    "kv_channels",
    "layernorm_epsilon",
    "layernorm_zero_centered_gamma",
    "lr",
    "lr_decay_iters",
    "lr_decay_samples",
    "lr_decay_style",
    "lr_warmup_fraction",
    "lr_warmup_init",
    "lr_warmup_iters",
    "lr_warmup_samples",
    "make_vocab_size_divisible_by",
    "max_position_embeddings",
    "micro_batch_size",
    "min_lr",
    "nccl_communicator_config_path",
    "normalization",
    "num_attention_heads",
    "num_experts",
    "num_layers",
    "num_layers_per_virtual_pipeline_stage",
    "num_query_groups",
    "openai_gelu",
    "optimizer",
    "overlap_grad_reduce",
    "overlap_param_gather",
    "params_dtype",
    "pipeline_model_parallel_size",
    "position_embedding_type",
    "qk_layernorm",
    "rampup_batch_size",
    "recompute_granularity",
    "recompute_method",
    "recompute_num_layers",
    "reset_attention_mask",
    "reset_position_ids",
    "rotary_base",
    "rotary_interleaved",
    "rotary_percent",
    "rotary_seq_len_interpolation_factor",
    "seed",
    "seq_length",
    "sequence_parallel",
    "skip_train",
    "spec",
    "squared_relu",
    "swiglu",
    "tensor_model_parallel_size",
    "tp_comm_overlap",
    "train_iters",
    "train_samples",
    "transformer_impl",
    "untie_embeddings_and_output_weights",
    "use_distributed_optimizer",
    "use_flash_attn",
    "use_rotary_position_embeddings",
    "use_tp_pp_dp_mapping",
    "virtual_pipeline_model_parallel_size",
    "vocab_extra_ids",
    "vocab_size",
    "weight_decay",
    "weight_decay_incr_style",
    "world_size",
];

/// Attributes that `validate_args` deletes before it prints the others.
const DELETED: [&str; 5] = [
    "batch_size",
    "checkpoint_activations",
    "model_parallel_size",
    "recompute_activations",
    "warmup",
];

/// Refuses a block that lacks what every version prints. What other attributes it lacks is a
/// sentence for *not covered*.
pub(super) fn lacking(
    phase: &GivenPhase,
    catalogue: &Catalogue,
    findings: &mut Findings,
) -> Vec<String> {
    let known = phase.arguments.iter().filter_map(|given| {
        let (argument, _) = catalogue.find(&given.flag)?;
        Some(argument.dest())
    });
    let shown: BTreeSet<String> = known.collect();
    let is_lost = |dest: &&str| !shown.contains(*dest);
    let lost: Vec<&str> = CORE.into_iter().filter(is_lost).collect();
    if !lost.is_empty() {
        findings.push(of_lost(phase, &lost));
    }
    let younger: Vec<&str> = catalogue
        .attributes()
        .filter(|(dest, argument)| {
            let decides = matches!(argument.effect, Effect::Used(_) | Effect::Needs(_));
            decides && *dest == argument.dest() && !DELETED.contains(dest)
        })
        .map(|(dest, _)| dest)
        .filter(|dest| is_lost(dest) && !CORE.contains(dest))
        .collect();
    // A sentence has a limit.
    younger.chunks(NAMED_MAX).map(of_younger).collect()
}

/// Arguments that one sentence names.
const NAMED_MAX: usize = 20;

fn of_younger(names: &[&str]) -> String {
    format!(
        "what the log does not show, as Megatron versions differ, and is taken at Megatron's \
         default: {}",
        names.join(", ")
    )
}

fn of_lost(phase: &GivenPhase, lost: &[&str]) -> Diagnostic {
    let message = match lost.len() {
        1 => format!("the block lacks `{}`, which Megatron prints", lost[0]),
        count => format!("the block lacks {count} arguments that Megatron prints"),
    };
    Diagnostic::error("missing-argument", message)
        .at(&phase.place, "in this block")
        .with_note(format!("missing: {}", lost.join(", ")))
        .with_note("their lines were lost, or the log is older than Megatron-Core 0.8")
        .with_help("give the whole block, every line as it was printed")
        .with_help(
            "where this Megatron prints none of them, import the launch script instead: \
             `bitproof import recipe SCRIPT.sh -o recipe.toml`",
        )
}

/// The number format that follows from `bf16` and `fp16` (`validate_args`).
pub(super) fn check_formats(values: &Values<'_>, findings: &mut Findings) {
    let Some(shown) = values.text("params_dtype") else {
        return;
    };
    let (flag, expected) = match (values.flag("bf16"), values.flag("fp16")) {
        (true, _) => ("bf16 True", "torch.bfloat16"),
        (false, true) => ("fp16 True", "torch.float16"),
        (false, false) => ("neither bf16 nor fp16", "torch.float32"),
    };
    if shown != expected {
        let message = format!("`params_dtype` does not go with {flag}");
        findings.push(
            Diagnostic::error("contradiction", message)
                .at(values.place("params_dtype"), format!("expected {expected}"))
                .with_note("validate_args sets it, and a log shows what it set")
                .with_help("give the block as one job printed it"),
        );
    }
}

/// Attributes that `validate_args` makes the same.
const SAME: [(&str, &str); 3] = [
    ("encoder_num_layers", "num_layers"),
    ("encoder_seq_length", "seq_length"),
    (
        "transformer_pipeline_model_parallel_size",
        "pipeline_model_parallel_size",
    ),
];

/// Refuses a log that shows two values where Megatron has one.
pub(super) fn check_same(values: &Values<'_>, findings: &mut Findings) {
    for (one, other) in SAME {
        if !values.is_given(one) || values.integer(one) == values.integer(other) {
            continue;
        }
        let message = format!("`{one}` is not `{other}`");
        findings.push(
            Diagnostic::error("contradiction", message)
                .at(values.place(one), "another number here")
                .with_context(Some(values.place(other)), "than here")
                .with_note("validate_args makes them the same, and a log shows what it made")
                .with_help("give the block as one job printed it"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_core_is_in_the_catalogue_and_none_of_it_is_deleted() {
        let catalogue = Catalogue::default();
        let mut seen = BTreeSet::new();
        for dest in CORE {
            let argument = catalogue.attribute(dest);
            let argument = argument.unwrap_or_else(|| panic!("{dest}"));
            assert_eq!(argument.dest(), dest);
            assert!(!DELETED.contains(&dest) && seen.insert(dest), "{dest}");
        }
        for dest in DELETED {
            assert!(catalogue.attribute(dest).is_some(), "{dest}");
        }
    }
}
