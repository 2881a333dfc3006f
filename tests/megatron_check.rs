//! `bitproof check` of Megatron-LM jobs as they are: understood, linted, scaled, checked, replayed.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// A functional test with sizes of its own: 2 x 2 ranks of a model, deterministic.
const CASE: &str = "\
ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: 1
  NVTE_ALLOW_NONDETERMINISTIC_ALGO: 0
  NCCL_ALGO: Ring
  CUBLAS_WORKSPACE_CONFIG: :4096:8
MODEL_ARGS:
  --num-layers: 8
  --hidden-size: 256
  --num-attention-heads: 8
  --seq-length: 512
  --max-position-embeddings: 512
  --micro-batch-size: 2
  --global-batch-size: 12
  --train-iters: 20
  --lr: 0.001
  --lr-decay-style: constant
  --clip-grad: 1.0
  --tensor-model-parallel-size: 2
  --pipeline-model-parallel-size: 2
  --sequence-parallel: true
  --use-distributed-optimizer: true
  --use-mcore-models: true
  --transformer-impl: transformer_engine
  --no-gradient-accumulation-fusion: true
  --attention-softmax-in-fp32: true
  --bf16: true
  --log-interval: 1
  --eval-iters: 10
  --data-path: ${DATA_PATH}/text
  --vocab-file: ${DATA_PATH}/vocab.json
  --merge-file: ${DATA_PATH}/merges.txt
  --deterministic-mode: true
TEST_TYPE: regular
";

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().expect("a temporary folder"))
    }

    /// The path of a case's file, in a folder of the case's name.
    fn put(&self, case: &str, text: &str) -> PathBuf {
        let folder = self.0.path().join(case);
        std::fs::create_dir_all(&folder).expect("a writable folder");
        let path = folder.join("model_config.yaml");
        std::fs::write(&path, text).expect("a writable folder");
        path
    }

    fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        let output = Command::new(env!("CARGO_BIN_EXE_bitproof"))
            .args(arguments)
            .current_dir(self.0.path())
            .output()
            .expect("the binary starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let code = output.status.code().expect("an exit code");
        (code, text(&output.stdout), text(&output.stderr))
    }

    fn check(&self, path: &Path, flags: &[&str]) -> (i32, Value) {
        let path = path.display().to_string();
        let mut arguments = vec!["check", &path, "--format", "json"];
        arguments.extend(flags);
        let (code, text, errors) = self.run(&arguments);
        let value = serde_json::from_str(&text);
        (
            code,
            value.unwrap_or_else(|_| panic!("{code}: {text}{errors}")),
        )
    }
}

fn change<'a>(report: &'a Value, key: &str) -> Option<(&'a str, &'a str)> {
    let changes = report["import"]["changes"].as_array()?;
    let change = changes.iter().find(|change| change["key"] == key)?;
    Some((change["from"].as_str()?, change["to"].as_str()?))
}

#[test]
fn a_functional_test_is_understood_scaled_and_proved() {
    let folder = Folder::new();
    let path = folder.put("gpt_small_tp2_pp2", CASE);
    let (code, report) = folder.check(&path, &["--accept", "input"]);
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(report["scenario"]["name"], "gpt_small_tp2_pp2");
    let job = &report["import"];
    let layout = job["layout"].as_str().unwrap();
    assert!(
        layout.starts_with("TP 2, PP 2, DP 2, sequence parallel"),
        "{layout}"
    );
    assert_eq!(job["world"]["basis"], "assumed");
    assert_eq!(change(&report, "data-parallel size"), Some(("2", "4")));
    assert_eq!(change(&report, "hidden_size"), Some(("256", "32")));
    assert_eq!(change(&report, "microbatches of a rank"), None);
    assert_eq!(report["ranks"], 16);
    assert_eq!(report["recipe"]["global_batch_size"], 24);
    assert_eq!(report["verdicts"]["across"], "not-checked");
    let basis = report["certificate"]["plan_basis"].as_str().unwrap();
    assert!(basis.contains("full-size bytes"), "{basis}");
    let arguments = job["arguments"].as_array().unwrap();
    assert_eq!(arguments.len(), CASE.matches("\n  --").count());
    assert!(arguments.iter().all(|argument| argument["reason"] != ""));
    // For people, the same with its table.
    let (code, text, _) = folder.run(&["check", &path.display().to_string(), "--steps", "1"]);
    assert!([0, 6].contains(&code), "{text}");
    for line in [
        "the job",
        "assumed",
        "256 -> ",
        "change no bits",
        "(-v lists them)",
    ] {
        assert!(text.contains(line), "no {line:?} in\n{text}");
    }
}

#[test]
fn a_world_that_is_given_is_kept_and_a_larger_one_can_be_asked_for() {
    let folder = Folder::new();
    let path = folder.put("case", CASE);
    let flags = ["--steps", "1", "--set", "oracles=[\"R2R\"]", "--no-save"];
    let given = [&flags[..], &["--world", "8"]].concat();
    let (_, report) = folder.check(&path, &given);
    assert_eq!(report["import"]["world"]["basis"], "given");
    assert_eq!(
        (&report["ranks"], change(&report, "world_size")),
        (&8.into(), None)
    );
    let grown = [&given[..], &["--grow-dp", "3"]].concat();
    let (_, report) = folder.check(&path, &grown);
    assert_eq!(change(&report, "world_size"), Some(("8", "12")));
    let (code, refused) = folder.check(&path, &["--world", "8", "--grow-dp", "1"]);
    assert_eq!((code, &refused["grade"]), (2, &Value::Null));
}

