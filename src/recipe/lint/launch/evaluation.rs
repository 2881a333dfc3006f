//! What is refused of data sets, evaluation and the loop around the steps.

use super::{Found, Job, Rule, VALIDATOR};
use crate::diagnostic::Severity::Error;
use crate::diagnostic::escaped;
use crate::recipe::megatron::Value;

const LOADERS: &str = "build_train_valid_test_data_loaders, megatron/training/training.py";
const DATA: &str = "BlendedMegatronDatasetConfig.__post_init__, megatron/core/datasets";

pub(in super::super) const RULES: &[Rule] = &[
    Rule {
        id: "evaluation-batch",
        severity: Error,
        reason: "an evaluation's batch is dealt evenly to data-parallel ranks, as a step's",
        source: VALIDATOR,
        fix: "make `--eval-global-batch-size` a multiple of `--eval-micro-batch-size` times the \
            data-parallel size",
        find: batch,
    },
    Rule {
        id: "several-validation-sets",
        severity: Error,
        reason: "several validation sets are evaluated whole, and names are theirs",
        source: LOADERS,
        fix: "add `--multiple-validation-sets` and `--full-validation`",
        find: validation_sets,
    },
    Rule {
        id: "data-set-cache",
        severity: Error,
        reason: "what is read late or at once lies in a cache, from paths of single splits",
        source: DATA,
        fix: "add `--data-cache-path`, or leave the argument out",
        find: cache,
    },
    Rule {
        id: "split-of-splits",
        severity: Error,
        reason: "a split cuts one list of data sets, and a file of them has none of its own",
        source: DATA,
        fix: "say `--split` with `--data-path` or `--data-args-path` only",
        find: split,
    },
    Rule {
        id: "split-without-training",
        severity: Error,
        reason: "a split has three weights, none below none, and without samples for training no \
            step is made",
        source: "parse_and_normalize_split, megatron/core/datasets; \
            build_train_valid_test_data_iterators, megatron/training/training.py",
        fix: "give the first number of `--split` a weight above none",
        find: training_share,
    },
    Rule {
        id: "collector-interval",
        severity: Error,
        reason: "garbage is collected every so many steps",
        source: "train, megatron/training/training.py",
        fix: "make `--manual-gc-interval` 0 or more",
        find: collector,
    },
    Rule {
        id: "profiled-steps",
        severity: Error,
        reason: "PyTorch's profiler records one step or more",
        source: "torch.profiler.schedule",
        fix: "make `--profile-step-end` greater than `--profile-step-start`",
        find: profiler,
    },
    Rule {
        id: "signal-by-name",
        severity: Error,
        reason: "the signal is one of Python's names",
        source: "TrainingConfig.exit_signal, megatron/training/config",
        fix: "write a name such as SIGTERM",
        find: signal,
    },
    Rule {
        id: "seed-of-last-stage",
        severity: Error,
        reason: "each pipeline stage adds 100 to the seed, and generators take 32 bits",
        source: "_set_random_seed, megatron/training/initialize.py",
        fix: "use a smaller seed",
        find: seed,
    },
];

fn batch(job: &Job<'_>) -> Option<Found> {
    let values = job.values;
    let sizes = ["eval_global_batch_size", "eval_micro_batch_size"];
    let dest = sizes.into_iter().find(|dest| values.is_given(dest))?;
    let size = |own: &str, steps: &str| {
        let own = values.integer(own).filter(|_| values.is_given(own));
        own.or_else(|| values.integer(steps))
    };
    let data = job.understood.world.size / job.asked().model_parallel_size.max(1);
    let data = i64::from(data.max(1));
    // Where nobody says it, a step is one microbatch of each rank (validate_args).
    let step = values.integer("micro_batch_size");
    let step = step.map(|micro| micro.saturating_mul(data));
    let global = size(sizes[0], "global_batch_size").or(step)?;
    let micro = size(sizes[1], "micro_batch_size")?;
    let ranks = micro.saturating_mul(data);
    let divides = ranks > 0 && global > 0 && global % ranks == 0;
    let message = format!("an evaluation of {global} samples, {ranks} at once");
    (!divides).then(|| job.argument_found(dest, &message, "expected a multiple"))?
}

fn validation_sets(job: &Job<'_>) -> Option<Found> {
    let (several, names) = ("multiple_validation_sets", "validation_set_names");
    let on = |dest: &str| job.values.flag(dest);
    if on(several) && !on("full_validation") {
        return job.argument_found(
            several,
            "several validation sets",
            "without `--full-validation`",
        );
    }
    let alone = job.values.is_given(names) && !on(several);
    let message = "names of validation sets";
    alone.then(|| job.argument_found(names, message, "without `--multiple-validation-sets`"))?
}

