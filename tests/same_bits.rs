//! What must not change the bits: stopping and starting again from a checkpoint, where memory lies,
//! what it held before, how work is batched.

mod harness;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bitproof::engine::cpu::CpuEngine;
use bitproof::numerics::{Digest, Dtype};
use bitproof::train::{Checkpoint, Initial, Run, Saves, TrainOptions, program};
use bitproof::world::{Component, MemoryOptions, RunOptions, RunRecord, Unobserved};
use harness::{small_corpus, small_options, with_layout, world};

const STEPS: u32 = 4;

/// Eight ranks, every way of sharding, dropout: all seven components matter.
fn options() -> TrainOptions {
    let mut options = with_layout(small_options(), 2, 2, 2);
    options.model.sequence_parallel = true;
    options.model.hidden_dropout = 0.1;
    options.model.params_dtype = Dtype::Bf16;
    options.use_distributed_optimizer = true;
    options.clip_grad = 0.5;
    options
}

fn run(options: &TrainOptions, steps: std::ops::Range<u32>, from: Option<Checkpoint>) -> RunRecord {
    let keep: BTreeSet<u32> = steps.clone().collect();
    let run = RunOptions {
        checkpoint_after: keep,
        ..RunOptions::default()
    };
    let part = Run {
        steps,
        checkpoint: from.map(Arc::new),
        saves_after: (0..STEPS).collect(),
        variables: Vec::new().into(),
        saves: Saves::default(),
    };
    let corpus = small_corpus(options);
    let initial = Initial::Seeded(options.seed);
    let program = program(Arc::new(options.clone()), corpus, initial, part);
    let mut engine = CpuEngine::new(1).expect("the engine starts");
    world(options)
        .run(&mut engine, &run, &program, &mut Unobserved)
        .unwrap()
}

fn roots_from(record: &RunRecord, step: u32) -> BTreeMap<(u32, u32), Digest> {
    record
        .roots
        .iter()
        .filter(|(key, _)| key.0 >= step)
        .map(|(k, v)| (*k, *v))
        .collect()
}

#[test]
fn a_resumed_run_has_the_same_bits() {
    let options = options();
    let straight = run(&options, 0..STEPS, None);
    for cut in 1..STEPS {
        let state = &straight.checkpoints[&(cut - 1)];
        let checkpoint = Checkpoint::from_state(cut, state, &[]);
        let resumed = run(&options, cut..STEPS, Some(checkpoint));
        for step in cut..STEPS {
            assert_eq!(
                resumed.checkpoints[&step], straight.checkpoints[&step],
                "cut {cut}"
            );
        }
        // The first root of a run also covers its set-up, which is another one here.
        assert_eq!(
            roots_from(&resumed, cut + 1),
            roots_from(&straight, cut + 1),
            "cut {cut}"
        );
    }
}

/// Negative control for each component: without it the resumed run differs.
#[test]
fn every_component_is_needed() {
    let options = options();
    let straight = run(&options, 0..STEPS, None);
    // The loss is not scaled here.
    let all = Component::ALL.into_iter();
    for component in all.filter(|of| *of != Component::LossScaler) {
        let state = &straight.checkpoints[&1];
        let checkpoint = Checkpoint::from_state(2, state, &[component]);
        let resumed = run(&options, 2..STEPS, Some(checkpoint));
        let (have, want) = (resumed.checkpoints[&3].clone(), &straight.checkpoints[&3]);
        assert_ne!(
            &have, want,
            "resuming without {component:?} shows no difference"
        );
    }
}

/// Neither what memory held before, nor where it lies, nor the order of ranks, nor how launches are
/// batched or spread over threads reaches a result.
#[test]
fn perturbed_runs_have_the_same_bits() {
    let plain = RunOptions::default;
    let memory = |base_words, poison| MemoryOptions { base_words, poison };
    let perturbed = [
        RunOptions {
            memory: memory(4160, None),
            ..plain()
        },
        RunOptions {
            memory: memory(0, Some(0xdead_beef)),
            ..plain()
        },
        RunOptions {
            memory: memory(64, Some(0x7fc0_0000)),
            ..plain()
        },
        RunOptions {
            start_descending: true,
            ..plain()
        },
        RunOptions {
            batch_launches_max: 3,
            ..plain()
        },
    ];
    for microbatches in [1, 2] {
        let mut options = options();
        options.global_batch_size = 4 * microbatches;
        let root = |run: &RunOptions, workers| {
            let part = Run {
                steps: 0..2,
                checkpoint: None,
                saves_after: BTreeSet::new(),
                variables: Vec::new().into(),
                saves: Saves::default(),
            };
            let initial = Initial::Seeded(options.seed);
            let corpus = small_corpus(&options);
            let program = program(Arc::new(options.clone()), corpus, initial, part);
            let mut engine = CpuEngine::new(workers).expect("the engine starts");
            world(&options)
                .run(&mut engine, run, &program, &mut Unobserved)
                .unwrap()
                .root()
        };
        let reference = root(&plain(), 1);
        for run in &perturbed {
            assert_eq!(
                root(run, 2),
                reference,
                "{microbatches} microbatches, {run:?}"
            );
        }
    }
}

/// What later steps read of what earlier ones wrote is the state, and constants of set-up.
#[test]
fn live_in_is_state_and_constants() {
    let options = options();
    let cut = RunOptions {
        cuts: [1].into(),
        ..RunOptions::default()
    };
    let part = Run {
        steps: 0..3,
        checkpoint: None,
        saves_after: BTreeSet::new(),
        variables: Vec::new().into(),
        saves: Saves::default(),
    };
    let initial = Initial::Seeded(options.seed);
    let program = program(
        Arc::new(options.clone()),
        small_corpus(&options),
        initial,
        part,
    );
    let mut engine = CpuEngine::new(1).expect("the engine starts");
    let record = world(&options)
        .run(&mut engine, &cut, &program, &mut Unobserved)
        .unwrap();
    let live = &record.live_in[&1];
    let names: std::collections::BTreeSet<&str> = live
        .iter()
        .filter(|(_, found)| !found.ranges.is_empty())
        .map(|((_, name, _), _)| name.as_str())
        .collect();
    let state = [
        "beta_powers",
        "data_position",
        "exp_avg",
        "exp_avg_sq",
        "main_params",
        "model_parallel_rng",
        "optimizer_step",
        "parameters",
        "scheduler_num_steps",
    ];
    // Never written again: padding of the slots, tables, flags, a loss scale of 1.
    let constants = [
        "grad_slots",
        "no_loss_scale",
        "parameter_flags",
        "rope_cosines",
        "rope_sines",
    ];
    let expected = state.iter().chain(&constants).copied().collect();
    assert_eq!(names, expected);
}
