//! Sound layouts are within their bounds; each fault that is wrong everywhere alike is found.

use std::path::Path;

use super::bound::{Scales, gamma};
use super::*;
use crate::diagnostic::Source;
use crate::prove::CheckOptions;
use crate::prove::oracle::reference::follow;
use crate::scenario::Overrides;
use crate::world::RunOptions;

/// TP 2 x DP 2, two layers.
const RECIPE: &str = "world_size = 4\ntensor_model_parallel_size = 2\nsequence_parallel = true\n\
    num_layers = 2\nhidden_size = 16\nffn_hidden_size = 32\nnum_attention_heads = 2\n\
    seq_length = 16\nmicro_batch_size = 1\nglobal_batch_size = 8\ntrain_iters = 6\nlr = 5e-3\n\
    clip_grad = 1.0\nbf16 = true\nuse_distributed_optimizer = true\n";

fn session(set: &[&str]) -> Session {
    let source = Source::new("case.toml", format!("steps = 3\n[recipe]\n{RECIPE}"));
    let overrides = Overrides {
        set: set.iter().map(|text| text.to_string()).collect(),
        ..Overrides::default()
    };
    let loaded = Scenario::from_source(&source, Path::new("case.toml"), &overrides);
    let loaded = loaded.unwrap_or_else(|findings| panic!("{set:?}: {findings:?}"));
    Session::new(loaded.scenario, &CheckOptions::default()).expect("it can be run")
}

fn values(set: &[&str]) -> Values {
    let found = follow(&mut session(set), &RunOptions::default());
    found.expect("it runs").values
}

#[test]
fn sound_layouts_are_within_their_bounds() {
    for set in [
        &[][..],
        &["recipe.bf16=false"],
        &[
            "recipe.sequence_parallel=false",
            "recipe.use_distributed_optimizer=false",
        ],
        &[
            "recipe.pipeline_model_parallel_size=2",
            "recipe.tensor_model_parallel_size=1",
            "recipe.sequence_parallel=false",
            "recipe.untie_embeddings_and_output_weights=false",
        ],
        &[
            "recipe.accumulate_allreduce_grads_in_fp32=false",
            "recipe.grad_reduce_in_bf16=true",
        ],
        &[
            "recipe.swiglu=false",
            "recipe.disable_bias_linear=false",
            "recipe.normalization=\"LayerNorm\"",
            "recipe.position_embedding_type=\"learned_absolute\"",
        ],
        &[
            "recipe.clip_grad=0.0",
            "recipe.epoch_samples=5",
            "recipe.num_workers=2",
        ],
    ] {
        let found = values(set);
        assert_eq!(found.finding(), None, "{set:?}");
        assert_eq!(
            (found.steps, &found.not_compared[..]),
            (2, &[][..]),
            "{set:?}"
        );
        assert!(found.elements() > 10_000, "{set:?}");
        // Room is left, and something was rounded otherwise.
        let closest = found.closest().expect("something was compared");
        assert!(
            (1e-6..0.7).contains(&closest.ratio()),
            "{set:?}: {closest:?}"
        );
        let quantities = found.compared.iter().map(|tensor| tensor.quantity);
        let kinds: std::collections::BTreeSet<Quantity> = quantities.collect();
        assert_eq!(kinds.len(), 5 + 7, "{set:?}: {kinds:?}");
    }
}

/// Parameters that the next step's forward gathers are compared through that forward.
#[test]
fn a_deferred_gather_is_seen_in_the_next_step() {
    let overlap = [
        "recipe.overlap_grad_reduce=true",
        "recipe.overlap_param_gather=true",
        "recipe.ddp_bucket_size=600",
        "steps=5",
    ];
    // A fault without effect makes four steps of it.
    let sound = [
        &overlap[..],
        &["fault.drop_wait={at=\"loss.all_reduce\",step=4}"],
    ]
    .concat();
    let found = values(&sound);
    assert_eq!((found.finding(), found.steps), (None, 4));
    // What step 3 wrote is gathered by the next forward, and at its own end where it is kept.
    for (restarts, step) in [("[[1], [2]]", 4), ("[[1], [2], [3]]", 3)] {
        let restarts = format!("checkpoint.restarts={restarts}");
        let at = format!("at=\"ddp.bucket1.all_gather\",step={step}");
        let gather = format!("fault.skip_collective={{{at}}}");
        let found = values(&[&overlap[..], &[&restarts, &gather]].concat());
        let wrong = found.first_wrong().expect("it is found");
        assert_eq!(wrong.step, step, "{wrong}");
    }
}

