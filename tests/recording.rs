//! What `check --trace` records: recording changes nothing, two checks of one scenario are the
//! same, and what differs first is what the check names as its first divergence.

use std::path::{Path, PathBuf};

use bitproof::engine::EngineChoice;
use bitproof::prove::outcome::Outcome;
use bitproof::prove::recording::{Hashed, Recorder, TraceRequest};
use bitproof::prove::session::Session;
use bitproof::prove::sweep::{Finding, Reach, Sweep};
use bitproof::prove::{CheckOptions, Silent, check_recorded};
use bitproof::scenario::Overrides;
use bitproof::strategies::{self, Limits};
use bitproof::trace::Folder;
use bitproof::trace::Strength;
use bitproof::trace::certify::RankStream;
use bitproof::trace::diff::{Comparison, Divergence, Role, Verdict, compare};
use bitproof::trace::native::Level;
use bitproof::trace::op::Value;
use bitproof::world::{RunOptions, RunRecord, Schedule, Site};
use bitproof::{OracleKind, Scenario};
use proptest::prelude::*;

fn asked(folder: &Path, level: Level) -> TraceRequest {
    TraceRequest {
        folder: folder.to_path_buf(),
        level,
        ranks: None,
        iterations: None,
        budget: 1 << 30,
        hashed: Hashed::OnHost,
    }
}

/// Runs all steps by `schedule`, recorded.
fn recorded(session: &mut Session, schedule: Schedule, asked: &TraceRequest) -> RunRecord {
    let mut recorder = Recorder::begin(session, asked).expect("the folder is new");
    let options = RunOptions {
        schedule,
        record_nodes: true,
        ..RunOptions::default()
    };
    let steps = session.steps();
    let record = session.run(&options, steps, None, &mut recorder);
    recorder.end().expect("it is written");
    record.expect("it runs")
}

/// What a node wrote: rank, step, node, digest.
type Output = (u32, u32, String, String);

fn sorted(outputs: impl Iterator<Item = Output>) -> Vec<Output> {
    let mut all: Vec<Output> = outputs.collect();
    all.sort_unstable();
    all
}

/// Every output in a folder's records but those of checkpoints, which are no part of a root.
fn written(folder: &Path) -> Vec<Output> {
    let mut all = Vec::new();
    for (rank, files) in &opened(folder).ops {
        let mut stream = RankStream::open(files, Some(*rank)).expect("a rank's file");
        while stream.ready().expect("it is whole") {
            let record = stream.record().expect("a record");
            let late = record
                .extra
                .get("of_iteration")
                .map(|step| step.parse().expect("a step"));
            let step = late.unwrap_or(record.iteration.unwrap_or(0) as u32);
            let node = [&*record.scope, &*record.name].join(".");
            let node = node.trim_start_matches('.').to_string();
            let outputs = match &*record.phase {
                "checkpoint" => &[],
                _ => &record.outputs[..],
            };
            for output in outputs {
                let Value::Digest {
                    bytes64: Some(digest),
                    ..
                } = &output.value
                else {
                    panic!("{record:?} has no digest");
                };
                all.push((*rank, step, node.clone(), digest.to_string()));
            }
            stream.advance();
        }
    }
    sorted(all.into_iter())
}

fn opened(folder: &Path) -> Folder {
    Folder::open(folder).unwrap_or_else(|damages| panic!("{damages:?}"))
}

fn compared(a: &Path, b: &Path) -> Comparison {
    let comparison = compare(&opened(a), &opened(b), true);
    assert!(comparison.reasons.is_empty(), "{:?}", comparison.reasons);
    assert!(
        comparison.artefacts.is_empty(),
        "nothing here is a probe's: {comparison:?}"
    );
    comparison
}

/// When the record was made, by the simulated clock: the wave, which is the same on every rank.
fn moment(folder: &Path, rank: u32, first: &Divergence) -> u64 {
    let files = &opened(folder).ops[&rank];
    let mut stream = RankStream::open(files, Some(rank)).expect("a rank's file");
    while stream.ready().expect("it is whole") {
        let record = stream.record().expect("a record");
        if record.seq == first.point.seq {
            let time = record.extra.get("time").expect("records have it");
            return time.parse().expect("a number");
        }
        stream.advance();
    }
    panic!("there is no record {}", first.point.seq);
}

/// The first of all ranks' first divergences, with the ranks that part there then.
fn first_of_all(folder: &Path, comparison: &Comparison) -> (Divergence, Vec<u32>) {
    let firsts = comparison.firsts.iter();
    let at = |rank: u32, first: &Divergence| moment(folder, rank, first);
    let mut timed: Vec<_> = firsts
        .map(|(rank, one)| (at(*rank, one), *rank, one))
        .collect();
    timed.sort_by_key(|(time, rank, _)| (*time, *rank));
    let (time, _, first) = timed[0];
    let name = |one: &Divergence| (one.point.id.clone(), one.point.kind.clone());
    let together = timed
        .iter()
        .filter(|(other, _, one)| *other == time && name(one) == name(first));
    (first.clone(), together.map(|(_, rank, _)| *rank).collect())
}

