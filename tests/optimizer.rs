//! What the optimizer's options mean, bit for bit where two settings mean the same.

mod harness;

use std::collections::BTreeMap;

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

#[test]
fn warmup_rises_in_equal_parts() {
    let mut warm = small_options();
    warm.lr_warmup_iters = 4;
    let mut quarter = small_options();
    quarter.lr /= 4.0;
    assert_eq!(trained(&warm, 1), trained(&quarter, 1));
    assert_ne!(trained(&warm, 2), trained(&quarter, 2));
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
