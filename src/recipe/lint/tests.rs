mod asserted;
mod launched;
mod pairs;

use std::collections::BTreeSet;
use std::path::Path;

use super::*;
use crate::diagnostic::Source;
use crate::recipe::megatron::{UnderstandOptions, understand};
use pairs::{DET, PAIRS};

/// A job whose environment pins all that can be pinned.
const PINNED: &str = "NCCL_ALGO: Ring\nNCCL_PROTO: Simple\nNCCL_MIN_NCHANNELS: 4\n\
    NCCL_MAX_NCHANNELS: 4\nNCCL_BUFFSIZE: 4194304\nNCCL_TUNER_PLUGIN: none\n\
    NVTE_ALLOW_NONDETERMINISTIC_ALGO: 0\nCUBLAS_WORKSPACE_CONFIG: :4096:8\n\
    CUDA_DEVICE_MAX_CONNECTIONS: 1\nTORCH_NCCL_AVOID_RECORD_STREAMS: 1\n";

const MODEL: &str = "--num-layers: 4\n--hidden-size: 64\n--num-attention-heads: 4\n\
    --seq-length: 64\n--max-position-embeddings: 64\n--micro-batch-size: 1\n\
    --global-batch-size: 8\n--train-iters: 10\n--lr: 1e-3\n--bf16: true\n";

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// Findings of a functional test, by code, with severities.
fn findings(case: &str, env: &str, args: &str, tail: &str) -> Vec<Diagnostic> {
    let env = indented(env);
    // What is said of an argument takes the place of what the model says.
    let is_own = |line: &&str| {
        let key = line.split(':').next().unwrap_or_default();
        !args.lines().any(|own| own.split(':').next() == Some(key))
    };
    let model = MODEL.lines().filter(is_own);
    let model: String = model.map(|line| format!("{line}\n")).collect();
    let args = indented(&format!("{model}{args}"));
    let text = format!("ENV_VARS:\n{env}MODEL_ARGS:\n{args}{tail}");
    let path = format!("test_cases/gpt/{case}/model_config.yaml");
    let source = Source::new(path.as_str(), text.as_str());
    let mut told = Findings::default();
    let job = GivenJob::read(&source, Path::new(&path), &mut told);
    let job = job.unwrap_or_else(|| panic!("{:?}", told.into_vec()));
    let mut told = Findings::default();
    let understood = understand(&job, &UnderstandOptions::default(), &mut told);
    lint(&job, &understood)
}

fn codes(case: &str, env: &str, args: &str, tail: &str) -> BTreeSet<&'static str> {
    findings(case, env, args, tail)
        .iter()
        .map(|finding| finding.code)
        .collect()
}

#[test]
fn every_rule_fires_on_what_breaks_it_and_not_beside_it() {
    let mut tried = BTreeSet::new();
    for (rule, broken, sound) in PAIRS.iter().chain(asserted::PAIRS).chain(launched::PAIRS) {
        let fired = codes("a", broken[0], broken[1], "");
        assert!(
            fired.contains(rule),
            "{rule} does not fire on {broken:?}: {fired:?}"
        );
        let fired = codes("a", sound[0], sound[1], "");
        assert!(!fired.contains(rule), "{rule} fires on {sound:?}");
        tried.insert(*rule);
    }
    for (rule, ..) in HARNESS_CASES {
        tried.insert(*rule);
    }
    tried.insert("environment-unknown");
    for rule in rules() {
        assert!(tried.contains(rule.id), "no test of {}", rule.id);
    }
}

