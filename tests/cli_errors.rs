//! What the command says, and with which code it ends, when its input is wrong. The binary is run
//! as a user runs it; nothing may panic, and nothing may be written.

use std::path::Path;
use std::process::{Command, Output};

const RECIPE: &str = "world_size = 4\nnum_layers = 2\nhidden_size = 16\nnum_attention_heads = 2\n\
    seq_length = 8\nmicro_batch_size = 1\nglobal_batch_size = 8\ntrain_iters = 2\nlr = 1e-3\n";

/// A working folder with a sound recipe in it, and whatever a test adds.
struct Bench {
    folder: tempfile::TempDir,
}

impl Bench {
    fn new() -> Bench {
        let bench = Bench {
            folder: tempfile::tempdir().expect("a temporary folder"),
        };
        bench.write("recipe.toml", RECIPE);
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
            .env("NO_COLOR", "1")
            .output()
            .expect("the binary starts")
    }

    /// Runs, expects exit code 2 and nothing on standard output, and returns standard error.
    fn refused(&self, arguments: &[&str]) -> String {
        let files_before = self.files();
        let output = self.run(arguments);
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {said}");
        assert!(output.stdout.is_empty(), "{arguments:?} wrote data");
        assert!(!said.contains("panicked"), "{said}");
        assert_eq!(self.files(), files_before, "{arguments:?} wrote files");
        said
    }

    fn files(&self) -> Vec<std::ffi::OsString> {
        let entries = std::fs::read_dir(self.path()).expect("a readable folder");
        let mut names: Vec<_> = entries
            .map(|entry| entry.expect("an entry").file_name())
            .collect();
        names.sort();
        names
    }
}

/// Each case changes the recipe and expects these pieces on standard error.
#[test]
fn a_broken_recipe_is_shown_with_file_line_caret_and_advice() {
    let bench = Bench::new();
    for (from, to, pieces) in [
        (
            "num_layers = 2",
            "num_layer = 2",
            [
                "unknown key `num_layer`",
                "recipe.toml:2:1",
                "did you mean `num_layers`?",
            ],
        ),
        (
            "hidden_size = 16",
            "hidden_size = \"16\"",
            [
                "`recipe.hidden_size` is a string",
                "recipe.toml:3:15",
                "expected an integer",
            ],
        ),
        (
            "world_size = 4",
            "world_size = 5\ntensor_model_parallel_size = 2",
            [
                "`world_size` is 5, not a multiple of",
                "recipe.toml:1:14",
                "`world_size = 4`",
            ],
        ),
        (
            "global_batch_size = 8",
            "global_batch_size = 9",
            [
                "`global_batch_size` is 9",
                "recipe.toml:7:21",
                "`global_batch_size = 12`",
            ],
        ),
        (
            "hidden_size = 16",
            "hidden_size = 99999999",
            [
                "`recipe.hidden_size` is 99999999, out of range",
                "recipe.toml:3:15",
                "4 to 16384",
            ],
        ),
        (
            "lr = 1e-3",
            "lr = ",
            ["this is not TOML", "recipe.toml:9:6", "toml.io"],
        ),
    ] {
        assert!(RECIPE.contains(from));
        bench.write("recipe.toml", &RECIPE.replacen(from, to, 1));
        let said = bench.refused(&["check", "recipe.toml"]);
        for piece in pieces {
            assert!(said.contains(piece), "{to}: no {piece:?} in\n{said}");
        }
        assert!(said.contains('^'), "{said}");
    }
}

#[test]
fn missing_files_are_named_where_they_are_named() {
    let bench = Bench::new();
    let said = bench.refused(&["check", "recpie.toml"]);
    assert!(said.contains("cannot read `recpie.toml`"), "{said}");
    assert!(said.contains("did you mean `./recipe.toml`?"), "{said}");
    let said = bench.refused(&["check", "recipe.toml", "--data", "missing.txt"]);
    assert!(said.contains("cannot read `missing.txt`"), "{said}");
    bench.write(
        "scenario.toml",
        "recipe = \"recipe.toml\"\nallocations = [\"none.toml\"]\n",
    );
    let said = bench.refused(&["check", "scenario.toml"]);
    assert!(said.contains("scenario.toml:2:16"), "{said}");
    let said = bench.refused(&["check", "."]);
    assert!(said.contains("cannot read `.`"), "{said}");
}

