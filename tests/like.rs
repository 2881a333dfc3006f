//! `check --like`: what explains a real trace, and that nothing is said to explain what it does
//! not.

use std::path::Path;

use bitproof::Scenario;
use bitproof::prove::CheckOptions;
use bitproof::prove::likeness::{Choice, Likeness, explain};
use bitproof::prove::recording::{Hashed, Recorder, TraceRequest};
use bitproof::prove::session::Session;
use bitproof::prove::sweep::Sweep;
use bitproof::strategies::{self, Limits};
use bitproof::trace::Folder;
use bitproof::trace::diff::compare;
use bitproof::trace::native::Level;
use bitproof::trace::symptom::{pair_in, symptom};
use bitproof::world::{RunOptions, Schedule};
use process::{bitproof, ended};
use proptest::prelude::*;
use serde_json::Value;

#[path = "support/process.rs"]
mod process;

const DIVERGENT: &str = "tests/golden/traces/divergent";

/// Four gloo ranks under torch's DDP, as those of the golden traces.
const DDP: &str = "
name = 'ddp'
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
train_iters = 4
lr = 5e-3
ddp = 'torch'
distributed_backend = 'gloo'
";

/// The exit code, standard output and standard error of a check of `text`.
fn check(text: &str, like: &str, more: &[&str]) -> (i32, String, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let scenario = folder.path().join("s.toml");
    std::fs::write(&scenario, text).expect("it is written");
    let mut command = bitproof(env!("CARGO_MANIFEST_DIR"));
    let command = command.args(["check", "--no-save", "--like", like]);
    ended(command.arg(&scenario).args(more))
}

fn likeness(text: &str, like: &str, code: i32) -> Value {
    let (found, text, talk) = check(text, like, &["--format", "json"]);
    assert_eq!(found, code, "{text}{talk}");
    let report: Value = serde_json::from_str(&text).expect("one object");
    report["like"].clone()
}

#[test]
fn an_arrival_order_sum_explains_the_real_divergence() {
    let like = likeness(DDP, DIVERGENT, 1);
    assert_eq!(like["symptom"]["id"], "collective:all_reduce:0");
    let explanations = like["explanations"].as_array().expect("a list");
    assert_eq!(explanations.len(), 1, "{like}");
    let one = &explanations[0];
    assert_eq!(
        (&one["site"]["op"], &one["site"]["step"]),
        (&"all_reduce".into(), &2.into())
    );
    assert_eq!(one["site"]["phase"], "grad-reduce");
    assert_eq!(
        (&one["choice"], &one["parts"]),
        (&"assumed-arrival".into(), &true.into())
    );
    let criteria = one["criteria"].as_array().expect("a list");
    let names: Vec<&str> = criteria
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert_eq!(
        names,
        ["op", "group", "phase", "dtype", "occurrence", "rank"]
    );
    assert!(
        criteria.iter().all(|one| one["matches"] == true),
        "{criteria:?}"
    );
    let (code, text, _) = check(DDP, DIVERGENT, &[]);
    assert_eq!(code, 1, "a proof of the recipe is no proof of what ran");
    for part in [
        "the trace",
        "explained by step 2, grad-reduce",
        "pins its order",
        "--like",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let (_, sarif, _) = check(DDP, DIVERGENT, &["--format", "sarif"]);
    assert!(sarif.contains("trace-explained"), "{sarif}");
}

/// One thing that is another is enough, and is told.
#[test]
fn what_stands_elsewhere_explains_nothing() {
    const TORCH: &str = "ddp = 'torch'\ndistributed_backend = 'gloo'";
    for (from, to, apart) in [
        // Gradients in bf16; one rank alone; gradients that are scattered.
        (
            TORCH,
            "bf16 = true\naccumulate_allreduce_grads_in_fp32 = false\ngrad_reduce_in_bf16 = true",
            "dtype",
        ),
        ("world_size = 4", "world_size = 1", ""),
        (TORCH, "use_distributed_optimizer = true", ""),
    ] {
        let text = DDP.replace(from, to);
        let (code, text, talk) = check(&text, DIVERGENT, &["--format", "json"]);
        assert_ne!(code, 2, "{talk}{text}");
        let report: Value = serde_json::from_str(&text).expect("one object");
        let like = &report["like"];
        assert_eq!(like["explanations"], serde_json::json!([]), "{to}: {like}");
        assert!(like["unexplained"].is_string(), "{like}");
        assert!(code == 6 || code == 4, "{to}: {code}");
        let told = like["near"].to_string();
        assert!(told.contains(apart), "{to}: {told}");
    }
}

#[test]
fn traces_that_say_nothing_are_refused() {
    let root = tempfile::tempdir().unwrap();
    let path = |name: &str| root.path().join(name).display().to_string();
    let copied = |from: &str, to: &str| {
        let (from, to) = (
            Path::new(DIVERGENT).join(from),
            Path::new(&path(to)).to_path_buf(),
        );
        std::fs::create_dir_all(&to).unwrap();
        for entry in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
            if entry.path().is_file() {
                std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
            }
        }
    };
    copied("run_a", "one/a");
    copied("run_a", "same/a");
    copied("run_a", "same/b");
    copied("run_a", "cut/a");
    copied("run_b", "cut/b");
    std::fs::write(path("cut/b/rank_000002.jsonl.gz"), [31, 139, 8]).unwrap();
    for (name, code, told) in [
        ("none", 2, "cannot read it"),
        ("one", 2, "two are expected"),
        ("same", 5, "are the same"),
        ("cut", 4, "rank_000002"),
    ] {
        let (found, text, talk) = check(DDP, &path(name), &[]);
        assert_eq!((found, &*text), (code, ""), "{name}: {talk}");
        assert!(talk.contains(told), "{name}: {talk}");
    }
}

