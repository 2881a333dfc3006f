//! `bitproof check --trace` as a whole process: what is written, refused and left behind.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use process::{bitproof, ended};
use serde_json::Value;

#[path = "support/process.rs"]
mod process;

/// A check that takes a moment.
const SCENARIO: &str = "
name = 'recorded'
oracles = ['R2R']
steps = 2
[recipe]
world_size = 4
num_layers = 1
hidden_size = 16
ffn_hidden_size = 16
num_attention_heads = 2
seq_length = 8
micro_batch_size = 1
global_batch_size = 8
train_iters = 400
lr = 5e-3
[recipe.env]
NCCL_ALGO = 'Ring'
";

/// The exit code, standard output and standard error.
fn run(arguments: &[&str]) -> (i32, String, String) {
    ended(bitproof(env!("CARGO_MANIFEST_DIR")).args(arguments))
}

/// A folder with the scenario, and the paths of what tests put beside it.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Place {
        let root = tempfile::tempdir().expect("a folder");
        std::fs::write(root.path().join("s.toml"), SCENARIO).expect("it is written");
        Place(root)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).display().to_string()
    }

    fn check(&self, folder: &str, more: &[&str]) -> (i32, String, String) {
        let (scenario, folder) = (self.path("s.toml"), self.path(folder));
        let given = ["check", &scenario, "--no-save", "--trace", &folder];
        run(&[&given[..], more].concat())
    }
}

#[test]
fn a_check_records_what_trace_reads() {
    let place = Place::new();
    let (code, text, talk) = place.check("a", &["--format", "json"]);
    assert_eq!(code, 0, "{text}{talk}");
    assert!(
        talk.contains("trace: ") && talk.contains(" records, "),
        "{talk}"
    );
    let report: Value = serde_json::from_str(&text).expect("data stay alone on stdout");
    assert_eq!(place.check("b", &["--workers", "1"]).0, 0);
    let (a, b) = (place.path("a"), place.path("b"));
    let (code, text, _) = run(&["trace", "diff", &a, &b, "--format", "json"]);
    let same: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        (code, &same["identical"], &same["strength"]),
        (0, &true.into(), &"full".into())
    );
    let metrics = same["metrics"].as_array().expect("numbers of each step");
    let of = |name: &str| metrics.iter().find(|one| one["metric"] == name);
    for name in ["LM loss", "gradient norm"] {
        let found = of(name).unwrap_or_else(|| panic!("{name}: {metrics:?}"));
        assert!(found["compared"].as_u64() >= Some(2), "{found}");
    }
    // The same file says of what it is.
    let described: Value =
        serde_json::from_str(&std::fs::read_to_string(place.path("a/run.json")).unwrap()).unwrap();
    assert_eq!(described["scenario_hash"], report["scenario"]["hash"]);
    assert_eq!(
        (&described["run"], &described["world_size"]),
        (&"reference".into(), &4.into())
    );
    let ops = place.path("ops");
    assert_eq!(
        run(&["trace", "convert", &a, "--to", "ops", "-o", &ops]).0,
        0
    );
    let (code, text, _) = run(&["trace", "certify", &ops]);
    assert_eq!(code, 0, "{text}");
    let (_, text, _) = run(&["trace", "show", &a, "--rank", "3", "--kind", "collective"]);
    assert!(
        text.contains("rank 3 seq ") && text.contains(" -> "),
        "{text}"
    );
}

#[test]
fn what_cannot_be_recorded_is_refused_before_anything_runs() {
    let place = Place::new();
    std::fs::create_dir(place.path("full")).unwrap();
    std::fs::write(place.path("full/notes.txt"), "mine").unwrap();
    let (code, text, talk) = place.check("full", &[]);
    assert_eq!((code, &*text), (2, ""), "{talk}");
    assert!(talk.contains("holds `notes.txt` already"), "{talk}");
    assert!(talk.contains("bitproof trace diff"), "{talk}");
    let (code, _, talk) = place.check("s.toml", &[]);
    assert!(code == 2 && talk.contains("cannot write"), "{talk}");
    let (code, _, talk) = place.check("a", &["--ranks", "0,4"]);
    assert!(code == 2 && talk.contains("ranks 0 to 3"), "{talk}");
    let (code, _, talk) = place.check("a", &["--steps", "2-3"]);
    assert!(code == 2 && talk.contains("the scenario has 2"), "{talk}");
    assert!(!Path::new(&place.path("a")).exists(), "nothing was made");
    let scenario = place.path("s.toml");
    let (code, _, talk) = place.check("a", &[&scenario]);
    assert!(code == 2 && talk.contains("one scenario"), "{talk}");
    let alone = run(&["check", &scenario, "--trace-level", "op"]);
    assert_eq!(alone.0, 2, "a level of nothing");
    assert_eq!(place.check("a", &["--lint-only"]).0, 2);
}