/// Rules that look at the case: its name, the arguments and the rest of the file; broken, sound.
type Case = (&'static str, [&'static str; 3], [&'static str; 3]);

const RESUME: &str = "TEST_TYPE: ckpt-resume\n";
const SAVED: &str = "--save: /a\n--load: /a\n--save-interval: 5\n";

const HARNESS_CASES: &[Case] = &[
    (
        "resume-without-checkpoint",
        ["a", "", RESUME],
        ["a", SAVED, RESUME],
    ),
    (
        "resume-without-checkpoint",
        ["a", "--save: /a\n--load: /a\n--save-interval: 10\n", RESUME],
        ["a", SAVED, RESUME],
    ),
    (
        "resume-without-state",
        [
            "a",
            "--save: /a\n--load: /a\n--save-interval: 5\n--no-load-rng: true\n",
            RESUME,
        ],
        ["a", SAVED, RESUME],
    ),
    (
        "reshard-optimizer",
        [
            "gpt_reshard_1x2xNone",
            "--use-distributed-optimizer: true\n",
            RESUME,
        ],
        [
            "gpt_reshard_1x2xNone",
            "--use-distributed-optimizer: true\n--dist-ckpt-optim-fully-reshardable: true\n",
            RESUME,
        ],
    ),
    (
        "resume-not-tested",
        ["gpt_resume_dist", "", "TEST_TYPE: regular\n"],
        ["gpt_resume_dist", SAVED, RESUME],
    ),
    (
        "case-name",
        ["gpt_tp4_pp1", "", ""],
        ["gpt_tp1_pp1", "", ""],
    ),
    (
        "several-phases",
        ["a", "", "MODEL_ARGS_2:\n  --num-layers: 2\n"],
        ["a", "", ""],
    ),
];

#[test]
fn rules_about_the_test_fire_too() {
    for (rule, broken, sound) in HARNESS_CASES {
        let fired = codes(broken[0], "", broken[1], broken[2]);
        assert!(
            fired.contains(rule),
            "{rule} does not fire on {broken:?}: {fired:?}"
        );
        let fired = codes(sound[0], "", sound[1], sound[2]);
        assert!(!fired.contains(rule), "{rule} fires on {sound:?}");
    }
}

#[test]
fn a_broken_rule_of_deterministic_mode_is_an_error_where_the_mode_is_asked_for() {
    let severity = |args: &str, env: &str| {
        let found = findings("a", env, args, "");
        let of_mode = found
            .iter()
            .find(|finding| finding.code == "deterministic-mode");
        of_mode.map(|finding| finding.severity)
    };
    let fused = "--cross-entropy-loss-fusion: true\n";
    assert_eq!(severity(fused, ""), Some(Severity::Note));
    assert_eq!(
        severity(&format!("{DET}{fused}"), ""),
        Some(Severity::Error)
    );
    let pending = format!("{DET}--num-experts: 8\n--moe-router-fusion: true\n");
    assert_eq!(severity(&pending, ""), Some(Severity::Warning));
    for (env, broken) in [
        ("NVTE_ALLOW_NONDETERMINISTIC_ALGO: 1\n", true),
        ("NVTE_ALLOW_NONDETERMINISTIC_ALGO: 0\n", false),
        ("CUBLAS_WORKSPACE_CONFIG: :8:8\n", true),
        ("CUBLAS_WORKSPACE_CONFIG: :16:8\n", false),
        ("MAMBA_DETERMINISTIC: 0\n", true),
        ("MAMBA_DETERMINISTIC: 1\n", false),
        ("NCCL_ALGO: Ring,Tree\n", true),
        ("NCCL_ALGO: \"^NVLS\"\n", false),
        ("NCCL_ALGO: \",\"\n", true),
        ("TRITON_CACHE_AUTOTUNING: 1\n", true),
        (
            "TRITON_CACHE_AUTOTUNING: 1\nTRITON_CACHE_DIR: /shared\n",
            false,
        ),
        ("TRITON_CACHE_AUTOTUNING: 0\n", false),
    ] {
        assert_eq!(severity(DET, env).is_some(), broken, "{env}");
    }
}

#[test]
fn errors_stand_first_and_everything_has_a_place_a_reason_and_a_remedy() {
    let args = "--deterministic-mode: true\n--cross-entropy-loss-fusion: true\n--min-lr: 1\n";
    let found = findings("a", "NVTE_ALLOW_NONDETERMINISTIC_ALGO: 1\n", args, "");
    assert!(found.len() > 6);
    for pair in found.windows(2) {
        assert!(pair[0].severity >= pair[1].severity);
    }
    for finding in &found {
        assert!(finding.place.is_some() && !finding.notes.is_empty() && !finding.help.is_empty());
    }
}

/// The second run of a test must start as well.
#[test]
fn the_arguments_of_a_second_run_are_looked_at() {
    let errors = |second: &str, test_type: &str| -> Vec<&'static str> {
        let of_second = indented(&format!("{MODEL}{SAVED}{second}"));
        let tail = format!("MODEL_ARGS_2:\n{of_second}TEST_TYPE: {test_type}\n");
        let found = findings("a", PINNED, SAVED, &tail);
        let errors = found.iter().filter(|one| one.severity == Severity::Error);
        errors.map(|finding| finding.code).collect()
    };
    for (second, rule) in [
        ("--replication: true\n", "replication-incomplete"),
        ("--save-retain-interval: 12\n", "retain-interval"),
        ("--num-dataset-builder-threads: 0\n", "no-dataset-builders"),
        ("--log-memory-interval: 3\n", "memory-log-interval"),
        (
            "--non-persistent-ckpt-type: local\n",
            "local-checkpoint-without-folder",
        ),
    ] {
        assert_eq!(errors(second, "ckpt-resume"), [rule], "{second}");
        // Only a test that resumes runs it.
        assert_eq!(errors(second, "regular"), [""; 0], "{second}");
    }
    assert_eq!(errors("", "ckpt-resume"), [""; 0]);
}

#[test]
fn a_log_shows_no_environment_and_is_not_told_that_it_lacks_one() {
    let text = "------------------------ arguments ------------------------\n  \
        deterministic_mode .............................. True\n  \
        num_layers ...................................... 4\n\
        -------------------- end of arguments ---------------------\n";
    let source = Source::new("job.log", text);
    let mut told = Findings::default();
    let job = GivenJob::read(&source, Path::new("job.log"), &mut told).unwrap();
    let understood = understand(&job, &UnderstandOptions::default(), &mut told);
    let found = lint(&job, &understood);
    let codes: Vec<&str> = found.iter().map(|finding| finding.code).collect();
    assert!(codes.contains(&"environment-unknown"), "{codes:?}");
    for code in [
        "nccl-protocol-open",
        "set-inside-the-process",
        "record-streams",
        "nvls-open",
    ] {
        assert!(!codes.contains(&code), "{code}");
    }
    assert!(!self::codes("a", "", "", "").contains("environment-unknown"));
}

#[test]
fn a_job_without_a_seed_does_not_start() {
    let codes = |seed: &str| -> Vec<&'static str> {
        let text = format!(
            "------------------------ arguments ------------------------\n  \
             num_layers ...................................... 4\n  \
             seed ............................................ {seed}\n\
             -------------------- end of arguments ---------------------\n"
        );
        let source = Source::new("job.log", text);
        let mut told = Findings::default();
        let job = GivenJob::read(&source, Path::new("job.log"), &mut told).unwrap();
        let understood = understand(&job, &UnderstandOptions::default(), &mut told);
        let found = lint(&job, &understood);
        found.iter().map(|finding| finding.code).collect()
    };
    assert!(codes("None").contains(&"seed-not-positive"));
    assert!(!codes("1234").contains(&"seed-not-positive"));
}
