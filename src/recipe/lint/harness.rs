//! What Megatron's functional tests say of a job and do not check.

use super::rule::{Found, Job, Rule};
use crate::diagnostic::Severity::{Error, Note, Warning};

const HARNESS: &str = "tests/functional_tests of NVIDIA/Megatron-LM";

pub(super) const RULES: &[Rule] = &[
    Rule {
        id: "resume-without-checkpoint",
        severity: Error,
        reason: "a ckpt-resume test starts its second run from the checkpoint of half its steps, \
            whatever was saved (run_ci_test.sh): where it is not there, or is not loaded, the test \
            ends or compares a run with itself",
        source: HARNESS,
        fix: "set `--save`, `--load` and a `--save-interval` below the number of steps",
        find: resume_without_checkpoint,
    },
    Rule {
        id: "resume-without-state",
        severity: Warning,
        reason: "what is not saved or not loaded starts anew: the resumed run is another run",
        source: "megatron/training/checkpointing.py",
        fix: "leave the argument out",
        find: resume_without_state,
    },
    Rule {
        id: "reshard-optimizer",
        severity: Error,
        reason: "the distributed optimizer's shards are saved for these sizes of tensor and \
            pipeline parallelism alone, unless they are saved whole",
        source: "load_checkpoint, megatron/training/checkpointing.py; \
            DistributedOptimizer.sharded_state_dict",
        fix: "add `--dist-ckpt-optim-fully-reshardable`",
        find: reshard_optimizer,
    },
    Rule {
        id: "resume-not-tested",
        severity: Note,
        reason: "its name says that it resumes, its type that it does not",
        source: HARNESS,
        fix: "set `TEST_TYPE: ckpt-resume`, or add a restart to the scenario",
        find: resume_not_tested,
    },
    Rule {
        id: "tolerant-test",
        severity: Warning,
        reason: "with it the test accepts a loss that differs by 5 %: what deterministic mode \
            costs is paid, and nothing checks what it gives",
        source: HARNESS,
        fix: "leave NON_DETERMINSTIC_RESULTS out",
        find: tolerant,
    },
    Rule {
        id: "case-name",
        severity: Note,
        reason: "the arguments decide, not the name of the case",
        source: HARNESS,
        fix: "rename the case, or mend its arguments",
        find: case_name,
    },
    Rule {
        id: "several-phases",
        severity: Note,
        reason: "one phase is simulated at a time; a ckpt-resume test resumes MODEL_ARGS with \
            MODEL_ARGS_2, every other phase is a job of its own",
        source: HARNESS,
        fix: "ask for another with `--phase N`",
        find: phases,
    },
];

fn at_phase(job: &Job<'_>, message: String, label: &str) -> Option<Found> {
    Some(Found {
        message,
        place: job.values.phase_place().clone(),
        label: label.to_string(),
    })
}

fn resume_without_checkpoint(job: &Job<'_>) -> Option<Found> {
    if !job.given.resumes() {
        return None;
    }
    let missing = ["save", "load"]
        .into_iter()
        .find(|dest| !job.values.is_given(dest));
    if let Some(dest) = missing {
        let message = format!("a ckpt-resume test without --{dest}");
        return at_phase(job, message, "nothing to resume from");
    }
    if job.understood.rerun.restarts.is_empty() {
        let message = "no checkpoint is saved before the last step";
        return job.argument_found("save_interval", message, "expected less than the steps");
    }
    None
}

fn resume_without_state(job: &Job<'_>) -> Option<Found> {
    if !job.given.resumes() {
        return None;
    }
    let parts = [
        "no_save_optim",
        "no_save_rng",
        "no_load_optim",
        "no_load_rng",
        "finetune",
    ];
    let dest = parts.into_iter().find(|dest| job.values.flag(dest))?;
    let message = format!("a ckpt-resume test with {dest}");
    job.argument_found(dest, &message, "the resumed run lacks state")
}

fn reshard_optimizer(job: &Job<'_>) -> Option<Found> {
    let whole = "dist_ckpt_optim_fully_reshardable";
    let dest = "use_distributed_optimizer";
    let to = job.understood.rerun.resharding?;
    let own = (job.asked().tp, job.asked().pp);
    let is_same = own
        == (
            to.tensor_model_parallel_size,
            to.pipeline_model_parallel_size,
        );
    // The format from before was of no layout (`fully_sharded_model_space`).
    let is_old = job.values.flag("dist_ckpt_save_pre_mcore_014")
        && job.values.flag("ckpt_fully_parallel_save");
    if !job.values.flag(dest) || job.values.flag(whole) || is_same || is_old {
        return None;
    }
    let message = "the case resumes on another layout with a distributed optimizer";
    job.argument_found(dest, message, "its state does not load there")
}

fn resume_not_tested(job: &Job<'_>) -> Option<Found> {
    let case = job.given.case.as_deref()?;
    let named = case.split('_').any(|word| word == "resume");
    if !named || job.given.test_type.as_deref() != Some("regular") {
        return None;
    }
    at_phase(
        job,
        "a case named resume that is a regular test".to_string(),
        "not resumed",
    )
}

fn tolerant(job: &Job<'_>) -> Option<Found> {
    if !job.is_deterministic() {
        return None;
    }
    let names = ["NON_DETERMINSTIC_RESULTS", "NON_DETERMINISTIC_RESULTS"];
    let name = names.into_iter().find(|name| job.text(name) == Some("1"))?;
    job.variable_found(
        name,
        format!("{name}=1 with --deterministic-mode"),
        "5 % are accepted",
    )
}

/// `tp2`, `pp4`, `cp2`, `ep8` in a name, against the arguments.
fn case_name(job: &Job<'_>) -> Option<Found> {
    let fields = job.asked();
    let case = job.given.case.as_deref()?;
    let sizes = [
        ("tp", "tensor_model_parallel_size", fields.tp),
        ("pp", "pipeline_model_parallel_size", fields.pp),
        ("cp", "context_parallel_size", fields.cp),
        ("ep", "expert_model_parallel_size", fields.ep),
    ];
    for word in case.split('_') {
        for (prefix, dest, size) in sizes {
            let number = word
                .strip_prefix(prefix)
                .and_then(|rest| rest.parse::<u32>().ok());
            if let Some(named) = number.filter(|named| *named != size) {
                let message = format!("the case's name says {prefix}{named}, its arguments {size}");
                return job.argument_found(dest, &message, "this is simulated");
            }
        }
    }
    None
}

fn phases(job: &Job<'_>) -> Option<Found> {
    let count = job.given.phases.len();
    if count < 2 {
        return None;
    }
    let message = format!("phase {} of {count}", job.understood.phase + 1);
    at_phase(job, message, "this one is simulated")
}
