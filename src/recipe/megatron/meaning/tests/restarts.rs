//! What a job loads when it is started again.

use super::*;

/// A test of the small model, with entries such as `--save: /a; --load: /a`.
fn tested(test_type: &str, entries_of_test: &str) -> Read {
    let entries = entries();
    let more = entries_of_test.split("; ").filter(|one| !one.is_empty());
    let more: String = more.map(|entry| format!("  {entry}\n")).collect();
    let text = format!("MODEL_ARGS:\n{entries}{more}TEST_TYPE: {test_type}\n");
    let name = "test_cases/gpt/a/model_config.yaml";
    understood(name, &text, UnderstandOptions::default())
}

fn says_of_restarts(read: &Read, flag: &str) -> bool {
    let mut open = read.understood.open.iter();
    open.any(|said| said.contains("restarts that take") && said.contains(flag))
}

const LEFT_OUT: [&str; 3] = ["--no-load-rng", "--no-load-optim", "--finetune"];

#[test]
fn a_job_that_leaves_state_out_of_what_it_saved_itself_is_another() {
    for flag in LEFT_OUT {
        for (load, save) in [("/a", "/a"), ("/a/b/", "/a//./b"), ("$DIR/x", "$DIR/x")] {
            let more = format!("--load {load} --save {save} --save-interval 5 {flag}");
            let read = line("", &more);
            let found = errors(&read);
            assert_eq!(found.len(), 1, "{more}: {found:?}");
            assert_eq!(found[0].code, "not-simulated", "{more}");
            assert!(found[0].notes[0].contains("each restart"), "{more}");
            assert!(read.understood.recipe.is_none(), "{more}");
        }
        // Another job's checkpoint is loaded so, and the rest is said.
        for folders in [
            "",
            "--load /a",
            "--load /a --save /b",
            "--load /a --save a",
            "--save /a",
        ] {
            let read = line("", &format!("{folders} --save-interval 5 {flag}"));
            assert!(
                read.understood.recipe.is_some(),
                "{folders}: {:?}",
                read.findings
            );
            assert!(says_of_restarts(&read, flag), "{folders}");
        }
        let of_test = format!("--load: /a; --save: /a; --save-interval: 5; {flag}: true");
        for test_type in ["frozen-resume", "release", "regular", "ckpt-resume"] {
            let read = tested(test_type, &of_test);
            assert_eq!(errors(&read)[0].code, "not-simulated", "{test_type}");
        }
    }
    let read = line("", "--load /a --save /a --save-interval 5");
    assert!(read.understood.recipe.is_some() && !says_of_restarts(&read, ""));
}

#[test]
fn a_test_that_resumes_from_another_checkpoint_is_another() {
    let saved = "--save-interval: 5; --save: ";
    for (entries, test_type, is_sound) in [
        ("/a; --load: /a", "ckpt-resume", true),
        ("/a; --load: /b", "ckpt-resume", false),
        ("/a; --load: /b", "regular", true),
        (
            "${CHECKPOINT_SAVE_PATH}; --load: ${CHECKPOINT_LOAD_PATH}",
            "ckpt-resume",
            true,
        ),
        ("/a; --load: /a; --ckpt-step: 2", "ckpt-resume", false),
        ("/a; --load: /a; --ckpt-step: 2", "regular", true),
        (
            "/a; --load: /a; --non-persistent-save-interval: 3",
            "ckpt-resume",
            false,
        ),
        (
            "/a; --load: /a; --non-persistent-save-interval: 3",
            "regular",
            true,
        ),
        (
            "/a; --load: /a; --save-retain-interval: 20",
            "ckpt-resume",
            false,
        ),
        (
            "/a; --load: /a; --save-retain-interval: 20",
            "regular",
            true,
        ),
        ("/a; --load: /a; --exit-interval: 4", "ckpt-resume", true),
        (
            "/a; --load: /a; --exit-on-missing-checkpoint: true",
            "ckpt-resume",
            false,
        ),
        (
            "/a; --load: /a; --exit-on-missing-checkpoint: true",
            "regular",
            true,
        ),
    ] {
        let read = tested(test_type, &format!("{saved}{entries}"));
        let codes: Vec<_> = errors(&read).iter().map(|found| found.code).collect();
        let expected: &[&str] = if is_sound { &[] } else { &["not-simulated"] };
        assert_eq!(codes, expected, "{entries}");
    }
}

/// run_ci_test.sh runs MODEL_ARGS_2 from a stored checkpoint of half the steps.
#[test]
fn a_test_with_a_stored_checkpoint_resumes() {
    let read = tested("frozen-resume", "--save: /a; --save-interval: 3");
    assert_eq!(errors(&read).len(), 0, "{:?}", read.findings);
    assert_eq!(read.understood.rerun.restarts, [5]);
    let open = &read.understood.open;
    assert!(open.iter().any(|said| said.contains("stored checkpoint")));
    let model = format!("MODEL_ARGS:\n{}", entries());
    let second = format!(
        "MODEL_ARGS_2:\n{}  --grad-reduce-in-bf16: true\n",
        entries()
    );
    let text = format!("{model}{second}TEST_TYPE: frozen-resume\n");
    let name = "test_cases/gpt/a/model_config.yaml";
    let read = understood(name, &text, UnderstandOptions::default());
    assert!(read.understood.recipe.is_none(), "another job goes on");
}

