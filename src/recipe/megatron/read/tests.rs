//! Functional tests' files, kinds of files, and what is refused.

use super::*;
use crate::recipe::megatron::GivenValue;

fn given(name: &str, text: &str) -> (Option<GivenJob>, Vec<Diagnostic>) {
    let source = Source::new(name, text);
    let mut findings = Findings::default();
    let job = GivenJob::read(&source, Path::new(name), &mut findings);
    (job, findings.into_vec())
}

#[track_caller]
fn job(text: &str) -> GivenJob {
    let (job, found) = given("case/model_config.yaml", text);
    job.unwrap_or_else(|| panic!("{}", found[0].to_plain()))
}

#[track_caller]
fn refused(text: &str, code: &str, line: usize) {
    let (job, found) = given("case/model_config.yaml", text);
    assert!(job.is_none(), "{job:?}");
    let finding = found.iter().find(|f| f.code == code);
    let finding = finding.unwrap_or_else(|| panic!("no {code}: {found:?}"));
    let (place, _) = finding.place.as_ref().unwrap();
    assert_eq!(place.source.line_column(place.span.start).0, line);
}

#[test]
fn the_kind_follows_from_name_and_content() {
    let kind = |name: &str, text: &str| kind_of(&Source::new(name, text));
    let block = "---- arguments ----\n";
    assert_eq!(kind("a.toml", "[recipe]\n# MODEL_ARGS:\n"), None);
    assert_eq!(kind("a", "num_layers = 4\n"), None);
    assert_eq!(kind("a.yaml", "broken"), Some(GivenKind::FunctionalTest));
    assert_eq!(
        kind("a", "x: 1\nMODEL_ARGS_2:\n"),
        Some(GivenKind::FunctionalTest)
    );
    assert_eq!(
        kind("a", "\u{feff}\"MODEL_ARGS\" :\r\n"),
        Some(GivenKind::FunctionalTest)
    );
    assert_eq!(kind("a.log", block), Some(GivenKind::ArgumentDump));
    // A job's log in a comment of a script says nothing of the next job.
    let kept = format!("#!/bin/bash\ntorchrun a.py --a\n# {block}");
    assert_eq!(kind("a", &kept), Some(GivenKind::CommandLine));
    let kept = format!("torchrun a.py --a\n# {block}");
    assert_eq!(kind("A.SBATCH", &kept), Some(GivenKind::CommandLine));
    let kept = format!("\n\n#!/bin/bash\ntorchrun a.py --a\n{block}");
    assert_eq!(kind("a", &kept), Some(GivenKind::CommandLine));
    assert_eq!(kind("a.sh", ""), Some(GivenKind::CommandLine));
    assert_eq!(kind("a", "--num-layers 4"), Some(GivenKind::CommandLine));
    assert_eq!(
        kind("a", "torchrun x.py --num-layers 4"),
        Some(GivenKind::CommandLine)
    );
    let (job, found) = given("a", "nothing of the sort");
    assert!(job.is_none());
    assert_eq!(found[0].code, "not-megatron");
}

/// A job's block of arguments, `mark` before each line.
fn block(mark: &str) -> String {
    let line = format!("  lr {} 0.1", ".".repeat(46));
    let lines = ["---- arguments ----", &line, "---- end of arguments ----"];
    lines.map(|line| format!("{mark}{line}\n")).concat()
}

#[test]
fn a_log_in_a_comment_is_no_log() {
    let yaml = format!("MODEL_ARGS:\n  --lr: 1\n{}", block("# "));
    for (name, text, kind) in [
        (
            "c/model_config.yaml",
            yaml.as_str(),
            GivenKind::FunctionalTest,
        ),
        ("c/test", &yaml, GivenKind::FunctionalTest),
        (
            "c/test",
            &format!("{}{yaml}", block("#")),
            GivenKind::FunctionalTest,
        ),
        (
            "list.args",
            &format!("--lr 1\n{}", block("# ")),
            GivenKind::CommandLine,
        ),
        (
            "list.txt",
            &format!("--lr 1\n{}", block(" #")),
            GivenKind::CommandLine,
        ),
        (
            "launch",
            &format!("torchrun a.py --lr 1\n{}", block("# 0: ")),
            GivenKind::CommandLine,
        ),
        (
            "launch",
            &format!("torchrun a.py --lr 1\n{}", block("0: # ")),
            GivenKind::CommandLine,
        ),
    ] {
        let (job, found) = given(name, text);
        let job = job.unwrap_or_else(|| panic!("{text}: {found:?}"));
        assert_eq!(job.kind, kind, "{text}");
        let argument = &job.phases[0].arguments[0];
        assert_eq!(argument.value, GivenValue::Text("1".into()), "{text}");
    }
    let heading = "MODEL_ARGS:\n# ---- arguments ----\n  --lr: 1\n";
    assert_eq!(job(heading).kind, GivenKind::FunctionalTest);
    // A launcher's own marks are none of these.
    for mark in ["0: ", "[rank0]:", "2026-01-01 10:00:00 "] {
        let (job, found) = given("job", &block(mark));
        assert_eq!(job.unwrap().kind, GivenKind::ArgumentDump, "{found:?}");
    }
}

