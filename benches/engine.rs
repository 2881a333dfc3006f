//! The engines in one run: matrix products beside `ndarray` and beside bare dispatches, the cost of
//! a launch, compile time, folds. The adapter's name and driver stand in the names of the groups.
//! Mesa's software driver is best measured with `LP_NUM_THREADS=0`, as the command line runs it.

#[path = "engine/bare.rs"]
#[cfg(feature = "wgpu")]
mod bare;

use std::sync::Arc;
use std::time::Duration;

use bitproof::engine::cpu::CpuEngine;
#[cfg(feature = "wgpu")]
use bitproof::engine::wgpu::{Devices, WgpuOptions};
use bitproof::engine::{Engine, Launch, Span};
use bitproof::kernel::Registry;
use bitproof::numerics::Dtype;
use bitproof::plan::{Arithmetic, Init, Piece, Plan, Tree};
use bitproof::world::fold::{FoldJob, FoldLab, FoldNode, FoldOrder, FoldPrograms, SlotsJob};
use bitproof::world::{COMPUTE_STREAM, Choice, Family, NodeId, Owner, Phase, Site};
use criterion::measurement::WallTime;
use criterion::{
    BatchSize, BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main,
};

const SIZE: u32 = 64;
const RANKS: u32 = 512;

/// Grid and params of one product.
fn product(kernel: &str) -> ([u32; 3], Vec<u32>) {
    let blocks = SIZE / 4;
    match kernel {
        "matmul_nn" => ([blocks.div_ceil(64), blocks, 1], vec![SIZE, SIZE, SIZE, 0]),
        "matmul_nt" => ([SIZE.div_ceil(64), blocks, 1], vec![SIZE, SIZE, SIZE, 0]),
        "matmul_wgrad" => (
            [(blocks * blocks).div_ceil(64), 1, 1],
            vec![SIZE, SIZE, SIZE, 1],
        ),
        other => unreachable!("{other} is no matrix product"),
    }
}

/// One 64 x 64 x 64 product for each rank.
fn products(engine: &mut dyn Engine, kernel: &str) -> Vec<Launch> {
    let registry = Registry::new().expect("shaders link");
    let program = engine
        .load(registry.get(kernel).expect("valid"))
        .expect("compiles");
    let words = SIZE * SIZE;
    let arena = engine
        .alloc(words * RANKS * 3, 0.5f32.to_bits())
        .expect("memory");
    let part = |place: u32| Span {
        arena,
        offset_words: place * words,
        words,
    };
    let (grid, params) = product(kernel);
    (0..RANKS)
        .map(|rank| Launch {
            program,
            grid,
            operands: (0..3).map(|operand| part(rank * 3 + operand)).collect(),
            params: params.clone(),
        })
        .collect()
}

/// The adapter, or nothing, with the reason on standard error.
#[cfg(feature = "wgpu")]
fn adapter(workers: usize) -> Option<bitproof::engine::wgpu::WgpuEngine> {
    let options = WgpuOptions {
        workers,
        devices: Devices::AtMost(workers),
        ..WgpuOptions::default()
    };
    match bitproof::engine::wgpu::WgpuEngine::open(&options) {
        Ok(engine) => Some(engine),
        Err(reason) => {
            eprintln!("the wgpu engine is not measured: {reason}");
            None
        }
    }
}

/// Matrix products on the adapter: through the engine, and as bare dispatches.
#[cfg(feature = "wgpu")]
fn matmul_on_adapter(group: &mut BenchmarkGroup<'_, WallTime>, kernel: &str) {
    let Some(mut engine) = adapter(1) else { return };
    let identity = engine.identity();
    let driver = identity.versions.iter().find(|(name, _)| name == "driver");
    let driver = driver.map_or("", |(_, driver)| driver);
    let about = format!("{} {driver}", identity.adapter);
    let launches = products(&mut engine, kernel);
    group.bench_function(format!("{kernel}, wgpu, {about}"), |bencher| {
        bencher.iter(|| {
            engine.run(&launches).expect("runs");
            engine.settle().expect("runs");
        });
    });
    let bare = bare::Products::new(kernel, product(kernel), SIZE, RANKS, &identity.adapter);
    group.bench_function(format!("{kernel}, bare dispatches, {about}"), |bencher| {
        bencher.iter(|| bare.run());
    });
}

fn short(group: &mut BenchmarkGroup<'_, WallTime>) {
    group.sample_size(20);
    group.warm_up_time(Duration::from_millis(300));
    group.measurement_time(Duration::from_secs(2));
}

fn matmul(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("matmul 64^3 x 512");
    group.throughput(Throughput::Elements(
        2 * u64::from(SIZE).pow(3) * u64::from(RANKS),
    ));
    short(&mut group);
    for kernel in ["matmul_nn", "matmul_nt", "matmul_wgrad"] {
        for workers in [1, 2] {
            let mut engine = CpuEngine::new(workers).expect("an engine");
            let launches = products(&mut engine, kernel);
            group.bench_function(format!("{kernel}, cpu, {workers} workers"), |bencher| {
                bencher.iter(|| engine.run(&launches).expect("runs"));
            });
        }
        #[cfg(feature = "wgpu")]
        matmul_on_adapter(&mut group, kernel);
    }
    let side = SIZE as usize;
    let a = ndarray::Array2::<f32>::from_elem((side, side), 0.5);
    group.bench_function("ndarray, 1 thread", |bencher| {
        bencher.iter(|| {
            for _ in 0..RANKS {
                std::hint::black_box(a.dot(&a));
            }
        });
    });
    group.finish();
}

