//! Activations that wait on the host: no bit changes, memory on the device is given back and taken
//! again, and each wait that orders the copies is needed and named.

mod harness;

use std::collections::BTreeSet;
use std::path::Path;

use bitproof::diagnostic::Source;
use bitproof::fault::{Fault, FaultKind};
use bitproof::numerics::Dtype;
use bitproof::prove::outcome::{OracleVerdict, Outcome};
use bitproof::prove::{CheckOptions, Grade, Silent, check};
use bitproof::scenario::{OracleKind, OriginClass, Overrides, Scenario};
use bitproof::train::{Initial, TrainOptions};
use bitproof::world::{Hazard, HazardKind, NodeRecord, Phase, PlantedFault, RunOptions, RunRecord};
use harness::{as_gpt3, deep_options, small_corpus, train_with, trained, with_layout};
use proptest::prelude::*;

const STEPS: u32 = 2;

/// `offloaded` of four layers.
fn offloading(mut options: TrainOptions, offloaded: u32) -> TrainOptions {
    options.cpu_offloading_num_layers = offloaded;
    options
}

/// The same through two reload buffers.
fn in_turn(mut options: TrainOptions) -> TrainOptions {
    options.cpu_offloading_double_buffering = true;
    options
}

proptest! {
    #![proptest_config(ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(4)
    })]
    #[test]
    fn offloading_changes_no_bit(
        (tp, dp) in prop_oneof![Just((1, 1)), Just((1, 2)), Just((2, 2))],
        microbatches in 1u32..4,
        offloaded in 1u32..4,
        [bf16, gpt3, overlaps] in any::<[bool; 3]>(),
    ) {
        let mut plain = with_layout(deep_options(), tp, 1, dp);
        plain.global_batch_size = 2 * dp * microbatches;
        plain.model.sequence_parallel = tp > 1;
        if bf16 {
            plain.model.params_dtype = Dtype::Bf16;
        }
        if gpt3 {
            as_gpt3(&mut plain);
        }
        if overlaps {
            plain.use_distributed_optimizer = true;
            plain.overlap_grad_reduce = true;
            plain.overlap_param_gather = true;
            plain.ddp_bucket_size = Some(1500);
        }
        let expected = trained(&plain, STEPS);
        let offloading = offloading(plain, offloaded);
        prop_assert_eq!(trained(&offloading, STEPS), expected.clone());
        prop_assert_eq!(trained(&in_turn(offloading), STEPS), expected);
    }
}

fn run(options: &TrainOptions, run: &RunOptions, steps: u32) -> RunRecord {
    let (corpus, initial) = (small_corpus(options), Initial::Seeded(7));
    train_with(options, &corpus, &initial, run, steps)
}

/// Fewer layers stay on the device, and each microbatch takes the memory of the one before.
#[test]
fn memory_on_the_device_is_given_back() {
    let peak = |offloaded| {
        let options = offloading(deep_options(), offloaded);
        run(&options, &RunOptions::default(), 1).peak_bytes[&0]
    };
    let peaks = [0, 1, 2, 3].map(peak);
    let saved: Vec<u64> = peaks.windows(2).map(|pair| pair[0] - pair[1]).collect();
    // Each layer that leaves takes as much with it.
    assert!(saved[0] > 0 && saved[0] == saved[1], "{peaks:?}");
    assert_eq!(saved[1], saved[2], "{peaks:?}");
    let options = offloading(deep_options(), 2);
    let words = |steps| run(&options, &RunOptions::default(), steps).memory_words;
    assert_eq!(words(1), words(3));
}

/// Nodes of one microbatch.
fn nodes(options: &TrainOptions) -> Vec<NodeRecord> {
    let recording = RunOptions {
        record_nodes: true,
        ..RunOptions::default()
    };
    let records = run(options, &recording, 1).records.into_iter();
    records
        .filter(|node| node.rank == 0 && node.site.microbatch == Some(1))
        .collect()
}

