//! Negative control of every named wait of the training program: without it a hazard is found. The
//! waits of which that is not so are listed. Another edge stands in for each:
//!
//! * a communicator's collectives run one after another, as on NCCL's stream, so that the wait for
//!   the last one covers those before, and the `start` of the first one those behind; messages to
//!   one rank, in one direction, do the same;
//! * at a step's beginning the host has read the data position, and so has waited for the compute
//!   stream: what it issues then is behind the optimizer.

mod harness;

use std::collections::BTreeSet;

use bitproof::fault::{Fault, FaultKind};
use bitproof::train::{Initial, TrainOptions};
use bitproof::world::{PlantedFault, RunOptions, RunRecord};
use harness::{as_gpt3, deep_options, interleaved, small_corpus, train_with, with_layout};

/// The second step gathers what the first one left.
const STEPS: u32 = 2;

fn run(options: &TrainOptions, drop: Option<&str>) -> RunRecord {
    let fault = |edge| PlantedFault::Named(Fault::everywhere(FaultKind::DropWait, edge));
    let run = RunOptions {
        hazard_steps_max: STEPS,
        list_faults: drop.is_none(),
        faults: drop.into_iter().map(fault).collect(),
        ..RunOptions::default()
    };
    let (corpus, initial) = (small_corpus(options), Initial::Seeded(7));
    train_with(options, &corpus, &initial, &run, STEPS)
}

/// All edges, and those whose wait can be left out unseen.
fn edges(options: &TrainOptions) -> (BTreeSet<String>, BTreeSet<String>) {
    let listed = run(options, None);
    assert!(listed.hazards.is_empty(), "{:#?}", listed.hazards);
    let hosts = listed.fault_hosts.into_keys();
    let waits = hosts.filter(|(kind, _)| *kind == FaultKind::DropWait);
    let names: BTreeSet<String> = waits.map(|(_, name)| name).collect();
    let is_unseen = |name: &&String| {
        let record = run(options, Some(name));
        assert!(record.faults_met.values().any(|count| *count > 0), "{name}");
        record.hazards.is_empty()
    };
    let unseen = names.iter().filter(is_unseen).cloned().collect();
    (names, unseen)
}

/// Reductions and gathers overlap, in buckets of about a layer.
fn overlapped(tp: u32, pp: u32, dp: u32, layers: u32) -> TrainOptions {
    let mut options = with_layout(deep_options(), tp, pp, dp);
    options.model.num_layers = layers;
    options.use_distributed_optimizer = true;
    options.overlap_grad_reduce = true;
    options.overlap_param_gather = true;
    options.ddp_bucket_size = Some(2500);
    options.global_batch_size = 2 * dp * 2;
    options
}

fn names_of(list: &[&str]) -> BTreeSet<String> {
    list.iter().map(|name| name.to_string()).collect()
}

fn has(names: &BTreeSet<String>, wanted: &[&str]) {
    for name in wanted {
        assert!(names.contains(*name), "{name} of {names:?}");
    }
}

#[test]
fn data_parallel() {
    let (names, unseen) = edges(&overlapped(1, 1, 2, 1));
    has(
        &names,
        &[
            "grad_reduce.bucket1",
            "grad_reduce.bucket1.start",
            "param_gather.bucket1",
            "param_gather.bucket1.start",
            "optimizer.norm_global",
        ],
    );
    let covered = ["grad_reduce.bucket0", "param_gather.bucket1.start"];
    assert_eq!(unseen, names_of(&covered));
}

/// What is waited for last on an instance's stream covers what was issued there before: of several
/// buckets' last waits each stands in for the others.
#[test]
fn optimizer_instances() {
    let mut options = overlapped(1, 1, 4, 1);
    options.layout.num_distributed_optimizer_instances = 2;
    let (names, unseen) = edges(&options);
    has(
        &names,
        &[
            "grad_reduce.bucket0.ready",
            "grad_reduce.bucket0",
            "instance_reduce.bucket0",
            "grad_reduce.bucket0.finish",
        ],
    );
    let finishes = names.iter().filter(|name| name.ends_with(".finish"));
    let finishes: BTreeSet<String> = finishes.cloned().collect();
    assert!(finishes.len() > 1);
    let mut covered = names_of(&["instance_reduce.bucket0", "param_gather.bucket1.start"]);
    covered.extend(finishes);
    assert_eq!(unseen, covered);
}

#[test]
fn interleaved_pipeline() {
    let (names, unseen) = edges(&interleaved(overlapped(1, 2, 2, 4), 2, 2));
    for chunk in [0, 1] {
        for op in [
            "send_forward",
            "recv_forward",
            "send_backward",
            "recv_backward",
        ] {
            let edge = format!("pipeline.chunk{chunk}.{op}");
            let start = format!("{edge}.start");
            has(&names, &[&edge, &start]);
        }
    }
    // The first stage reduces its second chunk, bucket 2, before the first one. A later send of the
    // other chunk goes the same way as the first chunk's.
    let covered = [
        "grad_reduce.bucket2",
        "param_gather.bucket1.start",
        "param_gather.bucket2.start",
        "pipeline.chunk0.send_backward",
    ];
    assert_eq!(unseen, names_of(&covered));
}

#[test]
fn tensor_and_pipeline_parallel() {
    let mut options = overlapped(2, 2, 1, 2);
    options.model.sequence_parallel = true;
    as_gpt3(&mut options);
    let (names, unseen) = edges(&options);
    has(
        &names,
        &[
            "pipeline.send_forward",
            "pipeline.recv_backward",
            "main_grad.layernorm.all_reduce",
            "main_grad.word_embeddings.all_reduce",
        ],
    );
    // Between these two sums of the loss nothing is computed.
    let covered = [
        "output_layer.cross_entropy.all_reduce_sum_exp.start",
        "output_layer.cross_entropy.all_reduce_target",
    ];
    assert_eq!(unseen, names_of(&covered));
}
