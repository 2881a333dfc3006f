//! `bitproof report --html` and `trace diff --html` as a whole process; their pages in a browser.

#[path = "support/browser.rs"]
mod browser;
#[path = "support/process.rs"]
mod process;

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use browser::{Opened, open};
use process::{bitproof, ended};

const RUNS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden/traces");

/// A name that no author gives.
const HOSTILE: &str = "<script>document.title='taken'</script><img src=x onerror=alert(1)>";

fn folder() -> tempfile::TempDir {
    tempfile::tempdir().expect("a folder")
}

/// What `trace diff --format json` says of a real divergence, under a hostile name.
fn hostile_run(folder: &Path) -> String {
    let [a, b] = ["run_a", "run_b"].map(|run| format!("{RUNS}/divergent/{run}"));
    let mut diff = bitproof(folder);
    let (code, json, talk) = ended(diff.args(["trace", "diff", &a, &b, "--format", "json"]));
    assert_eq!(code, 1, "{talk}");
    let hostile = json.replace("collective:all_reduce:0", HOSTILE);
    assert_ne!(hostile, json);
    hostile
}

#[test]
fn a_check_becomes_a_page_with_its_verdict_and_replay_line() {
    let folder = folder();
    let scenario = concat!(env!("CARGO_MANIFEST_DIR"), "/scenarios/any-allocation.toml");
    let mut check = bitproof(folder.path());
    let (code, json, talk) = ended(check.args(["check", scenario, "--format", "json"]));
    assert_eq!(code, 1, "{talk}");
    std::fs::write(folder.path().join("run.json"), &json).expect("a file");
    let mut report = bitproof(folder.path());
    let (code, out, talk) = ended(report.args(["report", "run.json", "--html", "run.html"]));
    assert_eq!((code, &*out), (0, ""), "{talk}");
    let page = std::fs::read_to_string(folder.path().join("run.html")).expect("a page");
    let object: serde_json::Value = serde_json::from_str(&json).expect("one object");
    let replay = object["replay"].as_str().expect("a line");
    let (sum, site) = (
        &object["witness"]["sum_b"]["hex"],
        "step 1, grad-reduce, ddp.bucket0",
    );
    for part in [
        "✖ divergent",
        replay,
        site,
        sum.as_str().expect("bits"),
        "Not covered",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    let marks = page.matches("<td class=\"first\"").count();
    assert_eq!(
        marks,
        object["first_divergence"]["ranks"]
            .as_array()
            .expect("ranks")
            .len()
    );
    loads_nothing(&page);
    let Some(opened) = open(&folder.path().join("run.html")) else {
        return;
    };
    assert_quiet(&opened);
    assert!(opened.dom.contains(replay));
}

/// Nothing that a browser would fetch or run, by the text alone.
fn loads_nothing(page: &str) {
    for what in [
        "<script", "http://", "https://", "@import", "url(", " onload", "<iframe",
    ] {
        assert!(!page.contains(what), "{what}");
    }
}

fn assert_quiet(opened: &Opened) {
    assert_eq!(opened.console, Vec::<String>::new());
    assert_eq!(opened.requests, Vec::<String>::new());
}

#[test]
fn hostile_names_are_text_in_a_browser() {
    let folder = folder();
    let mut report = bitproof(folder.path());
    report
        .args(["report", "-", "--html", "page.html"])
        .stdin(Stdio::piped());
    report.stderr(Stdio::null());
    let mut child = report.spawn().expect("the binary starts");
    let json = hostile_run(folder.path());
    let mut input = child.stdin.take().expect("its input");
    input.write_all(json.as_bytes()).expect("it reads");
    drop(input);
    assert!(child.wait().expect("it ends").success());
    let page = std::fs::read_to_string(folder.path().join("page.html")).expect("a page");
    assert!(page.contains("&lt;script&gt;document.title=&#39;taken&#39;"));
    loads_nothing(&page);
    let Some(opened) = open(&folder.path().join("page.html")) else {
        return;
    };
    assert_quiet(&opened);
    assert!(!opened.dom.contains("<title>taken") && !opened.dom.contains("<img"));
}

/// The negative control of the two above: what a page says and asks for is heard.
#[test]
fn a_page_that_is_not_quiet_is_heard() {
    let folder = folder();
    let path = folder.path().join("loud.html");
    let text = "<!doctype html><title>loud</title><img src=\"http://report.example/x.png\">\
                <script>console.error('spoken'); undefinedFunction();</script>";
    std::fs::write(&path, text).expect("a file");
    let Some(opened) = open(&path) else {
        return;
    };
    let heard = |what: &str| opened.console.iter().any(|line| line.contains(what));
    assert!(
        heard("spoken") && heard("undefinedFunction"),
        "{:?}",
        opened.console
    );
    let asked = opened
        .requests
        .iter()
        .any(|line| line.contains("report.example"));
    assert!(asked, "{:?}", opened.requests);
}

#[test]
fn a_comparison_writes_its_page_and_keeps_its_exit_code() {
    let folder = folder();
    let diff = |run: &str, other: &str, more: &[&str]| {
        let [a, b] = [run, other].map(|run| format!("{RUNS}/{run}"));
        let mut diff = bitproof(folder.path());
        ended(diff.args(["trace", "diff", &a, &b]).args(more))
    };
    let html = ["--html", "diff.html"];
    let (code, out, talk) = diff("divergent/run_a", "divergent/run_b", &html);
    assert_eq!(code, 1, "{talk}");
    assert!(out.starts_with("different: 4 of 4 ranks part"), "{out}");
    assert!(talk.contains("wrote diff.html"), "{talk}");
    let file = folder.path().join("diff.html");
    let page = std::fs::read_to_string(&file).expect("a page");
    for part in [
        "✖ different",
        "run_a against",
        "reduction-order",
        "all_reduce",
        "iteration 3",
    ] {
        assert!(page.contains(part), "{part}\n{page}");
    }
    assert_eq!(page.matches("<td class=\"first\"").count(), 4);
    // Nothing is written over but by request, and nothing is compared for nothing.
    let (code, out, talk) = diff("divergent/run_a", "divergent/run_a", &html);
    assert_eq!((code, &*out), (2, ""), "{talk}");
    assert!(talk.contains("`--force` replaces it"), "{talk}");
    assert_eq!(std::fs::read_to_string(&file).expect("a page"), page);
    let force = ["--html", "diff.html", "--force"];
    let (code, _, talk) = diff("divergent/run_a", "divergent/run_a", &force);
    assert_eq!(code, 0, "{talk}");
    assert!(
        std::fs::read_to_string(&file)
            .expect("a page")
            .contains("✔ same")
    );
    // Folders that are not there are refused, in the page as well.
    let (code, _, _) = diff("nowhere", "divergent/run_b", &force);
    assert_eq!(code, 2);
    assert!(
        std::fs::read_to_string(&file)
            .expect("a page")
            .contains("✖ refused")
    );
}

#[test]
fn what_is_no_report_is_refused_with_its_place_and_nothing_is_written() {
    let folder = folder();
    let report = |text: &[u8]| {
        std::fs::write(folder.path().join("run.json"), text).expect("a file");
        let mut report = bitproof(folder.path());
        ended(report.args(["report", "run.json", "--html", "run.html"]))
    };
    for (text, told) in [
        (&b""[..], "holds no report"),
        (b"{\n  \"grade\": }", "line 2, column 12"),
        (b"\xff\xfe", "line 1"),
        (b"{\"grade\": 1}", "object 1: it is no report"),
        (b"[[[[", "line 1"),
        (
            b"{\"schema_version\": 2, \"verdicts\": 1, \"oracles\": 1}",
            "schema version 2",
        ),
    ] {
        let (code, out, talk) = report(text);
        assert_eq!((code, &*out), (2, ""), "{talk}");
        assert!(
            talk.contains(told) && talk.contains("--format json"),
            "{told}: {talk}"
        );
        assert!(!folder.path().join("run.html").exists());
    }
    let deep = "[".repeat(100_000);
    let (code, _, talk) = report(deep.as_bytes());
    assert_eq!(code, 2, "{talk}");
    let mut over = bitproof(folder.path());
    let (code, _, talk) = ended(over.args(["report", "run.json", "--html", "run.json", "--force"]));
    assert_eq!(code, 2);
    assert!(talk.contains("the file that is read"), "{talk}");
    let mut absent = bitproof(folder.path());
    let (code, _, talk) = ended(absent.args(["report", "no.json", "--html", "run.html"]));
    assert_eq!(code, 2, "{talk}");
}