/// First and last wave of what `module` and all below it did in `phase`.
fn waves(nodes: &[NodeRecord], phase: Phase, module: &str) -> (u32, u32) {
    let inside = |node: &&NodeRecord| {
        node.site.phase == phase
            && (*node.site.module == *module || node.site.module.starts_with(&format!("{module}.")))
    };
    let found: Vec<u32> = nodes.iter().filter(inside).map(|node| node.wave).collect();
    let ends = found.iter().min().zip(found.iter().max());
    let (first, last) = ends.unwrap_or_else(|| panic!("{module} does nothing"));
    (*first, *last)
}

/// Kernels of the next layer run before the copies of a layer are over, and kernels of the layer
/// behind before it is back.
#[test]
fn copies_overlap_with_computation() {
    let nodes = nodes(&offloading(deep_options(), 2));
    for layer in 0..2u32 {
        let of = |phase, layer: u32, part: &str| {
            waves(&nodes, phase, &format!("decoder.layers.{layer}.{part}"))
        };
        let copies = of(Phase::Forward, layer, "offload");
        let own = of(Phase::Forward, layer, "mlp");
        let beside = of(Phase::Forward, layer + 1, "self_attention");
        let behind = of(Phase::Forward, layer + 2, "self_attention");
        assert!(own.1 < copies.0 && beside.0 < copies.1 && copies.1 < behind.0);
        let copies = of(Phase::Backward, layer, "reload");
        let own = of(Phase::Backward, layer, "mlp");
        let beside = of(Phase::Backward, layer + 1, "mlp");
        assert!(beside.0 < copies.1 && copies.1 < own.0);
    }
    let copied = |nodes: &[NodeRecord]| -> BTreeSet<String> {
        let modules = nodes.iter().map(|node| node.site.module.to_string());
        let is_copied = |module: &String| module.ends_with("load");
        modules.filter(is_copied).collect()
    };
    let expected = ["0.offload", "0.reload", "1.offload", "1.reload"];
    let expected = expected.map(|module| format!("decoder.layers.{module}"));
    assert_eq!(copied(&nodes), expected.into());
    assert_eq!(copied(&self::nodes(&deep_options())), BTreeSet::new());
}

fn with_fault(options: &TrainOptions, kind: FaultKind, at: &str) -> RunRecord {
    let planted = RunOptions {
        hazard_steps_max: STEPS,
        faults: vec![PlantedFault::Named(Fault::everywhere(kind, at))],
        ..RunOptions::default()
    };
    let record = run(options, &planted, STEPS);
    assert!(
        record.faults_met.values().all(|count| *count > 0),
        "{at} is met"
    );
    record
}

/// Without any one of the four waits of a layer there is a hazard that names it.
#[test]
fn every_wait_is_needed_and_named() {
    let listing = RunOptions {
        list_faults: true,
        ..RunOptions::default()
    };
    for (tp, offloaded) in [(1, 3), (2, 1)] {
        let mut options = offloading(with_layout(deep_options(), tp, 1, 1), offloaded);
        options.model.sequence_parallel = tp > 1;
        let hosts = run(&options, &listing, STEPS).fault_hosts;
        let edges = hosts.into_keys().filter_map(|(kind, name)| {
            let is_wait = kind == FaultKind::DropWait;
            let is_ours = name.contains(".offload") || name.contains(".reload");
            (is_wait && is_ours).then_some(name)
        });
        let edges: Vec<String> = edges.collect();
        assert_eq!(edges.len() as u32, 4 * offloaded, "{edges:?}");
        for edge in edges {
            let (layer, wait) = edge.split_at("decoder.layers.0".len());
            assert!(layer.starts_with("decoder.layers."));
            let kind = match wait {
                ".offload" | ".reload.done" => HazardKind::ReadBeforeComplete,
                ".offload.done" | ".reload" => HazardKind::ReuseWhileInUse,
                other => panic!("{other}"),
            };
            let found = with_fault(&options, FaultKind::DropWait, &edge).hazards;
            let named =
                |hazard: &Hazard| hazard.kind == kind && hazard.edge.as_deref() == Some(&*edge);
            assert!(found.iter().any(named), "{edge}: {found:#?}");
            // A collective that wrote a part of it can be waited for as well.
            let is_apart = |hazard: &&Hazard| {
                let is_of_a_collective = hazard.first.stream.starts_with("the stream of");
                let is_unwritten = hazard.kind == HazardKind::UninitialisedRead;
                hazard.edge.as_deref() != Some(&*edge) && !is_of_a_collective && !is_unwritten
            };
            let apart: Vec<&Hazard> = found.iter().filter(is_apart).collect();
            assert!(apart.is_empty(), "{edge}: {apart:#?}");
        }
    }
}

