//! The zoo: real reports of training that did not keep its bits, each as a pair of scenarios. The
//! broken one must be caught, and named as its report names it; the fixed one must raise no alarm.

use std::path::{Path, PathBuf};
use std::process::Command;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/zoo")
}

fn names() -> Vec<String> {
    let files = std::fs::read_dir(folder()).expect("the zoo is part of the tree");
    let mut names: Vec<String> = files
        .map(|file| file.expect("readable").path())
        .filter_map(|path| {
            let stem = path.file_stem()?.to_str()?.to_string();
            path.extension()
                .is_some_and(|ending| ending == "toml")
                .then_some(stem)
        })
        .collect();
    names.sort();
    names
}

#[test]
fn every_report_is_a_pair_that_names_it() {
    let names = names();
    let broken = |name: &&String| name.ends_with("-broken");
    for name in names.iter().filter(broken) {
        let fixed = name.replace("-broken", "-fixed");
        assert!(names.contains(&fixed), "{name} has no {fixed}");
        let text = std::fs::read_to_string(folder().join(format!("{name}.toml"))).unwrap();
        let first = text.lines().next().unwrap_or_default();
        assert!(
            first.starts_with("# ") && first.contains('#'),
            "{name}: {first}"
        );
        for key in ["[expect]", "class = "] {
            assert!(text.contains(key), "{name} expects no {key}");
        }
    }
    let pairs = names.iter().filter(broken).count();
    assert_eq!(names.len(), 2 * pairs);
    assert!(pairs >= 24, "{pairs} pairs");
}

#[test]
fn every_fault_is_caught_and_named_and_nothing_else() {
    let output = Command::new(env!("CARGO_BIN_EXE_bitproof"))
        .args(["check", "--no-save", "-q"])
        .arg(folder())
        .output()
        .expect("the program runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let pairs = names().len() / 2;
    let score = format!(
        "of {pairs} faults {pairs} caught, {pairs} rightly named; 0 false alarms in {pairs} sound \
         scenarios"
    );
    let unmet: Vec<&str> = text
        .lines()
        .filter(|line| line.contains(": not met"))
        .collect();
    let last = text.lines().last().unwrap_or_default();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(last, score, "{unmet:#?}\n{said}");
    assert_eq!(output.status.code(), Some(0));
}
