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
        self.refused_with(2, arguments)
    }

    fn refused_with(&self, code: i32, arguments: &[&str]) -> String {
        let files_before = self.files();
        let output = self.run(arguments);
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {said}");
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
    std::fs::create_dir(bench.path().join("empty")).expect("a writable folder");
    let said = bench.refused(&["check", "empty"]);
    assert!(
        said.contains("the folder empty holds no scenario"),
        "{said}"
    );
}

/// A name that is right needs no other name.
#[test]
fn a_file_that_is_there_gets_no_suggestion_of_another() {
    let bench = Bench::new();
    bench.write("a.toml", &"#".repeat((1 << 20) + 1));
    std::fs::write(bench.path().join("b.toml"), b"\xff").expect("a writable folder");
    std::fs::create_dir(bench.path().join("c.toml")).expect("a writable folder");
    for name in ["a.toml", "b.toml", "c.toml"] {
        let said = bench.refused(&["check", name]);
        assert!(
            said.contains(name) && !said.contains("did you mean"),
            "{said}"
        );
    }
    assert!(bench.refused(&["check", "d.toml"]).contains("did you mean"));
}

#[cfg(unix)]
#[test]
fn only_regular_files_are_read_and_none_is_waited_for() {
    let bench = Bench::new();
    let made = Command::new("mkfifo")
        .arg(bench.path().join("pipe.toml"))
        .status();
    assert!(made.expect("mkfifo is part of POSIX").success());
    bench.write(
        "data.toml",
        "recipe = \"recipe.toml\"\ndata = \"pipe.toml\"\n",
    );
    bench.write("recipes.toml", "recipe = \"pipe.toml\"\n");
    bench.write(
        "hosts.toml",
        "recipe = \"recipe.toml\"\nallocations = [\"/dev/zero\"]\n",
    );
    for (arguments, place) in [
        (&["check", "pipe.toml"][..], "--> pipe.toml"),
        (&["check", "/dev/zero"], "--> /dev/zero"),
        (
            &["check", "recipe.toml", "--data", "pipe.toml"],
            "--> --data",
        ),
        (
            &["check", "recipe.toml", "--data", "/dev/zero"],
            "--> --data",
        ),
        (&["check", "recipe.toml", "--data", "."], "--> --data"),
        (&["check", "data.toml"], "--> data.toml:2:8"),
        (&["check", "recipes.toml"], "--> recipes.toml:1:10"),
        (&["check", "hosts.toml"], "--> hosts.toml:2:16"),
    ] {
        let said = bench.refused(arguments);
        assert!(said.contains("only regular files are read"), "{said}");
        assert!(said.contains(place), "{place}: {said}");
    }
}

#[test]
fn more_memory_than_any_machine_has_is_refused_before_it_is_taken() {
    let bench = Bench::new();
    let text = RECIPE
        .replace("world_size = 4", "world_size = 2048")
        .replace("hidden_size = 16", "hidden_size = 1024")
        .replace("num_attention_heads = 2", "num_attention_heads = 8")
        .replace("num_layers = 2", "num_layers = 1")
        .replace("global_batch_size = 8", "global_batch_size = 2048")
        .replace("train_iters = 2", "train_iters = 5");
    bench.write("large.toml", &text);
    let said = bench.refused_with(5, &["check", "large.toml"]);
    for piece in [
        "too-large",
        "GiB",
        "2048 ranks",
        "help: ",
        "hidden_size",
        "--grow-dp 1",
    ] {
        assert!(said.contains(piece), "no {piece:?} in {said}");
    }
}

#[test]
fn assignments_are_shown_as_they_were_typed() {
    let bench = Bench::new();
    for (text, piece) in [
        ("=1", "| =1"),
        ("a b=x", "| a b=x"),
        ("steps=x y", "| steps=x y"),
    ] {
        let said = bench.refused(&["check", "recipe.toml", "--set", text]);
        assert!(said.contains(piece), "{text}: {said}");
    }
    bench.write("short.txt", "1");
    let said = bench.refused(&["check", "recipe.toml", "--data", "short.txt"]);
    assert!(said.contains("has 1 byte\n"), "{said}");
}

/// A name from a file must not steer the terminal, in any format.
#[test]
fn control_characters_in_names_are_written_out() {
    let bench = Bench::new();
    let text = "name = \"x\\u001b[2J\\u009by\"\noracles = []\nrecipe = \"recipe.toml\"\n";
    bench.write("name.toml", text);
    bench.write("z\u{1b}[2J\u{9b}.toml", "recipe = \"\u{9b}\"");
    for path in ["name.toml", "z\u{1b}[2J\u{9b}.toml", "q\u{1b}\u{9b}.toml"] {
        for format in ["human", "json", "junit"] {
            let output = bench.run(&["check", path, "--format", format]);
            for stream in [output.stdout, output.stderr] {
                let said = String::from_utf8(stream).expect("text");
                let is_raw = |c: char| c.is_control() && c != '\n';
                assert!(!said.contains(is_raw), "{path:?}, {format}: {said:?}");
            }
        }
    }
    let output = bench.run(&["check", "name.toml"]);
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(
        said.contains("x\\u{1b}[2J\\u{9b}y: nothing checked"),
        "{said}"
    );
}

