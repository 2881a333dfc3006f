//! What `validate_args` refuses of checkpoints, and of arguments that say nothing without others.

use super::{Found, Job, Rule, VALIDATOR};
use crate::diagnostic::Severity::Error;
use crate::recipe::megatron::GivenKind;

pub(in super::super) const RULES: &[Rule] = &[
    Rule {
        id: "no-positions",
        severity: Error,
        reason: "`--no-position-embedding` is left over from before \
            `--position-embedding-type`, and taken with rotary positions only",
        source: VALIDATOR,
        fix: "say `--position-embedding-type rope`, or leave `--no-position-embedding` out",
        find: no_positions,
    },
    Rule {
        id: "distributed-activations",
        severity: Error,
        reason: "saved inputs are cut along tensor parallelism, where whole layers are recomputed",
        source: VALIDATOR,
        fix: "use tensor parallelism and full recompute with a method, or leave \
            `--distribute-saved-activations` out",
        find: distributed_activations,
    },
    Rule {
        id: "weight-decay-ends",
        severity: Error,
        reason: "a constant weight decay has no start and no end, and another style needs both",
        source: VALIDATOR,
        fix: "say `--weight-decay-incr-style linear` or `cosine` with both ends, or \
            `--weight-decay` alone",
        find: weight_decay,
    },
    Rule {
        id: "main-params-with-optimizer",
        severity: Error,
        reason: "main parameters are made of the model's only where the optimizer's are not loaded",
        source: VALIDATOR,
        fix: "add `--no-load-optim`, or leave `--load-main-params-from-ckpt` out",
        find: main_params,
    },
    Rule {
        id: "dcp-without-fsdp2",
        severity: Error,
        reason: "this format is for PyTorch's FSDP2",
        source: VALIDATOR,
        fix: "use `--ckpt-format torch_dist`",
        find: dcp_format,
    },
    Rule {
        id: "legacy-checkpoint-without-gloo",
        severity: Error,
        reason: "the torch format collects the distributed optimizer's state by Gloo",
        source: VALIDATOR,
        fix: "use `--ckpt-format torch_dist`, or leave `--disable-gloo-process-groups` out",
        find: without_gloo,
    },
    Rule {
        id: "local-checkpoint-without-folder",
        severity: Error,
        reason: "where local checkpoints lie is not said",
        source: VALIDATOR,
        fix: "add `--non-persistent-local-ckpt-dir`",
        find: local_folder,
    },
    Rule {
        id: "replication-incomplete",
        severity: Error,
        reason: "local checkpoints alone are replicated, on ranks a jump apart",
        source: VALIDATOR,
        fix: "add `--non-persistent-ckpt-type local` and `--replication-jump`",
        find: replication,
    },
    Rule {
        id: "no-dataset-builders",
        severity: Error,
        reason: "at least one thread builds the data sets",
        source: VALIDATOR,
        fix: "leave `--num-dataset-builder-threads` out",
        find: dataset_builders,
    },
];

fn no_positions(job: &Job<'_>) -> Option<Found> {
    let (values, dest) = (job.values, "add_position_embedding");
    let is_rotary = values.text("position_embedding_type") == Some("rope")
        || values.flag("use_rotary_position_embeddings");
    let refused = !values.flag(dest) && !is_rotary;
    let message = "no positions, and no rotary ones";
    refused.then(|| job.argument_found(dest, message, "refused without rope"))?
}

fn distributed_activations(job: &Job<'_>) -> Option<Found> {
    let (values, dest) = (job.values, "distribute_saved_activations");
    let fields = job.asked();
    let label = if !values.flag(dest) {
        return None;
    } else if fields.tp <= 1 {
        "without tensor parallelism"
    } else if fields.recompute.as_deref() != Some("full") {
        "without full recompute"
    } else if !values.is_given("recompute_method") {
        "without `--recompute-method`"
    } else if fields.sequence_parallel {
        "with sequence parallelism"
    } else {
        return None;
    };
    job.argument_found(dest, "saved inputs cut along tensor parallelism", label)
}

fn weight_decay(job: &Job<'_>) -> Option<Found> {
    // A log shows both ends: the validator fills them in.
    if job.given.kind == GivenKind::ArgumentDump {
        return None;
    }
    let values = job.values;
    let style = values.text("weight_decay_incr_style").unwrap_or("constant");
    let mut ends = ["start_weight_decay", "end_weight_decay"].into_iter();
    if style == "constant" {
        let given = ends.find(|dest| values.is_given(dest))?;
        return job.argument_found(
            given,
            &format!("{given} of a constant weight decay"),
            "refused",
        );
    }
    let missing = ends.find(|dest| !values.is_given(dest))?;
    let message = format!("a {style} weight decay without {missing}");
    job.argument_found("weight_decay_incr_style", &message, "needs both ends")
}

fn main_params(job: &Job<'_>) -> Option<Found> {
    let dest = "load_main_params_from_ckpt";
    let refused = job.values.flag(dest) && !job.values.flag("no_load_optim");
    let message = "main parameters of the model's, and the optimizer's too";
    refused.then(|| job.argument_found(dest, message, "without `--no-load-optim`"))?
}

fn dcp_format(job: &Job<'_>) -> Option<Found> {
    let dest = "ckpt_format";
    let asked = job.values.text(dest) == Some("torch_dcp");
    let refused = asked && !job.values.flag("use_torch_fsdp2");
    refused.then(|| job.argument_found(dest, "torch_dcp without FSDP2", "refused"))?
}

fn without_gloo(job: &Job<'_>) -> Option<Found> {
    let (values, dest) = (job.values, "use_gloo_process_groups");
    let refused = !values.flag(dest)
        && values.flag("use_distributed_optimizer")
        && values.text("ckpt_format") == Some("torch");
    let message = "the torch format, a distributed optimizer and no Gloo";
    refused.then(|| job.argument_found(dest, message, "no Gloo groups"))?
}

fn local_folder(job: &Job<'_>) -> Option<Found> {
    let dest = "non_persistent_ckpt_type";
    let asked = job.values.text(dest) == Some("local");
    let refused = asked && !job.values.is_given("non_persistent_local_ckpt_dir");
    refused.then(|| job.argument_found(dest, "local checkpoints without a folder", "refused"))?
}

fn replication(job: &Job<'_>) -> Option<Found> {
    let (values, dest) = (job.values, "replication");
    let label = if !values.flag(dest) {
        return None;
    } else if !values.is_given("replication_jump") {
        "without `--replication-jump`"
    } else if values.text("non_persistent_ckpt_type") != Some("local") {
        "without local checkpoints"
    } else {
        return None;
    };
    job.argument_found(dest, "replicated checkpoints", label)
}

fn dataset_builders(job: &Job<'_>) -> Option<Found> {
    let dest = "num_dataset_builder_threads";
    let count = job.values.integer(dest).filter(|count| *count <= 0)?;
    let message = format!("{count} threads that build data sets");
    job.argument_found(dest, &message, "expected more than 0")
}