/// A tensor that never went, or never came back, is read as its memory was left.
#[test]
fn every_copy_is_needed() {
    let options = offloading(deep_options(), 1);
    let copies = ["input", "self_attention.qkv", "mlp.fc1", "residual"];
    for copy in copies {
        for way in ["offload", "reload"] {
            let at = format!("decoder.layers.0.{way}.{copy}");
            let record = with_fault(&options, FaultKind::SkipCopy, &at);
            let unwritten = |hazard: &Hazard| hazard.kind == HazardKind::UninitialisedRead;
            assert!(
                record.hazards.iter().any(unwritten),
                "{at}: {:#?}",
                record.hazards
            );
        }
    }
}

const SCENARIO: &str = "
name = 'x'
steps = 2
oracles = ['R2R', 'RES', 'XR', 'REF', 'TOPO']
[recipe]
world_size = 4
num_layers = 3
hidden_size = 16
num_attention_heads = 2
seq_length = 16
micro_batch_size = 1
global_batch_size = 12
train_iters = 2
lr = 5e-3
bf16 = true
use_distributed_optimizer = true
cpu_offloading_num_layers = 1
[checkpoint]
restarts = [[1]]
";

/// The same without offloading, as another shape of the job.
const RESIDENT: &str = "[[topo]]\nname = 'resident'\nrecipe.cpu_offloading_num_layers = 0\n";

fn checked(more: &str) -> Outcome {
    let source = Source::new("offload.toml", format!("{SCENARIO}{RESIDENT}{more}"));
    let path = Path::new("offload.toml");
    let loaded = Scenario::from_source(&source, path, &Overrides::default());
    let loaded = loaded.unwrap_or_else(|findings| panic!("{findings:#?}"));
    check(loaded.scenario, CheckOptions::default(), &Silent).expect("it can be checked")
}

#[test]
fn offloading_is_proved_and_equals_the_same_job_without() {
    let outcome = checked("");
    assert_eq!(outcome.grade(), Grade::Proved, "{:#?}", outcome.origin);
    let mut results = outcome.oracles.iter();
    assert!(results.all(|result| result.verdict == OracleVerdict::Equal));
}

/// What a freed block's next owner writes reaches the host in place of the activation.
#[test]
fn memory_given_back_too_early_parts_bits() {
    let outcome = checked("[fault]\ndrop_wait = 'decoder.layers.0.offload.done'\n");
    assert_eq!(outcome.grade(), Grade::Divergent);
    let origin = outcome.origin.expect("it has an origin");
    let found = (origin.oracle, origin.class);
    assert_eq!(
        found,
        (OracleKind::R2R, OriginClass::BufferLifetime),
        "{}",
        origin.what
    );
    assert!(
        origin.what.contains("decoder.layers.0.offload.done"),
        "{}",
        origin.what
    );
}

