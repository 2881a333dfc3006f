//! What programs read of a check: SARIF logs and GitHub's workflow commands, as whole processes
//! write them.

use std::process::Command;

use serde_json::Value;

/// Four data-parallel ranks and three split-K parts; the sixteenth line frees their order.
const RACY: &str = "oracles = [\"R2R\"]\nsteps = 1\n[recipe]\nworld_size = 4\nnum_layers = 1\n\
    hidden_size = 16\nnum_attention_heads = 2\nseq_length = 16\nmicro_batch_size = 1\n\
    global_batch_size = 12\ntrain_iters = 2\nlr = 1e-2\nuse_distributed_optimizer = true\n\
    [recipe.determinism]\nwgrad_splits = 3\nwgrad_split_k = \"arrival\"\n";

/// Runs a check of the texts in a folder of its own: the exit code and standard output.
fn checked(format: &str, files: &[(&str, &str)]) -> (i32, String) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).expect("a writable folder");
    }
    let names = files.iter().map(|(name, _)| *name);
    let output = Command::new(env!("CARGO_BIN_EXE_bitproof"))
        .args(["check", "--no-save", "--format", format])
        .args(names)
        .current_dir(folder.path())
        .env_remove("CLICOLOR_FORCE")
        .output()
        .expect("the binary starts");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(
        text.chars().all(|c| c == '\n' || !c.is_control()),
        "{text:?}"
    );
    (output.status.code().expect("an exit code"), text)
}

fn ordered() -> String {
    RACY.replace("\"arrival\"", "\"ordered\"")
}

#[test]
fn a_sarif_log_has_the_findings_of_every_scenario_at_their_keys() {
    let broken = "world_size = \u{1b}\n";
    let files = [
        ("racy.toml", RACY),
        ("ordered.toml", &ordered()),
        ("broken.toml", broken),
    ];
    let (code, text) = checked("sarif", &files);
    assert_eq!(code, 2, "the worst of them");
    let log: Value = serde_json::from_str(&text).expect("one JSON document");
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    assert_eq!(run["invocations"][0]["exitCode"], 2);
    let results = run["results"].as_array().expect("results");
    let of = |uri: &str| -> Vec<&Value> {
        let location = |result: &Value| result["locations"][0]["physicalLocation"].clone();
        let is_there = |result: &&Value| location(result)["artifactLocation"]["uri"] == uri;
        results.iter().filter(is_there).collect()
    };
    let racy = of("racy.toml");
    assert_eq!(racy.len(), 1, "{text}");
    assert_eq!(
        (&racy[0]["ruleId"], &racy[0]["level"]),
        (&"divergent".into(), &"error".into())
    );
    let region = &racy[0]["locations"][0]["physicalLocation"]["region"];
    assert_eq!(
        (&region["startLine"], &region["startColumn"]),
        (&16.into(), &1.into())
    );
    let message = racy[0]["message"]["text"].as_str().expect("a text");
    assert!(message.contains("bitproof replay "), "{message}");
    assert!(of("ordered.toml").is_empty());
    assert!(!of("broken.toml").is_empty());
    let rules = run["tool"]["driver"]["rules"].as_array().expect("rules");
    for result in results {
        let rule = &rules[result["ruleIndex"].as_u64().expect("an index") as usize];
        assert_eq!(rule["id"], result["ruleId"]);
    }
}

#[test]
fn github_is_told_a_line_a_finding_and_a_verdict() {
    let (code, text) = checked(
        "github",
        &[("racy.toml", RACY), ("ordered.toml", &ordered())],
    );
    assert_eq!(code, 1);
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 3, "{text}");
    assert!(lines[0].starts_with("::notice title=verdict::racy: within this allocation divergent"));
    assert!(lines[1].starts_with("::error title=divergent,file=racy.toml,line=16,col=1::racy: "));
    assert!(lines[2].starts_with("::notice title=verdict::ordered: within this allocation proved"));

    let (code, text) = checked("github", &[("broken.toml", "world_size = 0\n")]);
    assert_eq!(code, 2);
    assert!(text.starts_with("::error title="), "{text}");
    assert!(text.contains("file=broken.toml,line="), "{text}");
}

#[test]
fn an_expected_divergence_is_no_error_in_any_format() {
    let expected = format!("{RACY}[expect]\ngrade = \"divergent\"\n");
    let (code, text) = checked("github", &[("expected.toml", &expected)]);
    assert_eq!(code, 0);
    assert!(
        !text.contains("::error") && text.contains("::notice title=divergent"),
        "{text}"
    );
    let (_, text) = checked("json", &[("expected.toml", &expected)]);
    let report: Value = serde_json::from_str(&text).expect("one JSON document");
    assert_eq!(report["diagnostics"][0]["severity"], "note");
    assert_eq!(report["diagnostics"][0]["line"], 16);
}
