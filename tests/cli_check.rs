//! `check` and `replay` as a user meets them: whole processes, their exit codes, their files, and
//! the same bits in each.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[cfg(feature = "wgpu")]
use bitproof::engine::EngineChoice;
use bitproof::prove::Token;
use serde_json::Value;

/// Four data-parallel ranks, one layer, three split-K parts whose order is free.
const RACY: &str = "[recipe]\nworld_size = 4\nnum_layers = 1\nhidden_size = 16\n\
    num_attention_heads = 2\nseq_length = 16\nmicro_batch_size = 1\nglobal_batch_size = 12\n\
    train_iters = 2\nlr = 1e-2\nuse_distributed_optimizer = true\n\
    [recipe.determinism]\nwgrad_splits = 3\nwgrad_split_k = \"arrival\"\n";

struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let bench = Bench {
            folder: tempfile::tempdir().expect("a temporary folder"),
        };
        bench.write(
            "racy.toml",
            &format!("oracles = [\"R2R\"]\nsteps = 1\n{RACY}"),
        );
        bench
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).expect("a writable folder");
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_bitproof"))
            .args(arguments)
            .current_dir(self.path())
            .env_remove("CLICOLOR_FORCE")
            .output()
            .expect("the binary starts")
    }

    /// Runs with `--format json`, expects an exit code, and returns the object.
    fn json(&self, arguments: &[&str], code: i32) -> Value {
        let output = self.run(&[arguments, &["--format", "json"]].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
        serde_json::from_slice(&output.stdout).expect("one JSON object")
    }

    fn regressions(&self) -> Vec<PathBuf> {
        let Ok(entries) = std::fs::read_dir(self.path().join(".bitproof/regressions")) else {
            return Vec::new();
        };
        entries
            .map(|entry| entry.expect("an entry").path())
            .collect()
    }
}

fn token(report: &Value) -> String {
    let line = report["replay"].as_str().expect("a line to paste");
    line.strip_prefix("bitproof replay ")
        .expect("a replay command")
        .to_string()
}

