//! `bitproof import recipe`: what it says of our own fixtures, and with which code it ends.

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn fixture(name: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/megatron");
    folder.join(name).display().to_string()
}

fn run(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_bitproof"))
        .args(arguments)
        .env("NO_COLOR", "1")
        .output()
        .expect("the binary starts")
}

#[track_caller]
fn ended(output: &Output, code: i32) -> (String, String) {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    let (said, talk) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{said}\n{talk}");
    assert!(!talk.contains("panicked"), "{talk}");
    (said, talk)
}

#[track_caller]
fn object(arguments: &[&str], code: i32) -> Value {
    let (said, _) = ended(&run(arguments), code);
    serde_json::from_str(&said).expect("one JSON object")
}

#[test]
fn a_functional_test_becomes_an_object_and_a_scenario() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out.toml").display().to_string();
    let file = fixture("dense_tp2_pp2/model_config.yaml");
    let arguments = ["import", "recipe", &file, "--format", "json", "-o", &out];
    let object = object(&arguments, 0);
    for (key, expected) in [
        ("tp", 2.into()),
        ("pp", 2.into()),
        ("vpp", Value::Null),
        ("test_type", "ckpt-resume".into()),
        ("mode", "pretraining".into()),
        ("sequence_parallel", true.into()),
        ("deterministic_mode", true.into()),
        ("rejected_at_launch", false.into()),
        ("phases", 1.into()),
        ("form", "functional test".into()),
    ] {
        assert_eq!(object[key], expected, "{key}");
    }
    let arguments = object["arguments"].as_array().unwrap();
    assert_eq!(arguments.len(), 26, "every argument is judged");
    let layers = arguments
        .iter()
        .find(|a| a["flag"] == "--num-layers")
        .unwrap();
    assert_eq!(layers["value"], "4");
    assert_eq!(layers["verdict"], "used");
    assert!(
        layers["place"]
            .as_str()
            .unwrap()
            .ends_with("model_config.yaml:7:3")
    );
    // What is written is what would be checked.
    assert_eq!(
        std::fs::read_to_string(&out).unwrap(),
        object["scenario"].as_str().unwrap()
    );
    ended(&run(&["check", "--lint-only", &out]), 0);
}

#[test]
fn people_see_a_row_for_each_argument() {
    let file = fixture("dense_tp2_pp2/model_config.yaml");
    let (said, _) = ended(&run(&["import", "recipe", &file, "--world", "8"]), 0);
    for words in [
        "--num-layers",
        "used",
        "--save-interval",
        "layout: TP 2 PP 2",
        "world: 8",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(!said.contains("not understood"), "{said}");
}

#[test]
fn what_cannot_be_simulated_or_read_ends_with_2() {
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(fixture("dense_tp2_pp2/model_config.yaml")).unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let more = |line: &str| text.replace("  --bf16: true\n", &format!("  --bf16: true\n{line}\n"));
    let out = folder.path().join("out.toml").display().to_string();
    for (line, words) in [
        ("  --num-experts: 8", "--num-experts"),
        ("  --num-layer: 4", "did you mean"),
        ("  --bf16: true", "given twice"),
    ] {
        let file = write("model_config.yaml", &more(line));
        let (_, talk) = ended(&run(&["import", "recipe", &file, "-o", &out]), 2);
        assert!(talk.contains(words), "{talk}");
        assert!(talk.contains("model_config.yaml:"), "a place: {talk}");
        assert!(
            !Path::new(&out).exists(),
            "nothing is written of what is wrong"
        );
    }
    let file = write("broken.yaml", "MODEL_ARGS: [\n");
    let object = object(&["import", "recipe", &file, "--format", "json"], 2);
    assert_eq!(object["findings"][0]["code"], "yaml-syntax");
    ended(
        &run(&["import", "recipe", &fixture("nothing_here.yaml")]),
        2,
    );
}

#[test]
fn a_file_that_is_there_is_replaced_only_by_force() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("out.toml");
    let out = path.display().to_string();
    let file = fixture("dense_tp2_pp2/model_config.yaml");
    let write = |more: &[&str]| {
        let mut arguments = vec!["import", "recipe", &file, "-o", &out];
        arguments.extend(more);
        run(&arguments)
    };
    std::fs::write(&path, "mine").unwrap();
    let (said, talk) = ended(&write(&[]), 2);
    assert!(talk.contains("--force"), "{talk}");
    assert!(said.is_empty(), "nothing is done: {said}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = |mode| std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(&path, mode(0o640)).unwrap();
        ended(&write(&["--force"]), 0);
        let kept = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(kept & 0o777, 0o640);
        // A new file is as any other program's: the user's mask decides.
        std::fs::write(folder.path().join("other"), "").unwrap();
        let other = std::fs::metadata(folder.path().join("other")).unwrap();
        std::fs::remove_file(&path).unwrap();
        ended(&write(&[]), 0);
        let new = std::fs::metadata(&path).unwrap().permissions();
        assert_eq!(new.mode(), other.permissions().mode());
    }
    assert!(std::fs::read_to_string(&path).unwrap().contains("[recipe]"));
    let (_, talk) = ended(
        &run(&["import", "recipe", &file, "-o", &file, "--force"]),
        2,
    );
    assert!(talk.contains("the job's own file"), "{talk}");
}

