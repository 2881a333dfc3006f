//! How Megatron's functional tests run a job again (`tests/functional_tests/shell_test_utils`).

use super::super::GivenJob;
use super::understood::{Rerun, Resharding};
use super::values::Values;
use crate::diagnostic::{Diagnostic, Findings};

/// A `ckpt-resume` test trains to the end, deletes the last checkpoint and trains again from the
/// one before.
pub(super) fn rerun(job: &GivenJob, values: &Values<'_>, train_iters: Option<u64>) -> Rerun {
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
        resharding: job.case.as_deref().and_then(resharding),
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

/// The layout in a name such as `..._reshard_1x4xNone`.
fn resharding(case: &str) -> Option<Resharding> {
    let (_, rest) = case.split_once("_reshard_")?;
    let layout = rest.split('_').next()?;
    let mut parts = layout.split('x');
    let mut next = || parts.next();
    let (tensor, pipeline, chunks) = (next()?, next()?, next()?);
    if next().is_some() {
        return None;
    }
    let count = |text: &str| text.parse::<u32>().ok().filter(|n| *n > 0);
    Some(Resharding {
        tensor_model_parallel_size: count(tensor)?,
        pipeline_model_parallel_size: count(pipeline)?,
        num_virtual_stages_per_pipeline_rank: match chunks {
            "None" => None,
            number => Some(count(number)?),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_layout_of_a_resharding_case_is_read_from_its_name() {
        let found = resharding("gpt3_te_tp2_pp2_reshard_1x4xNone").unwrap();
        assert_eq!(found.tensor_model_parallel_size, 1);
        assert_eq!(found.pipeline_model_parallel_size, 4);
        assert_eq!(found.num_virtual_stages_per_pipeline_rank, None);
        let found = resharding("a_reshard_8x1x2_nightly").unwrap();
        assert_eq!(found.num_virtual_stages_per_pipeline_rank, Some(2));
        for name in [
            "a",
            "a_reshard_",
            "a_reshard_1x4",
            "a_reshard_0x1xNone",
            "a_reshard_1x1x1x1",
        ] {
            assert_eq!(resharding(name), None, "{name}");
        }
    }
}