#[test]
fn a_difference_is_found_saved_and_reproduced_by_another_process() {
    let bench = Bench::new();
    let found = bench.json(&["check", "racy.toml"], 1);
    assert_eq!(found["grade"], "divergent");
    assert_eq!(found["exit_code"], 1);
    assert_eq!(found["first_divergence"]["family"], "wgrad-split-k");
    assert_ne!(found["witness"]["sum_a"], found["witness"]["sum_b"]);
    let token = token(&found);
    assert!((30..=45).contains(&token.len()), "{token}");

    // The regression file is found without being named, and needs no other file.
    assert_eq!(bench.regressions().len(), 1);
    std::fs::remove_file(bench.path().join("racy.toml")).expect("the scenario was there");
    let again = bench.json(&["replay", &token], 1);
    assert_eq!(again["witness"], found["witness"]);
    assert_eq!(again["replay"], found["replay"]);
    let lower = bench.json(&["replay", &token.to_lowercase(), "--workers", "1"], 1);
    assert_eq!(lower["witness"], found["witness"]);

    let output = bench.run(&[
        "check",
        "--quiet",
        bench.regressions()[0].to_str().expect("text"),
    ]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("known regression still differs"), "{said}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_token_binds_the_scenario_and_its_data() {
    let bench = Bench::new();
    bench.write(
        "text.txt",
        &"To be, or not to be, that is the question. ".repeat(20),
    );
    let check = ["check", "--no-save", "racy.toml", "--data", "text.txt"];
    let found = bench.json(&check, 1);
    assert_eq!(
        bench.regressions(),
        Vec::<PathBuf>::new(),
        "--no-save wrote a file"
    );
    let token = token(&found);
    let replay = ["replay", &token, "--scenario", "racy.toml"];
    let again = bench.json(&[&replay[..], &["--data", "text.txt"]].concat(), 1);
    assert_eq!(again["witness"], found["witness"]);

    let stale = |arguments: &[&str]| bench.json(arguments, 2)["diagnostics"][0]["code"].clone();
    assert_eq!(stale(&replay), "stale-token");
    assert_eq!(stale(&["replay", &token]), "scenario-not-found");
    bench.write(
        "text.txt",
        &"To be, or not to be: that is the question. ".repeat(20),
    );
    assert_eq!(
        stale(&[&replay[..], &["--data", "text.txt"]].concat()),
        "stale-token"
    );
}

#[test]
fn results_do_not_depend_on_the_number_of_workers() {
    let bench = Bench::new();
    let report = |workers| {
        let arguments = ["check", "--no-save", "racy.toml", "--workers", workers];
        let mut report = bench.json(&arguments, 1);
        // The one line that says how many there were.
        report["certificate"]["second_run"].take();
        report
    };
    assert_eq!(report("1"), report("3"));
}

#[test]
fn formats_keep_data_and_talk_apart() {
    let bench = Bench::new();
    let both = ["check", "--no-save", "racy.toml", "racy.toml"];
    let output = bench.run(&[&both[..], &["--format", "json"]].concat());
    let text = String::from_utf8(output.stdout).expect("text");
    let objects: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object a line"))
        .collect();
    assert_eq!(objects.len(), 2);
    assert_eq!(objects[0], objects[1]);

    let output = bench.run(&[&both[..], &["--format", "junit"]].concat());
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(
        text.starts_with("<?xml") && text.matches("<testsuite ").count() == 2,
        "{text}"
    );

    let output = bench.run(&["check", "--no-save", "racy.toml"]);
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.starts_with("racy: divergent\n"), "{text}");
    assert!(!text.contains('\u{1b}'), "colour in a pipe");
    let last = text.trim_end().lines().last().expect("a line");
    assert!(
        last.starts_with("reproduce it with: bitproof replay "),
        "{last}"
    );
    assert!(output.stderr.is_empty(), "a progress bar in a pipe");
}

#[test]
fn an_expectation_decides_the_exit_code() {
    let bench = Bench::new();
    for (expect, code) in [
        ("grade = \"divergent\"", 0),
        ("grade = \"divergent\"\nfirst = \"wgrad_sum\"", 0),
        ("grade = \"divergent\"\nfirst = \"reduce_scatter\"", 1),
        ("grade = \"proved\"", 1),
    ] {
        let text = format!("oracles = [\"R2R\"]\nsteps = 1\n[expect]\n{expect}\n{RACY}");
        bench.write("expecting.toml", &text);
        let report = bench.json(&["check", "--no-save", "expecting.toml"], code);
        assert_eq!(report["expect"]["met"], code == 0, "{expect}");
    }
}

/// A resumed run that differs has no witness: its grade says that it still differs.
#[test]
fn a_known_restart_that_still_differs_is_told() {
    let bench = Bench::new();
    let ordered = RACY.replace("\"arrival\"", "\"ordered\"");
    let text = format!(
        "oracles = [\"RES\"]\n[checkpoint]\nomit = [\"exp-avg\"]\nrestarts = [[1]]\n{ordered}"
    );
    bench.write("resumed.toml", &text);
    let first = bench.json(&["check", "resumed.toml"], 1);
    assert!(
        first["witness"].is_null() && first["replay"].is_string(),
        "{first}"
    );
    assert_eq!(bench.regressions().len(), 1);
    let output = bench.run(&["check", "--quiet", "resumed.toml"]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("known regression still differs"), "{said}");
}

