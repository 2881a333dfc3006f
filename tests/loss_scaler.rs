//! The loss scaler: what scales do to gradients, when steps are skipped, and how the dynamic scale
//! goes on.

mod harness;

use std::collections::BTreeMap;

use bitproof::numerics::Dtype;
use bitproof::train::{Dynamic, Initial, LossScale, TrainOptions, Trainer};
use bitproof::world::{Rank, RankError, RunRecord};
use harness::{small_corpus, small_options, train, with_layout};
use proptest::prelude::*;

fn dynamic(initial: f32, window: u32, hysteresis: u32) -> Dynamic {
    Dynamic {
        initial,
        min: 1.0,
        window,
        hysteresis,
    }
}

/// The small model in fp16, whose gradients are summed in fp16, too.
fn fp16(dynamic: Dynamic) -> TrainOptions {
    let mut options = small_options();
    options.model.params_dtype = Dtype::F16;
    options.reduce_dtype = Dtype::F16;
    options.loss_scale = Some(LossScale::Dynamic(dynamic));
    options
}

/// Main parameters, the optimizer's and the scheduler's counters, the data position.
fn read(rank: &mut Rank, trainer: &Trainer, _: u32) -> Result<Vec<u32>, RankError> {
    let optimizer = &trainer.optimizer;
    let mut words = rank.read("step", optimizer.step)?;
    words.extend(rank.read("num_steps", optimizer.num_steps)?);
    words.extend(rank.read("main", optimizer.main_params)?);
    Ok(words)
}

type Seen = BTreeMap<u32, BTreeMap<u32, Vec<u32>>>;

fn trained(options: &TrainOptions, steps: u32) -> (RunRecord, Seen) {
    let corpus = small_corpus(options);
    train(options, &corpus, &Initial::Seeded(1), steps, read)
}

fn metric(record: &RunRecord, name: &str) -> Vec<f32> {
    let named = record.metrics.iter().filter(|((_, of), _)| of == name);
    named.map(|(_, value)| *value).collect()
}

fn skipped(record: &RunRecord) -> Vec<bool> {
    let flags = metric(record, Trainer::SKIPPED).into_iter();
    flags.map(|flag| flag > 0.0).collect()
}

/// `DynamicGradScaler.update`, step after step.
fn expected_scales(dynamic: Dynamic, skipped: &[bool]) -> Vec<f32> {
    let (mut scale, mut grown) = (dynamic.initial, 0);
    let mut left = i64::from(dynamic.hysteresis);
    let mut scales = Vec::new();
    for overflowed in skipped {
        if *overflowed {
            (grown, left) = (0, left - 1);
            if left <= 0 {
                scale = (scale * 0.5).max(dynamic.min);
            }
        } else {
            grown += 1;
            if grown == dynamic.window {
                (grown, left) = (0, i64::from(dynamic.hysteresis));
                scale *= 2.0;
            }
        }
        scales.push(scale);
    }
    scales
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(12)
    })]
    #[test]
    fn the_scale_goes_on_as_megatrons(
        exponent in 10..24i32,
        window in 1..4u32,
        hysteresis in 1..4u32,
        min_exponent in 0..20i32,
        (tp, pp, dp) in prop_oneof![Just((1, 1, 1)), Just((2, 1, 2)), Just((1, 2, 2))],
        sharded in any::<bool>(),
    ) {
        let dynamic = Dynamic {
            min: 2f32.powi(min_exponent),
            ..dynamic(2f32.powi(exponent), window, hysteresis)
        };
        let mut options = with_layout(fp16(dynamic), tp, pp, dp);
        options.global_batch_size = 4 * dp;
        options.use_distributed_optimizer = sharded;
        let (record, _) = trained(&options, 10);
        let skipped = skipped(&record);
        prop_assert_eq!(skipped.len(), 10);
        let scales = metric(&record, Trainer::LOSS_SCALE);
        prop_assert_eq!(scales, expected_scales(dynamic, &skipped));
    }
}

/// A scale of 2^22 overflows fp16 and a scale of 16 does not: the two ends that the test above may
/// miss.
#[test]
fn steps_that_overflow_are_skipped_until_the_scale_fits() {
    let (record, seen) = trained(&fp16(dynamic(2f32.powi(22), 100, 1)), 20);
    let skipped = skipped(&record);
    let first = skipped.iter().position(|skipped| !skipped);
    let first = first.expect("the scale fits in the end") as u32;
    assert!(first > 0, "2^22 overflows");
    assert!(skipped[first as usize..].iter().all(|skipped| !skipped));
    let at = |step: u32| &seen[&step][&0];
    for step in 0..first {
        assert_eq!(at(step)[..2], [0, 0], "no step of optimizer or scheduler");
        assert_eq!(at(step), at(0), "parameters stay");
    }
    let batch = small_options().global_batch_size;
    assert_eq!(at(first)[..2], [1, batch]);
    assert_ne!(at(first)[2..], at(0)[2..], "training goes on");
    // A norm is computed where a step is taken.
    let norms = record
        .metrics
        .keys()
        .filter(|(_, name)| name == "grad norm");
    let steps: Vec<u32> = norms.map(|(step, _)| *step).collect();
    let taken = (0..).zip(&skipped).filter(|(_, skipped)| !**skipped);
    assert_eq!(steps, taken.map(|(step, _)| step).collect::<Vec<u32>>());
    let (record, _) = trained(&fp16(dynamic(16.0, 100, 1)), 4);
    assert_eq!(self::skipped(&record), [false; 4]);
}

/// In a format with the exponents of fp32 a power of two goes in and comes out without a trace.
#[test]
fn a_power_of_two_leaves_no_trace_in_bf16() {
    let in_bf16 = |loss_scale| {
        let mut options = with_layout(small_options(), 2, 1, 2);
        options.model.params_dtype = Dtype::Bf16;
        options.use_distributed_optimizer = true;
        options.loss_scale = loss_scale;
        options
    };
    let (plain, seen) = trained(&in_bf16(None), 3);
    let (scaled, scaled_seen) = trained(&in_bf16(Some(LossScale::Constant(1024.0))), 3);
    assert_eq!(scaled_seen, seen);
    for name in [Trainer::LM_LOSS, "grad norm"] {
        assert_eq!(metric(&scaled, name), metric(&plain, name));
    }
    assert_eq!(metric(&scaled, Trainer::LOSS_SCALE), [1024.0; 3]);
    assert_eq!(metric(&plain, Trainer::LOSS_SCALE), [0.0; 0]);
    // The control: one that is no power of two rounds.
    let (_, other_seen) = trained(&in_bf16(Some(LossScale::Constant(1000.0))), 3);
    assert_ne!(other_seen, seen);
}

/// fp16 keeps more digits than bf16: its losses are closer to those of fp32.
#[test]
fn losses_in_fp16_are_near_those_in_fp32() {
    let losses = |options: &TrainOptions| metric(&trained(options, 6).0, Trainer::LM_LOSS);
    let mut bf16 = small_options();
    bf16.model.params_dtype = Dtype::Bf16;
    let single = losses(&small_options());
    let distance = |other: &[f32]| {
        let pairs = single.iter().zip(other);
        pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f32::max)
    };
    let (half, brain) = (losses(&fp16(dynamic(64.0, 100, 2))), losses(&bf16));
    assert!(distance(&half) < 2e-2, "{half:?} for {single:?}");
    assert!(
        distance(&half) < distance(&brain),
        "{half:?}, {brain:?}, {single:?}"
    );
    assert_ne!(half, single, "it rounds");
}
