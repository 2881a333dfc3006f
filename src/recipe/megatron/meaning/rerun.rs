//! How Megatron's functional tests run a job again (`tests/functional_tests/shell_test_utils`).

use super::super::{GivenJob, GivenPhase};
use super::understood::{Bound, Rerun};
use super::values::{Value, Values};
use super::vocabulary;
use crate::diagnostic::{Diagnostic, Findings, escaped};
use crate::recipe::ReshardLayout;

/// A `ckpt-resume` test trains to the end, and trains again from the checkpoint of half its steps:
/// `echo $((TRAIN_ITERS / 2)) > latest_checkpointed_iteration.txt` (`run_ci_test.sh`).
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
        (_, Some(steps)) if job.resumes_from_stored() => {
            let half = u32::try_from(told_steps(values) / 2).ok();
            half.filter(|half| (1..steps).contains(&u64::from(*half)))
        }
        (Some(interval), Some(steps)) if resumes && interval > 0 && interval < steps => {
            let half = told_steps(values) / 2;
            if !half.is_multiple_of(interval) || !(1..steps).contains(&half) {
                findings.push(never_saved(values, half));
            }
            u32::try_from(half).ok().filter(|half| *half > 0)
        }
        _ => None,
    };
    Rerun {
        restarts: restart.into_iter().collect(),
        resharding: resharding(job, phase, findings),
        bound: bound(values),
        padding: vocabulary::padding(values),
    }
}

/// What cannot be resumed on another layout.
fn bound(values: &Values<'_>) -> Vec<Bound> {
    let deals = values.text("dataloader_type") == Some("cyclic") && values.flag("data_sharding");
    let is_of_one = values.text("ckpt_format") == Some("torch");
    let is_batched = values.is_given("global_batch_size");
    let all = [
        (is_of_one, Bound::Format),
        (deals, Bound::Samples),
        (!is_batched, Bound::Batch),
    ];
    all.into_iter()
        .filter_map(|(holds, bound)| holds.then_some(bound))
        .collect()
}

/// The steps that `run_ci_test.sh` reads: `.MODEL_ARGS."--train-iters" // "100"`.
fn told_steps(values: &Values<'_>) -> u64 {
    let said = values.integer("train_iters");
    said.map_or(100, |steps| u64::try_from(steps).unwrap_or_default())
}

/// That the test resumes from a step at which nothing is saved.
fn never_saved(values: &Values<'_>, half: u64) -> Diagnostic {
    let message = format!("this test resumes from step {half}, at which nothing is saved");
    Diagnostic::error("resume-never-saved", message)
        .at(
            values.place("save_interval"),
            format!("expected a divisor of {half}"),
        )
        .with_note(
            "run_ci_test.sh resumes a ckpt-resume test from half of `--train-iters`, whatever is \
             saved (tests/functional_tests/shell_test_utils)",
        )
        .with_help("save at half of the steps")
}

/// That a test resumes on a layout on which it cannot go on.
pub(super) fn resharding_bound(
    rerun: &Rerun,
    own: (u32, u32),
    values: &Values<'_>,
    findings: &mut Findings,
) {
    let Some(layout) = rerun.resharding else {
        return;
    };
    let Some(bound) = rerun.bound_to_layout(own, layout) else {
        return;
    };
    findings.push(bound.refusal(layout, values.place(bound.dest())));
}

/// Arguments by which a run that loads a checkpoint leaves parts of it out.
const LEFT_OUT: [&str; 3] = ["finetune", "no_load_optim", "no_load_rng"];

/// A restart here loads everything, from where the job saved it last: a job that leaves some of it
/// out at each restart, or loads something else, is another. What is left of it is a sentence for
/// *not covered*.
pub(super) fn partial_load(
    job: &GivenJob,
    values: &Values<'_>,
    findings: &mut Findings,
) -> Vec<String> {
    let again = again(job, values);
    let mut open = Vec::new();
    for dest in LEFT_OUT.iter().filter(|dest| values.flag(dest)) {
        let place = values.place(dest);
        let flag = dest.replace('_', "-");
        findings.push(match again {
            Again::Resumed | Again::Saved => {
                let message = format!("`--{flag}` needs a resume that leaves state out");
                let finding = Diagnostic::error("not-simulated", message)
                    .at(place, "bitproof's restarts load everything")
                    .with_help("a scenario's `checkpoint.omit` names what is left out");
                match again {
                    Again::Saved => finding.with_note(
                        "`--load` is `--save`: each restart of this job leaves it out, and goes \
                         on with other bits than a run without one",
                    ),
                    _ => finding,
                }
            }
            Again::Elsewhere => {
                open.push(of_first_load(&flag));
                let message = format!("`--{flag}` is for the first load only");
                Diagnostic::warning("loads-everything", message)
                    .at(place, "restarts here load everything")
            }
        });
    }
    if job.resumes_from_stored() {
        open.push(STORED.to_string());
    } else if let Again::Resumed = again {
        other_checkpoint(values, findings);
        lightweight(job, findings);
    }
    open
}