#[test]
fn a_check_of_nothing_ends_with_5_and_has_no_grade() {
    let bench = Bench::new();
    bench.write("none.toml", "oracles = []\nrecipe = \"recipe.toml\"\n");
    let res = "oracles = [\"RES\"]\nrecipe = \"recipe.toml\"\n[checkpoint]\nrestarts = []\n";
    bench.write("res.toml", res);
    for path in ["none.toml", "res.toml"] {
        let output = bench.run(&["check", path, "--format", "json"]);
        assert_eq!(output.status.code(), Some(5), "{path}");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("an object");
        assert!(json["grade"].is_null() && json["exit_code"] == 5, "{json}");
        let output = bench.run(&["check", path]);
        let said = String::from_utf8(output.stderr).expect("text");
        assert!(
            said.contains("nothing checked") && output.stdout.is_empty(),
            "{said}"
        );
    }
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
    assert_eq!(json["path"], "recipe.toml");
}

#[test]
fn every_refused_path_is_an_error_in_junit() {
    let bench = Bench::new();
    bench.write("b.toml", "recipe = 1");
    let output = bench.run(&["check", "nosuch.toml", "b.toml", "--format", "junit"]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(text.starts_with("<?xml"), "{text}");
    for name in ["nosuch.toml", "b.toml"] {
        assert!(
            text.contains(&format!("<testsuite name=\"{name}\"")),
            "{text}"
        );
    }
    assert_eq!(text.matches("<error ").count(), 2, "{text}");
}

/// `/dev/full` takes nothing: a report that is lost there must not look like a success. A reader
/// that has gone away is another matter.
#[cfg(target_os = "linux")]
#[test]
fn a_lost_report_ends_with_70_and_a_closed_pipe_does_not() {
    let bench = Bench::new();
    bench.write("none.toml", "oracles = []\nrecipe = \"recipe.toml\"\n");
    let run = |format: &str, stdout: std::process::Stdio| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bitproof"));
        command.args(["check", "none.toml", "--format", format]);
        let child = command.current_dir(bench.path()).stdout(stdout).output();
        child.expect("the binary starts")
    };
    for format in ["json", "junit"] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let output = run(format, full.expect("Linux has it").into());
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(output.status.code(), Some(70), "{format}: {said}");
        assert!(said.contains("cannot write to standard output"), "{said}");
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        assert_eq!(
            run(format, writer.into()).status.code(),
            Some(5),
            "{format}"
        );
    }
}

#[test]
fn an_adapter_has_a_name_and_what_is_asked_for_is_shown_escaped() {
    let bench = Bench::new();
    for verb in [&["check", "recipe.toml"][..], &["replay", "0"], &["doctor"]] {
        for name in ["", " "] {
            let said = bench.refused(&[verb, &["--adapter", name]].concat());
            assert!(said.contains("a part of a name"), "{verb:?}: {said}");
        }
    }
    let output = bench.run(&["check", "recipe.toml", "--adapter", "no\nsuch"]);
    assert_eq!(output.status.code(), Some(5));
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(!said.contains("no\nsuch"), "{said}");
}

/// What hides the drivers comes before what installs one.
#[cfg(all(feature = "wgpu", target_os = "linux"))]
#[test]
fn a_variable_that_hides_drivers_is_to_be_unset() {
    let bench = Bench::new();
    let said = |variable: &str, value: &str| {
        let output = Command::new(env!("CARGO_BIN_EXE_bitproof"))
            .args(["check", "recipe.toml", "--engine", "wgpu"])
            .current_dir(bench.folder.path())
            .envs([("NO_COLOR", "1"), ("VK_DRIVER_FILES", "/nonexistent.json")])
            .env_remove("VK_ICD_FILENAMES")
            .env(variable, value)
            .output()
            .expect("the binary starts");
        assert_eq!(output.status.code(), Some(5));
        String::from_utf8(output.stderr).expect("text")
    };
    let hidden = said("VK_LOADER_DRIVERS_SELECT", "");
    let unset = hidden.find("`unset VK_DRIVER_FILES` first");
    assert!(
        unset.is_some() && unset < hidden.find("`bitproof doctor`"),
        "{hidden}"
    );
    let both = said("VK_LOADER_DRIVERS_DISABLE", "*");
    let piece = "`unset VK_DRIVER_FILES VK_LOADER_DRIVERS_DISABLE` first";
    assert!(both.contains(piece), "{both}");
}