/// The working directory may be moved with its regression files and its data.
#[test]
fn a_regression_file_names_its_data_relative_to_itself() {
    let bench = Bench::new();
    std::fs::create_dir(bench.path().join("texts")).expect("a writable folder");
    bench.write(
        "texts/a.txt",
        &"Whether 'tis nobler in the mind to suffer. ".repeat(20),
    );
    let found = bench.json(&["check", "racy.toml", "--data", "texts/a.txt"], 1);
    let saved = std::fs::read_to_string(&bench.regressions()[0]).expect("a regression file");
    assert!(
        saved.contains("\ndata = \"../../texts/a.txt\"\n"),
        "{saved}"
    );
    assert!(saved.contains("relative to this file"), "{saved}");

    let moved = Bench::new();
    for (from, to) in [("texts", "texts"), (".bitproof", ".bitproof")] {
        std::fs::rename(bench.path().join(from), moved.path().join(to)).expect("one file system");
    }
    std::fs::remove_file(moved.path().join("racy.toml")).expect("the scenario was there");
    let again = moved.json(&["replay", &token(&found)], 1);
    assert_eq!(again["witness"], found["witness"]);

    let outside = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::copy(moved.path().join("texts/a.txt"), outside.path()).expect("a copy");
    let path = outside.path().to_str().expect("text");
    bench.json(&["check", "racy.toml", "--data", path], 1);
    let saved = std::fs::read_to_string(&bench.regressions()[0]).expect("a regression file");
    assert!(saved.contains(&format!("\ndata = \"{path}\"\n")), "{saved}");
}

/// The token of a build that is not this one, and the file that it lies in: the first by name.
fn stale_regression(bench: &Bench, token: &str) {
    let made = Token::decode(token).expect("a token");
    let build = made.build.map(|byte| !byte);
    let stale = Token { build, ..made }.encode();
    let text = format!("# bitproof replay {stale}\n");
    bench.write(".bitproof/regressions/aaa.toml", &text);
}

#[test]
fn a_stale_regression_hides_none_that_can_be_replayed() {
    let bench = Bench::new();
    let token = token(&bench.json(&["check", "racy.toml"], 1));
    stale_regression(&bench, &token);
    let again = || {
        let output = bench.run(&["check", "--quiet", "--no-save", "racy.toml"]);
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = again();
    let line = format!("known regression still differs: bitproof replay {token}\n");
    assert!(said.contains(&line), "{said}");
    // The control: the stale one alone is not replayed, and why is said.
    let own = format!("racy-{token}.toml");
    let own = bench.path().join(".bitproof/regressions").join(own);
    std::fs::remove_file(own).expect("the check has saved it");
    let said = again();
    assert!(said.contains("known regression was not replayed"), "{said}");
}

/// The first line of the file, what a later check says, and the report's line are the same, and
/// it works as it stands.
#[cfg(feature = "wgpu")]
#[test]
fn the_line_of_an_adapter_s_regression_chooses_the_adapter() {
    let bench = Bench::new();
    if let Err(reason) = (EngineChoice::Wgpu { adapter: None }).open(1) {
        let required = std::env::var("BITPROOF_REQUIRE_ADAPTER").is_ok_and(|v| v == "1");
        assert!(!required, "BITPROOF_REQUIRE_ADAPTER=1, but {reason}");
        eprintln!("SKIPPED, nothing was saved on an adapter: {reason}");
        return;
    }
    // One of the cpu engine lies beside it.
    bench.json(&["check", "racy.toml"], 1);
    let others = bench.regressions();
    let check = ["check", "racy.toml", "--engine", "wgpu"];
    let found = bench.json(&check, 1);
    let line = found["replay"].as_str().expect("a line to paste");
    assert!(line.ends_with(" --engine wgpu"), "{line}");
    let mut saved = bench.regressions();
    saved.retain(|path| !others.contains(path));
    let text = std::fs::read_to_string(&saved[0]).expect("a regression file");
    assert_eq!(text.lines().next(), Some(&*format!("# {line}")));
    let output = bench.run(&[&check[..], &["--quiet", "--no-save"]].concat());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let told = format!("known regression still differs: {line}\n");
    assert!(said.contains(&told), "{said}");
    let words: Vec<&str> = line.split(' ').skip(1).collect();
    assert_eq!(bench.json(&words, 1)["witness"], found["witness"]);
}