fn is_at(first: &Divergence, site: &Site) -> bool {
    let point = &first.point;
    let step = (site.step > 0).then_some(u64::from(site.step));
    (point.iteration, point.microbatch) == (step, site.microbatch.map(u64::from))
        && point.phase == site.phase.name()
        && (&*point.scope, &*point.name) == (&*site.module, &*site.op)
}

const LIMITS: Limits = Limits {
    ranks: 8,
    tensor: 2,
    pipeline: 2,
    virtual_stages: 2,
    data: 4,
    layers_a_stage: 1,
    micro_batch_size: 2,
    microbatches: 4,
    steps: 2,
};

/// The trace of a run that deviates as the sweep found parts first at the node that the sweep
/// names, on its ranks and as an origin.
fn parts_where_named(session: &mut Session, finding: &Finding, reach: Reach) {
    let root = tempfile::tempdir().expect("a folder");
    let [a, b] = ["a", "b"].map(|name| root.path().join(name));
    recorded(session, Schedule::default(), &asked(&a, Level::Op));
    recorded(session, finding.schedule(), &asked(&b, Level::Op));
    let comparison = compared(&a, &b);
    assert_eq!(comparison.verdict, Verdict::Different, "{finding:?}");
    let (first, ranks) = first_of_all(&a, &comparison);
    assert!(
        is_at(&first, &finding.site),
        "{reach:?}: {first:?}\n{finding:?}"
    );
    assert_eq!(first.role, Role::Origin, "{first:?}");
    let mut named = finding.ranks.to_vec();
    // Who gets no differing element of a scattered sum does not part there.
    named.retain(|rank| ranks.contains(rank));
    assert!(!named.is_empty(), "ranks {ranks:?} part at {finding:?}");
    for rank in named {
        let first = &comparison.firsts[&rank];
        assert_eq!(first.role, Role::Origin, "rank {rank}: {first:?}");
    }
}

/// Draws scenarios until this many of them had something to name.
fn drawn(cases: u32, test: impl Fn(Scenario) -> u32) {
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_iters: 20,
        ..ProptestConfig::default()
    };
    let named = std::cell::Cell::new(0);
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let scenarios = strategies::scenarios_of(strategies::recipes_within(LIMITS));
    let done = runner.run(&scenarios, |mut scenario| {
        scenario.steps = scenario.recipe.eager_steps().map_or(1, |eager| eager + 1);
        scenario.checkpoint.restarts.clear();
        named.set(named.get() + test(scenario));
        Ok(())
    });
    done.unwrap_or_else(|error| panic!("{error}"));
    assert!(
        named.get() >= cases / 4,
        "{} of {cases} had something to name",
        named.get()
    );
}

#[test]
fn the_first_origin_of_a_trace_is_the_first_divergence_of_the_sweep() {
    drawn(24, |scenario| {
        let mut session = Session::new(scenario, &CheckOptions::default()).expect("it is valid");
        let mut sweep = Sweep::new(session.sweep_options());
        let steps = session.steps();
        let ran = session.run(&RunOptions::default(), steps, None, &mut sweep);
        ran.expect("it runs");
        for (reach, finding) in &sweep.first {
            parts_where_named(&mut session, finding, *reach);
        }
        sweep.first.len() as u32
    });
}

/// With its recorder a run has the roots, the numbers and the count of nodes that it has without,
/// and two recordings of it are the same, whatever the number of workers.
#[test]
fn recording_changes_nothing_and_says_the_same_each_time() {
    drawn(12, |scenario| {
        let root = tempfile::tempdir().expect("a folder");
        let options = |workers| CheckOptions {
            workers,
            ..CheckOptions::default()
        };
        let mut records = Vec::new();
        for (name, workers) in [("a", 1), ("b", 3)] {
            let mut session =
                Session::new(scenario.clone(), &options(workers)).expect("it is valid");
            let steps = session.steps();
            let plain = session
                .plain_run(&RunOptions::default(), steps)
                .expect("it runs");
            let asked = asked(&root.path().join(name), Level::Kernel);
            let seen = recorded(&mut session, Schedule::default(), &asked);
            assert_eq!((plain.root(), plain.nodes), (seen.root(), seen.nodes));
            let bits = |record: &RunRecord| {
                let values = record.metrics.values();
                values.map(|value| value.to_bits()).collect::<Vec<u32>>()
            };
            assert_eq!(bits(&plain), bits(&seen));
            records.push(seen);
        }
        let comparison = compared(&root.path().join("a"), &root.path().join("b"));
        assert_eq!(
            (comparison.verdict, comparison.strength),
            (Verdict::Same, Strength::Full)
        );
        let recorded = written(&root.path().join("a"));
        let ran = records[0].records.iter();
        let ran: Vec<Output> = sorted(ran.map(|node| {
            let site = &node.site;
            (node.rank, site.step, site.node(), node.digest.to_string())
        }));
        assert_eq!(recorded, ran, "every output of every node, and no other");
        1
    });
}

