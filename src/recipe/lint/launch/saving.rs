//! What is refused of checkpoints and dumps, at launch or at the first step that makes one.

use super::{Found, Job, Rule, VALIDATOR};
use crate::diagnostic::Severity::Error;

const SAVES: &str = "save_checkpoint, megatron/training/checkpointing.py";

pub(in super::super) const RULES: &[Rule] = &[
    Rule {
        id: "parameters-while-gathered",
        severity: Error,
        reason: "parameters are not whole while they are gathered",
        source: VALIDATOR,
        fix: "leave `--save-params-interval` or `--overlap-param-gather` out",
        find: gathered,
    },
    Rule {
        id: "dump-without-folder",
        severity: Error,
        reason: "tensors are written beside the checkpoints",
        source: "save_grads, megatron/training/training.py",
        fix: "add `--save`",
        find: dump,
    },
    Rule {
        id: "non-persistent-save",
        severity: Error,
        reason: "a checkpoint that is not kept has a type, and not each type goes with each format",
        source: SAVES,
        fix: "say `--non-persistent-ckpt-type global` with `--ckpt-format torch_dist`",
        find: non_persistent,
    },
    Rule {
        id: "strictness-that-returns",
        severity: Error,
        reason: "with it a load gives more than a checkpoint, and no caller in training takes that",
        source: "_load_global_dist_base_checkpoint, megatron/training/checkpointing.py",
        fix: "leave `--dist-ckpt-strictness` out, or log the keys",
        find: strictness,
    },
    Rule {
        id: "checkpoint-group-cache",
        severity: Error,
        reason: "tensors of one process group are cached for saves and loads",
        source: VALIDATOR,
        fix: "make both process groups the same, or leave `--ckpt-pg-tensors-cache-path` out",
        find: group_cache,
    },
    Rule {
        id: "service-without-folder",
        severity: Error,
        reason: "its files lie beside the checkpoints",
        source: "ft_integration.setup; _set_wandb_writer, megatron/training/global_vars.py",
        fix: "add `--save`, or `--wandb-save-dir` for Weights & Biases",
        find: service,
    },
];

fn gathered(job: &Job<'_>) -> Option<Found> {
    let dest = "save_params_interval";
    let both = job.values.is_given("save") && job.values.flag("overlap_param_gather");
    let refused = job.values.is_given(dest) && both;
    let message = "parameters written while their gathers overlap";
    refused.then(|| job.argument_found(dest, message, "refused"))?
}

fn dump(job: &Job<'_>) -> Option<Found> {
    let intervals = [
        "save_params_interval",
        "save_activations_interval",
        "save_dgrads_interval",
    ];
    let dest = intervals
        .into_iter()
        .find(|dest| job.values.is_given(dest))?;
    let nowhere = !job.values.is_given("save");
    nowhere.then(|| job.argument_found(dest, "tensors written to no folder", "no `--save`"))?
}

fn non_persistent(job: &Job<'_>) -> Option<Found> {
    let (values, dest) = (job.values, "non_persistent_save_interval");
    if !values.is_given(dest) || !values.is_given("save") {
        return None;
    }
    let kind = values.text("non_persistent_ckpt_type");
    let is_sharded = values.flag("use_distributed_optimizer")
        && values.flag("dist_ckpt_optim_fully_reshardable");
    let label = match kind {
        None => "no `--non-persistent-ckpt-type`",
        Some("global") if values.text("ckpt_format") == Some("torch") => "in the torch format",
        Some("local") if is_sharded => "local, with a fully reshardable optimizer",
        _ => return None,
    };
    job.argument_found(dest, "checkpoints that are not kept", label)
}

fn strictness(job: &Job<'_>) -> Option<Found> {
    let dest = "dist_ckpt_strictness";
    let word = job.values.text(dest)?;
    let loads = job.values.is_given("load") && job.values.text("ckpt_format") != Some("torch");
    let refused = loads && word.starts_with("return_");
    let message = format!("loads under `{word}`");
    refused.then(|| job.argument_found(dest, &message, "the first load ends the job"))?
}

fn group_cache(job: &Job<'_>) -> Option<Found> {
    let dest = "ckpt_pg_tensors_cache_path";
    let group = |which: &str| job.values.text(which);
    let other = group("ckpt_fully_parallel_save_process_group")
        != group("ckpt_fully_parallel_load_process_group");
    let refused = job.values.is_given(dest) && other;
    let message = "one cache for two process groups";
    refused.then(|| job.argument_found(dest, message, "refused"))?
}

fn service(job: &Job<'_>) -> Option<Found> {
    let given = |dest: &str| job.values.is_given(dest);
    if given("save") {
        return None;
    }
    if job.values.flag("enable_ft_package") {
        let dest = "enable_ft_package";
        return job.argument_found(dest, "fault tolerance without a folder", "no `--save`");
    }
    let dest = "wandb_project";
    let nowhere = given(dest) && !given("wandb_save_dir");
    nowhere.then(|| job.argument_found(dest, "a report without a folder", "no `--save`"))?
}
