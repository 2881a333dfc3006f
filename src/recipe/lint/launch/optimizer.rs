//! Rules of the optimizer, its learning rate and its gathers.

use crate::recipe::lint::rule::{Found, Job};
use crate::recipe::megatron::Value;

pub(super) fn param_gather(job: &Job<'_>) -> Option<Found> {
    let values = job.values;
    if !values.flag("overlap_param_gather") {
        return None;
    }
    let sharded = values.flag("use_distributed_optimizer")
        || values.flag("use_megatron_fsdp")
        || values.text("optimizer") == Some("dist_muon");
    let label = match (sharded, values.flag("overlap_grad_reduce")) {
        (true, true) => return None,
        (false, _) => "without the distributed optimizer",
        (true, false) => "without `--overlap-grad-reduce`",
    };
    job.argument_found(
        "overlap_param_gather",
        "overlapped gathers of parameters",
        label,
    )
}

pub(super) fn gather_with_step(job: &Job<'_>) -> Option<Found> {
    let (values, dest) = (job.values, "overlap_param_gather_with_optimizer_step");
    if !values.flag(dest) {
        return None;
    }
    let label = if !values.flag("use_distributed_optimizer") {
        "without the distributed optimizer"
    } else if !values.flag("overlap_param_gather") {
        "without `--overlap-param-gather`"
    } else if job.asked().vpp.is_none() {
        "without an interleaved pipeline"
    } else if values.text("ckpt_format") != Some("torch") {
        "with distributed checkpoints"
    } else {
        return None;
    };
    job.argument_found(
        dest,
        "parameters gathered during the optimizer's step",
        label,
    )
}

/// `lr_decay_steps > 0` and `lr_warmup_steps < lr_decay_steps`, as far as single arguments say.
pub(super) fn decay(job: &Job<'_>) -> Option<Found> {
    let empty = ["lr_decay_iters", "lr_decay_samples"]
        .into_iter()
        .find(|dest| job.values.integer(dest).is_some_and(|steps| steps <= 0));
    if let Some(dest) = empty {
        return job.argument_found(dest, "a decay without a step", "expected more than 0");
    }
    let dest = "lr_warmup_fraction";
    let whole = job
        .values
        .real(dest)
        .is_some_and(|fraction| fraction >= 1.0);
    let message = "the warm-up takes the whole decay";
    whole.then(|| job.argument_found(dest, message, "expected less than 1"))?
}

pub(super) fn optimizer_state(job: &Job<'_>) -> Option<Found> {
    if job.values.flag("use_precision_aware_optimizer") {
        return None;
    }
    let types = [
        "main_grads_dtype",
        "main_params_dtype",
        "exp_avg_dtype",
        "exp_avg_sq_dtype",
    ];
    let narrow = |dest: &&str| job.values.text(dest).is_some_and(|word| word != "fp32");
    let dest = types.into_iter().find(narrow)?;
    let message = format!("{dest} without the precision-aware optimizer");
    job.argument_found(dest, &message, "expected fp32")
}

pub(super) fn learning_rate(job: &Job<'_>) -> Option<Found> {
    let (lr, least) = (job.values.real("lr")?, job.values.real("min_lr")?);
    (least > lr).then(|| job.argument_found("min_lr", "min_lr is above lr", "expected less"))?
}

/// `numpy.random.seed` takes 32 bits, and `_set_random_seed` what is above 0: none is an error.
pub(super) fn seed(job: &Job<'_>) -> Option<Found> {
    let dest = "seed";
    let setting = job.values.setting(dest)?;
    if setting.value == Value::Nothing {
        return job.argument_found(dest, "no seed", "expected a number above 0");
    }
    let range = 1..=i64::from(u32::MAX);
    let seed = job
        .values
        .integer(dest)
        .filter(|seed| !range.contains(seed))?;
    let label = format!("expected 1 to {}", u32::MAX);
    job.argument_found(dest, &format!("the seed {seed}"), &label)
}