#[test]
fn a_log_and_a_job_in_one_file_are_refused() {
    let block = block("");
    for beside in [
        "--lr 1",
        "torchrun a.py --lr 1",
        "A=1 B=2 /usr/bin/torchrun a.py",
        "srun a",
        "\"$RUN\" a.py",
        "export A=1",
        "MODEL_ARGS:",
        "'ENV_VARS' : ",
    ] {
        for text in [format!("{block}{beside}\n"), format!("{beside}\n{block}")] {
            let (job, found) = given("job.txt", &text);
            assert!(job.is_none(), "{text}");
            assert_eq!(found[0].code, "two-kinds", "{text}");
            let (place, _) = found[0].place.as_ref().unwrap();
            assert!(
                text[place.span.clone()].starts_with(beside.trim()),
                "{text}"
            );
            // A job's output may show what was run.
            let (job, found) = given("job.log", &text);
            assert!(job.is_some(), "{found:?}");
        }
    }
    for beside in [
        "NCCL_ALGO=Ring",
        "time to initialize megatron (seconds): 1",
        "srun: job 1 queued",
        "+ torchrun a.py --lr 1",
        "INFO: use --lr",
        "# torchrun a.py",
        "",
    ] {
        let (job, found) = given("job.txt", &format!("{beside}\n{block}{beside}\n"));
        assert!(job.is_some(), "{beside}: {found:?}");
    }
    // In what was never ended, everything stands beside it.
    let (_, found) = given("job", "---- arguments ----\ntorchrun a.py --lr 1\n");
    assert_eq!(found[0].code, "two-kinds");
}

