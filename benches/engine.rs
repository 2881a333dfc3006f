//! The cpu engine: matrix products beside `ndarray`, the cost of a launch, compile time.

use bitproof::engine::cpu::CpuEngine;
use bitproof::engine::{Engine, Launch, Span};
use bitproof::kernel::Registry;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};

const SIZE: u32 = 64;
const RANKS: u32 = 512;

/// An engine and one 64 x 64 x 64 product for each rank.
fn products(kernel: &str, workers: usize) -> (CpuEngine, Vec<Launch>) {
    let registry = Registry::new().expect("shaders link");
    let mut engine = CpuEngine::new(workers).expect("an engine");
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
    let columns = if kernel == "matmul_nt" {
        SIZE
    } else {
        SIZE / 4
    };
    let mut params = vec![SIZE, SIZE, SIZE, 0];
    if kernel == "matmul_tn" {
        params = vec![SIZE, SIZE, 0, SIZE, 0];
    }
    let launches = (0..RANKS)
        .map(|rank| Launch {
            program,
            grid: [columns.div_ceil(64), SIZE / 4, 1],
            operands: (0..3).map(|operand| part(rank * 3 + operand)).collect(),
            params: params.clone(),
        })
        .collect();
    (engine, launches)
}

fn matmul(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("matmul 64^3 x 512");
    group.throughput(Throughput::Elements(
        2 * u64::from(SIZE).pow(3) * u64::from(RANKS),
    ));
    group.sample_size(20);
    for kernel in ["matmul_nn", "matmul_nt", "matmul_tn"] {
        for workers in [1, 2] {
            let (mut engine, launches) = products(kernel, workers);
            group.bench_function(format!("{kernel}, {workers} workers"), |bencher| {
                bencher.iter(|| engine.run(&launches).expect("runs"));
            });
        }
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

/// A chain fold of f32 sums: bytes of addends read.
fn fold(criterion: &mut Criterion) {
    let registry = Registry::new().expect("shaders link");
    let mut group = criterion.benchmark_group("fold");
    group.sample_size(20);
    for addends in [8u32, 64, 2432] {
        let elements = (1 << 22) / addends / 64 * 64;
        let mut engine = CpuEngine::new(2).expect("an engine");
        let program = engine
            .load(registry.get("fold").expect("valid"))
            .expect("compiles");
        let arena = engine
            .alloc(elements * (addends + 2) + addends, 0)
            .expect("memory");
        let mut at = 0;
        let mut span = |words: u32| {
            let offset_words = at;
            at += words;
            Span {
                arena,
                offset_words,
                words,
            }
        };
        let operands = vec![
            span(elements * addends),
            span(addends),
            span(elements),
            span(elements),
        ];
        let ring: Vec<u32> = (0..addends).collect();
        engine.write(operands[1], &ring).expect("in range");
        let quarter = elements / 4;
        let launch = Launch {
            program,
            grid: [quarter.div_ceil(64), 1, 1],
            operands,
            params: vec![quarter, addends, quarter, 0, 1, addends, 0, 0, 0, 0, 0, 0],
        };
        group.throughput(Throughput::Bytes(u64::from(elements * addends) * 4));
        group.bench_function(format!("{addends} addends, 2 workers"), |bencher| {
            bencher.iter(|| {
                engine.run(std::slice::from_ref(&launch)).expect("runs");
            });
        });
    }
    group.finish();
}

fn launch_cost(criterion: &mut Criterion) {
    let (mut engine, mut launches) = products("matmul_nn", 1);
    for launch in &mut launches {
        // Returns at once: no rows.
        launch.params[0] = 0;
        launch.grid = [1, 1, 1];
    }
    let mut group = criterion.benchmark_group("launch of one workgroup");
    group.throughput(Throughput::Elements(u64::from(RANKS)));
    group.bench_function("cpu", |bencher| {
        bencher.iter(|| engine.run(&launches).expect("runs"))
    });
    group.finish();
}

fn compile(criterion: &mut Criterion) {
    let registry = Registry::new().expect("shaders link");
    let kernel = registry.get("matmul_nn").expect("valid");
    criterion.bench_function("compile matmul_nn", |bencher| {
        // An engine compiles a kernel once: a new one for each measurement.
        bencher.iter_batched(
            || CpuEngine::new(1).expect("an engine"),
            |mut engine| {
                engine.load(kernel).expect("compiles");
                engine
            },
            BatchSize::PerIteration,
        );
    });
}

criterion_group!(benches, matmul, fold, launch_cost, compile);
criterion_main!(benches);