#[test]
fn a_text_that_is_too_short_or_too_many_steps_are_refused() {
    let bench = Bench::new();
    bench.write("short.txt", "12345678");
    let said = bench.refused(&["check", "recipe.toml", "--data", "short.txt"]);
    assert!(said.contains("one sample needs 9"), "{said}");
    let said = bench.refused(&["check", "recipe.toml", "--steps", "3"]);
    assert!(said.contains("`train_iters = 2`"), "{said}");
}

#[test]
fn an_allocation_of_another_world_is_refused() {
    let bench = Bench::new();
    bench.write(
        "scenario.toml",
        "recipe = \"recipe.toml\"\nallocations = [\"a.toml\"]\n",
    );
    bench.write("a.toml", "name = \"a\"\nhosts = [[0, 1], [2, 2]]\n");
    let said = bench.refused(&["check", "scenario.toml"]);
    assert!(
        said.contains("rank 2 is placed twice") && said.contains("a.toml:2:"),
        "{said}"
    );
    bench.write("a.toml", "name = \"a\"\nhosts = [[0, 1]]\n");
    let said = bench.refused(&["check", "scenario.toml"]);
    assert!(
        said.contains("places 2 ranks") && said.contains("world_size = 4"),
        "{said}"
    );
}

#[test]
fn several_faults_are_told_at_once() {
    let bench = Bench::new();
    let text = RECIPE
        .replace("lr = 1e-3", "lr = \"x\"")
        .replace("num_layers = 2", "layers = 2");
    bench.write("recipe.toml", &text);
    let said = bench.refused(&["check", "recipe.toml"]);
    assert_eq!(said.matches("error[").count(), 3, "{said}");
}

#[test]
fn the_command_lines_own_faults_end_with_2() {
    let bench = Bench::new();
    for arguments in [
        &["chekc", "recipe.toml"][..],
        &["check"],
        &["check", "recipe.toml", "--format", "yaml"],
        &["check", "recipe.toml", "--require", "divergent"],
        &["check", "recipe.toml", "--accept", "anything"],
        &["check", "recipe.toml", "--workers", "0"],
        &["check", "recipe.toml", "-q", "-v"],
        &["check", "recipe.toml", "--set", "novalue"],
        &["check", "recipe.toml", "--set", "recipe.hiden_size=4"],
        &["replay"],
    ] {
        bench.refused(arguments);
    }
}

#[test]
fn tokens_that_cannot_be_replayed_say_why() {
    let bench = Bench::new();
    let good = "040G40R40M30E209000G23XC096KDR93";
    for (token, reason) in [
        ("", "too short"),
        ("hello!", "`!` is no character"),
        ("040G40R40M30E209000G23XC096KDR94", "checksum"),
        (&good[..30], "damaged"),
        (good, "no scenario here is the one"),
    ] {
        let said = bench.refused(&["replay", token]);
        assert!(said.contains(reason), "{token}: {said}");
    }
    let said = bench.refused(&["replay", good, "--scenario", "recipe.toml"]);
    assert!(said.contains("another scenario"), "{said}");
}

#[test]
fn a_program_gets_its_one_object_for_bad_input_too() {
    let bench = Bench::new();
    bench.write("recipe.toml", &RECIPE.replace("lr = 1e-3", "lr = true"));
    let output = bench.run(&["check", "recipe.toml", "--format", "json"]);
    assert_eq!(output.status.code(), Some(2));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(json["exit_code"], 2);
    assert_eq!(json["diagnostics"][0]["code"], "wrong-type");
    assert_eq!(json["diagnostics"][0]["line"], 9);
}