#[test]
fn levels_ranks_and_steps_narrow_a_recording() {
    let place = Place::new();
    let records = |folder: &str| {
        let (code, text, _) = run(&["trace", "certify", &place.path(folder), "--format", "json"]);
        assert_eq!(code, 0, "{text}");
        let found: Value = serde_json::from_str(&text).unwrap();
        let of = |list: &str| {
            let ranks = found[list].as_array().expect("a list").iter();
            ranks
                .map(|rank| rank["records"].as_u64().expect("a number"))
                .sum::<u64>()
        };
        (of("ranks"), of("boundary"))
    };
    let mut counts = Vec::new();
    for level in ["metrics", "semantic", "op", "kernel"] {
        assert_eq!(place.check(level, &["--trace-level", level]).0, 0);
        counts.push(records(level));
    }
    assert_eq!(counts[0].0, 0, "numbers alone");
    assert!(
        counts[0].0 < counts[1].0 && counts[1].0 < counts[2].0,
        "{counts:?}"
    );
    assert_eq!(
        counts[2], counts[3],
        "more of each record, not more records"
    );
    assert!(
        counts.iter().all(|count| count.1 == counts[0].1),
        "{counts:?}"
    );
    let [metrics, other] = ["metrics", "more"].map(|name| place.path(name));
    assert_eq!(place.check("more", &["--trace-level", "metrics"]).0, 0);
    assert_eq!(run(&["trace", "diff", &metrics, &other]).0, 0);
    // Levels are not held against each other: what one lacks is no difference of the runs.
    let (code, _, talk) = run(&["trace", "diff", &place.path("semantic"), &place.path("op")]);
    assert!(code == 4 && talk.contains("other-level"), "{talk}");
    let few = ["--ranks", "0,2-3", "--steps", "2-2"];
    assert_eq!(place.check("few", &few).0, 0);
    let (code, text, _) = run(&["trace", "certify", &place.path("few")]);
    assert!(
        code == 0 && text.contains("ranks 1 of 4 were not recorded"),
        "{text}"
    );
    assert!(records("few").0 < counts[2].0 / 2);
}

/// A real difference, and a recording that ends before its run, change nothing of the verdict.
#[test]
fn a_budget_that_is_spent_is_told_and_leaves_a_start() {
    let place = Place::new();
    let more = [
        "--trace-level",
        "kernel",
        "--trace-budget",
        "1",
        "--steps",
        "60",
    ];
    let (code, text, talk) = place.check("a", &more);
    assert_eq!(code, 6, "{text}{talk}");
    assert!(text.contains("proved"), "{text}");
    assert!(
        talk.contains("outgrown its budget of 1048576 bytes"),
        "{talk}"
    );
    assert!(talk.contains("--trace-level semantic"), "{talk}");
    let (code, _, talk) = run(&["trace", "certify", &place.path("a")]);
    assert!(code == 4 && talk.contains("unfinished-run"), "{talk}");
    let shown = run(&[
        "trace",
        "show",
        &place.path("a"),
        "--rank",
        "0",
        "--limit",
        "1000000",
    ]);
    assert!(shown.0 == 0 && shown.1.lines().count() > 100, "{}", shown.2);
}