/// Faults of which no two runs and no two copies differ: the first tensor that each makes wrong.
#[test]
fn what_is_wrong_everywhere_alike_is_found() {
    let layer = "decoder.layers.0";
    let attention = format!("{layer}.self_attention");
    let core = format!("{attention}.core_attention");
    let cases: [(&str, String, &str); 20] = [
        ("collective", "ddp.bucket0.all_gather".into(), "model `"),
        (
            "collective",
            "embedding.word_embeddings.all_gather".into(),
            "gradient `embedding",
        ),
        (
            "collective",
            "output_layer.reduce_scatter".into(),
            "gradient `decoder.final_layernorm",
        ),
        (
            "collective",
            "output_layer.cross_entropy.all_reduce_max".into(),
            "token losses",
        ),
        (
            "collective",
            "output_layer.cross_entropy.all_reduce_sum_exp".into(),
            "token losses",
        ),
        (
            "collective",
            "output_layer.cross_entropy.all_reduce_target".into(),
            "token losses",
        ),
        ("collective", "loss.all_reduce".into(), "lm loss"),
        (
            "collective",
            "decoder.layers.1.reduce_scatter".into(),
            "token losses",
        ),
        (
            "launch",
            format!("{layer}.mlp.linear_fc1.dgrad"),
            "gradient `decoder.layers.0",
        ),
        (
            "launch",
            format!("{layer}.mlp.linear_fc2.forward"),
            "token losses",
        ),
        (
            "launch",
            format!("{attention}.linear_proj.forward"),
            "token losses",
        ),
        (
            "launch",
            format!("{attention}.linear_qkv.dgrad"),
            "gradient `decoder.layers.0.input",
        ),
        ("launch", format!("{core}.rope"), "token losses"),
        (
            "launch",
            format!("{core}.score_grad"),
            "gradient `decoder.layers.0.self_attention",
        ),
        (
            "launch",
            "output_layer.dgrad".into(),
            "gradient `decoder.final_layernorm",
        ),
        ("launch", "loss.mean".into(), "lm loss"),
        ("launch", "data.advance".into(), "data-position `samples`"),
        ("launch", "optimizer.squares".into(), "grad norm"),
        (
            "launch",
            "opt_param_scheduler.step".into(),
            "scheduler `num_steps`",
        ),
        ("launch", "optimizer.adamw".into(), "optimizer.adamw"),
    ];
    for (kind, at, names) in cases {
        let found = values(&[&format!("fault.skip_{kind}=\"{at}\"")]);
        let finding = found
            .finding()
            .unwrap_or_else(|| panic!("{at}: {:?} {:?}", found.closest(), found.not_compared));
        assert!(finding.contains(names), "{at}: {finding}");
    }
}

/// At any step that a fault names, and though the wrong words are a bucket's only.
#[test]
fn a_later_step_is_looked_at_where_a_fault_names_it() {
    let found = values(&["fault.skip_launch={at=\"opt_param_scheduler.step\",step=3}"]);
    let wrong = found.first_wrong().expect("it is found");
    assert_eq!((wrong.step, wrong.exceeding), (3, 1), "{wrong}");
}

#[test]
fn dropout_is_compared_without() {
    let drops = ["recipe.hidden_dropout=0.1", "recipe.attention_dropout=0.1"];
    let found = values(&drops);
    assert_eq!(found.finding(), None);
    assert!(
        found.not_compared[0].contains("hidden_dropout"),
        "{:?}",
        found.not_compared
    );
    let faulty = "fault.skip_launch=\"decoder.layers.0.mlp.linear_fc1.dgrad\"";
    let found = values(&[&drops[..], &[faulty]].concat());
    assert!(found.is_wrong() && found.not_compared.len() == 1);
}

