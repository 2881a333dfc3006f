//! What the optimizer's options mean, bit for bit where two settings mean the same.

mod harness;

use std::collections::BTreeMap;

use bitproof::recipe::LrDecayStyle;
use bitproof::train::{Initial, TrainOptions, Trainer};
use bitproof::world::{Rank, RankError};
use harness::{small_corpus, small_options, train, whole_gradients};

fn read_main(rank: &mut Rank, trainer: &Trainer, _: u32) -> Result<Vec<u32>, RankError> {
    rank.read("main", trainer.optimizer.main_params)
}

/// Main parameters after `steps` steps, by name.
fn trained(options: &TrainOptions, steps: u32) -> BTreeMap<String, Vec<u32>> {
    let corpus = small_corpus(options);
    let initial = Initial::Seeded(options.seed);
    let (_, seen) = train(options, &corpus, &initial, steps, read_main);
    let whole = whole_gradients(options, &seen[&(steps - 1)]);
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
    whole
        .into_iter()
        .map(|(name, values)| (name, bits(values)))
        .collect()
}

/// The first step of a warm-up has the learning rate 0, as with Megatron-LM: the scheduler has
/// seen no sample yet.
#[test]
fn the_first_step_of_a_warmup_moves_nothing() {
    let mut warm = small_options();
    warm.lr_warmup_iters = 4;
    let still = TrainOptions {
        lr: 0.0,
        ..small_options()
    };
    assert_eq!(trained(&warm, 1), trained(&still, 1));
    assert_ne!(trained(&warm, 2), trained(&still, 2));
}

/// `OptimizerParamScheduler.get_lr`, in f64.
fn expected_rate(options: &TrainOptions, samples: f64) -> f64 {
    let batch = f64::from(options.global_batch_size);
    let warmup = f64::from(options.lr_warmup_iters) * batch;
    let decay = f64::from(options.lr_decay_iters) * batch;
    let (most, least) = (f64::from(options.lr), f64::from(options.min_lr));
    if warmup > 0.0 && samples <= warmup {
        return most * samples / warmup;
    }
    let ratio = (samples - warmup) / (decay - warmup);
    let coefficient = match options.lr_decay_style {
        LrDecayStyle::Constant => return most,
        _ if samples > decay => return least,
        LrDecayStyle::Linear => 1.0 - ratio,
        LrDecayStyle::Cosine => 0.5 * ((std::f64::consts::PI * ratio).cos() + 1.0),
    };
    least + coefficient * (most - least)
}

#[test]
fn learning_rates_are_those_of_the_schedule() {
    let read =
        |rank: &mut Rank, trainer: &Trainer, _| rank.read("lr", trainer.optimizer.learning_rate);
    for style in [
        LrDecayStyle::Constant,
        LrDecayStyle::Linear,
        LrDecayStyle::Cosine,
    ] {
        for warmup in [0, 2] {
            let mut options = small_options();
            (options.lr_decay_style, options.lr_warmup_iters) = (style, warmup);
            (options.lr_decay_iters, options.min_lr) = (6, 1e-4);
            let (corpus, initial) = (small_corpus(&options), Initial::Seeded(1));
            let (_, seen) = train(&options, &corpus, &initial, 8, read);
            for (step, words) in &seen {
                let have = f64::from(f32::from_bits(words[&0][0]));
                let samples = f64::from(step * options.global_batch_size);
                let want = expected_rate(&options, samples);
                assert!(
                    (have - want).abs() <= 2e-6 * want.max(1e-4),
                    "{style:?}, warm-up {warmup}, step {step}: {have} for {want}"
                );
            }
        }
    }
}

#[test]
fn clipping_acts_only_below_the_norm() {
    let with = |clip_grad| {
        trained(
            &TrainOptions {
                clip_grad,
                ..small_options()
            },
            2,
        )
    };
    assert_eq!(
        with(0.0),
        with(1e6),
        "no limit, and one that is never reached"
    );
    assert_ne!(with(0.0), with(0.1));
}

#[test]
fn only_matrices_decay() {
    let with = |weight_decay| {
        trained(
            &TrainOptions {
                weight_decay,
                ..small_options()
            },
            1,
        )
    };
    let (none, some) = (with(0.0), with(0.1));
    for (name, values) in &none {
        let gain = name.contains("layernorm");
        assert_eq!(*values == some[name], gain, "{name}");
    }
}

/// The first step of Adam is the sign of the gradient, whatever its size, where eps is nothing
/// beside it: every element that has a gradient moves by lr.
#[test]
fn the_first_step_has_the_size_of_the_learning_rate() {
    let mut options = small_options();
    options.weight_decay = 0.0;
    options.adam_eps = 1e-30;
    let initial = Initial::Seeded(options.seed);
    for parameter in bitproof::model::stage_parameters(&options.model, 0) {
        let before = initial.values(&parameter, 0, 1).unwrap();
        let after = &trained(&options, 1)[&parameter.name];
        let mut moved = 0;
        for (before, after) in before.iter().zip(after) {
            let step = (f32::from_bits(*after) - before).abs();
            assert!(
                step == 0.0 || (step / options.lr - 1.0).abs() < 1e-3,
                "{step}"
            );
            moved += usize::from(step > 0.0);
        }
        assert!(
            moved * 2 > before.len(),
            "{}: {moved} of {}",
            parameter.name,
            before.len()
        );
    }
}
