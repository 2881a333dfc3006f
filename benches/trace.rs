//! Traces: lines that are equal on both sides, lines that must be parsed, and packed files.
//!
//! `cargo bench --bench trace`; `examples/synthetic_traces.rs` writes larger ones.

use std::fmt::Write as _;
use std::path::Path;

use bitproof::trace::Folder;
use bitproof::trace::certify::certify;
use bitproof::trace::diff::{Verdict, compare};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

/// Lines of one rank; four times as many as are parsed where both sides are equal.
const LINES: u64 = 1 << 18;

fn text(microbatch: &str) -> String {
    let operand = |value: u64| {
        format!(
            "{{\"shape\":[24,8],\"dtype\":\"float32\",\"numel\":192,\"digest\":\"{value:016x}\",\
             \"bytes64\":\"{:016x}\"}}",
            !value
        )
    };
    let mut text = String::new();
    for seq in 0..LINES {
        let (input, output) = (operand(seq), operand(seq + 1));
        let (iteration, op) = (1 + seq / 8192, seq % 8192);
        writeln!(
            text,
            "{{\"schema_version\":1,\"seq\":{seq},\"rank\":0,\"iteration\":{iteration},\
             {microbatch},\"kind\":\"op\",\"name\":\"aten.mm.default\",\"payload\":{{\
             \"id\":\"aten:aten.mm.default:{op}\",\"scope\":\"decoder/layers.3\",\
             \"in\":[{input},{input}],\"out\":[{output}]}}}}"
        )
        .expect("memory");
    }
    text
}

fn folder(root: &Path, name: &str, ending: &str, bytes: &[u8]) -> Folder {
    let path = root.join(name);
    std::fs::create_dir(&path).expect("a writable folder");
    std::fs::write(path.join(format!("rank_000000.jsonl{ending}")), bytes).expect("written");
    Folder::open(&path).expect("a folder of traces")
}

fn traces(criterion: &mut Criterion) {
    let root = tempfile::tempdir().expect("a temporary folder");
    let usual = text("\"microbatch\":0,\"phase\":\"forward\"");
    let other = text("\"phase\":\"forward\",\"microbatch\":0");
    let a = folder(root.path(), "a", "", usual.as_bytes());
    let b = folder(root.path(), "b", "", usual.as_bytes());
    let c = folder(root.path(), "c", "", other.as_bytes());
    let packed = zstd::encode_all(usual.as_bytes(), 3).expect("memory");
    let z = folder(root.path(), "z", ".zst", &packed);
    let mut group = criterion.benchmark_group("trace, one rank");
    group
        .sample_size(10)
        .throughput(Throughput::Bytes(2 * usual.len() as u64));
    group.bench_function("diff, equal lines", |bencher| {
        bencher.iter(|| assert_eq!(compare(&a, &b, false).verdict, Verdict::Same));
    });
    group.bench_function("diff, equal lines, all parsed", |bencher| {
        bencher.iter(|| assert_eq!(compare(&a, &b, true).verdict, Verdict::Same));
    });
    group.bench_function("diff, every line another text", |bencher| {
        bencher.iter(|| assert_eq!(compare(&a, &c, false).verdict, Verdict::Same));
    });
    group.throughput(Throughput::Bytes(usual.len() as u64));
    group.bench_function("certify", |bencher| {
        bencher.iter(|| assert!(certify(&a).is_trusted()));
    });
    group.bench_function("certify, zstd", |bencher| {
        bencher.iter(|| assert!(certify(&z).is_trusted()));
    });
    group.finish();
}

criterion_group!(benches, traces);
criterion_main!(benches);
