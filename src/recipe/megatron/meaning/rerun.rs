//! How Megatron's functional tests run a job again (`tests/functional_tests/shell_test_utils`).

use super::super::{GivenJob, GivenPhase};
use super::understood::Rerun;
use super::values::Values;
use crate::diagnostic::{Diagnostic, Findings, escaped};
use crate::recipe::ReshardLayout;

/// A `ckpt-resume` test trains to the end, deletes the last checkpoint and trains again from the
/// one before.
pub(super) fn rerun(
    job: &GivenJob,
    phase: &GivenPhase,
    values: &Values<'_>,
    train_iters: Option<u64>,
    findings: &mut Findings,
) -> Rerun {
    let resumes = job.resumes();
    let interval = values.count("save_interval").map(u64::from);
    let restart = match (interval, train_iters) {
        (Some(interval), Some(steps)) if resumes && interval > 0 && interval < steps => {
            u32::try_from((steps - 1) / interval * interval).ok()
        }
        _ => None,
    };
    Rerun {
        restarts: restart.into_iter().collect(),
        resharding: resharding(job, phase, findings),
    }
}

/// Arguments by which a run that loads a checkpoint leaves parts of it out.
const LEFT_OUT: [&str; 3] = ["finetune", "no_load_optim", "no_load_rng"];

/// A resumed run here loads everything: a job whose test resumes without some of it is another.
pub(super) fn partial_load(job: &GivenJob, values: &Values<'_>, findings: &mut Findings) {
    let resumes = job.resumes();
    for dest in LEFT_OUT.iter().filter(|dest| values.flag(dest)) {
        let place = values.place(dest);
        let flag = dest.replace('_', "-");
        findings.push(match resumes {
            true => {
                let message = format!("`--{flag}` needs a resume that leaves state out");
                Diagnostic::error("not-simulated", message)
                    .at(place, "bitproof's restarts load everything")
                    .with_help("a scenario's `checkpoint.omit` names what is left out")
            }
            false => {
                let message = format!("`--{flag}` is for the first load only");
                Diagnostic::warning("loads-everything", message)
                    .at(place, "restarts here load everything")
            }
        });
    }
}

/// The layout in a case's name such as `..._reshard_1x4xNone`.
fn resharding(
    job: &GivenJob,
    phase: &GivenPhase,
    findings: &mut Findings,
) -> Option<ReshardLayout> {
    let text = named_layout(job.case.as_deref()?)?;
    match text.parse() {
        Ok(layout) => Some(layout),
        Err(error) => {
            let message = format!(
                "the case's name asks for a resume on `{}`, which is no layout",
                escaped(text)
            );
            findings.push(
                Diagnostic::warning("unknown-layout", message)
                    .at(&phase.place, format!("{error}"))
                    .with_help("it is resumed on its own layout; --reshard names another"),
            );
            None
        }
    }
}

/// What stands after `_reshard_`, up to the next underscore.
fn named_layout(case: &str) -> Option<&str> {
    let (_, rest) = case.split_once("_reshard_")?;
    rest.split('_').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(case: &str) -> Option<ReshardLayout> {
        named_layout(case)?.parse().ok()
    }

    #[test]
    fn the_layout_of_a_resharding_case_is_read_from_its_name() {
        let found = layout("gpt3_te_tp2_pp2_reshard_1x4xNone").unwrap();
        assert_eq!(found.to_string(), "1x4xNone");
        let found = layout("a_reshard_8x1x2_nightly").unwrap();
        assert_eq!(found.num_virtual_stages_per_pipeline_rank, 2);
        assert_eq!(named_layout("a"), None);
        for name in [
            "a_reshard_",
            "a_reshard_1x4",
            "a_reshard_0x1xNone",
            "a_reshard_1x4x1",
            "a_reshard_1x1x1x1",
        ] {
            assert!(
                named_layout(name).is_some() && layout(name).is_none(),
                "{name}"
            );
        }
    }
}
