//! A `ckpt-resume` test that gives its second run arguments of its own.

use super::*;

/// A test that trains with `first` and resumes with `second`, beside the same model.
fn resumed(first: &str, second: &str, test_type: &str, phase: usize) -> Read {
    let entries = entries();
    let saves = "  --save: /a\n  --load: /a\n  --save-interval: 5\n";
    let lines = |more: &str| -> String {
        let more = more.split(';').map(str::trim).filter(|one| !one.is_empty());
        more.map(|entry| format!("  {entry}\n")).collect()
    };
    let (first, second) = (lines(first), lines(second));
    let text = format!(
        "ENV_VARS:\n  NCCL_ALGO: Ring\nMODEL_ARGS:\n{entries}{saves}{first}\
         MODEL_ARGS_2:\n{entries}{saves}{second}TEST_TYPE: {test_type}\n"
    );
    let options = UnderstandOptions { phase, world: None };
    understood("test_cases/gpt/a/model_config.yaml", &text, options)
}

const TP2: &str = "--tensor-model-parallel-size: 2; --make-vocab-size-divisible-by: 256";
/// The vocabulary is padded to the same rows on one rank as on two.
const TP1: &str = "--tensor-model-parallel-size: 1; --make-vocab-size-divisible-by: 512";
const DET: &str = "--deterministic-mode: true; --attention-backend: unfused";

#[test]
fn a_resume_with_other_arguments_is_not_taken_for_one_of_the_same() {
    for (first, second, differing) in [
        (DET, "", "attention-backend, deterministic-mode"),
        (
            "--tensor-model-parallel-size: 2; --deterministic-mode: true",
            "",
            "deterministic-mode, tensor-model-parallel-size",
        ),
        ("", "--seed: 7", "seed"),
        ("", "--lr-decay-style: cosine", "lr-decay-style"),
        // Bitproof's text stands for both, and yet the two are of different data.
        ("--data-path: /a", "--data-path: /b", "data-path"),
        ("", "--num-experts: 8", "num-experts"),
        // What can be loaded is a matter of the format.
        ("", "--ckpt-format: torch", "ckpt-format"),
    ] {
        let read = resumed(first, second, "ckpt-resume", 0);
        let found = errors(&read);
        assert_eq!(found.len(), 1, "{second}: {found:?}");
        assert_eq!(found[0].code, "not-simulated");
        let (place, _) = found[0].place.as_ref().unwrap();
        assert_eq!(&place.source.text[place.span.clone()], "MODEL_ARGS_2");
        let notes = found[0].notes.join("\n");
        assert!(
            notes.contains(&format!("differing: {differing}")),
            "{notes}"
        );
        assert!(read.understood.recipe.is_none());
        assert_eq!(read.understood.needs.len(), 1);
        // The script of these tests reads it where it resumes, and nowhere else.
        let read = resumed(first, second, "regular", 0);
        assert!(read.understood.recipe.is_some(), "{:?}", read.findings);
        assert!(read.understood.rerun.resharding.is_none());
    }
}

#[test]
fn a_resume_with_the_same_arguments_is_one_of_the_same() {
    for (first, second) in [
        ("", ""),
        (DET, DET),
        ("--log-interval: 1", "--log-interval: 5"),
        ("--seed: 1234", ""),
    ] {
        let read = resumed(first, second, "ckpt-resume", 0);
        assert!(read.understood.recipe.is_some(), "{:?}", read.findings);
        let rerun = &read.understood.rerun;
        assert_eq!((&rerun.restarts[..], rerun.resharding), (&[5][..], None));
    }
}

#[test]
fn a_resume_on_another_layout_is_one() {
    let pp2 = "--pipeline-model-parallel-size: 2";
    let swap = "--tensor-model-parallel-size: 1; --pipeline-model-parallel-size: 1";
    for (first, second, layout) in [
        (
            format!("{pp2}; --tensor-model-parallel-size: 1"),
            swap.to_string(),
            "1x1xNone",
        ),
        (TP2.to_string(), format!("{TP2}; {pp2}"), "2x2xNone"),
    ] {
        let read = resumed(&first, &second, "ckpt-resume", 0);
        assert!(
            read.understood.recipe.is_some(),
            "{second}: {:?}",
            read.findings
        );
        let found = read.understood.rerun.resharding.expect("a layout");
        assert_eq!(found.to_string(), layout);
    }
    // The multiples that pad the vocabulary alike are not the same argument.
    let read = resumed(TP2, TP1, "ckpt-resume", 0);
    assert!(read.understood.recipe.is_none());
}

/// The vocabulary is padded to a multiple of the tensor-parallel size: that is said, and no other
/// job.
#[test]
fn a_layout_that_pads_the_vocabulary_otherwise_is_told() {
    let says = |read: &Read| {
        let mut open = read.understood.open.iter();
        open.any(|said| said.contains("50304 words there and to 50432"))
    };
    let tp2 = "--tensor-model-parallel-size: 2";
    let read = resumed(tp2, "", "ckpt-resume", 0);
    assert!(read.understood.recipe.is_some(), "{:?}", read.findings);
    assert!(says(&read), "{:?}", read.understood.open);
    let said = "--padded-vocab-size: 50432";
    let read = resumed(&format!("{tp2}; {said}"), said, "ckpt-resume", 0);
    assert!(read.understood.recipe.is_some() && !says(&read));
}

#[test]
fn a_second_run_that_leaves_state_out_is_refused() {
    let read = resumed("", "--finetune: true", "ckpt-resume", 0);
    let messages: Vec<&str> = errors(&read)
        .iter()
        .map(|one| one.message.as_str())
        .collect();
    assert!(messages[0].contains("--finetune"), "{messages:?}");
    assert!(read.understood.recipe.is_none());
}

#[test]
fn the_second_run_alone_says_that_its_resume_is_not_the_tests() {
    let said = |read: &Read| {
        read.understood
            .open
            .iter()
            .any(|said| said.contains("MODEL_ARGS_2"))
    };
    let read = resumed(DET, "", "ckpt-resume", 1);
    assert!(read.understood.recipe.is_some() && said(&read));
    assert!(!said(&resumed(DET, "", "regular", 1)));
    assert!(!said(&resumed("", "", "ckpt-resume", 0)));
}

#[test]
fn a_second_run_that_is_refused_is_told_of() {
    for (second, word) in [
        ("--loss-scale: 3.0", "differing: loss-scale"),
        (
            "--inference-rng-tracker: true",
            "differing: inference-rng-tracker",
        ),
        (
            "--log-max-attention-logit: true",
            "differing: log-max-attention-logit",
        ),
        ("--ddp-bucket-size: -5", "`--ddp-bucket-size` is -5"),
    ] {
        let read = resumed("", second, "ckpt-resume", 0);
        let found = errors(&read);
        assert_eq!(found.len(), 1, "{second}: {found:?}");
        let said = format!("{} {}", found[0].message, found[0].notes.join(" "));
        assert!(said.contains(word), "{second}: {said}");
        assert!(read.understood.recipe.is_none(), "{second}");
    }
}
