//! The same whole model under every parallel layout: losses, gradient norms and gradients stay
//! within a stated bound of one rank's.

mod harness;

use std::sync::Arc;

use bitproof::numerics::Dtype;
use bitproof::train::{Corpus, Initial, TrainOptions, Trainer};
use bitproof::world::Rank;
use harness::{
    as_gpt3, deep_options, distance, interleaved, read_gradients, small_corpus, small_options,
    train, whole_gradients, with_biases, with_layout,
};

/// Gradients of f32 layouts: greatest difference over greatest magnitude, tensor by tensor. Sums of
/// up to 128 tokens and 24 products are split in other places: a few units of 2^-24 each.
const BOUND: f64 = 4e-6;
/// Losses and norms over three steps; AdamW lets near-zero gradients count in full.
const LOSS_BOUND: f64 = 2e-5;
const STEPS: u32 = 3;

/// Whether a loss or norm is within the bound; a NaN never is.
fn is_near(have: f32, want: f32) -> bool {
    f64::from(have / want - 1.0).abs() <= LOSS_BOUND
}

fn compare(serial: &TrainOptions, layout: &TrainOptions) -> Vec<String> {
    compare_from(&Initial::Seeded(serial.seed), serial, layout)
}

/// Trains both and says what differs by more than the bounds.
fn compare_from(initial: &Initial, serial: &TrainOptions, layout: &TrainOptions) -> Vec<String> {
    let corpus = small_corpus(serial);
    let (expected, seen) = train(serial, &corpus, initial, STEPS, read_gradients);
    let whole = whole_gradients(serial, &seen[&0]);
    let (record, seen) = train(layout, &corpus, initial, STEPS, read_gradients);
    let mut faults = Vec::new();
    for (key, want) in &expected.metrics {
        let have = record.metrics[key];
        if !is_near(have, *want) {
            faults.push(format!("{key:?}: {have} for {want}"));
        }
    }
    for (name, have) in whole_gradients(layout, &seen[&0]) {
        // The last stage's copy of a shared embedding has the embedding's gradient.
        let shared = || &whole["embedding.word_embeddings.weight"];
        let want = whole.get(&name).unwrap_or_else(shared).iter();
        let want: Vec<f64> = want.map(|v| f64::from(*v)).collect();
        let (greatest, _) = distance(&have, &want);
        if greatest > BOUND {
            faults.push(format!("{name}: {greatest:.2e}"));
        }
    }
    faults.extend(record.drifts.iter().map(|drift| format!("{drift:?}")));
    assert!(record.replicas_compared > 0 || layout.layout.world_size() == 1);
    faults
}

#[test]
fn what_is_no_number_is_near_nothing() {
    assert!(is_near(4.0, 4.0) && is_near(4.000_01, 4.0));
    for (have, want) in [
        (f32::NAN, 4.0),
        (4.0, f32::NAN),
        (4.001, 4.0),
        (f32::INFINITY, 4.0),
    ] {
        assert!(!is_near(have, want), "{have} {want}");
    }
}

