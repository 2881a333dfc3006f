//! What only changes when or where work is done changes no bit: interleaved pipelines, optimizer
//! instances whose sums are exact, recomputed activations.

mod harness;

use std::collections::BTreeMap;

use bitproof::model::{RESTORE_RNG, Recompute, Selective};
use bitproof::recipe::RecomputeMethod;
use bitproof::train::{Corpus, Initial, TrainOptions};
use bitproof::world::{PlantedFault, RunOptions};
use harness::{
    as_gpt3, deep_options, interleaved, read_gradients, small_corpus, small_options, train,
    train_with, whole_gradients, with_layout,
};

const STEPS: u32 = 3;

fn instances(mut options: TrainOptions, instances: u32) -> TrainOptions {
    options.use_distributed_optimizer = true;
    options.layout.num_distributed_optimizer_instances = instances;
    options
}

/// Bits of the reduced gradients of each step, and of the metrics.
fn bits(options: &TrainOptions, corpus: &Corpus) -> (Bits, BTreeMap<(u32, String), u32>) {
    let initial = Initial::Seeded(options.seed);
    let (record, seen) = train(options, corpus, &initial, STEPS, read_gradients);
    assert_eq!(record.drifts, []);
    let of_step = |step: &u32| {
        let whole = whole_gradients(options, &seen[step]);
        let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
        let named = whole.into_iter().map(|(name, values)| (name, bits(values)));
        named.collect()
    };
    let gradients = (0..STEPS).map(|step| of_step(&step)).collect();
    let metrics = record.metrics.into_iter();
    (
        gradients,
        metrics.map(|(key, v)| (key, v.to_bits())).collect(),
    )
}

type Bits = Vec<BTreeMap<String, Vec<u32>>>;

/// The chunks of an interleaved pipeline compute what plain stages compute, in another order of
/// time: all bits are the same. Only the norm adds layers in another grouping, so
/// nothing is clipped here.
#[test]
fn interleaved_stages_give_the_bits_of_plain_ones() {
    for (stages, chunks, group, sequences) in [
        (2, 2, 2, 8),
        (2, 2, 4, 8),
        (4, 1, 1, 8),
        // Last groups of three, of two, and of one more than the pipeline's size.
        (2, 2, 4, 14),
        (2, 2, 3, 10),
        (2, 2, 5, 16),
    ] {
        let mut plain = with_layout(deep_options(), 1, 2, 1);
        plain.clip_grad = 0.0;
        plain.global_batch_size = sequences;
        let corpus = small_corpus(&plain);
        let mut cut = with_layout(plain.clone(), 1, stages, 1);
        cut = interleaved(cut, chunks, group);
        assert_eq!(
            bits(&plain, &corpus),
            bits(&cut, &corpus),
            "{stages} x {chunks}"
        );
    }
}

/// An instance of one rank shards nothing: the plain sum over data-parallel ranks is left.
#[test]
fn as_many_instances_as_ranks_is_no_distributed_optimizer() {
    let mut two = with_layout(small_options(), 1, 1, 2);
    // The norm adds in other groups: the distributed optimizer aligns parameters.
    two.clip_grad = 0.0;
    let corpus = small_corpus(&two);
    let apart = instances(two.clone(), 2);
    assert_eq!(bits(&two, &corpus), bits(&apart, &corpus));
}

/// Where all data-parallel ranks see the same samples, the sums within instances and between them
/// are exact (twice and four times a quarter), and so the gradients are those of one rank.
#[test]
fn equal_gradients_meet_exactly_across_instances() {
    let mut serial = small_options();
    (serial.global_batch_size, serial.clip_grad) = (2, 0.0);
    let corpus = small_corpus(&serial);
    let Corpus::Samples(samples) = &corpus else {
        panic!("the small corpus is a list of samples");
    };
    let pairs = samples
        .chunks_exact(2)
        .flat_map(|pair| std::iter::repeat_n(pair, 4));
    let repeated: Vec<Vec<u32>> = pairs.flatten().cloned().collect();
    let mut four = instances(with_layout(serial.clone(), 1, 1, 4), 2);
    four.global_batch_size = 8;
    let repeated = Corpus::Samples(repeated.into());
    assert_eq!(bits(&serial, &corpus).0, bits(&four, &repeated).0);
    assert_ne!(bits(&serial, &corpus).0, bits(&four, &corpus).0);
}

/// GPT-3's options with dropout of both kinds, over two tensor-parallel ranks.
fn gpt3(sequence_parallel: bool) -> TrainOptions {
    let mut options = with_layout(small_options(), 2, 1, 1);
    as_gpt3(&mut options);
    options.model.num_layers = 3;
    options.model.sequence_parallel = sequence_parallel;
    options
}