/// run_ci_test.sh changes the steps of such a test.
#[test]
fn a_lightweight_test_that_resumes_is_another() {
    let codes = |value: &str, test_type: &str| -> Vec<&'static str> {
        let model = format!("MODEL_ARGS:\n{}", entries());
        let saves = "  --save: /a\n  --load: /a\n  --save-interval: 5\n";
        let env = format!("ENV_VARS:\n  ENABLE_LIGHTWEIGHT_MODE: {value}\n");
        let text = format!("{env}{model}{saves}TEST_TYPE: {test_type}\n");
        let name = "test_cases/gpt/a/model_config.yaml";
        let read = understood(name, &text, UnderstandOptions::default());
        errors(&read).iter().map(|found| found.code).collect()
    };
    assert_eq!(codes("true", "ckpt-resume"), ["not-simulated"]);
    assert_eq!(codes("false", "ckpt-resume"), [""; 0]);
    assert_eq!(codes("true", "regular"), [""; 0]);
}

/// `echo $((TRAIN_ITERS / 2))`, run_ci_test.sh.
#[test]
fn a_test_is_resumed_from_half_its_steps() {
    let of = |steps: u32, interval: u32| {
        let entries = entries().replace("--train-iters: 10", &format!("--train-iters: {steps}"));
        let saves = format!("  --save: /a\n  --load: /a\n  --save-interval: {interval}\n");
        let text = format!("MODEL_ARGS:\n{entries}{saves}TEST_TYPE: ckpt-resume\n");
        let name = "test_cases/gpt/a/model_config.yaml";
        understood(name, &text, UnderstandOptions::default())
    };
    for (steps, interval, half) in [(100, 25, 50), (100, 10, 50), (10, 5, 5), (10, 1, 5)] {
        let read = of(steps, interval);
        assert_eq!(read.understood.rerun.restarts, [half], "{steps} {interval}");
        assert!(read.understood.recipe.is_some(), "{:?}", read.findings);
    }
    // From 100 on nothing is saved before the end: the lint's `resume-without-checkpoint`.
    for interval in [20, 30, 60, 51, 99] {
        let read = of(100, interval);
        let codes: Vec<_> = errors(&read).iter().map(|found| found.code).collect();
        assert_eq!(codes, ["resume-never-saved"], "{interval}");
        assert!(read.understood.recipe.is_none());
    }
}

#[test]
fn what_whoever_starts_a_script_may_set_is_said() {
    let said = |script: &str| -> Vec<String> {
        let text = format!("{script}\ntorchrun --nproc-per-node 8 pretrain_gpt.py {MODEL}\n");
        let read = understood("run.sh", &text, UnderstandOptions::default());
        let open = read.understood.open.into_iter();
        open.filter(|said| said.contains("whoever starts"))
            .collect()
    };
    for script in [
        "export NCCL_ALGO=${NCCL_ALGO:-Ring}",
        "export NCCL_ALGO=\"${ALGO-Ring}\"",
        "A=${1:-Ring}\nB=$A\nexport NCCL_ALGO=x$B",
        "export NCCL_ALGO\nNCCL_ALGO=${NCCL_ALGO:=Ring}",
        "if [ ${A:-1} = 1 ]; then B=1; fi\nexport NCCL_ALGO=${C:-Ring}",
    ] {
        let found = said(script);
        assert_eq!(found.len(), 1, "{script}");
        assert!(found[0].starts_with("NCCL_ALGO as whoever"), "{found:?}");
    }
    for script in [
        "export NCCL_ALGO=Ring",
        "A=Ring\nexport NCCL_ALGO=${A:-Tree}",
        "A=\nexport NCCL_ALGO=${A:-Tree}",
        "export MASTER_PORT=${MASTER_PORT:-6000}",
        "A=${NCCL_ALGO:-Ring}",
    ] {
        assert_eq!(said(script), [""; 0], "{script}");
    }
}

/// Megatron asks clocks for any number that is not 0.
#[test]
fn a_job_that_its_clock_may_end_asks_clocks() {
    for (minutes, asks) in [("230", Some(230)), ("0", None)] {
        let read = tested("regular", &format!("--exit-duration-in-mins: {minutes}"));
        assert_eq!(errors(&read).len(), 0, "{:?}", read.findings);
        let recipe = read.understood.recipe.expect("it is a recipe");
        assert_eq!(recipe.exit_duration_in_mins, asks, "{minutes}");
    }
}
