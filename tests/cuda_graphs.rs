//! CUDA graphs of layers: replays change no bit, every copy and every wait that stands around them
//! is needed and named, and gradients that are handed over as static buffers are found.

mod harness;

use std::path::Path;

use bitproof::diagnostic::Source;
use bitproof::fault::{Fault, FaultKind};
use bitproof::numerics::Dtype;
use bitproof::prove::outcome::{OracleResult, OracleVerdict, Outcome};
use bitproof::prove::{CheckOptions, Grade, Silent, check};
use bitproof::recipe::CudaGraphImpl;
use bitproof::scenario::{OracleKind, OriginClass, Overrides, Scenario};
use bitproof::train::{Initial, TrainOptions};
use bitproof::world::{Hazard, HazardKind, NodeRecord, Phase, PlantedFault, RunOptions, RunRecord};
use harness::{as_gpt3, deep_options, interleaved, small_corpus, train_with, trained, with_layout};
use proptest::prelude::*;

const STEPS: u32 = 3;

fn local(mut options: TrainOptions) -> TrainOptions {
    options.cuda_graph_impl = CudaGraphImpl::Local;
    options
}

/// Transformer Engine's graphs, after one eager step.
fn engine(mut options: TrainOptions) -> TrainOptions {
    options.cuda_graph_impl = CudaGraphImpl::TransformerEngine;
    options.cuda_graph_warmup_steps = 1;
    options
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(6)
    })]
    #[test]
    fn replays_change_no_bit(
        (tp, pp, dp) in prop_oneof![Just((1, 1, 1)), Just((1, 1, 2)), Just((2, 2, 2))],
        microbatches in 2u32..5,
        [bf16, gpt3, overlaps, chunks] in any::<[bool; 4]>(),
    ) {
        let mut plain = with_layout(deep_options(), tp, pp, dp);
        plain.global_batch_size = 2 * dp * microbatches;
        plain.model.sequence_parallel = tp > 1;
        if bf16 {
            plain.model.params_dtype = Dtype::Bf16;
        }
        if gpt3 {
            as_gpt3(&mut plain);
            plain.model.attention_dropout = 0.0;
            plain.model.hidden_dropout = 0.0;
        }
        if overlaps {
            plain.use_distributed_optimizer = true;
            plain.overlap_grad_reduce = true;
            plain.overlap_param_gather = true;
            plain.ddp_bucket_size = Some(1500);
        }
        if chunks && pp > 1 {
            plain.global_batch_size = 2 * dp * 4;
            plain = interleaved(plain, 2, 2);
        }
        let eager = trained(&plain, STEPS);
        prop_assert_eq!(trained(&local(plain.clone()), STEPS), eager.clone());
        if pp == 1 {
            prop_assert_eq!(trained(&engine(plain), STEPS), eager);
        }
    }
}

fn run(options: &TrainOptions, run: &RunOptions) -> RunRecord {
    let (corpus, initial) = (small_corpus(options), Initial::Seeded(7));
    train_with(options, &corpus, &initial, run, STEPS)
}

/// Nodes of rank 0.
fn nodes(options: &TrainOptions) -> Vec<NodeRecord> {
    let recording = RunOptions {
        record_nodes: true,
        ..RunOptions::default()
    };
    let records = run(options, &recording).records.into_iter();
    records.filter(|node| node.rank == 0).collect()
}

/// The copies around graphs of a step's second microbatch, in order.
fn copies(nodes: &[NodeRecord], step: u32, phase: Phase) -> Vec<String> {
    let own = nodes.iter().filter(|node| {
        let site = &node.site;
        site.step == step && site.microbatch == Some(1) && site.phase == phase
    });
    let named = own.filter(|node| node.site.module.ends_with(".cuda_graph"));
    named.map(|node| node.site.node()).collect()
}