#[test]
fn a_phase_is_picked_by_number_or_name() {
    let folder = Folder::new();
    let second = CASE.replace("--lr: 0.001", "--lr: 0.002");
    let second = second.split_once("MODEL_ARGS:\n").unwrap().1;
    let second = second.split_once("TEST_TYPE").unwrap().0;
    let text = CASE.replace("TEST_TYPE", &format!("MODEL_ARGS_2:\n{second}TEST_TYPE"));
    let path = folder.put("case", &text);
    let flags = ["--steps", "1", "--set", "oracles=[\"R2R\"]", "--no-save"];
    for (phase, lr) in [
        (None, "0.001"),
        (Some("2"), "0.002"),
        (Some("MODEL_ARGS_2"), "0.002"),
    ] {
        let asked = phase.map(|phase| ["--phase", phase]);
        let flags: Vec<&str> = flags
            .into_iter()
            .chain(asked.into_iter().flatten())
            .collect();
        let (_, report) = folder.check(&path, &flags);
        assert_eq!(report["recipe"]["lr"].to_string(), lr, "{phase:?}");
        assert_eq!(report["import"]["phases"].as_array().unwrap().len(), 2);
    }
    let (code, refused) = folder.check(&path, &["--phase", "3"]);
    assert_eq!(code, 2);
    assert_eq!(
        refused["diagnostics"][0]["code"], "no-such-phase",
        "{refused:#}"
    );
}

#[test]
fn what_is_not_simulated_is_refused_by_name_and_place() {
    let folder = Folder::new();
    let text = CASE.replace("TEST_TYPE", "  --num-experts: 8\nTEST_TYPE");
    let path = folder.put("case", &text);
    let (code, refused) = folder.check(&path, &[]);
    assert_eq!(code, 2);
    let diagnostics = refused["diagnostics"].as_array().unwrap();
    let names = |found: &&Value| found["message"].as_str().unwrap().contains("num-experts");
    let found = diagnostics.iter().find(names);
    let found = found.unwrap_or_else(|| panic!("{refused:#}"));
    let line = text
        .lines()
        .position(|line| line.contains("num-experts"))
        .unwrap()
        + 1;
    assert_eq!(found["line"], line);
}

#[test]
fn lint_runs_nothing_and_refuses_what_megatron_would() {
    let folder = Folder::new();
    let path = folder.put("case", CASE).display().to_string();
    let (code, text, errors) = folder.run(&["check", "--lint-only", &path]);
    assert_eq!(code, 0, "{text}{errors}");
    assert!(text.contains("0 errors"), "{text}");
    let broken = CASE.replace(
        "ALLOW_NONDETERMINISTIC_ALGO: 0",
        "ALLOW_NONDETERMINISTIC_ALGO: 1",
    );
    let path = folder.put("broken", &broken).display().to_string();
    for flags in [&["--lint-only"][..], &[]] {
        let arguments = [&["check", &path, "--format", "json"][..], flags].concat();
        let (code, text, _) = folder.run(&arguments);
        assert_eq!(code, 2, "{text}");
        assert!(text.contains("NVTE_ALLOW_NONDETERMINISTIC_ALGO"), "{text}");
    }
}

/// The regression file is whole: the job's own file may be gone.
#[test]
fn a_failure_is_replayed_without_the_job() {
    let folder = Folder::new();
    let free = CASE
        .replace("  --deterministic-mode: true\n", "")
        .replace("ALGO: 0", "ALGO: 1");
    let path = folder.put("case", &free);
    let (code, report) = folder.check(&path, &["--steps", "1", "--set", "oracles=[\"R2R\"]"]);
    // Whether it reaches an output within one step is not the point here.
    assert!(
        code == 1
            && ["divergent", "masked"]
                .map(Value::from)
                .contains(&report["grade"]),
        "{report:#}"
    );
    let first = &report["first_divergence"]["variable"]["name"];
    assert_eq!(first, "attention_backward");
    std::fs::remove_file(&path).expect("it was there");
    let replay = report["replay"]
        .as_str()
        .expect("a line to paste")
        .to_string();
    let words: Vec<&str> = replay.split(' ').skip(1).collect();
    let (code, text, errors) = folder.run(&words);
    assert_eq!(code, 1, "{text}{errors}");
    assert!(text.contains("attention_backward"), "{text}");
}

/// A launch script of one rank with learned positions, deterministic.
const ONE_RANK: &str = "\
export CUDA_DEVICE_MAX_CONNECTIONS=1 NVTE_ALLOW_NONDETERMINISTIC_ALGO=0 NCCL_ALGO=Ring \
    CUBLAS_WORKSPACE_CONFIG=:4096:8
torchrun --nproc-per-node 1 pretrain_gpt.py --num-layers 2 --hidden-size 64 \
    --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 --micro-batch-size 1 \
    --global-batch-size 4 --train-iters 10 --lr 1e-3 --min-lr 0 --bf16 \
    --tokenizer-type NullTokenizer --vocab-size 1000 --mock-data --deterministic-mode
";

#[test]
fn one_rank_with_learned_positions_is_not_vacuous_for_being_made_small() {
    let folder = Folder::new();
    let path = folder.0.path().join("one.sh");
    std::fs::write(&path, ONE_RANK).expect("a writable folder");
    let (code, report) = folder.check(&path, &[]);
    assert_eq!(code, 0, "{:#}", report["vacuity"]);
    assert_eq!(change(&report, "seq_length"), Some(("64", "32")));
    let open = report["not_covered"].as_array().unwrap().iter();
    let named = open.filter(|what| what.as_str().unwrap().starts_with("bf16 matrix products"));
    assert_eq!(named.count(), 1, "{:#}", report["not_covered"]);
    // Four tokens, of which none occurs three times, say nothing of sums of more.
    let set = "recipe.seq_length=4";
    let (code, report) = folder.check(&path, &["--set", set]);
    assert_eq!(code, 4, "{:#}", report["vacuity"]);
}
