//! Communication that overlaps with computation: it does overlap, it changes no bit, and correct
//! programs have no hazard in it. That its waits are needed is tried in `edges.rs`.

mod harness;

use std::collections::BTreeMap;

use bitproof::numerics::Dtype;
use bitproof::train::{Initial, TrainOptions, Trainer};
use bitproof::world::{NodeRecord, Phase, Rank, RankError, RunOptions};
use harness::{
    as_gpt3, deep_options, interleaved, small_corpus, small_options, train, train_with, with_layout,
};
use proptest::prelude::*;

const STEPS: u32 = 3;

/// Every parameter of the rank, in the order of its modules: wherever each lies in the flat buffer.
fn read_parameters(rank: &mut Rank, trainer: &Trainer, _: u32) -> Result<Vec<u32>, RankError> {
    let store = trainer.store();
    let mut words = Vec::new();
    for (parameter, offset) in store.parameters.iter().zip(&store.offsets) {
        let value = store.values.slice(*offset, parameter.len());
        words.extend(rank.read("parameter", value)?);
    }
    Ok(words)
}

/// Bits by (step, name).
type Metrics = BTreeMap<(u32, String), u32>;

/// Parameters of each rank after the last step, and metrics. The run has no hazard in its first two
/// steps and no copies that drift.
fn trained(options: &TrainOptions) -> (BTreeMap<u32, Vec<u32>>, Metrics) {
    let (corpus, initial) = (small_corpus(options), Initial::Seeded(7));
    let (record, mut seen) = train(options, &corpus, &initial, STEPS, read_parameters);
    assert_eq!(record.drifts, []);
    let metrics = record.metrics.into_iter();
    let metrics = metrics.map(|(key, value)| (key, value.to_bits())).collect();
    (seen.remove(&(STEPS - 1)).expect("it ran"), metrics)
}

/// Overlap of both kinds, with buckets of `bucket` elements.
fn overlapped(mut options: TrainOptions, bucket: u32) -> TrainOptions {
    options.overlap_grad_reduce = true;
    options.overlap_param_gather = options.use_distributed_optimizer;
    options.ddp_bucket_size = Some(bucket);
    options
}

/// Data-parallel ranks with the distributed optimizer. Norms add bucket by bucket, so that nothing
/// is clipped here.
fn sharded(tp: u32, pp: u32, dp: u32) -> TrainOptions {
    let mut options = with_layout(deep_options(), tp, pp, dp);
    options.use_distributed_optimizer = true;
    options.clip_grad = 0.0;
    options.global_batch_size = 2 * dp * 4;
    options
}

#[derive(Clone, Debug)]
struct Layout {
    /// tp, pp, chunks, dp, instances.
    sizes: (u32, u32, u32, u32, u32),
    microbatches: u32,
    switches: [bool; 5],
    bucket: u32,
}

fn layout() -> impl Strategy<Value = Layout> {
    let sizes = prop_oneof![
        Just((1, 1, 1, 3, 1)),
        Just((2, 1, 1, 2, 1)),
        Just((1, 1, 1, 4, 2)),
        Just((1, 2, 1, 2, 1)),
        Just((2, 2, 2, 2, 1)),
        Just((1, 2, 2, 4, 2)),
    ];
    (sizes, 1u32..4, any::<[bool; 5]>(), 300u32..3000).prop_map(
        |(sizes, microbatches, switches, bucket)| Layout {
            sizes,
            // An interleaved pipeline is filled by groups of two.
            microbatches: match sizes.2 {
                1 => microbatches,
                _ => 2 * microbatches,
            },
            switches,
            bucket,
        },
    )
}

fn options_of(layout: &Layout) -> TrainOptions {
    let (tp, pp, chunks, dp, instances) = layout.sizes;
    let [sequence_parallel, bf16, narrow, gpt3, sharded_too] = layout.switches;
    let mut options = sharded(tp, pp, dp);
    options.use_distributed_optimizer = sharded_too || instances > 1;
    options.layout.num_distributed_optimizer_instances = instances;
    options.global_batch_size = 2 * dp * layout.microbatches;
    options.model.sequence_parallel = sequence_parallel;
    if narrow {
        options.reduce_dtype = Dtype::Bf16;
    }
    if bf16 {
        options.model.params_dtype = Dtype::Bf16;
    }
    if gpt3 {
        as_gpt3(&mut options);
    }
    match chunks {
        1 => options,
        _ => interleaved(options, chunks, 2),
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(5)
    })]
    /// The plans of these runs are chains in the order of the group, whatever a bucket's size.
    #[test]
    fn overlap_changes_no_bit(layout in layout(), aligned in any::<bool>()) {
        let plain = options_of(&layout);
        let mut both = overlapped(plain.clone(), layout.bucket);
        (both.align_grad_reduce, both.align_param_gather) = (aligned, aligned);
        let expected = trained(&plain);
        prop_assert_eq!(&trained(&both), &expected);
        both.overlap_param_gather = false;
        both.align_grad_reduce = !aligned;
        prop_assert_eq!(&trained(&both), &expected);
    }
}