/// Copies that differ have no serial model: another oracle's finding.
#[test]
fn ranks_that_drift_apart_are_not_compared() {
    let faulty = "fault.skip_launch={at=\"optimizer.adamw\",rank=1}";
    let found = values(&[faulty, "recipe.use_distributed_optimizer=false"]);
    assert!(found.compared.is_empty() && found.disagreement.is_none());
    assert_eq!(found.not_compared.len(), 1, "{:?}", found.not_compared);
}

#[test]
fn a_step_too_large_for_one_rank_is_not_compared() {
    let session = session(&["recipe.global_batch_size=2048"]);
    let record = RunRecord::default();
    let found = compare(&session, &record, &ValueWatch::default(), 2).expect("nothing is run");
    assert!(found.compared.is_empty() && !found.is_wrong());
    assert!(
        found.not_compared[0].contains("2048 microbatches"),
        "{:?}",
        found.not_compared
    );
}

#[test]
fn sizes_follow_rows_and_columns() {
    let (rows, columns) = (32, 16);
    let error = |at: usize| {
        let (row, column) = (at / columns, at % columns);
        (row + 1) as f64 * (1 << (column % 4)) as f64
    };
    let errors: Vec<f64> = (0..rows * columns).map(error).collect();
    let values = vec![1e6; errors.len()];
    let scales = Scales::of(&errors, &values, columns);
    // Where a row is small, the size of all still counts.
    for at in (rows / 2 * columns..rows * columns).step_by(7) {
        let size = scales.at(at) / error(at);
        assert!((0.9..2.5).contains(&size), "{at}: {size}");
    }
    // One size for a vector, however it lies, but for an element whose own error is larger.
    let vector = Scales::of(&errors[..64], &values[..64], 64);
    assert!((vector.at(0) - vector.at(48)).abs() < 1e-12);
    let (largest, size) = (error(63) / error(0), vector.at(63) / vector.at(0));
    assert!(
        size > 1.5 && vector.at(63) >= error(63),
        "{size} of {largest}"
    );
    // Few values are believed less.
    let few = Scales::of(&[1.0; 4], &[1e6; 4], 4);
    assert!(few.at(0) > 4.0 && Scales::of(&[0.0; 4], &[1.0; 4], 4).at(0) == 0.0);
    // Errors as large as the values themselves are no longer linear in roundings.
    assert!(Scales::of(&[1.0; 4], &[1.0; 4], 4).at(0) > 16.0 * few.at(0));
}

#[test]
fn a_bound_says_nothing_rather_than_too_little() {
    assert_eq!(gamma(4.0, 0.25), f64::INFINITY);
    assert!(gamma(3.0, 0.1) > 0.3);
    assert_eq!(ratio(f64::INFINITY, f64::INFINITY), f64::INFINITY);
    let tensor = |difference: f64, bound: f64| {
        let key = (1, Quantity::Gradient, "w");
        ComparedTensor::of(key, [(0.0, 0.0), (difference, bound)].into_iter())
    };
    let beyond = tensor(1.1, 1.0);
    assert_eq!(
        (beyond.exceeding, beyond.element, beyond.elements),
        (1, 1, 2)
    );
    assert_eq!(tensor(1.0, 1.0).exceeding, 0);
    assert_eq!(tensor(1e-30, 0.0).exceeding, 1);
    assert_eq!(tensor(1e-30, 0.0).ratio(), f64::INFINITY);
}

/// One rank takes the whole step here: what it is too much for is no fault of the job.
#[test]
fn an_engine_without_the_room_or_the_reach_compares_nothing() {
    use crate::engine::EngineError;
    let (kernel, reason) = (|| "fold".to_string(), || "more".to_string());
    let limits = EngineError::Limits {
        kernel: kernel(),
        reason: reason(),
    };
    let memory = EngineError::OutOfMemory {
        words: 1,
        reason: reason(),
    };
    assert!(is_too_small(&limits) && is_too_small(&memory));
    let compile = EngineError::Compile {
        kernel: kernel(),
        reason: reason(),
    };
    assert!(!is_too_small(&compile));
}