fn selective(core_attention: bool, mlp: bool, layernorm: bool) -> Recompute {
    Recompute::Selective(Selective {
        core_attention,
        mlp,
        layernorm,
    })
}

/// Bits of a run, how many tensors were computed again, and words of memory.
fn recomputed(options: &TrainOptions, recompute: Recompute) -> (Bits, u64, u64) {
    let mut options = options.clone();
    options.recompute = recompute;
    let (corpus, initial) = (small_corpus(&options), Initial::Seeded(options.seed));
    let (record, seen) = train(&options, &corpus, &initial, 2, read_gradients);
    assert_eq!(record.drifts, []);
    let whole = |seen| {
        let whole = whole_gradients(&options, seen).into_iter();
        let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect();
        whole.map(|(name, values)| (name, bits(values))).collect()
    };
    let gradients = seen.values().map(whole).collect();
    (gradients, record.recomputed, record.memory_words)
}

/// What is computed again is what it was, masks included, and so is every gradient; less is kept.
#[test]
fn recomputed_activations_change_no_bit() {
    let full = |method, layers| Recompute::Full { method, layers };
    for splits in [false, true] {
        let options = gpt3(splits);
        let (plain, none, words) = recomputed(&options, Recompute::Nothing);
        assert_eq!(none, 0);
        // Tensors a layer, layers, microbatches, ranks, steps.
        let all = |tensors: u64, layers: u64| tensors * layers * 4 * 2 * 2;
        for (recompute, expected) in [
            (full(RecomputeMethod::Uniform, 1), all(11, 3)),
            (full(RecomputeMethod::Uniform, 2), all(11, 3)),
            (full(RecomputeMethod::Block, 2), all(11, 2)),
            (selective(true, false, false), all(2, 3)),
            (selective(false, true, true), all(3 + 4, 3)),
            (selective(true, true, true), all(2 + 3 + 4, 3)),
        ] {
            let (gradients, compared, _) = recomputed(&options, recompute);
            assert_eq!(gradients, plain, "{recompute:?}");
            assert_eq!(compared, expected, "{recompute:?}");
        }
        let mut deep = with_layout(options, 2, 3, 1);
        deep.model.num_layers = 6;
        let (_, _, whole) = recomputed(&deep, Recompute::Nothing);
        let (_, _, less) = recomputed(&deep, full(RecomputeMethod::Uniform, 1));
        assert!(less < whole, "{less} {whole} {words}");
    }
}

/// Recomputation in an interleaved pipeline: each microbatch in flight has its own RNG words.
#[test]
fn recomputation_in_an_interleaved_pipeline() {
    let mut options = gpt3(true);
    options.model.num_layers = 4;
    let options = interleaved(with_layout(options, 2, 2, 1), 2, 2);
    let (plain, ..) = recomputed(&options, Recompute::Nothing);
    let method = RecomputeMethod::Uniform;
    let (again, compared, _) = recomputed(&options, Recompute::Full { method, layers: 1 });
    assert_eq!(plain, again);
    assert_eq!(compared, 11 * 4 * 4 * 2 * 2);
}

/// Negative control: a generator that is not set back gives other masks, and the first tensor that
/// shows them is named, with its microbatch.
#[test]
fn a_generator_that_is_not_restored_is_named() {
    let fault = |rank| PlantedFault::SkipCopy {
        rank,
        step: 0,
        op: RESTORE_RNG.to_string(),
        nth: 0,
    };
    let full = Recompute::Full {
        method: RecomputeMethod::Uniform,
        layers: 1,
    };
    for (recompute, first) in [
        (full, "decoder.layers.2.self_attention.context"),
        (
            selective(true, false, false),
            "decoder.layers.2.self_attention.core_attention.context",
        ),
    ] {
        let mut options = gpt3(true);
        options.recompute = recompute;
        let (corpus, initial) = (small_corpus(&options), Initial::Seeded(options.seed));
        let run = RunOptions {
            faults: vec![fault(1)],
            ..RunOptions::default()
        };
        let record = train_with(&options, &corpus, &initial, &run, 1);
        assert_eq!(record.faults_planted, 1);
        // What comes of it reaches the other tensor-parallel rank in the same wave.
        let mut drifts = record.drifts.iter();
        let drift = drifts
            .find(|drift| drift.ranks == (1, 1))
            .expect("a difference");
        assert_eq!(
            (drift.ranks, drift.microbatch, drift.step, &*drift.name),
            ((1, 1), Some(0), Some(0), first)
        );
    }
}