/// What a test with a stored checkpoint leaves open.
const STORED: &str = "the stored checkpoint that a frozen-resume test goes on from, which another \
    build may have written: here the second run goes on from the first one's";

fn of_first_load(flag: &str) -> String {
    format!(
        "restarts that take --{flag} again: a restart here loads everything, from the job's last \
         checkpoint"
    )
}

/// How a job comes to load what it saved.
#[derive(Clone, Copy)]
enum Again {
    /// Its test resumes it.
    Resumed,
    /// `--load` is `--save`: whoever starts it again resumes it.
    Saved,
    /// `--load` is somewhere else, or not said.
    Elsewhere,
}

fn again(job: &GivenJob, values: &Values<'_>) -> Again {
    if job.resumes() {
        return Again::Resumed;
    }
    match (folder(values, "load"), folder(values, "save")) {
        (Some(load), Some(save)) if load == save => Again::Saved,
        _ => Again::Elsewhere,
    }
}

/// The names on the path of a folder, as written.
fn folder<'v>(values: &'v Values<'_>, dest: &str) -> Option<Vec<&'v str>> {
    let text = match &values.setting(dest)?.value {
        Value::Text(text) | Value::Variable(text) => text,
        _ => return None,
    };
    let (root, names) = match text.strip_prefix('/') {
        Some(rest) => ("/", rest),
        None => ("", text.as_str()),
    };
    let is_name = |name: &&str| !matches!(*name, "" | ".");
    let path = std::iter::once(root).chain(names.split('/').filter(is_name));
    Some(path.collect())
}

/// A test's resume from another checkpoint than the one of half its steps that the first run saved.
fn other_checkpoint(values: &Values<'_>, findings: &mut Findings) {
    let mut refuse = |dest: &str, message: &str, label: &str| {
        let place = values.place(dest);
        findings.push(
            Diagnostic::error("not-simulated", message)
                .at(place, label)
                .with_note("a resume here goes on from the checkpoint of half the steps"),
        );
    };
    if let Some((dest, message)) = other_step(values) {
        refuse(dest, message, "not simulated in a test that resumes");
    }
    if values.is_given("ckpt_step") {
        let message = "`--ckpt-step` needs a resume from a step of its own";
        refuse("ckpt_step", message, "not that of half the steps");
    }
    let is_written = |path: &Vec<&str>| !path.iter().any(|name| name.contains('$'));
    let (load, save) = (folder(values, "load"), folder(values, "save"));
    if let (Some(load), Some(save)) = (load.filter(is_written), save.filter(is_written))
        && load != save
    {
        let message = "this test loads from another folder than it saves to";
        refuse("load", message, "not where its first run saves");
    }
}

/// An argument by which a test's first run leaves other checkpoints than `--save-interval` says,
/// and what it does.
fn other_step(values: &Values<'_>) -> Option<(&'static str, &'static str)> {
    // `_load_base_checkpoint` takes the last of either kind.
    let another =
        "`--non-persistent-save-interval` saves at steps of its own, and the last is loaded";
    let deleted = "`--save-retain-interval` deletes checkpoints, maybe the one of half the steps";
    // The script itself sets `--exit-interval` to the steps of the run.
    let empty = "`--exit-on-missing-checkpoint` ends the first run, which has nothing to load";
    let all = [
        (
            values.is_given("non_persistent_save_interval"),
            "non_persistent_save_interval",
            another,
        ),
        (
            values.is_given("save_retain_interval"),
            "save_retain_interval",
            deleted,
        ),
        (
            values.flag("exit_on_missing_checkpoint"),
            "exit_on_missing_checkpoint",
            empty,
        ),
    ];
    let found = all.into_iter().find(|(is_other, ..)| *is_other);
    found.map(|(_, dest, message)| (dest, message))
}

/// That the test's script changes the arguments: `ENABLE_LIGHTWEIGHT_MODE` saves every two steps
/// and ends a run after four, whatever is written (`run_ci_test.sh`).
fn lightweight(job: &GivenJob, findings: &mut Findings) {
    let name = "ENABLE_LIGHTWEIGHT_MODE";
    let said = job.env.iter().rev().find(|variable| variable.name == name);
    let Some(said) = said.filter(|said| said.value.eq_ignore_ascii_case("true")) else {
        return;
    };
    findings.push(
        Diagnostic::error(
            "not-simulated",
            "`ENABLE_LIGHTWEIGHT_MODE` changes the test's steps",
        )
        .at(
            &said.place,
            "a resume after two of four steps, whatever is written",
        )
        .with_note("run_ci_test.sh adds `--exit-interval 4` and `--save-interval 2`")
        .with_help("leave it out, and write the steps that are meant"),
    );
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
