//! Arenas, copies and whole runs.

use std::sync::Arc;

use bitproof::engine::cpu::CpuEngine;
use bitproof::engine::{CopyWords, DigestPrograms, Engine, EngineError, Span};
use bitproof::kernel::Registry;
use bitproof::numerics::Digest;
use bitproof::train::{Run, program};
use bitproof::world::{MemoryOptions, RunOptions, RunRecord, Unobserved};

use crate::harness::{as_gpt3, small_corpus, small_options, with_biases, with_layout, world};
use crate::promises_bits;

/// A script of moves that touches every operation, on arenas of all of the engine's memories.
fn script(engine: &mut dyn Engine) -> Vec<u32> {
    let far = engine.shards() - 1;
    let arena = engine.alloc(100, 5).expect("memory");
    let other = engine.alloc_on(far, 64, 6).expect("memory");
    let at = |arena, offset_words, words| Span {
        arena,
        offset_words,
        words,
    };
    engine
        .write(at(arena, 3, 4), &[0x7f80_0001, 2, 3, 4])
        .expect("in range");
    engine.grow(arena, 300, 9).expect("memory");
    let copy = |from, to| CopyWords { from, to };
    // Within an arena, to another memory, and a chain whose second link reads the first's target.
    let copies = [
        copy(at(arena, 3, 4), at(arena, 200, 4)),
        copy(at(arena, 200, 8), at(other, 8, 8)),
        copy(at(other, 10, 3), at(arena, 291, 3)),
    ];
    engine.copy(&copies).expect("in range");
    let held: Vec<Span> = vec![at(arena, 0, 300), at(other, 0, 64), at(other, 7, 0)];
    let digests = engine.digests(&held).expect("in range");
    let gone = engine.alloc(10, 1).expect("memory");
    engine.release(gone).expect("an arena");
    let refused = |result: Result<Vec<u32>, EngineError>| {
        assert!(matches!(result, Err(EngineError::BadSpan { .. })));
    };
    refused(engine.read(at(gone, 0, 1)));
    refused(engine.read(at(arena, 299, 2)));
    // What was given back is filled again before it is used.
    let fresh = engine.alloc(10, 77).expect("memory");
    let mut words = engine.read(at(fresh, 0, 10)).expect("in range");
    words.extend(engine.read(at(arena, 0, 300)).expect("in range"));
    words.extend(engine.read(at(other, 0, 64)).expect("in range"));
    words.extend(digests.iter().flat_map(|digest| digest.0.map(u32::from)));
    words
}

pub fn memory_operations_agree(engine: &mut dyn Engine) {
    let mut reference = CpuEngine::new(1).expect("an engine");
    assert_eq!(script(engine), script(&mut reference));
    let registry = Registry::new().expect("shaders link");
    let kernel = registry.get("scale").expect("valid");
    let first = engine.load(kernel).expect("loads");
    assert_eq!(engine.load(kernel).expect("loads"), first);
}

/// Digests that kernels compute are those of the host: in every memory, at every length around a
/// block, a chunk and a level of the tree, wherever the words begin.
pub fn digests_by_kernels_are_the_hosts(engine: &mut dyn Engine) {
    const WORDS: u32 = 9 * 256 + 40;
    let words: Vec<u32> = (0..WORDS)
        .map(|place| place.wrapping_mul(0x9e37_79b1))
        .collect();
    let mut programs = DigestPrograms::new(engine).expect("the kernels load");
    let mut spans = Vec::new();
    for shard in 0..engine.shards() {
        let arena = engine.alloc_on(shard, WORDS, 0).expect("memory");
        engine.write(arena.first(WORDS), &words).expect("in range");
        let ends = [
            0,
            1,
            15,
            16,
            17,
            255,
            256,
            257,
            512,
            513,
            768,
            1024,
            1025,
            9 * 256 + 33,
        ];
        let span = |(offset_words, words)| Span {
            arena,
            offset_words,
            words,
        };
        let places = [0, 1, 7].into_iter();
        spans.extend(
            places
                .flat_map(|start| ends.map(|length| (start, length)))
                .map(span),
        );
    }
    let found = programs.digests(engine, &spans).expect("in range");
    for (span, digest) in spans.iter().zip(found) {
        let (start, length) = (span.offset_words as usize, span.words as usize);
        assert_eq!(
            digest,
            Digest::of_words(&words[start..start + length]),
            "{span:?}"
        );
    }
}

fn run(engine: &mut dyn Engine, options: &RunOptions) -> RunRecord {
    let mut job = with_layout(small_options(), 2, 2, 2);
    as_gpt3(&mut job);
    let run = Run {
        steps: 0..2,
        checkpoint: None,
        saves_after: Default::default(),
        variables: Vec::new().into(),
        saves: Default::default(),
    };
    let (corpus, initial) = (small_corpus(&job), with_biases(&job));
    let program = program(Arc::new(job.clone()), corpus, initial, run);
    let record = world(&job).run(engine, options, &program, &mut Unobserved);
    record.unwrap_or_else(|error| panic!("{error}"))
}

/// Every root of every rank and step, with hazards looked for and writes measured, however launches
/// are batched and wherever arenas begin.
pub fn training_gives_the_same_bits(engine: &mut dyn Engine) {
    let plain = RunOptions {
        hazard_steps_max: 1,
        ..RunOptions::default()
    };
    let mut reference = CpuEngine::new(1).expect("an engine");
    let want = run(&mut reference, &plain);
    assert!(want.roots.len() == 2 * 8 && want.hazards.is_empty());
    let elsewhere = RunOptions {
        batch_launches_max: 3,
        memory: MemoryOptions {
            base_words: 192,
            poison: Some(0x7fc0_1234),
        },
        ..RunOptions::default()
    };
    for options in [&plain, &elsewhere] {
        let got = run(engine, options);
        assert!(got.hazards.is_empty(), "{:#?}", got.hazards);
        if !promises_bits(engine) {
            let roots = want.roots.iter();
            let equal = roots.filter(|(at, root)| got.roots.get(at) == Some(root));
            let (equal, all) = (equal.count(), want.roots.len());
            eprintln!("not strict: {equal} of {all} roots are the cpu's");
            assert_eq!(got.roots.len(), want.roots.len());
            continue;
        }
        assert_eq!(got.roots, want.roots);
        assert_eq!(got.metrics, want.metrics);
    }
}