/// What is copied, and from which step on.
#[test]
fn what_enters_and_what_outlives_a_replay_is_copied() {
    let at = |layer: u32, op: &str| format!("decoder.layers.{layer}.cuda_graph.{op}");
    let own = nodes(&local(deep_options()));
    assert!(copies(&own, 0, Phase::Forward).is_empty());
    assert!(copies(&own, 0, Phase::Backward).is_empty());
    for step in [1, 2] {
        let forward = copies(&own, step, Phase::Forward);
        assert_eq!(forward, [at(0, "input"), at(3, "output")]);
        let backward = copies(&own, step, Phase::Backward);
        assert_eq!(backward, [at(3, "grad_output")]);
    }
    let mut late = engine(deep_options());
    late.cuda_graph_warmup_steps = 2;
    let engines = nodes(&late);
    assert!(copies(&engines, 1, Phase::Forward).is_empty());
    let forward = copies(&engines, 2, Phase::Forward);
    assert_eq!(forward, [0, 1, 2, 3].map(|layer| at(layer, "input")));
    let backward = copies(&engines, 2, Phase::Backward);
    let of_first = backward.iter().filter(|copy| copy.contains("layers.0."));
    let of_first: Vec<&str> = of_first.map(String::as_str).collect();
    let parameters = [
        "grad_output",
        "self_attention.linear_proj.weight",
        "input_layernorm.weight",
        "self_attention.linear_qkv.weight",
        "pre_mlp_layernorm.weight",
        "mlp.linear_fc1.weight",
        "mlp.linear_fc2.weight",
    ];
    assert_eq!(of_first, parameters.map(|op| at(0, op)));
}

/// With pipeline stages each microbatch has a graph, and so memory, of its own.
#[test]
fn memory_is_that_of_one_graph_or_of_one_a_microbatch() {
    let words = |options: &TrainOptions, steps: u32| {
        let (corpus, initial) = (small_corpus(options), Initial::Seeded(7));
        let options = train_with(options, &corpus, &initial, &RunOptions::default(), steps);
        options.memory_words
    };
    let one = deep_options();
    let (eager, graphs) = (words(&one, 2), words(&local(one.clone()), 2));
    // What the eager steps had is given to the graphs.
    let hidden = u64::from(one.model.tokens() * one.model.hidden_size);
    assert!(
        graphs > eager && graphs - eager <= 4 * hidden,
        "{eager}, {graphs}"
    );
    assert_eq!(words(&local(one.clone()), 2), words(&local(one), 4));
    let mut staged = with_layout(deep_options(), 1, 2, 1);
    staged.global_batch_size = 12;
    let more = words(&local(staged.clone()), 2) - words(&staged, 2);
    staged.global_batch_size = 24;
    let twice = words(&local(staged.clone()), 2) - words(&staged, 2);
    assert!(twice > 2 * more, "{more}, {twice}");
}

fn with_fault(options: &TrainOptions, kind: FaultKind, at: &str) -> RunRecord {
    let planted = RunOptions {
        hazard_steps_max: STEPS,
        faults: vec![PlantedFault::Named(Fault::everywhere(kind, at))],
        ..RunOptions::default()
    };
    let record = run(options, &planted);
    assert!(
        record.faults_met.values().all(|count| *count > 0),
        "{at} is met"
    );
    record
}

/// Places of faults whose names have this in them.
fn hosts(options: &TrainOptions, kind: FaultKind, part: &str) -> Vec<String> {
    let listing = RunOptions {
        list_faults: true,
        ..RunOptions::default()
    };
    let hosts = run(options, &listing).fault_hosts.into_keys();
    let own = hosts.filter(|(found, name)| *found == kind && name.contains(part));
    own.map(|(_, name)| name).collect()
}

/// Without it the first replay reads a buffer that nothing has filled, or what another layer or an
/// earlier step has left there.
#[test]
fn every_copy_around_a_graph_is_needed() {
    for (options, count) in [(local(deep_options()), 3), (engine(deep_options()), 32)] {
        let copies = hosts(&options, FaultKind::SkipCopy, ".cuda_graph.");
        assert_eq!(copies.len(), count, "{copies:?}");
        let sound = run(&options, &RunOptions::default());
        for copy in copies {
            let record = with_fault(&options, FaultKind::SkipCopy, &copy);
            let unwritten = |hazard: &Hazard| hazard.kind == HazardKind::UninitialisedRead;
            let found = &record.hazards;
            let last_layer = copy.contains("layers.3.") && !copy.ends_with("weight");
            if last_layer || copy.ends_with(".input") {
                assert!(found.iter().any(unwritten), "{copy}: {found:#?}");
            } else {
                assert!(found.is_empty(), "{copy}: {found:#?}");
                assert_ne!(record.metrics, sound.metrics, "{copy}");
            }
        }
    }
}

