//! Whole checks: the quickstart and its parts, and one step of a small model at four sizes, on both
//! engines where there is an adapter. Mesa's software driver is best measured with
//! `LP_NUM_THREADS=0`, as the command line runs it.
//!
//! `cargo bench --bench check`; peak memory, where the system tells it, goes to stderr.

use std::path::Path;
use std::time::Duration;

use bitproof::engine::EngineChoice;
use bitproof::prove::check::reference_run;
use bitproof::prove::mutation::{self, Nursery};
use bitproof::prove::oracle::r2r;
use bitproof::prove::recording::{Hashed, Recorder, TraceRequest};
use bitproof::prove::session::Session;
use bitproof::prove::sweep::Sweep;
use bitproof::prove::{CheckOptions, Silent, check};
use bitproof::scenario::{Overrides, Scenario};
use bitproof::trace::native::Level;
use bitproof::world::{Beside, Observer, RunOptions, Unobserved};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, SamplingMode, criterion_group, criterion_main};

const WORKERS: usize = 2;

fn load(path: &str, set: &[String]) -> Scenario {
    let overrides = Overrides {
        set: set.to_vec(),
        ..Overrides::default()
    };
    let loaded = Scenario::load(Path::new(path), &overrides);
    loaded.expect("a shipped scenario is valid").scenario
}

fn options(engine: EngineChoice) -> CheckOptions {
    CheckOptions {
        workers: WORKERS,
        engine,
        ..CheckOptions::default()
    }
}

fn session(path: &str, set: &[String], engine: EngineChoice) -> Session {
    Session::new(load(path, set), &options(engine)).expect("a shipped scenario runs")
}

/// The engines of this machine with their names.
fn engines() -> Vec<(EngineChoice, String)> {
    let wgpu = EngineChoice::Wgpu { adapter: None };
    let mut engines = vec![(EngineChoice::Cpu, "cpu".to_string())];
    match wgpu.open(WORKERS) {
        Ok(engine) => engines.push((wgpu, format!("wgpu, {}", engine.identity().adapter))),
        Err(reason) => eprintln!("the wgpu engine is not measured: {reason}"),
    }
    engines
}

fn slow(group: &mut BenchmarkGroup<'_, WallTime>) {
    group.sample_size(10).sampling_mode(SamplingMode::Flat);
    group.warm_up_time(Duration::from_millis(100));
    group.measurement_time(Duration::from_secs(2));
}

fn quickstart(criterion: &mut Criterion) {
    const PATH: &str = "scenarios/quickstart.toml";
    let mut group = criterion.benchmark_group("quickstart, 16 ranks, 4 steps");
    slow(&mut group);
    let plain = RunOptions::default();
    let mut session = session(PATH, &[], EngineChoice::Cpu);
    let steps = session.steps();
    group.bench_function("plain run", |bencher| {
        bencher.iter(|| session.plain_run(&plain, steps.clone()).expect("runs"));
    });
    group.bench_function("run with sweep", |bencher| {
        bencher.iter(|| {
            let mut sweep = Sweep::new(session.sweep_options());
            session
                .run(&plain, steps.clone(), None, &mut sweep)
                .expect("runs")
        });
    });
    let mut sweep = Sweep::new(session.sweep_options());
    let reference = reference_run(&mut session, &mut sweep).expect("runs");
    group.bench_function("second run", |bencher| {
        bencher.iter(|| r2r::second_run(&mut session, WORKERS, &reference).expect("runs"));
    });
    group.bench_function("planted faults", |bencher| {
        bencher.iter(|| {
            let nursery = Nursery {
                catalogue: &sweep.catalogue,
                sums: &sweep.sums,
                straight: &reference,
                state: reference.checkpoints.get(&1),
            };
            mutation::score(&mut session, &nursery, || {}).expect("runs")
        });
    });
    let options = options(EngineChoice::Cpu);
    group.bench_function("whole check", |bencher| {
        bencher.iter(|| check(load(PATH, &[]), options.clone(), &Silent).expect("checks"));
    });
    group.finish();
}

/// TP x PP x DP of each size; the model and the 16 tokens of a rank stay.
const LAYOUTS: [(u32, u32, u32); 4] = [(2, 2, 4), (4, 4, 4), (8, 8, 8), (8, 8, 38)];

fn steps(criterion: &mut Criterion) {
    const PATH: &str = "scenarios/scale-2432.toml";
    let mut group = criterion.benchmark_group("TPxPPxDP, 16 tokens a rank");
    slow(&mut group);
    let plain = RunOptions::default();
    for (tp, pp, dp) in LAYOUTS {
        let set = [
            format!("recipe.tensor_model_parallel_size={tp}"),
            format!("recipe.pipeline_model_parallel_size={pp}"),
            format!("recipe.world_size={}", tp * pp * dp),
            format!("recipe.global_batch_size={dp}"),
        ];
        for (engine, engine_name) in engines() {
            let mut session = session(PATH, &set, engine);
            let name = format!("{} ranks ({tp}x{pp}x{dp}), {engine_name}", tp * pp * dp);
            // One run compiles the kernels and chooses the plans.
            let record = session.plain_run(&plain, 1..2).expect("runs");
            let rank_bytes = 4 * record.memory_words;
            for (what, steps) in [("set-up", 1..1), ("set-up and one step", 1..2)] {
                group.bench_function(format!("{name}: {what}"), |bencher| {
                    bencher.iter(|| session.plain_run(&plain, steps.clone()).expect("runs"));
                });
            }
            eprintln!(
                "{name}: {} MiB in ranks' memory, {} in the whole process so far at most, \
                 {} nodes and {} waves a step",
                rank_bytes >> 20,
                peak().unwrap_or("an unknown number of MiB".to_string()),
                record.nodes,
                record.waves,
            );
        }
    }
    group.finish();
}

