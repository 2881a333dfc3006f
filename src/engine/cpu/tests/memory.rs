//! Extents, faults, refused launches, workers.

use super::{bits, run_on, run_sized};
use crate::engine::cpu::CpuEngine;
use crate::engine::{CopyWords, Engine, EngineError, Launch, Ran, Span};
use crate::kernel::Registry;

const SHIFT: &str = "
struct Params { count: u32, shift: u32 }
@group(0) @binding(0) var<storage, read_write> input: array<f32>;
@group(0) @binding(1) var<storage, read_write> output: array<f32>;
@group(1) @binding(0) var<uniform> params: Params;
@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) gid: vec3<u32>) {
    if gid.x >= params.count { return; }
    output[gid.x] = input[gid.x + params.shift] + 1.0;
}
";

fn registry() -> Registry {
    Registry::from_sources(&[("shift", SHIFT)]).expect("links")
}

/// An engine with one arena of `words` words `0.0, 1.0, ...` and the kernel.
fn engine(words: u32, workers: usize) -> (CpuEngine, Launch) {
    let registry = registry();
    let mut engine = CpuEngine::new(workers).expect("an engine");
    let program = engine
        .load(registry.get("shift").expect("valid"))
        .expect("compiles");
    let arena = engine.alloc(words, 0).expect("memory");
    let all = Span {
        arena,
        offset_words: 0,
        words,
    };
    let values: Vec<f32> = (0..words).map(|i| i as f32).collect();
    engine.write(all, &bits(&values)).expect("in range");
    let part = |offset_words, words| Span {
        arena,
        offset_words,
        words,
    };
    let operands = vec![part(10, 5), part(30, 5)];
    (
        engine,
        Launch {
            program,
            grid: [1, 1, 1],
            operands,
            params: vec![5, 0],
        },
    )
}

#[test]
fn the_engine_adds_the_offset_of_the_instance() {
    let (mut engine, launch) = engine(40, 1);
    let to = launch.operands[1];
    engine.run(&[launch]).expect("runs");
    assert_eq!(
        engine.read(to).expect("in range"),
        bits(&[11.0, 12.0, 13.0, 14.0, 15.0])
    );
}

/// The mutant off by one: the arena goes on, the instance does not.
#[test]
fn an_index_one_past_the_extent_is_caught() {
    let (mut engine, good) = engine(40, 1);
    let mut mutant = good.clone();
    mutant.params = vec![5, 1];
    match engine.run(&[good, mutant]) {
        Err(EngineError::OutOfExtent {
            kernel,
            operand,
            extent,
            at,
        }) => {
            assert_eq!((kernel.as_str(), operand.as_str()), ("shift", "input"));
            assert_eq!((extent, at.launch), (5, 1));
        }
        other => panic!("not caught: {other:?}"),
    }
}

#[test]
fn a_store_past_the_extent_is_caught_and_nothing_is_written() {
    let (mut engine, mut launch) = engine(40, 1);
    launch.operands[0].words = 20;
    launch.params = vec![8, 0];
    let error = engine
        .run(&[launch.clone()])
        .expect_err("three stores too many");
    assert!(matches!(error, EngineError::OutOfExtent { ref operand, .. } if operand == "output"));
    let arena = launch.operands[0].arena;
    let after = Span {
        arena,
        offset_words: 35,
        words: 5,
    };
    let kept = bits(&[35.0, 36.0, 37.0, 38.0, 39.0]);
    assert_eq!(engine.read(after).expect("in range"), kept);
}

#[test]
fn the_least_launch_is_named_whatever_the_workers() {
    for workers in [1, 2, 3] {
        let (mut engine, good) = engine(40, workers);
        let mut launches = vec![good; 4000];
        for at in [3990, 1234, 2500] {
            launches[at].params[1] = 9;
        }
        match engine.run(&launches) {
            Err(EngineError::OutOfExtent { at, .. }) => assert_eq!(at.launch, 1234),
            other => panic!("not caught: {other:?}"),
        }
    }
}

#[test]
fn malformed_launches_are_refused() {
    let (mut engine, good) = engine(40, 1);
    let mut cases = vec![good.clone(); 5];
    cases[0].operands.pop();
    cases[1].params.push(1);
    cases[2].operands[0].offset_words = 36;
    cases[3].operands[0].arena.0 = 7;
    cases[4].grid = [1 << 30, 1, 1];
    for (place, case) in cases.into_iter().enumerate() {
        let error = engine.run(&[good.clone(), case]).expect_err("refused");
        assert!(
            matches!(
                error,
                EngineError::BadLaunch {
                    at: Ran { launch: 1, .. },
                    ..
                }
            ),
            "{place}: {error}"
        );
    }
}

#[test]
fn a_local_array_index_out_of_range_is_caught() {
    let body = "var a: array<u32, 4>; a[input[i]] = 5u; out[i] = a[1];";
    assert_eq!(run_sized("", body, &[1, 3], 2).expect("in range"), [5, 0]);
    let error = run_sized("", body, &[4, 1], 2).expect_err("4 of 4");
    assert!(matches!(error, EngineError::OutsideLocal { .. }), "{error}");
}

#[test]
fn results_do_not_depend_on_the_workers() {
    let words: Vec<u32> = (0..20_000u32)
        .map(|i| (i as f32 * 0.37).to_bits())
        .collect();
    let run = |workers| {
        let operands = [words.clone(), vec![0; 19_000]];
        run_on(
            workers,
            &registry(),
            "shift",
            [300, 1, 1],
            &operands,
            &[19_000, 17],
        )
        .expect("runs")
    };
    let one = run(1);
    assert_ne!(one[1][0], 0);
    for workers in [2, 3, 5] {
        assert_eq!(one, run(workers));
    }
}

/// In place, each workgroup reads what the next one writes: only one order of workgroups is right.
#[test]
fn overlapping_operands_run_in_workgroup_order() {
    let shifted = |workers| {
        let (mut engine, mut launch) = engine(40_000, workers);
        let arena = launch.operands[0].arena;
        launch.operands = vec![
            Span {
                arena,
                offset_words: 0,
                words: 40_000
            };
            2
        ];
        launch.params = vec![39_900, 64];
        launch.grid = [624, 1, 1];
        engine.run(&[launch.clone()]).expect("runs");
        engine.read(launch.operands[0]).expect("in range")
    };
    assert_eq!(shifted(1), shifted(2));
}

#[test]
fn arenas_grow_and_keep_their_words_and_copies_check_their_spans() {
    let (mut engine, launch) = engine(40, 1);
    let arena = launch.operands[0].arena;
    engine.grow(arena, 50, 9).expect("memory");
    let tail = engine
        .read(Span {
            arena,
            offset_words: 39,
            words: 3,
        })
        .expect("in range");
    assert_eq!(tail, [39f32.to_bits(), 9, 9]);
    let other = engine.alloc(4, 1).expect("memory");
    let from = Span {
        arena,
        offset_words: 38,
        words: 4,
    };
    let to = Span {
        arena: other,
        offset_words: 0,
        words: 4,
    };
    engine.copy(&[CopyWords { from, to }]).expect("in range");
    let copied = engine.read(to).expect("in range");
    assert_eq!(copied, [38f32.to_bits(), 39f32.to_bits(), 9, 9]);
    let past = Span {
        arena,
        offset_words: 47,
        words: 4,
    };
    assert!(matches!(
        engine.read(past),
        Err(EngineError::BadSpan { .. })
    ));
    assert!(engine.copy(&[CopyWords { from: past, to }]).is_err());
    assert!(engine.write(to, &[1, 2, 3]).is_err());
}
