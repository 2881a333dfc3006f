//! The ladder: what each rung costs for one element.

use std::time::Duration;

use bitproof::numerics::Dtype;
use bitproof::numerics::ladder::{
    OrderClass, Rung, Start, Sum, Verdict, find_difference, l1_exact, l2_absorbed, l3_min_max,
    prove,
};
use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main};

fn sum(addends: &[f32], out: Dtype) -> Sum<'_> {
    Sum {
        addends,
        start: Start::First,
        addend: Dtype::F32,
        partial: Dtype::F32,
        out,
    }
}

/// Multiples of 1/64 of both signs, small enough for every partial sum to be exact.
fn exact(n: usize) -> Vec<f32> {
    let value = |k: usize| ((k * 37 % 127) as f32 - 63.0) / 64.0;
    (0..n).map(value).collect()
}

/// Values whose sum depends on the order.
fn rough(n: usize) -> Vec<f32> {
    let value = |k: usize| {
        let mixed = (k as u32 + 1).wrapping_mul(0x9e37_79b9);
        f32::from_bits((mixed & 0x8000_0000) | (120 + mixed % 13) << 23 | (mixed >> 9 & 0x7f_ffff))
    };
    (0..n).map(value).collect()
}

/// Values of one sign whose sum is far from where bf16 rounds, whatever its last bits are.
fn absorbed(n: usize) -> Vec<f32> {
    (0..n).map(|k| 1.0 + (k % 7) as f32 * 1e-7).collect()
}

fn short(group: &mut BenchmarkGroup<'_, WallTime>) {
    group.sample_size(20);
    group.warm_up_time(Duration::from_millis(200));
    group.measurement_time(Duration::from_secs(1));
}

fn linear(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("an element, n addends");
    short(&mut group);
    for n in [8, 64, 2_432] {
        group.throughput(Throughput::Elements(n as u64));
        let (exact, absorbed, rough) = (exact(n), absorbed(n), rough(n));
        assert!(l1_exact(&sum(&exact, Dtype::F32)) && !l1_exact(&sum(&rough, Dtype::F32)));
        group.bench_function(format!("L1, n = {n}"), |bencher| {
            bencher.iter(|| l1_exact(std::hint::black_box(&sum(&exact, Dtype::F32))));
        });
        let narrow = sum(&absorbed, Dtype::Bf16);
        assert!(l2_absorbed(&narrow) && !l2_absorbed(&sum(&rough, Dtype::F32)));
        group.bench_function(format!("L2, n = {n}"), |bencher| {
            bencher.iter(|| l2_absorbed(std::hint::black_box(&narrow)));
        });
        let parting = sum(&rough, Dtype::F32);
        assert!(find_difference(&parting, OrderClass::Chains, 1).is_some());
        group.bench_function(format!("witness search, n = {n}"), |bencher| {
            bencher.iter(|| find_difference(std::hint::black_box(&parting), OrderClass::Chains, 1));
        });
    }
    group.finish();
}

fn exponential(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("an element");
    short(&mut group);
    for n in [4, 8, 12] {
        let rough = rough(n);
        let rough = sum(&rough, Dtype::F32);
        for class in [OrderClass::Chains, OrderClass::Trees] {
            assert!(l3_min_max(&rough, class).is_some());
            group.bench_function(format!("L3, {class:?}, n = {n}"), |bencher| {
                bencher.iter(|| l3_min_max(std::hint::black_box(&rough), class));
            });
        }
    }
    // An infinite partial sum keeps L3 out, and no order parts the results.
    let endless = [1.0, f32::INFINITY, 0.1, 2.5, -3.0, 0.7];
    let endless = sum(&endless, Dtype::F32);
    let enumerate = |sum: &Sum<'_>| prove(sum, OrderClass::Chains, 1 << 13, 1);
    assert_eq!(enumerate(&endless), Verdict::Proved(Rung::L4));
    group.bench_function("L4, Chains, n = 6", |bencher| {
        bencher.iter(|| enumerate(std::hint::black_box(&endless)));
    });
    group.finish();
}

criterion_group!(benches, linear, exponential);
criterion_main!(benches);