/// What looking for hazards costs a step, at the first and at a large size: as two rows each, with
/// launches' writes measured, as a check does.
fn hazards(criterion: &mut Criterion) {
    const PATH: &str = "scenarios/scale-2432.toml";
    let mut group = criterion.benchmark_group("one step, hazards followed or not");
    slow(&mut group);
    group
        .sample_size(20)
        .measurement_time(Duration::from_secs(8));
    for (tp, pp, dp) in [LAYOUTS[0], LAYOUTS[2]] {
        let ranks = tp * pp * dp;
        let set = [
            format!("recipe.tensor_model_parallel_size={tp}"),
            format!("recipe.pipeline_model_parallel_size={pp}"),
            format!("recipe.world_size={ranks}"),
            format!("recipe.global_batch_size={dp}"),
        ];
        let mut session = session(PATH, &set, EngineChoice::Cpu);
        for (what, hazard_steps_max) in [("not followed", 0), ("followed", 1)] {
            let options = RunOptions {
                hazard_steps_max,
                measure_writes: true,
                ..RunOptions::default()
            };
            group.bench_function(format!("{ranks} ranks, {what}"), |bencher| {
                bencher.iter(|| session.plain_run(&options, 1..2).expect("runs"));
            });
        }
    }
    group.finish();
}

/// A restart after every step shares the straight run with one restart.
fn restarts(criterion: &mut Criterion) {
    const PATH: &str = "scenarios/quickstart.toml";
    let mut group = criterion.benchmark_group("quickstart, 20 steps, whole check");
    slow(&mut group);
    for (what, restarts) in [
        ("a restart after step 10", "[[10]]"),
        ("a restart after every step", "\"every-step\""),
    ] {
        let set = [
            "steps=20".to_string(),
            format!("checkpoint.restarts={restarts}"),
        ];
        let scenario = load(PATH, &set);
        let options = options(EngineChoice::Cpu);
        group.bench_function(what, |bencher| {
            bencher.iter(|| check(scenario.clone(), options.clone(), &Silent).expect("checks"));
        });
    }
    group.finish();
}

/// What recording costs the reference run of a check (its sweep, hazards and cuts included) and a
/// plain run, by level.
fn recording(criterion: &mut Criterion) {
    const PATH: &str = "scenarios/quickstart.toml";
    const LEVELS: [Option<Level>; 5] = [
        None,
        Some(Level::Metrics),
        Some(Level::Semantic),
        Some(Level::Op),
        Some(Level::Kernel),
    ];
    let mut group = criterion.benchmark_group("quickstart, 16 ranks, 4 steps, recorded");
    slow(&mut group);
    let mut session = session(PATH, &[], EngineChoice::Cpu);
    let steps = session.steps();
    let folder = tempfile::tempdir().expect("a folder");
    let mut number = 0;
    for (what, is_swept) in [("reference run", true), ("plain run", false)] {
        for level in LEVELS {
            let name = level.map_or("not recorded", Level::slug);
            group.bench_function(format!("{what}: {name}"), |bencher| {
                bencher.iter(|| {
                    number += 1;
                    let mut recorder = level.map(|level| {
                        let asked = TraceRequest {
                            folder: folder.path().join(number.to_string()),
                            level,
                            ranks: None,
                            iterations: None,
                            budget: 1 << 40,
                            hashed: Hashed::OnHost,
                        };
                        Recorder::begin(&session, &asked).expect("a new folder")
                    });
                    let mut sweep = Sweep::new(session.sweep_options());
                    let mut nobody = Unobserved;
                    let first: &mut dyn Observer = match is_swept {
                        true => &mut sweep,
                        false => &mut nobody,
                    };
                    let mut both;
                    let observer: &mut dyn Observer = match &mut recorder {
                        None => first,
                        Some(second) => {
                            both = Beside { first, second };
                            &mut both
                        }
                    };
                    match is_swept {
                        true => reference_run(&mut session, observer).expect("runs"),
                        false => {
                            let plain = RunOptions::default();
                            let ran = session.run(&plain, steps.clone(), None, observer);
                            ran.expect("runs")
                        }
                    };
                    recorder.map(|recorder| recorder.end().expect("it is written"))
                });
            });
        }
    }
    group.finish();
}

/// The process's peak resident memory, where Linux tells it.
fn peak() -> Option<String> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.split_whitespace().next()?.parse().ok()?;
    Some(format!("{} MiB", kib >> 10))
}

criterion_group!(benches, quickstart, steps, hazards, restarts, recording);
criterion_main!(benches);