fn launch_cost(criterion: &mut Criterion) {
    let empty = |engine: &mut dyn Engine| {
        let mut launches = products(engine, "matmul_nn");
        for launch in &mut launches {
            // Returns at once: no rows.
            launch.params[0] = 0;
            launch.grid = [1, 1, 1];
        }
        launches
    };
    let mut engine = CpuEngine::new(1).expect("an engine");
    let launches = empty(&mut engine);
    let mut group = criterion.benchmark_group("launch of one workgroup");
    short(&mut group);
    group.throughput(Throughput::Elements(u64::from(RANKS)));
    group.bench_function("cpu", |bencher| {
        bencher.iter(|| engine.run(&launches).expect("runs"))
    });
    #[cfg(feature = "wgpu")]
    if let Some(mut engine) = adapter(1) {
        let launches = empty(&mut engine);
        group.bench_function("wgpu, a run and a wait", |bencher| {
            bencher.iter(|| {
                engine.run(&launches).expect("runs");
                engine.settle().expect("runs");
            });
        });
    }
    group.finish();
}

/// Each iteration compiles in an engine that has compiled nothing.
fn compile(criterion: &mut Criterion) {
    let registry = Registry::new().expect("shaders link");
    let mut group = criterion.benchmark_group("compile");
    short(&mut group);
    for name in ["matmul_nn", "fold", "adamw", "attention_backward_query"] {
        let kernel = registry.get(name).expect("valid");
        group.bench_function(name, |bencher| {
            let fresh = || CpuEngine::new(1).expect("an engine");
            let compile = |engine: &mut CpuEngine| engine.load(kernel).expect("compiles");
            bencher.iter_batched_ref(fresh, compile, BatchSize::PerIteration);
        });
    }
    group.finish();
}

/// Words of all addends of a fold: 16 MiB.
const FOLD_WORDS: u32 = 1 << 22;

/// A sum of `n` addends, whole vec4s each: side by side as slots of one rank, or one a rank.
fn fold_node(engine: &mut CpuEngine, n: u32, apart: bool) -> FoldNode {
    let elements = FOLD_WORDS / n / 4 * 4;
    let together = engine.alloc(n * elements, 0.5f32.to_bits());
    let together = together.expect("memory");
    let addend = |k: u32| match apart {
        true => whole(engine, elements),
        false => Span {
            arena: together,
            offset_words: k * elements,
            words: elements,
        },
    };
    let addends = (0..n).map(addend).collect();
    let out = whole(engine, elements);
    let tree = Tree::Chain {
        ring: (0..n).collect(),
        start: 0,
    };
    let range = 0..u64::from(elements);
    let plan = Plan {
        addend_count: n,
        element_count: u64::from(elements),
        arithmetic: Arithmetic {
            init: Init::First,
            ..Arithmetic::sum(Dtype::F32, Dtype::F32, Dtype::F32)
        },
        pieces: vec![Piece {
            range: range.clone(),
            tree,
        }],
    };
    let job = SlotsJob {
        addends,
        accumulator: None,
        plan: Arc::new(plan),
        outs: vec![(range, out)],
    };
    FoldNode {
        id: NodeId {
            step: 1,
            owner: Owner::Rank(0),
            ordinal: 0,
        },
        wave: 0,
        site: Arc::new(Site {
            step: 1,
            microbatch: None,
            phase: Phase::GradReduce,
            module: "main_grad".into(),
            op: "accumulate".into(),
        }),
        stream: COMPUTE_STREAM,
        family: Family::MicrobatchAccumulation,
        group: None,
        ranks: Arc::new([0]),
        choice: Choice::Pinned,
        shape: None,
        job: FoldJob::Slots(job),
    }
}

fn whole(engine: &mut CpuEngine, words: u32) -> Span {
    let arena = engine.alloc(words, 0.5f32.to_bits()).expect("memory");
    Span {
        arena,
        offset_words: 0,
        words,
    }
}

fn fold(criterion: &mut Criterion) {
    let registry = Registry::new().expect("shaders link");
    let mut group = criterion.benchmark_group("fold of 16 MiB, 2 workers");
    group.throughput(Throughput::Bytes(4 * u64::from(FOLD_WORDS)));
    short(&mut group);
    for n in [8, 64, 2_432] {
        for (place, apart) in [("slots", false), ("ranks", true)] {
            let mut engine = CpuEngine::new(2).expect("an engine");
            let node = fold_node(&mut engine, n, apart);
            let kernel = |name| registry.get(name).expect("valid");
            let (whole, segments) = (kernel("fold"), kernel("fold_segments"));
            let programs = FoldPrograms::new(&mut engine, whole, segments).expect("memory");
            let FoldJob::Slots(job) = &node.job else {
                unreachable!("slots were asked for");
            };
            let order = FoldOrder::Plan(job.plan.clone());
            let mut lab = FoldLab {
                engine: &mut engine,
                programs,
            };
            group.bench_function(format!("{n} {place}"), |bencher| {
                bencher.iter(|| lab.execute(&[(&node, order.clone())]).expect("runs"));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, matmul, launch_cost, compile, fold);
criterion_main!(benches);