#[test]
fn values_become_the_words_that_the_launcher_makes_of_them() {
    let job = job("\
MODEL_ARGS:
  --a: true
  --b: \"true\"
  --c: 1.0e-5
  --d: .01
  --e: 949,50,1
  --f: :4096:8
  --g: \"[a b]\"
  --h: [a b]
  --i: ([0]*4+[1]*9)
  --j: 2 2
  --k: ${X}/y
  --l: ~
  --m: 'null'
  --n: \"[[1] [2]]\"
  --o: yes
  --p: 0x10
  --q: 1_000
  --r: True
  --s: \"'a  b' c\"
  --t: \"-1 x\"
  --u: -.5
");
    let text = |text: &str| GivenValue::Text(text.into());
    let list = |words: &[&str]| GivenValue::List(words.iter().map(|w| w.to_string()).collect());
    let expected = [
        GivenValue::On,
        GivenValue::On,
        text("1.0e-5"),
        text(".01"),
        text("949,50,1"),
        text(":4096:8"),
        list(&["a", "b"]),
        list(&["a", "b"]),
        text("([0]*4+[1]*9)"),
        text("2 2"),
        text("${X}/y"),
        text("~"),
        text("null"),
        text("[[1] [2]]"),
        text("yes"),
        text("0x10"),
        text("1_000"),
        // Text is compared: only `true` is a switch's.
        text("True"),
        text("a  b c"),
        text("-1 x"),
        text("-.5"),
    ];
    let values: Vec<_> = job.phases[0]
        .arguments
        .iter()
        .map(|a| a.value.clone())
        .collect();
    assert_eq!(values, expected);
    assert_eq!(job.case.as_deref(), Some("case"));
}

/// `b,` and `c` are the words that Megatron-LM would get.
#[test]
fn lists_of_several_words_are_written_in_brackets_as_text() {
    // Of one item, a dash; of none, brackets.
    for entry in [
        "--a: [b, c]",
        "--a:\n  - b\n  - c",
        "--a:\n  - b",
        "--a: []",
    ] {
        let (job, found) = given("m.yaml", &format!("MODEL_ARGS:\n  {entry}\n"));
        assert_eq!(found[0].code, "launch-words", "{entry}");
        assert!(job.is_none(), "{entry}: {found:?}");
    }
    let (_, found) = given("m.yaml", "MODEL_ARGS:\n  --a: [b c]\n");
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn odd_values_are_told() {
    let codes = |entry: &str| -> Vec<&str> {
        let (job, found) = given("m.yaml", &format!("MODEL_ARGS:\n  {entry}\n"));
        assert!(job.is_some(), "{found:?}");
        found.iter().map(|finding| finding.code).collect()
    };
    assert_eq!(codes("--a: false"), ["launch-words"]);
    assert_eq!(codes("--a: \"\""), ["launch-words"]);
    assert_eq!(codes("--a: null"), ["launch-words"]);
    assert_eq!(codes("--a: ~"), ["launch-words"]);
    assert_eq!(codes("--a: TRUE"), ["launch-words"]);
    assert_eq!(codes("--a: False"), ["launch-words"]);
    assert_eq!(codes("a.b: null"), [""; 0]);
    assert_eq!(codes("a.b:"), [""; 0]);
    assert_eq!(codes("a.b: False"), [""; 0]);
    assert_eq!(
        codes("--a: b\nTEST_TYPE: ckpt-resum"),
        ["unknown-test-type"]
    );
    assert_eq!(codes("--a: b\nTEST_TYPE: ckpt-resume"), [""; 0]);
    assert_eq!(
        codes("--a: b\nBEFORE_SCRIPT: export X=1"),
        ["script-not-run"]
    );
    assert_eq!(
        codes("--a: b\nMODEL_ENV_VARS: {MODEL_ARGS_7: {GPUS_PER_NODE: 1}}"),
        ["no-such-phase"]
    );
}

#[test]
fn broken_files_are_refused_with_their_places() {
    refused("MODEL_ARGS:\n  --a: 1\n  --a: 2\n", "duplicate-key", 3);
    refused("MODEL_ARGS:\n  --a-b: 1\n  --a_b: 2\n", "duplicate-key", 3);
    refused("MODEL_ARGS: 3\n", "wrong-type", 1);
    refused("MODEL_ARGS:\n  --a: {b: 1}\n", "wrong-type", 2);
    refused("MODEL_ARGS:\n  --a: [[b]]\n", "wrong-type", 2);
    refused("MODEL_ARGS:\n  --a: |\n    x\n    y\n", "wrong-type", 3);
    refused(
        "MODEL_ARGS: {--a: 1}\nENV_VARS:\n  A: |\n    x\n    B=y\n",
        "wrong-type",
        4,
    );
    // What `xargs`, `eval` and argparse stumble over, or take for something else.
    for value in [
        "\"[a --seed 77]\"",
        "[a --bf16]",
        "--bf16",
        "-1e-3",
        "\"#1\"",
        "it's",
        "a;b",
        "a&b",
        "'`a`'",
        "'a\"b'",
        "\"[a b;c]\"",
    ] {
        refused(&format!("MODEL_ARGS:\n  --a: {value}\n"), "wrong-value", 2);
    }
    for value in ["a b;c", "a#b", "a#b c&d", "([0]*4)", "a*b", "Et|(tt|)*6mL"] {
        job(&format!("MODEL_ARGS:\n  --a: {value}\n"));
    }
    refused("MODEL_ARGS:\n  --b: 1\n  --a:\n", "empty-value", 3);
    refused("MODEL_ARGS:\n  --b: 1\n  --a: \" \"\n", "empty-value", 3);
    refused("MODEL_ARGS:\n  --a b: 1\n", "bad-flag", 2);
    // As its words are passed on, argparse would see no flag.
    refused("MODEL_ARGS:\n  --b: 1\n  lr: 1e-4\n", "bad-flag", 3);
    refused("MODEL_ARGS:\n  --b: 1\n  -lr: 1e-4\n", "bad-flag", 3);
    refused("MODEL_ARGS:\n  a.b: 1\n  --a b: 1\n", "bad-flag", 3);
    let of_phase = "MODEL_ARGS: {--a: 1}\nMODEL_ENV_VARS:\n  MODEL_ARGS:\n    ";
    refused(&format!("{of_phase}NCCL_ALGO: Ring\n"), "bad-variable", 4);
    let both = format!("ENV_VARS: {{GPUS_PER_NODE: 4}}\n{of_phase}GPUS_PER_NODE: 2\n");
    refused(&both, "contradiction", 5);
    job(&both.replace(": 4", ": 2"));
    refused("MODEL_ARGS: {--a: 1}\nENV_VARS: [a]\n", "wrong-type", 2);
    refused(
        "MODEL_ARGS: {--a: 1}\nENV_VARS:\n  A B: 1\n",
        "bad-variable",
        3,
    );
    refused("MODEL_ARGS: {--a: 1}\nMETRICS: x\n", "wrong-type", 2);
    refused("MODEL_ARGS: {--a: 1}\nTEST_TYPE: [x]\n", "wrong-type", 2);
    refused("MODEL_ARGS: {--a: 1}\nMODEL_ARG: {}\n", "unknown-key", 2);
    refused("MODEL_ARGS: {--a: 1}\nMODEL_ARGS_x: {}\n", "unknown-key", 2);
    refused(
        "MODEL_ARGS: {--a: 1}\nEXTRA: &never {--b: 1}\n",
        "unknown-key",
        2,
    );
    refused("MODEL_ARGS_2: {--a: 1}\n", "missing-key", 1);
    refused("- MODEL_ARGS\n", "wrong-type", 1);
    refused("MODEL_ARGS:\n  --a: x\0y\n", "nul-byte", 2);
    let many: String = (0..5_000).map(|i| format!("  --a{i}: 1\n")).collect();
    refused(&format!("MODEL_ARGS:\n{many}"), "too-many", 4_098);
    let phases: String = (2..70)
        .map(|i| format!("MODEL_ARGS_{i}: {{--a: 1}}\n"))
        .collect();
    refused(&format!("MODEL_ARGS: {{--a: 1}}\n{phases}"), "too-many", 65);
    let (_, found) = given("m.yaml", "MODEL_ARGS: {--a: 1}\nMODEL_ARG: {}\n");
    assert!(found[0].help[0].contains("`MODEL_ARGS`"), "{found:?}");
}

#[test]
fn aliases_that_repeat_long_values_end_at_a_limit() {
    let long = format!("X: &x {}\n", "y".repeat(60_000));
    let repeated: String = (0..200).map(|i| format!("  --a{i}: *x\n")).collect();
    refused(&format!("{long}MODEL_ARGS:\n{repeated}"), "too-long", 72);
    let list = vec!["*x"; 20_000].join(", ");
    refused(
        &format!("{long}MODEL_ARGS:\n  --a: [{list}]\n"),
        "too-long",
        3,
    );
    let variables = repeated.replace("--", "");
    let both = format!("{long}MODEL_ARGS: {{--a: 1}}\nENV_VARS:\n{variables}");
    refused(&both, "too-long", 73);
    let phases: String = (2..1_000)
        .map(|i| format!("MODEL_ARGS_{i}: *p\n"))
        .collect();
    refused(
        &format!("MODEL_ARGS: &p {{--a: 1}}\n{phases}"),
        "too-many",
        65,
    );
}

#[test]
fn bytes_that_are_no_text_are_refused_unless_a_log_holds_a_block() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.log");
    let line = format!("  lr {} 0.1\n", ".".repeat(46));
    let block = format!("---- arguments ----\n{line}---- end of arguments ----\n");
    let noise = vec![b'x'; 1 << 20];
    let parts: [&[u8]; 5] = [b"\xff\n", &noise, b"\r\n", block.as_bytes(), b"\xfe tail"];
    std::fs::write(&path, parts.concat()).unwrap();
    let source = super::super::open(&path).unwrap();
    let mut findings = Findings::default();
    let job = GivenJob::read(&source, &path, &mut findings).unwrap();
    let place = &job.phases[0].arguments[0].flag_place;
    assert_eq!(source.line_column(place.span.start), (4, 3));
    std::fs::write(&path, [b"\xff\n", &noise[..]].concat()).unwrap();
    assert!(super::super::open(&path).is_err());
    let broken = block.replace("0.1", "\u{1}");
    let broken = broken
        .into_bytes()
        .iter()
        .map(|b| if *b == 1 { 0xff } else { *b })
        .collect();
    std::fs::write::<_, Vec<u8>>(&path, broken).unwrap();
    assert!(super::super::open(&path).is_err());
}
