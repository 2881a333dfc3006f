//! Every gradient against central differences of an f64 model written from the formulas, dropout's
//! masks included, with each option of the model and with GPT-3's together.

mod harness;

use std::collections::BTreeMap;

use bitproof::numerics::philox::philox4x32;
use bitproof::recipe::{LocalOrder, Normalization, PositionEmbedding};
use bitproof::train::{Batch, Initial, TrainOptions};
use harness::reference::{Dropped, Reference, Weights};
use harness::{
    as_gpt3, read_gradients, small_corpus, small_options, train, whole_gradients, with_biases,
    with_layout,
};
use ndarray::Array2;

/// Step of the central difference: its error is of order 1e-10 here, f32's of order 1e-6.
const STEP: f64 = 1e-5;
/// Of the tensor's greatest gradient.
const BOUND: f64 = 4e-6;

fn initial_weights(options: &TrainOptions) -> Weights {
    let Initial::Given(whole) = with_biases(options) else {
        unreachable!("weights with biases are given")
    };
    let widen = |values: &Vec<f32>| values.iter().map(|value| f64::from(*value)).collect();
    whole
        .iter()
        .map(|(name, values)| (name.clone(), widen(values)))
        .collect()
}

/// A mask `[rows, columns]` of which `block` rows after block come from generators of their own.
struct Mask {
    probability: f32,
    shape: (usize, usize),
    block: usize,
    /// Elements before the mask's first in what its generator fills.
    first: usize,
    /// Of the first block; each further one has the next seed.
    seed: u32,
    offset: u32,
}

impl Mask {
    /// Element i takes word i % 4 of the block (offset, i / 4).
    fn multipliers(&self) -> Option<Array2<f64>> {
        let p = f64::from(self.probability);
        let one = |(row, column): (usize, usize)| {
            let (rank, row) = (row / self.block, row % self.block);
            let i = (self.first + row * self.shape.1 + column) as u32;
            let seed = self.seed + rank as u32;
            let word = philox4x32([self.offset, 0, i / 4, 0], [seed, 0])[i as usize % 4];
            let is_kept = f64::from(word) >= p * 4_294_967_296.0;
            if is_kept { 1.0 / (1.0 - p) } else { 0.0 }
        };
        (p > 0.0).then(|| Array2::from_shape_fn(self.shape, one))
    }
}