/// Nodes of one rank and step.
fn nodes(options: &TrainOptions, rank: u32, step: u32) -> Vec<NodeRecord> {
    let (corpus, initial) = (small_corpus(options), Initial::Seeded(7));
    let run = RunOptions {
        record_nodes: true,
        ..RunOptions::default()
    };
    let record = train_with(options, &corpus, &initial, &run, STEPS);
    let nodes = record.records.into_iter();
    nodes
        .filter(|node| (node.rank, node.site.step) == (rank, step))
        .collect()
}

fn waves(nodes: &[NodeRecord], is_one: impl Fn(&NodeRecord) -> bool) -> Vec<u32> {
    let found = nodes.iter().filter(|node| is_one(node));
    found.map(|node| node.wave).collect()
}

fn is_reduction(node: &NodeRecord) -> bool {
    node.site.module.starts_with("ddp.bucket") && node.site.op == *"reduce_scatter"
}

fn is_gather(node: &NodeRecord) -> bool {
    node.site.module.starts_with("ddp.bucket") && node.site.op == *"all_gather"
}

/// Reductions run between kernels of the last backward, gathers between those of the next forward;
/// without the switches they come after.
#[test]
fn communication_overlaps_with_computation() {
    let plain = sharded(1, 1, 2);
    let both = overlapped(plain.clone(), 1000);
    for (options, overlaps) in [(plain, false), (both, true)] {
        let nodes = nodes(&options, 0, 1);
        let reductions = waves(&nodes, is_reduction);
        let backward = waves(&nodes, |node| node.site.phase == Phase::Backward);
        let early = reductions
            .iter()
            .filter(|wave| Some(*wave) < backward.iter().max());
        assert_eq!(early.count() > 1, overlaps, "{reductions:?}");
        let forward = waves(&nodes, |node| node.site.phase == Phase::Forward);
        let (first, last) = (forward.iter().min(), forward.iter().max());
        let gathers = waves(&nodes, is_gather);
        let between = gathers
            .iter()
            .filter(|wave| first < Some(*wave) && Some(*wave) < last);
        assert_eq!(between.count() > 1, overlaps, "{gathers:?}");
        assert_eq!(gathers.len(), reductions.len(), "each bucket once");
    }
}

/// A process's first step has nothing to gather, nor has one after parameters were saved.
#[test]
fn what_is_whole_is_not_gathered_again() {
    let options = overlapped(sharded(1, 1, 2), 1000);
    let gathers = |step| waves(&nodes(&options, 0, step), is_gather).len();
    let buckets = gathers(1);
    assert!(buckets > 2);
    assert_eq!(gathers(0), 0);
    assert_eq!(
        gathers(STEPS - 1),
        2 * buckets,
        "its own, and the last save's"
    );
}

/// Messages have buffers of their own, which are given back in each step.
#[test]
fn messages_take_no_more_memory_with_time() {
    for chunks in [1, 2] {
        let mut options = sharded(1, 2, 1);
        if chunks > 1 {
            options = interleaved(options, chunks, 2);
        }
        let (corpus, initial) = (small_corpus(&options), Initial::Seeded(7));
        let words = |steps| {
            let run = RunOptions::default();
            train_with(&options, &corpus, &initial, &run, steps).memory_words
        };
        assert_eq!(words(1), words(3));
    }
}

/// The ends of a pipeline of one stage keep their memory: nothing is sent.
#[test]
fn one_stage_sends_nothing() {
    let options = small_options();
    let nodes = nodes(&options, 0, 1);
    assert!(waves(&nodes, |node| node.site.module.starts_with("pipeline")).is_empty());
    let two = with_layout(small_options(), 1, 2, 1);
    let found = self::nodes(&two, 1, 1);
    assert!(!waves(&found, |node| node.site.module.starts_with("pipeline")).is_empty());
}