/// Layers that take turns with a buffer in one pass: what comes back waits for the backward that
/// read it last. Elsewhere the copies' own stream orders it: behind those of the layer between,
/// which waited for that backward where none comes back ahead, or behind a later forward's copies.
#[test]
fn buffers_that_take_turns_need_their_waits() {
    for (layers, is_ahead) in [(5, true), (4, false)] {
        let offloaded = 3;
        let mut options = in_turn(offloading(deep_options(), offloaded));
        options.model.num_layers = layers;
        for layer in 0..offloaded {
            let edge = format!("decoder.layers.{layer}.reload");
            let found = with_fault(&options, FaultKind::DropWait, &edge).hazards;
            let named = |hazard: &Hazard| {
                let buffer = hazard.buffer.as_deref().unwrap_or_default();
                hazard.kind == HazardKind::WriteAfterRead
                    && hazard.edge.as_deref() == Some(&*edge)
                    && buffer.starts_with(&format!("reload_buffer{}", layer % 2))
                    && hazard.first.site.phase == Phase::Backward
            };
            match is_ahead && layer + 2 < offloaded {
                true => assert!(found.iter().any(named), "{edge}: {found:#?}"),
                false => assert!(found.is_empty(), "{edge}: {found:#?}"),
            }
            let done = format!("{edge}.done");
            let found = with_fault(&options, FaultKind::DropWait, &done).hazards;
            let named = |hazard: &Hazard| hazard.edge.as_deref() == Some(&*done);
            assert!(found.iter().any(named), "{done}: {found:#?}");
        }
        // A layer that comes back in its own turn only shares nothing with the one before.
        let listing = RunOptions {
            list_faults: true,
            ..RunOptions::default()
        };
        let hosts = run(&options, &listing, 1).fault_hosts;
        let place = (FaultKind::ResetIndex, "reload_buffer".to_string());
        assert_eq!(hosts.contains_key(&place), is_ahead, "{offloaded}");
    }
}

/// Both buffers are one: a layer comes back over what the one behind is reading.
#[test]
fn an_index_that_starts_anew_makes_the_buffers_one() {
    let options = in_turn(offloading(deep_options(), 2));
    let found = with_fault(&options, FaultKind::ResetIndex, "reload_buffer").hazards;
    assert!(!found.is_empty());
    let pair = |hazard: &Hazard| {
        let sides = [&hazard.first.site, &hazard.second.site];
        let has = |part: &str| sides.iter().any(|site| site.module.contains(part));
        has("decoder.layers.0.reload") && has("decoder.layers.1.")
    };
    assert!(found.iter().any(pair), "{found:#?}");
    assert!(found.iter().all(|hazard| {
        let buffer = hazard.buffer.as_deref().unwrap_or_default();
        buffer.starts_with("reload_buffer0")
    }));
}

const IN_TURN: &str = "cpu_offloading_num_layers = 2\ncpu_offloading_double_buffering = true";

fn checked_in_turn(more: &str) -> Outcome {
    let recipe = SCENARIO.replace("cpu_offloading_num_layers = 1", IN_TURN);
    let recipe = recipe.replace("num_layers = 3", "num_layers = 4");
    let source = Source::new("offload.toml", format!("{recipe}{RESIDENT}{more}"));
    let loaded = Scenario::from_source(&source, Path::new("offload.toml"), &Overrides::default());
    let loaded = loaded.unwrap_or_else(|findings| panic!("{findings:#?}"));
    check(loaded.scenario, CheckOptions::default(), &Silent).expect("it can be checked")
}

#[test]
fn buffers_that_take_turns_are_proved_and_one_buffer_is_not() {
    let outcome = checked_in_turn("");
    assert_eq!(outcome.grade(), Grade::Proved, "{:#?}", outcome.origin);
    let mut results = outcome.oracles.iter();
    assert!(results.all(|result| result.verdict == OracleVerdict::Equal));
    let outcome = checked_in_turn("[fault]\nreset_index = 'reload_buffer'\n");
    assert_eq!(outcome.grade(), Grade::Divergent);
    let origin = outcome.origin.expect("it has an origin");
    assert_eq!(origin.class, OriginClass::MissingWait, "{}", origin.what);
    assert!(origin.what.contains("reload_buffer0"), "{}", origin.what);
}