/// Two data-parallel ranks, a bucket for each layer and each end.
fn overlapping() -> TrainOptions {
    let mut options = with_layout(deep_options(), 1, 1, 2);
    options.overlap_grad_reduce = true;
    options.use_distributed_optimizer = true;
    options.ddp_bucket_size = Some(1500);
    local(options)
}

/// A bucket's reduction waits for the last replay that made one of its gradients; an earlier one of
/// the same bucket is over by then, as graphs run in the order of their stream.
#[test]
fn reductions_wait_for_the_replays_of_their_buckets() {
    let options = overlapping();
    let edges = hosts(&options, FaultKind::DropWait, ".wgrad_ready");
    let layers = 0..options.model.num_layers;
    let all: Vec<String> = layers
        .map(|layer| format!("decoder.layers.{layer}.cuda_graph.wgrad_ready"))
        .collect();
    assert_eq!(edges, all);
    for edge in &edges {
        let found = with_fault(&options, FaultKind::DropWait, edge).hazards;
        let named = |hazard: &Hazard| hazard.edge.as_deref() == Some(&**edge);
        assert!(found.iter().any(named), "{edge}: {found:#?}");
    }
    let mut one_bucket = options;
    one_bucket.ddp_bucket_size = None;
    // Autograd orders the hook of the embedding's gradient, which is the last, behind all of them.
    for edge in &edges {
        let found = with_fault(&one_bucket, FaultKind::DropWait, edge).hazards;
        assert!(found.is_empty(), "{edge}: {found:#?}");
    }
    let edge = "grad_reduce.bucket0.autograd";
    let found = with_fault(&one_bucket, FaultKind::DropWait, edge).hazards;
    let named = |hazard: &Hazard| hazard.edge.as_deref() == Some(edge);
    assert!(found.iter().any(named), "{found:#?}");
}

const SCENARIO: &str = "
name = 'x'
steps = 3
oracles = ['R2R', 'RES', 'XR', 'REF', 'TOPO']
[recipe]
world_size = 4
num_layers = 3
hidden_size = 16
num_attention_heads = 2
seq_length = 16
micro_batch_size = 1
global_batch_size = 12
train_iters = 3
lr = 5e-3
bf16 = true
use_distributed_optimizer = true
cuda_graph_warmup_steps = 1
[checkpoint]
restarts = [[1], [2]]
[[topo]]
name = 'eager'
recipe.cuda_graph_impl = 'none'
";

fn scenario(recipe: &str, more: &str) -> String {
    let keys = format!("[recipe]\n{recipe}\n");
    format!("{}{more}", SCENARIO.replace("[recipe]\n", &keys))
}

fn checked(recipe: &str, more: &str) -> Outcome {
    let source = Source::new("graphs.toml", scenario(recipe, more));
    let path = Path::new("graphs.toml");
    let loaded = Scenario::from_source(&source, path, &Overrides::default());
    let loaded = loaded.unwrap_or_else(|findings| panic!("{findings:#?}"));
    check(loaded.scenario, CheckOptions::default(), &Silent).expect("it can be checked")
}

const OURS: &str = "cuda_graph_impl = 'local'";
const ENGINES: &str = "cuda_graph_impl = 'transformer_engine'";

#[test]
fn replays_are_proved_and_equal_the_eager_job() {
    for recipe in [
        ENGINES.to_string(),
        format!("{OURS}\noverlap_grad_reduce = true\nddp_bucket_size = 2000"),
        format!("{OURS}\npipeline_model_parallel_size = 2\nnum_layers = 4"),
    ] {
        let text = scenario(&recipe, "");
        let text = match recipe.contains("num_layers") {
            true => text.replace("num_layers = 3\n", ""),
            false => text,
        };
        let source = Source::new("graphs.toml", text);
        let loaded =
            Scenario::from_source(&source, Path::new("graphs.toml"), &Overrides::default());
        let loaded = loaded.unwrap_or_else(|findings| panic!("{findings:#?}"));
        let outcome = check(loaded.scenario, CheckOptions::default(), &Silent);
        let outcome = outcome.expect("it can be checked");
        assert_eq!(outcome.grade(), Grade::Proved, "{:#?}", outcome.origin);
        let mut results = outcome.oracles.iter();
        assert!(results.all(|result| result.verdict == OracleVerdict::Equal));
    }
}