/// What `import` says of a job is what `check` does with it.
#[test]
fn import_takes_what_check_takes() {
    let folder = tempfile::tempdir().unwrap();
    let text = std::fs::read_to_string(fixture("dense_tp2_pp2/model_config.yaml")).unwrap();
    let file = folder
        .path()
        .join("model_config.yaml")
        .display()
        .to_string();
    let sentence = "`bitproof check` takes this file as it is";
    let with = |variable: &str| text.replace("ENV_VARS:\n", &format!("ENV_VARS:\n  {variable}\n"));
    for (variable, code) in [
        ("NCCL_MAX_NCHANNELS: 4", 0),
        ("NCCL_MAX_NCHANNELS: many", 2),
        ("NCCL_BUFFSIZE: -1", 2),
    ] {
        std::fs::write(&file, with(variable)).unwrap();
        let (said, talk) = ended(&run(&["import", "recipe", &file]), code);
        assert_eq!(
            said.contains(sentence),
            code == 0,
            "{variable}: {said}{talk}"
        );
        // What is sound is checked by tests of `check`.
        if code == 2 {
            ended(&run(&["check", &file]), code);
        }
    }
}

/// A launch script of two ranks.
const PLAIN: &str = "torchrun --nproc-per-node 2 pretrain_gpt.py --num-layers 2 --hidden-size 64 \
    --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64 \
    --micro-batch-size 1 --global-batch-size 2 --train-iters 2 --lr 0.001 --bf16 \
    --vocab-size 1000 --tokenizer-type NullTokenizer --deterministic-mode\n";

/// What is followed may be misread: nothing is proved of it before its user has read what was made
/// of it.
#[test]
fn a_script_that_is_more_than_plain_is_not_checked_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("job.sh").display().to_string();
    for before in [
        "if true; then A=1; fi",
        "source env.sh",
        "f() { A=1; }",
        "NCCL_ALGO=$(x)",
    ] {
        std::fs::write(&file, format!("A=2\n{before}\n{PLAIN}")).unwrap();
        for check in [&["check", &*file][..], &["check", "--lint-only", &file]] {
            let (_, talk) = ended(&run(check), 2);
            assert!(talk.contains("script-followed"), "{before}: {talk}");
            assert!(talk.contains("job.sh:2:"), "{before}: {talk}");
            assert!(talk.contains("import recipe"), "{before}: {talk}");
            assert_eq!(talk.matches("error[").count(), 1, "{before}: {talk}");
        }
        let (said, _) = ended(&run(&["import", "recipe", &file]), 0);
        assert!(said.contains("-o recipe.toml"), "{before}: {said}");
        assert!(
            !said.contains("takes this file as it is"),
            "{before}: {said}"
        );
    }
    std::fs::write(&file, PLAIN).unwrap();
    ended(&run(&["check", "--lint-only", &file]), 0);
    let (said, _) = ended(&run(&["import", "recipe", &file]), 0);
    assert!(said.contains("takes this file as it is"), "{said}");
}

/// The report of what an import wrote is that of the job's own file, but for what it says of the
/// file; and a job whose environment is not known says so wherever it is proved.
#[test]
fn a_scenario_that_was_imported_gives_the_same_report() {
    let folder = tempfile::tempdir().unwrap();
    let (job, out) = (folder.path().join("job.sh"), folder.path().join("out.toml"));
    let (job, out) = (job.display().to_string(), out.display().to_string());
    std::fs::write(&job, PLAIN).unwrap();
    ended(&run(&["import", "recipe", &job, "-o", &out]), 0);
    let report = |file: &str| {
        let output = run(&["check", file, "--format", "json"]);
        let said = String::from_utf8(output.stdout).expect("text");
        let mut report: Value = serde_json::from_str(&said).expect("one JSON object");
        report.as_object_mut().unwrap().remove("import");
        report.as_object_mut().unwrap().remove("diagnostics");
        let text = report.to_string();
        (report, text.replace("job.sh", "").replace("out.toml", ""))
    };
    let (_, text) = report(&job);
    let (_, of_out) = report(&out);
    assert_eq!(text, of_out);
    std::fs::write(&job, format!("source env.sh\n{PLAIN}")).unwrap();
    ended(&run(&["import", "recipe", &job, "-o", &out, "--force"]), 0);
    let (of_job, _) = report(&out);
    let not_covered = of_job["not_covered"].as_array().expect("an array");
    let followed = "as it was followed here";
    for said in ["allow_bf16_reduced_precision_reduction", "env.sh", followed] {
        let is_said = |what: &&Value| what.as_str().is_some_and(|what| what.contains(said));
        assert_eq!(not_covered.iter().filter(is_said).count(), 1, "{said}");
    }
    let not_said = of_job["not_said"].as_str().expect("a sentence");
    assert!(not_said.contains("environment is not known"), "{not_said}");
}