/// Killed at any moment, a check leaves whole steps that can be read, and no run that is trusted.
#[test]
fn a_killed_run_leaves_a_readable_start() {
    let place = Place::new();
    let (scenario, folder) = (place.path("s.toml"), place.path("a"));
    let mut child = bitproof(env!("CARGO_MANIFEST_DIR"))
        .args([
            "check",
            &scenario,
            "--no-save",
            "--steps",
            "400",
            "--trace",
            &folder,
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("the binary starts");
    let file = Path::new(&folder).join("rank_000003.jsonl.zst");
    let size = || std::fs::metadata(&file).map_or(0, |known| known.len());
    while size() < 40_000 {
        assert!(
            child.try_wait().expect("it lives").is_none(),
            "it ended before it was killed"
        );
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().expect("it is killed");
    child.wait().expect("it has ended");
    let (code, _, talk) = run(&["trace", "certify", &folder]);
    assert!(code == 4 && talk.contains("unfinished-run"), "{talk}");
    assert!(!talk.contains("cut-"), "frames are written whole: {talk}");
    for rank in ["0", "3"] {
        let shown = run(&[
            "trace", "show", &folder, "--rank", rank, "--limit", "1000000",
        ]);
        assert_eq!(shown.0, 0, "{}", shown.2);
        assert!(shown.1.lines().count() > 100);
    }
    let (code, _, talk) = place.check("a", &[]);
    assert!(code == 2 && talk.contains("never written over"), "{talk}");
}

/// Where a run cannot go on there is a verdict, and the start of a trace.
#[test]
fn a_run_that_stops_leaves_its_start() {
    let place = Place::new();
    let fault = "fault.skip_collective={ at = \"loss.all_reduce\", rank = 1, step = 2 }";
    let (code, text, talk) = place.check("a", &["--set", fault]);
    assert_eq!(code, 1, "{text}{talk}");
    assert!(
        talk.contains("ends where the run could not go on"),
        "{talk}"
    );
    let shown = run(&[
        "trace",
        "show",
        &place.path("a"),
        "--rank",
        "1",
        "--limit",
        "1000000",
    ]);
    assert!(shown.0 == 0 && shown.1.lines().count() > 20, "{}", shown.2);
    let (code, _, talk) = run(&["trace", "certify", &place.path("a")]);
    assert!(code == 4 && talk.contains("unfinished-run"), "{talk}");
}

/// The lowest rung is the kernel that the record names, at level kernel with the plan it added by;
/// the comparison says which folders it is of.
#[test]
fn the_ladder_goes_down_to_the_kernel() {
    let place = Place::new();
    for level in ["op", "kernel"] {
        let [ring, tree] = ["ring", "tree"].map(|name| format!("{name}-{level}"));
        let level = ["--trace-level", level];
        assert_eq!(place.check(&ring, &level).0, 0);
        let other = [&level[..], &["--set", "recipe.env.NCCL_ALGO=\"Tree\""]].concat();
        place.check(&tree, &other);
        let (ring, tree) = (place.path(&ring), place.path(&tree));
        let (code, text, talk) = run(&["trace", "diff", &ring, &tree, "--format", "json"]);
        assert_eq!(code, 1, "{talk}");
        let found: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(found["folders"]["a"], *ring);
        assert_eq!(found["folders"]["b"], *tree);
        let rungs = found["ladder"].as_array().expect("a list").iter();
        let kernel = rungs
            .filter(|one| one["rung"] == "kernel")
            .map(|one| &one["found"]);
        let kernel: Vec<&str> = kernel.map(|found| found.as_str().expect("told")).collect();
        match level[1] {
            "op" => {
                assert_eq!(kernel, ["fold"]);
                let table = &found["discriminator"];
                let differ = table["differ"].as_u64();
                assert!(differ > Some(0), "{table}");
            }
            _ => assert!(kernel[0].starts_with("fold, plan "), "{kernel:?}"),
        }
    }
    let (code, text, _) = run(&["trace", "diff", "no-a", "no-b", "--format", "json"]);
    let refused: Value = serde_json::from_str(&text).unwrap();
    assert_eq!((code, &refused["folders"]["b"]), (2, &"no-b".into()));
}

/// Digests by kernels are those of the host: two recordings are the same bytes.
#[test]
fn a_recording_hashed_by_the_engine_is_the_same_bytes() {
    let place = Place::new();
    assert_eq!(place.check("host", &[]).0, 0);
    assert_eq!(place.check("engine", &["--trace-hash", "engine"]).0, 0);
    for file in ["rank_000000.jsonl.zst", "rank_000003.jsonl.zst", "run.json"] {
        let [host, engine] = ["host", "engine"].map(|folder| {
            std::fs::read(place.path(&format!("{folder}/{file}"))).expect("it is there")
        });
        assert!(host == engine && !host.is_empty(), "{file} differs");
    }
}