fn named(outcome: &Outcome, expected: (OracleKind, OriginClass), said: &[&str]) {
    assert_eq!(outcome.grade(), Grade::Divergent);
    let origin = outcome.origin.as_ref().expect("it has an origin");
    let found = (origin.oracle, origin.class);
    assert_eq!(found, expected, "{}", origin.what);
    for word in said {
        assert!(origin.what.contains(word), "{}", origin.what);
    }
}

/// The first step is eager, and right; the second adds the gradient of its last microbatch as often
/// as it has microbatches.
#[test]
fn gradients_handed_over_as_static_buffers_are_found() {
    let fault = "[fault]\naliased_slots = 'decoder.layers.1.cuda_graph'\n";
    let outcome = checked(ENGINES, fault);
    let wrong = (OracleKind::REF, OriginClass::WrongContribution);
    let said = [
        "step 2",
        "decoder.layers.1.",
        "lacks microbatch 0",
        "more than once",
    ];
    named(&outcome, wrong, &said);
}

/// Megatron-LM's own graphs hand no gradient over.
#[test]
fn faults_are_listed_where_they_can_act() {
    let part = ".cuda_graph";
    let places = |options: TrainOptions| hosts(&options, FaultKind::AliasedSlots, part);
    assert!(places(local(deep_options())).is_empty());
    let layers = [0, 1, 2, 3].map(|layer| format!("decoder.layers.{layer}.cuda_graph"));
    assert_eq!(places(engine(deep_options())), layers);
    let mut one = engine(deep_options());
    one.global_batch_size = 2;
    assert!(places(one).is_empty());
}

/// A copy that never happens from the second replay on: what the step before left is read.
#[test]
fn a_stale_static_input_is_wrong_and_not_only_unordered() {
    let fault = "[fault]\nskip_copy = { at = 'decoder.layers.0.cuda_graph.input', step = 3 }\n";
    let outcome = checked(OURS, fault);
    // Resumed after step 1, a process replays first in step 3: nothing is left there to be read.
    let unwritten = (OracleKind::R2R, OriginClass::UninitialisedRead);
    named(&outcome, unwritten, &["step 3"]);
    let mut results = outcome.oracles.iter();
    let of_values = results.find(|result| result.oracle == OracleKind::REF);
    let verdict = of_values.map(|result| result.verdict);
    assert_eq!(verdict, Some(OracleVerdict::Different));
}

/// A resumed process is eager where the straight one replays: other copies, another order. That is
/// no difference; a replay that is wrong is one, named by a node that both launch.
#[test]
fn a_resumed_process_is_compared_through_its_eager_steps() {
    let at = "decoder.layers.0.cuda_graph.grad_output";
    let fault = format!("[fault]\nskip_copy = {{ at = '{at}', step = 2 }}\n");
    let outcome = checked(ENGINES, &fault);
    assert!(outcome.hazards.is_empty());
    let resumed = |result: &&OracleResult| result.oracle == OracleKind::RES;
    let result = outcome.oracles.iter().find(resumed).expect("it was asked");
    assert_eq!(result.verdict, OracleVerdict::Different);
    let detail = result.detail.as_deref().unwrap_or_default();
    let said = "restarts [1]: bits part at step 2, microbatch 0, backward, decoder.layers.0";
    assert!(detail.contains(said), "{detail}");
}

#[test]
fn a_check_that_replays_nothing_is_refused() {
    let short = scenario(OURS, "").replace("steps = 3", "steps = 1");
    let late = scenario(ENGINES, "").replace("warmup_steps = 1", "warmup_steps = 3");
    for text in [short, late] {
        let source = Source::new("graphs.toml", text);
        let loaded =
            Scenario::from_source(&source, Path::new("graphs.toml"), &Overrides::default());
        let findings = loaded.expect_err("it is refused");
        let said = |code: &str| findings.iter().any(|found| found.code == code);
        assert!(said("nothing-replayed"), "{findings:#?}");
    }
}
