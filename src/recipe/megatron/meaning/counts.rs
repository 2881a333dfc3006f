//! Which whole numbers an argument may have from which a count is read.
//!
//! argparse takes any integer. What Megatron cannot run with, or what no recipe can hold, is an
//! error here: a number out of range must never count as one that was not given.

use std::ops::RangeInclusive;

use super::super::catalogue::{Argument, Effect, Kind};

/// Counts that are read of arguments whose parts of Megatron are not simulated, or that rules
/// compare.
const COMPARED: [&str; 10] = [
    "context_parallel_size",
    "decoder_num_layers",
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
    "log_interval",
    "log_memory_interval",
    "moe_router_topk",
    "num_experts",
    "save_retain_interval",
    "virtual_pipeline_model_parallel_size",
];

/// Counts of which none is as good as no such argument, or of which rules speak.
const FROM_ZERO: [&str; 16] = [
    "cpu_offloading_num_layers",
    "exit_duration_in_mins",
    "log_interval",
    "log_memory_interval",
    "lr_decay_iters",
    "lr_decay_samples",
    "make_vocab_size_divisible_by",
    "num_experts",
    "num_query_groups",
    "padded_vocab_size",
    "recompute_num_layers",
    "save_interval",
    "save_retain_interval",
    "train_iters",
    "train_samples",
    "vocab_extra_ids",
];

/// Samples are counted in 64 bits: they become iterations.
const SAMPLES: [&str; 2] = ["lr_decay_samples", "train_samples"];

/// Numbers that are handed on as they are, and judged elsewhere: a warm-up by the schedule, a seed
/// by the recipe and by a rule.
const JUDGED: [&str; 3] = ["lr_warmup_iters", "lr_warmup_samples", "seed"];

/// The numbers that an argument may have; `None` where no count is read from it.
pub(super) fn range(argument: &Argument) -> Option<RangeInclusive<i64>> {
    let dest = argument.dest();
    let is_listed = |names: &[&str]| names.contains(&dest.as_str());
    let is_used = matches!(argument.effect, Effect::Used(_)) || is_listed(&COMPARED);
    if argument.kind != Kind::Int || !is_used || is_listed(&JUDGED) {
        return None;
    }
    let least = i64::from(!is_listed(&FROM_ZERO));
    let most = match is_listed(&SAMPLES) {
        true => i64::MAX,
        false => i64::from(u32::MAX),
    };
    Some(least..=most)
}