/// The mask of one dropout in microbatch `microbatch` of the first step. A stage's default
/// generator is seeded with `seed + 100 stage`, the one of tensor-parallel rank r with 2718 + r
/// more. The attention draws from the latter, a hidden dropout too where the sequence is split. The
/// offset counts the dropouts that drew from the generator before, and every stage leaves room for
/// the embedding's.
fn mask(options: &TrainOptions, microbatch: u32, dropped: Dropped) -> Option<Array2<f64>> {
    let model = &options.model;
    let tp = model.tensor_model_parallel_size as usize;
    let layers = (model.num_layers / model.pipeline_model_parallel_size) as usize;
    let hidden = usize::from(model.hidden_dropout > 0.0);
    let attention = usize::from(model.attention_dropout > 0.0);
    let (layer, hidden_before, attention_before) = match dropped {
        Dropped::Embedding => (0, 0, 0),
        Dropped::Probabilities { layer, .. } => (layer, 1 + 2 * (layer % layers), layer % layers),
        Dropped::AfterAttention(layer) => (layer, 1 + 2 * (layer % layers), layer % layers + 1),
        Dropped::AfterMlp(layer) => (layer, 2 + 2 * (layer % layers), layer % layers + 1),
    };
    let stage_seed = options.seed + 100 * (layer / layers) as u32;
    let splits = model.sequence_parallel && tp > 1;
    let offset = |of_hidden: bool, of_attention: bool| {
        let (h, a) = (
            hidden * usize::from(of_hidden),
            attention * usize::from(of_attention),
        );
        let before = h * hidden_before + a * attention_before;
        let each = h * (1 + 2 * layers) + a * layers;
        (microbatch as usize * each + before) as u32
    };
    let tokens = model.tokens() as usize;
    let seq = model.seq_length as usize;
    let mask = match dropped {
        Dropped::Probabilities { sample, head, .. } => {
            let local = model.num_attention_heads as usize / tp;
            Mask {
                probability: model.attention_dropout,
                shape: (seq, seq),
                block: seq,
                first: (sample * local + head % local) * seq * seq,
                seed: stage_seed + 2718 + (head / local) as u32,
                offset: offset(splits, true),
            }
        }
        _ => Mask {
            probability: model.hidden_dropout,
            shape: (tokens, model.hidden_size as usize),
            block: if splits { tokens / tp } else { tokens },
            first: 0,
            seed: stage_seed + if splits { 2718 } else { 0 },
            offset: offset(true, splits),
        },
    };
    mask.multipliers()
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
        let masks = |dropped| mask(options, microbatch as u32, dropped);
        let activations = reference.forward(tokens, targets, &masks);
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
        // The last stage's copy of a shared embedding has the embedding's gradient.
        let of = if weights.contains_key(name) {
            name
        } else {
            "embedding.word_embeddings.weight"
        };
        let greatest = values.iter().fold(0f32, |a, b| a.max(b.abs()));
        // Rows of tokens that are not in the batch are exactly zero, and are tried too.
        for place in places(values.len()) {
            let mut loss_at = |shift: f64| {
                let value = &mut weights.get_mut(of).unwrap()[place];
                let kept = std::mem::replace(value, *value + shift);
                let loss = mean_loss(options, &batch, &weights);
                weights.get_mut(of).unwrap()[place] = kept;
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
    let initial = with_biases(options);
    let (record, seen) = train(options, &corpus, &initial, 1, read_gradients);
    let batch = Batch::at(&corpus, options, 0, 0);
    let want = mean_loss(options, &batch, &initial_weights(options));
    let have = f64::from(record.metrics[&(0, "lm loss".to_string())]);
    assert!((have / want - 1.0).abs() < 1e-6, "loss {have} for {want}");
    whole_gradients(options, &seen[&0])
}

fn check(change: impl Fn(&mut TrainOptions)) {
    let mut options = small();
    change(&mut options);
    assert_eq!(
        wrong_gradients(&options, &gradients(&options)),
        Vec::<String>::new()
    );
}

#[test]
fn gradients_are_slopes_of_the_loss() {
    check(|_| {});
}

#[test]
fn gradients_are_slopes_with_dropout() {
    check(|options| options.model.hidden_dropout = 0.25);
}

#[test]
fn gradients_are_slopes_in_another_shape() {
    check(|options| {
        options.model.num_layers = 1;
        options.model.num_attention_heads = 2;
        options.model.num_query_groups = 2;
        options.model.kv_channels = 8;
        options.model.seq_length = 5;
        options.model.micro_batch_size = 1;
        options.model.wgrad_splits = 1;
        options.model.rotary_base = 100.0;
        options.global_batch_size = 1;
    });
}

#[test]
fn gradients_are_slopes_with_layer_norm() {
    check(|options| options.model.normalization = Normalization::LayerNorm);
}

#[test]
fn gradients_are_slopes_with_biases() {
    check(|options| options.model.add_bias_linear = true);
}

#[test]
fn gradients_are_slopes_with_gelu() {
    check(|options| options.model.swiglu = false);
    check(|options| {
        options.model.swiglu = false;
        options.model.add_bias_linear = true;
    });
}

#[test]
fn gradients_are_slopes_with_learned_positions_and_with_none() {
    check(|options| {
        options.model.position_embedding_type = PositionEmbedding::LearnedAbsolute;
        options.model.max_position_embeddings = 12;
    });
    check(|options| options.model.position_embedding_type = PositionEmbedding::None);
}

#[test]
fn gradients_are_slopes_with_a_tied_output_layer() {
    check(|options| options.model.untie_embeddings_and_output_weights = false);
}

#[test]
fn gradients_are_slopes_with_attention_dropout() {
    check(|options| options.model.attention_dropout = 0.3);
}

#[test]
fn gradients_are_slopes_with_grouped_queries_and_wide_heads() {
    for groups in [1, 2] {
        check(|options| {
            options.model.num_query_groups = groups;
            options.model.kv_channels = 6;
        });
    }
}

#[test]
fn gradients_are_slopes_of_gpt3() {
    check(as_gpt3);
    check(|options| {
        as_gpt3(options);
        options.model.num_query_groups = 2;
        options.model.orders.attention_backward = LocalOrder::Arrival;
    });
}

fn check_layout(tp: u32, pp: u32, sequence_parallel: bool) {
    check(|options| {
        as_gpt3(options);
        *options = with_layout(options.clone(), tp, pp, 1);
        options.model.sequence_parallel = sequence_parallel;
    });
}

/// Each rank of a layout has the masks that Megatron-LM's seeds give it.
#[test]
fn gradients_are_slopes_of_gpt3_under_tensor_parallelism() {
    check_layout(2, 1, false);
    check_layout(4, 1, true);
}

#[test]
fn gradients_are_slopes_of_gpt3_under_pipeline_parallelism() {
    check_layout(1, 2, false);
    check_layout(2, 2, true);
}

/// Negative control: gradients of another rotary base, of other probabilities of dropout or of
/// other masks are wrong slopes.
#[test]
fn gradients_of_another_model_are_not_slopes() {
    let options = small();
    let mut other = small();
    other.model.rotary_base = 9_000.0;
    assert!(!wrong_gradients(&options, &gradients(&other)).is_empty());
    let mut options = small();
    as_gpt3(&mut options);
    for spoil in [
        (|o| o.model.attention_dropout = 0.1) as fn(&mut TrainOptions),
        |o| o.model.hidden_dropout = 0.0,
        |o| o.seed += 1,
    ] {
        let mut other = options.clone();
        spoil(&mut other);
        let initial = with_biases(&options);
        let corpus = small_corpus(&other);
        let (_, seen) = train(&other, &corpus, &initial, 1, read_gradients);
        let grads = whole_gradients(&other, &seen[&0]);
        assert!(!wrong_gradients(&options, &grads).is_empty());
    }
}
