//! Steps of the run, of the decay and of the warm-up, in iterations.
//!
//! Megatron counts its schedule in samples (`get_optimizer_param_scheduler`,
//! `megatron/training/training.py`); a recipe counts in iterations of one batch size.

use super::values::Values;
use crate::diagnostic::{Diagnostic, Findings};

/// Numbers of iterations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Schedule {
    pub train: Option<u64>,
    pub decay: Option<u64>,
    pub warmup: u64,
}

pub(super) fn schedule(values: &Values<'_>, batch: u64, findings: &mut Findings) -> Schedule {
    let batch = batch.max(1);
    let given = |dest: &str| values.integer(dest).and_then(|n| u64::try_from(n).ok());
    mixed(values, findings);
    negative(values, findings);
    let by_samples = given("train_iters").unwrap_or(0) == 0 && given("train_samples").is_some();
    let (train, decay) = if by_samples {
        let samples = given("train_samples").unwrap_or_default();
        let decay = given("lr_decay_samples").unwrap_or(samples);
        let decay = iterations(decay as f64, batch, "lr_decay_samples", values, findings);
        // update_train_iters: the last, incomplete batch is not trained on.
        (Some(samples / batch), Some(decay))
    } else {
        let train = given("train_iters");
        (train, given("lr_decay_iters").or(train))
    };
    let warmup = match values.real("lr_warmup_fraction") {
        Some(fraction) => {
            let steps = decay_samples(values, by_samples, decay, batch);
            iterations(
                fraction * steps,
                batch,
                "lr_warmup_fraction",
                values,
                findings,
            )
        }
        None if by_samples => {
            let samples = given("lr_warmup_samples").unwrap_or_default();
            iterations(samples as f64, batch, "lr_warmup_samples", values, findings)
        }
        None => given("lr_warmup_iters").unwrap_or_default(),
    };
    Schedule {
        train,
        decay,
        warmup,
    }
}

fn decay_samples(values: &Values<'_>, by_samples: bool, decay: Option<u64>, batch: u64) -> f64 {
    let exact = values
        .integer("lr_decay_samples")
        .or_else(|| values.integer("train_samples"));
    match exact {
        Some(samples) if by_samples => samples as f64,
        _ => decay.unwrap_or_default() as f64 * batch as f64,
    }
}

/// Samples as iterations; a warning where they are not whole.
fn iterations(
    samples: f64,
    batch: u64,
    dest: &str,
    values: &Values<'_>,
    findings: &mut Findings,
) -> u64 {
    let exact = (samples / batch as f64).clamp(0.0, u32::MAX as f64);
    let whole = exact.round();
    if (exact - whole).abs() > 1e-6 {
        let message = format!("`{dest}` is {exact} iterations of {batch} samples");
        findings.push(
            Diagnostic::warning("not-whole", message)
                .at(values.place(dest), format!("{whole} taken"))
                .with_note(
                    "Megatron counts its schedule in samples, so the learning rate differs a \
                     little; the orders of sums do not follow from it",
                ),
        );
    }
    whole as u64
}

/// Megatron takes a warm-up that ends before it begins: the decay then starts before the first
/// step, which no recipe of ours says.
fn negative(values: &Values<'_>, findings: &mut Findings) {
    let warmups = ["lr_warmup_fraction", "lr_warmup_iters", "lr_warmup_samples"];
    let below = |dest: &&&str| values.real(dest).is_some_and(|length| length < 0.0);
    for dest in warmups.iter().filter(below) {
        findings.push(
            Diagnostic::error("out-of-range", format!("`{dest}` is negative"))
                .at(values.place(dest), "expected 0 or more")
                .with_note(
                    "Megatron takes it, and starts the decay before the first step \
                     (get_lr, optimizer_param_scheduler.py): that is not simulated",
                ),
        );
    }
}

/// Megatron refuses iterations and samples together (`validate_args`).
fn mixed(values: &Values<'_>, findings: &mut Findings) {
    let is_set = |dest: &&str| values.integer(dest).is_some_and(|n| n != 0);
    let by_iterations = ["train_iters", "lr_decay_iters", "lr_warmup_iters"];
    let by_samples = ["train_samples", "lr_decay_samples", "lr_warmup_samples"];
    let (first, others) = match values.integer("train_samples") {
        Some(count) if count > 0 => ("train_samples", by_iterations),
        _ => ("train_iters", by_samples),
    };
    for other in others.iter().filter(|dest| is_set(dest)) {
        let message = format!("`{other}` and `{first}` do not go together");
        findings.push(
            Diagnostic::error("excluded", message)
                .at(values.place(other), "Megatron refuses it at launch")
                .with_context(Some(values.place(first)), "with this"),
        );
    }
    let warmup = ["lr_warmup_iters", "lr_warmup_samples"];
    if values.is_given("lr_warmup_fraction")
        && let Some(other) = warmup.iter().find(|dest| is_set(dest))
    {
        findings.push(
            Diagnostic::error(
                "excluded",
                format!("`lr_warmup_fraction` and `{other}` exclude each other"),
            )
            .at(values.place(other), "Megatron refuses it at launch"),
        );
    }
}