fn cache(job: &Job<'_>) -> Option<Found> {
    let given = |dest: &str| job.values.is_given(dest);
    let (fast, late) = (
        "dataloader_fast_cache_load",
        "dataloader_defer_npy_index_mmap",
    );
    let is_cached = given("data_cache_path");
    let dest = [fast, late]
        .into_iter()
        .find(|dest| job.values.flag(dest) && !is_cached);
    if let Some(dest) = dest {
        return job.argument_found(dest, "indices that lie nowhere", "no `--data-cache-path`");
    }
    let one_list = given("data_path") || given("data_args_path");
    let refused = job.values.flag(fast) && one_list;
    refused.then(|| job.argument_found(fast, "a list that has to be split", "refused"))?
}

fn split(job: &Job<'_>) -> Option<Found> {
    let given = |dest: &str| job.values.is_given(dest);
    let splits = [
        "train_data_path",
        "valid_data_path",
        "test_data_path",
        "per_split_data_args_path",
    ];
    // A log shows the split that Megatron filled in.
    let is_said = given("split") && job.values.resolved("split").is_none();
    if is_said && splits.into_iter().any(given) {
        return job.argument_found("split", "a split of single splits", "refused");
    }
    let dest = "data_args_path";
    let unsplit = given(dest) && !given("split");
    unsplit.then(|| job.argument_found(dest, "a file of data sets", "without `--split`"))?
}

/// As Megatron reads it: every run of digits and points is a number, whatever stands between.
fn training_share(job: &Job<'_>) -> Option<Found> {
    let text = job
        .values
        .text("split")
        .filter(|_| job.values.is_given("split"))?;
    let is_digit = |letter: char| letter.is_ascii_digit() || letter == '.';
    let numbers = text.split(|letter| !is_digit(letter));
    let numbers: Vec<&str> = numbers.filter(|number| !number.is_empty()).collect();
    let first = numbers.first().and_then(|first| first.parse::<f64>().ok());
    let trains = first.is_some_and(|weight| weight > 0.0) && numbers.len() <= 3;
    let message = format!("a split of `{}`", escaped(text));
    (!trains).then(|| job.argument_found("split", &message, "expected as many as three weights"))?
}

fn collector(job: &Job<'_>) -> Option<Found> {
    let dest = "manual_gc_interval";
    let below = job.values.integer(dest).is_some_and(|steps| steps < 0);
    let refused = job.values.flag("manual_gc") && below;
    refused.then(|| job.argument_found(dest, "fewer steps than none", "expected 0 or more"))?
}

fn profiler(job: &Job<'_>) -> Option<Found> {
    let (values, dest) = (job.values, "profile_step_end");
    let (first, last) = (values.integer("profile_step_start")?, values.integer(dest)?);
    let runs = values.flag("profile") && values.flag("use_pytorch_profiler");
    let message = format!("a profile of steps {first} to {last}");
    (runs && last <= first).then(|| job.argument_found(dest, &message, "no step"))?
}

/// Signals of Linux by Python's names; real-time ones are only the two that have names.
const SIGNALS: [&str; 36] = [
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGRTMAX",
    "SIGRTMIN",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
];

fn signal(job: &Job<'_>) -> Option<Found> {
    let dest = "exit_signal";
    let setting = job.values.setting(dest)?;
    let Value::Text(name) = &setting.value else {
        return None;
    };
    // A log shows the signal itself, as a number or as Python writes it.
    let refused = job.values.resolved(dest).is_none() && !SIGNALS.contains(&name.as_str());
    let message = format!("the signal `{}`", escaped(name));
    refused.then(|| job.argument_found(dest, &message, "no name of a signal"))?
}

fn seed(job: &Job<'_>) -> Option<Found> {
    let dest = "seed";
    let stages = i64::from(job.asked().pp) - 1;
    let seed = job.values.integer(dest).filter(|seed| *seed > 0)?;
    let last = seed.saturating_add(stages.saturating_mul(100));
    let most = i64::from(u32::MAX);
    // A seed that is too large by itself is told by a rule of its own.
    let refused = seed <= most && last > most;
    let message = format!("the seed {last} of the last pipeline stage");
    refused.then(|| job.argument_found(dest, &message, "more than 32 bits"))?
}
