//! Every gradient against central differences of an f64 model written from the formulas, dropout's
//! masks included.

mod harness;

use std::collections::BTreeMap;

use bitproof::model::stage_parameters;
use bitproof::numerics::philox::philox4x32;
use bitproof::train::{Batch, Initial, TrainOptions};
use harness::reference::{Reference, Weights};
use harness::{read_gradients, small_corpus, small_options, train, whole_gradients};
use ndarray::Array2;

/// Step of the central difference: its error is of order 1e-10 here, f32's of order 1e-6.
const STEP: f64 = 1e-5;
/// Of the tensor's greatest gradient.
const BOUND: f64 = 4e-6;

fn initial_weights(options: &TrainOptions) -> Weights {
    let initial = Initial::Seeded(options.seed);
    stage_parameters(&options.model, 0)
        .iter()
        .map(|parameter| {
            let values = initial.values(parameter, 0, 1).unwrap();
            (
                parameter.name.clone(),
                values.into_iter().map(f64::from).collect(),
            )
        })
        .collect()
}

/// The mask of dropout `site` in microbatch `microbatch` of the first step, from the formulas:
/// element i takes word i % 4 of the block (offset, i / 4), offsets counted over sites.
fn mask(options: &TrainOptions, microbatch: u32, site: usize) -> Array2<f64> {
    let model = &options.model;
    let sites = 1 + 2 * model.num_layers;
    let offset = microbatch * sites + site as u32;
    let p = f64::from(model.hidden_dropout);
    let keep = 1.0 / (1.0 - p);
    let (rows, columns) = (model.tokens() as usize, model.hidden_size as usize);
    Array2::from_shape_fn((rows, columns), |(row, column)| {
        let i = (row * columns + column) as u32;
        let word = philox4x32([offset, 0, i / 4, 0], [options.seed, 0])[i as usize % 4];
        if f64::from(word) >= p * 4_294_967_296.0 {
            keep
        } else {
            0.0
        }
    })
}

fn mean_loss(options: &TrainOptions, batch: &Batch, weights: &Weights) -> f64 {
    let reference = Reference {
        shape: &options.model,
        weights,
    };
    let tokens = options.model.tokens() as usize;
    let (mut sum, mut count) = (0.0, 0.0);
    let rows = batch
        .tokens
        .chunks(tokens)
        .zip(batch.targets.chunks(tokens))
        .enumerate();
    for (microbatch, (tokens, targets)) in rows {
        let masks = |site| mask(options, microbatch as u32, site);
        let drops = options.model.hidden_dropout > 0.0;
        let activations = reference.forward(tokens, targets, drops.then_some(&masks));
        sum += activations.losses.sum();
        count += activations.losses.len() as f64;
    }
    sum / count
}

/// Elements to try in a tensor of `len`: spread over it, none alike.
fn places(len: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..6)
        .map(|i| (i * 2_654_435_761usize + 17) % len)
        .collect();
    places.sort();
    places.dedup();
    places
}

/// Gradients that differ from central differences by more than the bound.
fn wrong_gradients(options: &TrainOptions, grads: &BTreeMap<String, Vec<f32>>) -> Vec<String> {
    let corpus = small_corpus(options);
    let batch = Batch::at(&corpus, options, 0, 0);
    let mut weights = initial_weights(options);
    let mut wrong = Vec::new();
    for (name, values) in grads {
        let greatest = values.iter().fold(0f32, |a, b| a.max(b.abs()));
        // Rows of tokens that are not in the batch are exactly zero, and are tried too.
        for place in places(values.len()) {
            let mut loss_at = |shift: f64| {
                let value = &mut weights.get_mut(name).unwrap()[place];
                let kept = std::mem::replace(value, *value + shift);
                let loss = mean_loss(options, &batch, &weights);
                weights.get_mut(name).unwrap()[place] = kept;
                loss
            };
            let slope = (loss_at(STEP) - loss_at(-STEP)) / (2.0 * STEP);
            let error = (f64::from(values[place]) - slope).abs() / f64::from(greatest);
            if error > BOUND {
                wrong.push(format!(
                    "{name}[{place}]: {} for {slope}, {error:.1e}",
                    values[place]
                ));
            }
        }
    }
    wrong
}

fn small() -> TrainOptions {
    let mut options = small_options();
    options.global_batch_size = 4;
    options.clip_grad = 0.0;
    options
}

fn gradients(options: &TrainOptions) -> BTreeMap<String, Vec<f32>> {
    let corpus = small_corpus(options);
    let initial = Initial::Seeded(options.seed);
    let (record, seen) = train(options, &corpus, &initial, 1, read_gradients);
    let batch = Batch::at(&corpus, options, 0, 0);
    let want = mean_loss(options, &batch, &initial_weights(options));
    let have = f64::from(record.metrics[&(0, "lm loss".to_string())]);
    assert!((have / want - 1.0).abs() < 1e-6, "loss {have} for {want}");
    whole_gradients(options, &seen[&0])
}

#[test]
fn gradients_are_slopes_of_the_loss() {
    let options = small();
    assert_eq!(
        wrong_gradients(&options, &gradients(&options)),
        Vec::<String>::new()
    );
}

#[test]
fn gradients_are_slopes_with_dropout() {
    let mut options = small();
    options.model.hidden_dropout = 0.25;
    assert_eq!(
        wrong_gradients(&options, &gradients(&options)),
        Vec::<String>::new()
    );
}

#[test]
fn gradients_are_slopes_in_another_shape() {
    let mut options = small();
    options.model.num_layers = 1;
    options.model.num_attention_heads = 2;
    options.model.seq_length = 5;
    options.model.micro_batch_size = 1;
    options.model.wgrad_splits = 1;
    options.model.rotary_base = 100.0;
    options.global_batch_size = 1;
    assert_eq!(
        wrong_gradients(&options, &gradients(&options)),
        Vec::<String>::new()
    );
}

/// Negative control: gradients of another rotary base are wrong slopes.
#[test]
fn gradients_of_another_model_are_not_slopes() {
    let options = small();
    let mut other = small();
    other.model.rotary_base = 9_000.0;
    assert!(!wrong_gradients(&options, &gradients(&other)).is_empty());
}