fn load(file: &str, set: &[&str]) -> Scenario {
    let overrides = Overrides {
        set: set.iter().map(|text| (*text).to_string()).collect(),
        steps: Some(2),
        ..Overrides::default()
    };
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("scenarios")
        .join(file);
    let loaded = Scenario::load(&path, &overrides);
    let mut scenario = loaded.expect("a shipped scenario").scenario;
    scenario.recipe.train_iters = 2;
    scenario.checkpoint.restarts.clear();
    scenario.oracles = [OracleKind::R2R, OracleKind::XR].into();
    scenario
}

fn checked(scenario: Scenario, folder: &Path) -> Outcome {
    let asked = asked(folder, Level::Op);
    let checked = check_recorded(scenario, CheckOptions::default(), Some(&asked), &Silent);
    let (outcome, recorded) = checked.unwrap_or_else(|error| panic!("{error}"));
    let recorded = recorded.expect("it was asked for").expect("it is written");
    assert!(recorded.records > 1000 && recorded.bytes > 0);
    outcome
}

/// Two whole checks on one allocation each, and a third one of both that knows of neither trace.
#[test]
fn two_allocations_part_where_the_check_of_both_says() {
    let root = tempfile::tempdir().unwrap();
    let both = load("any-allocation.toml", &[]);
    let folders: Vec<PathBuf> = (0..2)
        .map(|place| {
            let mut one = both.clone();
            one.free.clear();
            one.allocations = vec![both.allocations[place].clone()];
            let folder = root.path().join(place.to_string());
            checked(one, &folder);
            folder
        })
        .collect();
    let outcome = checked(both, &root.path().join("both"));
    let named = outcome.first_divergence.expect("placement matters");
    let comparison = compared(&folders[0], &folders[1]);
    let (first, ranks) = first_of_all(&folders[0], &comparison);
    assert!(is_at(&first, &named.site), "{first:?}\n{named:?}");
    assert_eq!(
        (first.role, first.group_inputs_match),
        (Role::Origin, Some(true))
    );
    let parting = ranks.iter().filter(|rank| named.ranks.contains(rank));
    assert!(parting.count() > 0, "{ranks:?} {named:?}");
    // The reference run of both is that of the first: recorded alike under another scenario.
    let same = compared(&folders[0], &root.path().join("both"));
    assert_eq!(same.verdict, Verdict::Same);
}

/// A bit that flips: the trace of the faulty run parts from the sound one at the node that the
/// check of the faulty scenario names, which has never seen the sound one's trace.
#[test]
fn a_flipped_bit_parts_where_the_check_says() {
    let root = tempfile::tempdir().unwrap();
    let sound = root.path().join("sound");
    checked(load("quickstart.toml", &[]), &sound);
    for (place, (flip, rank, role)) in [
        (
            "node = \"optimizer.adamw\", rank = 2, step = 2",
            2,
            Role::Origin,
        ),
        (
            "node = \"decoder.layers.0.mlp.linear_fc1.forward\", rank = 5, step = 1",
            5,
            Role::Origin,
        ),
        (
            "component = \"exp-avg\", rank = 1, step = 1",
            1,
            Role::Receiver,
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let set = format!("fault.flip_bit={{ {flip}, bit = 20 }}");
        let faulty = root.path().join(format!("faulty{place}"));
        let outcome = checked(load("quickstart.toml", &[&set]), &faulty);
        let named = outcome.first_divergence.expect("bits part");
        let comparison = compared(&sound, &faulty);
        let (first, ranks) = first_of_all(&sound, &comparison);
        assert_eq!(
            (ranks, &named.ranks[..]),
            (vec![rank], &[rank][..]),
            "{flip}"
        );
        assert!(is_at(&first, &named.site), "{flip}: {first:?}\n{named:?}");
        assert_eq!(first.role, role, "{flip}: {first:?}");
    }
}

/// What was recorded on an adapter whose arithmetic is strict is what the cpu engine gives.
#[test]
fn engines_record_the_same() {
    let wgpu = EngineChoice::Wgpu { adapter: None };
    let root = tempfile::tempdir().unwrap();
    let scenario = load("quickstart.toml", &["recipe.num_layers=2"]);
    for (name, engine) in [("cpu", EngineChoice::Cpu), ("wgpu", wgpu)] {
        let options = CheckOptions {
            engine,
            ..CheckOptions::default()
        };
        let mut session = match Session::new(scenario.clone(), &options) {
            Ok(session) => session,
            Err(reason) => {
                eprintln!("SKIPPED, nothing was compared: {reason}");
                return;
            }
        };
        if !session.engine_identity().strict {
            eprintln!("SKIPPED, nothing was compared: the adapter is not strict");
            return;
        }
        let mut one = asked(&root.path().join(name), Level::Op);
        one.ranks = Some("0,9".parse().unwrap());
        one.iterations = Some((1, 1));
        recorded(&mut session, Schedule::default(), &one);
    }
    let comparison = compared(&root.path().join("cpu"), &root.path().join("wgpu"));
    assert_eq!(
        (comparison.verdict, comparison.strength),
        (Verdict::Same, Strength::Full)
    );
    assert!(comparison.records > 100);
}