fn check(layout: TrainOptions) {
    let faults = compare(&small_options(), &layout);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn sequence_parallel(mut options: TrainOptions) -> TrainOptions {
    options.model.sequence_parallel = true;
    options
}

fn distributed(mut options: TrainOptions, bucket_size: Option<u32>) -> TrainOptions {
    options.use_distributed_optimizer = true;
    options.ddp_bucket_size = bucket_size;
    options.overlap_grad_reduce = bucket_size.is_some();
    options
}

#[test]
fn tensor_parallel() {
    check(with_layout(small_options(), 2, 1, 1));
    check(with_layout(small_options(), 4, 1, 1));
}

#[test]
fn tensor_and_sequence_parallel() {
    check(sequence_parallel(with_layout(small_options(), 2, 1, 1)));
    check(sequence_parallel(with_layout(small_options(), 4, 1, 1)));
}

#[test]
fn pipeline_parallel() {
    check(with_layout(small_options(), 1, 2, 1));
}

#[test]
fn data_parallel() {
    check(with_layout(small_options(), 1, 1, 2));
    check(with_layout(small_options(), 1, 1, 4));
}

#[test]
fn data_parallel_with_small_buckets() {
    let mut options = with_layout(small_options(), 1, 1, 2);
    options.ddp_bucket_size = Some(600);
    options.overlap_grad_reduce = true;
    check(options);
}

#[test]
fn distributed_optimizer() {
    check(distributed(with_layout(small_options(), 1, 1, 4), None));
    check(distributed(
        with_layout(small_options(), 1, 1, 2),
        Some(1000),
    ));
}

#[test]
fn distributed_optimizer_with_fp32_accumulation() {
    let mut options = distributed(with_layout(small_options(), 1, 1, 4), Some(1000));
    options.ddp_reduce_scatter_with_fp32_accumulation = true;
    check(options);
}

/// Gradients rounded to bf16 before they are summed, in bf16 or, after an all-to-all, in fp32.
#[test]
fn gradients_reduced_in_bf16() {
    let serial = small_options();
    let corpus = small_corpus(&serial);
    let initial = Initial::Seeded(serial.seed);
    let (_, seen) = train(&serial, &corpus, &initial, 1, read_gradients);
    let whole = whole_gradients(&serial, &seen[&0]);
    let mut errors = Vec::new();
    for by_hand in [false, true] {
        let mut options = distributed(with_layout(serial.clone(), 1, 1, 4), Some(1000));
        options.reduce_dtype = Dtype::Bf16;
        options.ddp_reduce_scatter_with_fp32_accumulation = by_hand;
        let (_, seen) = train(&options, &corpus, &initial, 1, read_gradients);
        let mut sum = 0.0;
        for (name, have) in whole_gradients(&options, &seen[&0]) {
            let want: Vec<f64> = whole[&name].iter().map(|v| f64::from(*v)).collect();
            assert!(
                have.iter().all(|value| Dtype::Bf16.round(*value) == *value),
                "{name}"
            );
            let (_, norm) = distance(&have, &want);
            // Half a unit of 2^-8 for each rounding, of sums that cancel somewhat.
            assert!(norm < 4.0 / 256.0, "{name}: {norm:.1e}");
            sum += norm;
        }
        errors.push(sum);
    }
    assert!(
        errors[1] < errors[0],
        "one rounding is closer than one at each hop: {errors:?}"
    );
}

#[test]
fn everything_together() {
    check(sequence_parallel(distributed(
        with_layout(small_options(), 2, 2, 2),
        Some(1000),
    )));
}

#[test]
fn everything_together_stages_first() {
    let mut options = sequence_parallel(distributed(with_layout(small_options(), 2, 2, 2), None));
    options.layout.use_tp_pp_dp_mapping = true;
    check(options);
}

#[test]
fn interleaved_pipeline_in_a_whole_layout() {
    let mut serial = deep_options();
    serial.global_batch_size = 16;
    let layout = with_layout(serial.clone(), 2, 2, 2);
    let layout = interleaved(sequence_parallel(distributed(layout, Some(1000))), 2, 4);
    let faults = compare(&serial, &layout);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// GPT-3's options in an interleaved pipeline: the embedding is in the first chunk of the first
/// stage, its copy in the last chunk of the last.
#[test]
fn gpt3_interleaved() {
    let mut serial = gpt3();
    (serial.model.num_layers, serial.global_batch_size) = (4, 16);
    let layout = with_layout(serial.clone(), 2, 2, 2);
    let layout = interleaved(sequence_parallel(distributed(layout, None)), 2, 2);
    let faults = compare_from(&with_biases(&serial), &serial, &layout);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

fn instances(options: TrainOptions, instances: u32, bucket_size: Option<u32>) -> TrainOptions {
    let mut options = distributed(options, bucket_size);
    options.layout.num_distributed_optimizer_instances = instances;
    options
}

#[test]
fn optimizer_instances() {
    let four = with_layout(small_options(), 1, 1, 4);
    check(instances(four.clone(), 2, None));
    let mut by_hand = instances(four, 2, Some(1000));
    by_hand.ddp_reduce_scatter_with_fp32_accumulation = true;
    check(by_hand);
    let tensor = with_layout(small_options(), 2, 1, 4);
    check(sequence_parallel(instances(tensor, 2, None)));
}

/// GPT-3's options but for dropout, whose masks are the layout's own.
fn gpt3() -> TrainOptions {
    let mut options = small_options();
    as_gpt3(&mut options);
    options.model.attention_dropout = 0.0;
    options.model.hidden_dropout = 0.0;
    options
}

fn check_gpt3(layout: TrainOptions) {
    let serial = gpt3();
    let faults = compare_from(&with_biases(&serial), &serial, &layout);
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn gpt3_tensor_parallel() {
    check_gpt3(with_layout(gpt3(), 4, 1, 1));
    check_gpt3(sequence_parallel(with_layout(gpt3(), 4, 1, 1)));
}

/// The shared embedding's gradient comes from both ends, and counts once in the norm.
#[test]
fn gpt3_pipeline_parallel() {
    check_gpt3(with_layout(gpt3(), 1, 2, 1));
    check_gpt3(with_layout(gpt3(), 2, 2, 1));
}

#[test]
fn gpt3_everything_together() {
    check_gpt3(sequence_parallel(with_layout(gpt3(), 2, 2, 2)));
    for bucket_size in [None, Some(1000)] {
        check_gpt3(sequence_parallel(distributed(
            with_layout(gpt3(), 2, 2, 2),
            bucket_size,
        )));
    }
}

#[test]
fn grouped_queries_over_tensor_parallel_ranks() {
    let mut serial = small_options();
    serial.model.num_query_groups = 2;
    serial.model.kv_channels = 8;
    let layout = with_layout(serial.clone(), 2, 1, 1);
    assert_eq!(compare(&serial, &layout), Vec::<String>::new());
}

/// Which elements of the embedding were dropped in the last microbatch, and the mask of the first
/// layer's attention, on each rank.
fn masks(options: &TrainOptions) -> Vec<(Vec<bool>, Vec<u32>)> {
    let inspect = |rank: &mut Rank, trainer: &Trainer, _| {
        let chunk = &trainer.pipeline.chunks[0];
        let saved = chunk.saved.last().expect("a microbatch");
        let mut words = rank.read("input", saved.input)?;
        words.insert(0, words.len() as u32);
        let mask = chunk.gpt.stage.scratch.attention_mask;
        words.extend(rank.read("mask", mask.expect("the attention drops"))?);
        Ok(words)
    };
    let initial = Initial::Seeded(1);
    let (record, seen) = train(options, &small_corpus(options), &initial, 1, inspect);
    assert_eq!(record.drifts, []);
    let split = |words: &Vec<u32>| {
        let (input, mask) = words[1..].split_at(words[0] as usize);
        (input.iter().map(|word| *word == 0).collect(), mask.to_vec())
    };
    seen[&0].values().map(split).collect()
}

/// Attention masks differ over tensor-parallel ranks; hidden ones where the sequence is split, and
/// nowhere else.
#[test]
fn dropout_masks_differ_where_activations_do() {
    let mut options = gpt3();
    options.model.attention_dropout = 0.3;
    options.model.hidden_dropout = 0.3;
    for splits in [false, true] {
        let mut layout = with_layout(options.clone(), 2, 1, 1);
        layout.model.sequence_parallel = splits;
        let ranks = masks(&layout);
        let (hidden, attention) = (&ranks[0].0, &ranks[0].1);
        let dropped = hidden.iter().filter(|dropped| **dropped).count();
        let share = dropped as f64 / hidden.len() as f64;
        assert!((0.2..0.4).contains(&share), "{share} was dropped");
        assert_ne!(*attention, ranks[1].1);
        assert_eq!(*hidden != ranks[1].0, splits);
    }
}

/// Negative control of the shared embedding: a copy that trains by itself is seen.
#[test]
fn an_embedding_that_is_not_shared_is_seen() {
    let serial = gpt3();
    let mut other = with_layout(gpt3(), 1, 2, 1);
    other.model.untie_embeddings_and_output_weights = true;
    let Initial::Given(mut whole) = with_biases(&serial) else {
        unreachable!("weights with biases are given")
    };
    let embedding = whole["embedding.word_embeddings.weight"].clone();
    let map = Arc::make_mut(&mut whole);
    map.insert("output_layer.weight".to_string(), embedding);
    assert!(!compare_from(&Initial::Given(whole), &serial, &other).is_empty());
}

/// Negative controls: a run that is not the same training is seen.
#[test]
fn another_seed_or_split_of_the_loss_is_seen() {
    let mut other = with_layout(small_options(), 1, 1, 2);
    other.global_batch_size = 4;
    assert!(!compare(&small_options(), &other).is_empty());
    let mut other = small_options();
    other.adam_beta1 = 0.89;
    other.weight_decay = 0.0;
    other.lr *= 1.01;
    assert!(!compare(&small_options(), &other).is_empty());
}

/// bf16 parameters, activations and tensor-parallel sums, fp32 gradients: the loss still agrees to
/// bf16's precision, and copies to the bit.
#[test]
fn bf16_layouts_agree_to_bf16_precision() {
    let corpus = small_corpus(&small_options());
    let initial = Initial::Seeded(1);
    let mut last = Vec::new();
    for (tp, pp, dp) in [(1, 1, 1), (2, 2, 2)] {
        let mut options =
            sequence_parallel(distributed(with_layout(small_options(), tp, pp, dp), None));
        options.model.params_dtype = Dtype::Bf16;
        let (record, _) = train(&options, &corpus, &initial, STEPS, read_gradients);
        assert_eq!(record.drifts, []);
        last.push(record.metrics[&(STEPS - 1, "lm loss".to_string())]);
    }
    let (serial, layout) = (last[0], last[1]);
    assert!((serial / layout - 1.0).abs() < 5e-3, "{serial} {layout}");
    assert_ne!(
        serial.to_bits(),
        layout.to_bits(),
        "bf16 sums were rounded elsewhere"
    );
}

/// Learns the built-in text, in bf16 with dropout, sharded every way: as Llama and as GPT-3.
#[test]
fn loss_falls_on_the_built_in_text() {
    for is_gpt3 in [false, true] {
        let mut options =
            sequence_parallel(distributed(with_layout(small_options(), 2, 2, 2), None));
        options.model.params_dtype = Dtype::Bf16;
        options.model.padded_vocab_size = 256;
        options.model.hidden_size = 32;
        options.model.kv_channels = 8;
        options.model.seq_length = 16;
        options.model.max_position_embeddings = 16;
        if is_gpt3 {
            as_gpt3(&mut options);
        }
        options.model.attention_dropout = 0.0;
        options.model.hidden_dropout = 0.05;
        options.lr = 0.01;
        options.lr_warmup_iters = 3;
        options.lr_decay_iters = 24;
        let initial = Initial::Seeded(options.seed);
        let none = |_: &mut _, _: &_, _| Ok(Vec::new());
        let (record, _) = train(&options, &Corpus::built_in(), &initial, 24, none);
        assert_eq!(record.drifts, []);
        let loss = |step: u32| record.metrics[&(step, "lm loss".to_string())];
        let first = loss(0);
        assert!((5.0..7.5).contains(&first), "near ln 256 at first: {first}");
        let late = (loss(21) + loss(22) + loss(23)) / 3.0;
        assert!(late < 3.6, "{first} fell to {late} only");
    }
}