fn record(session: &mut Session, schedule: Schedule, folder: &Path) {
    let asked = TraceRequest {
        folder: folder.to_path_buf(),
        level: Level::Op,
        ranks: None,
        iterations: None,
        budget: 1 << 30,
        hashed: Hashed::OnHost,
    };
    let mut recorder = Recorder::begin(session, &asked).expect("the folder is new");
    let options = RunOptions {
        schedule,
        ..RunOptions::default()
    };
    let steps = session.steps();
    session
        .run(&options, steps, None, &mut recorder)
        .expect("it runs");
    recorder.end().expect("it is written");
}

/// What explains the two traces in `root`, by a scenario that has not seen them.
fn explained(root: &Path, scenario: &Scenario) -> Likeness {
    let folders = pair_in(root)
        .expect("two folders")
        .map(|path| Folder::open(&path).unwrap_or_else(|damages| panic!("{damages:?}")));
    let comparison = compare(&folders[0], &folders[1], true);
    let found = symptom(&folders[0], &comparison).expect("it is whole");
    let found = found.expect("somebody is an origin");
    explain(scenario, &CheckOptions::default(), "x", &found).expect("it runs")
}

/// A run of a drawn recipe, and one in which its first free choice went otherwise: of the traces
/// alone, the place is found, and found to be free.
#[test]
fn a_free_choice_explains_its_own_traces() {
    let limits = Limits {
        ranks: 8,
        steps: 2,
        layers_a_stage: 1,
        ..Limits::default()
    };
    let config = ProptestConfig {
        cases: 16,
        failure_persistence: None,
        max_shrink_iters: 20,
        ..ProptestConfig::default()
    };
    let found = std::cell::Cell::new(0);
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let scenarios = strategies::scenarios_of(strategies::recipes_within(limits));
    let done = runner.run(&scenarios, |mut scenario| {
        scenario.steps = scenario.recipe.eager_steps().map_or(1, |eager| eager + 1);
        let mut session = Session::new(scenario.clone(), &CheckOptions::default()).expect("valid");
        let mut sweep = Sweep::new(session.sweep_options());
        let steps = session.steps();
        session
            .run(&RunOptions::default(), steps, None, &mut sweep)
            .expect("it runs");
        for finding in sweep.first.values() {
            let root = tempfile::tempdir().expect("a folder");
            record(&mut session, Schedule::default(), &root.path().join("a"));
            record(&mut session, finding.schedule(), &root.path().join("b"));
            let like = explained(root.path(), &scenario);
            let one = like
                .explanations
                .first()
                .unwrap_or_else(|| panic!("{like:?}\n{finding:?}"));
            prop_assert_eq!((&one.site.module, &one.site.op), {
                (&like.symptom.scope.as_str().into(), &one.site.op)
            });
            prop_assert_eq!(one.choice, Choice::Free, "{:?}", one);
            prop_assert_eq!(one.site.phase.name(), &*like.symptom.phase);
            found.set(found.get() + 1);
        }
        Ok(())
    });
    done.unwrap_or_else(|error| panic!("{error}"));
    assert!(found.get() >= 4, "{} had something to explain", found.get());
}

/// A bit that flipped in a kernel's result is no sum's doing, and nothing is said to explain it.
#[test]
fn a_flipped_bit_is_not_explained() {
    let root = tempfile::tempdir().unwrap();
    let flip = "[fault]\nflip_bit = { node = \"optimizer.adamw\", rank = 2, step = 2, bit = 20 }";
    for (name, text) in [("a", DDP.to_string()), ("b", format!("{DDP}{flip}"))] {
        let scenario = root.path().join(format!("{name}.toml"));
        std::fs::write(&scenario, text).unwrap();
        let done = bitproof(env!("CARGO_MANIFEST_DIR"))
            .args(["check", "--no-save", "-q", "--trace"])
            .arg(root.path().join("runs").join(name))
            .arg(&scenario)
            .output()
            .expect("the binary starts");
        assert!([0, 3].contains(&done.status.code().unwrap()), "{done:?}");
    }
    let like = likeness(DDP, &root.path().join("runs").display().to_string(), 6);
    assert_eq!(like["symptom"]["name"], "adamw");
    assert_eq!(like["explanations"], serde_json::json!([]));
    let why = like["unexplained"].as_str().expect("a reason");
    assert!(
        why.contains("no sum that a trace would call `adamw`"),
        "{why}"
    );
}
