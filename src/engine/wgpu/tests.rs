//! Faults of devices. Without an adapter a skip with its reason, or a failure if one is required.

use std::time::Duration;

use super::skip::unless_missing;
use super::{Devices, WgpuEngine, WgpuOptions};
use crate::engine::{CopyWords, Engine, EngineError, Launch, Span};
use crate::kernel::Registry;
use crate::numerics::Digest;

fn opened(options: &WgpuOptions) -> Option<WgpuEngine> {
    unless_missing(WgpuEngine::open(options))
}

/// A run that takes long: a product with many terms, `rows` x 64.
fn long_run(engine: &mut WgpuEngine, rows: u32, terms: u32) -> (Span, Launch) {
    let registry = Registry::new().expect("shaders link");
    let kernel = registry.get("matmul_nn").expect("valid");
    let program = engine.load(kernel).expect("compiles");
    let mut operand = |words: u32| {
        let arena = engine.alloc(words, 0x3f80_0000).expect("memory");
        Span {
            arena,
            offset_words: 0,
            words,
        }
    };
    let operands = vec![
        operand(rows * terms),
        operand(terms * 64),
        operand(rows * 64),
    ];
    let result = operands[2];
    let launch = Launch {
        program,
        grid: [1, rows.div_ceil(4), 1],
        operands,
        params: vec![rows, 64, terms, 0],
    };
    (result, launch)
}

#[test]
fn a_lost_device_is_an_error_and_never_zeros() {
    for mapped in [true, false] {
        let options = WgpuOptions {
            mapped,
            ..WgpuOptions::default()
        };
        let Some(mut engine) = opened(&options) else {
            return;
        };
        let (result, launch) = long_run(&mut engine, 8, 8);
        engine.run(std::slice::from_ref(&launch)).expect("runs");
        assert_eq!(engine.read(result).expect("a device")[0], 8.0f32.to_bits());
        engine.shards[0].device.device.destroy();
        let ran = engine.run(&[launch]);
        let read = ran.and_then(|()| engine.read(result));
        let Err(EngineError::Device { reason }) = read else {
            panic!("{read:?}");
        };
        assert!(!reason.is_empty());
        assert!(engine.settle().is_err(), "it stays lost");
    }
}

#[test]
fn a_device_that_does_not_answer_in_time_is_an_error() {
    let options = WgpuOptions {
        patience: Duration::ZERO,
        ..WgpuOptions::default()
    };
    let Some(mut engine) = opened(&options) else {
        return;
    };
    let (_, launch) = long_run(&mut engine, 4096, 2048);
    engine.run(&[launch]).expect("is handed over");
    let told = engine.settle();
    assert!(matches!(told, Err(EngineError::Timeout { .. })), "{told:?}");
}

#[test]
fn a_kernel_with_more_operands_than_the_adapter_binds_is_refused() {
    let Some(mut engine) = opened(&WgpuOptions::default()) else {
        return;
    };
    let limits = &mut engine.shards[0].device.limits;
    limits.max_storage_buffers_per_shader_stage = 4;
    let registry = Registry::new().expect("shaders link");
    let refused = engine.load(registry.get("matmul_nn").expect("valid"));
    assert!(
        matches!(refused, Err(EngineError::Limits { .. })),
        "{refused:?}"
    );
}

#[test]
fn operands_on_two_devices_are_refused() {
    let options = WgpuOptions {
        devices: Devices::Fixed(2),
        ..WgpuOptions::default()
    };
    let Some(mut engine) = opened(&options) else {
        return;
    };
    let (_, mut launch) = long_run(&mut engine, 8, 8);
    let far = engine
        .alloc_on(1, launch.operands[0].words, 0)
        .expect("memory");
    launch.operands[0].arena = far;
    let refused = engine.run(&[launch]);
    assert!(
        matches!(refused, Err(EngineError::BadLaunch { .. })),
        "{refused:?}"
    );
}

/// A driver that stops long loops says nothing: the sum is then an error, and else it is right.
#[test]
fn a_loop_is_run_to_its_end_or_told() {
    let Some(mut engine) = opened(&WgpuOptions::default()) else {
        return;
    };
    for (terms, long) in [(30_000u32, false), (70_000, true)] {
        let (result, launch) = long_run(&mut engine, 4, terms);
        let ran = engine.run(&[launch]).and_then(|()| engine.read(result));
        match ran {
            Ok(words) => {
                let sum = (terms as f32).to_bits();
                assert!(words.iter().all(|word| *word == sum), "{terms} terms");
            }
            Err(error) => {
                assert!(
                    matches!(error, EngineError::CutShort { .. }) && long,
                    "{error}"
                );
            }
        }
    }
}

/// As with a graphics card: nothing is submitted until something is read, however many waves of
/// launches, writes, copies and digests there are, and each sees what came before it.
#[test]
fn many_waves_are_one_submission() {
    let options = WgpuOptions {
        mapped: false,
        ..WgpuOptions::default()
    };
    let Some(mut engine) = opened(&options) else {
        return;
    };
    let (result, launch) = long_run(&mut engine, 8, 8);
    engine.settle().expect("a device");
    let before = engine.shards[0].submissions();
    let first = Span {
        words: 4,
        ..launch.operands[0]
    };
    let copied = Span {
        offset_words: 4,
        ..first
    };
    for wave in 1..=10u32 {
        let words = [(wave as f32).to_bits(); 4];
        engine.write(first, &words).expect("in range");
        let copy = CopyWords {
            from: first,
            to: copied,
        };
        engine.copy(&[copy]).expect("in range");
        engine.run(std::slice::from_ref(&launch)).expect("runs");
        engine.note(&[result, copied]).expect("in range");
    }
    assert_eq!(engine.shards[0].submissions(), before);
    let digests = engine.noted().expect("a device");
    assert_eq!(engine.shards[0].submissions(), before + 1);
    assert_eq!(digests.len(), 20);
    for wave in 1..=10u32 {
        // Row 0 has eight terms of this wave's value, the other rows eight ones.
        let mut row = vec![(8.0 * wave as f32).to_bits(); 64];
        row.resize(8 * 64, 8.0f32.to_bits());
        let place = 2 * (wave as usize - 1);
        assert_eq!(digests[place], Digest::of_words(&row), "wave {wave}");
        let copied = [(wave as f32).to_bits(); 4];
        assert_eq!(digests[place + 1], Digest::of_words(&copied), "wave {wave}");
    }
}
