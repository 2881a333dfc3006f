//! Faults of the training program, as bug reports have them: the sound program is proved, the
//! faulty one is caught, and its origin is named. Eight ranks, two or three steps.

use std::path::Path;

use bitproof::diagnostic::Source;
use bitproof::prove::faults::places;
use bitproof::prove::outcome::Outcome;
use bitproof::prove::{CheckOptions, Grade, Silent, check};
use bitproof::scenario::{OracleKind, OriginClass, Overrides, Scenario};

const RECIPE: &str = "
world_size = 8
tensor_model_parallel_size = 2
num_layers = 2
hidden_size = 16
ffn_hidden_size = 32
num_attention_heads = 2
seq_length = 16
micro_batch_size = 1
global_batch_size = 12
train_iters = 4
lr = 5e-3
bf16 = true
accumulate_allreduce_grads_in_fp32 = true
use_distributed_optimizer = true
";

/// A check of `steps` steps, with `recipe` and `more` sections.
struct Case {
    steps: u32,
    oracles: &'static str,
    recipe: &'static str,
    more: &'static str,
}

const RESUMED: Case = Case {
    steps: 3,
    oracles: "'R2R', 'RES', 'XR'",
    recipe: "",
    more: "[checkpoint]\nrestarts = [[1]]",
};

const FOLLOWED: Case = Case {
    steps: 1,
    oracles: "'R2R', 'REF'",
    ..RESUMED
};

impl Case {
    fn scenario(&self, fault: &str) -> Scenario {
        let Case {
            steps,
            oracles,
            recipe,
            more,
        } = self;
        let more = if *steps == 1 { "" } else { more };
        let text = format!(
            "name = 'x'\nsteps = {steps}\noracles = [{oracles}]\n[recipe]\n{RECIPE}\n{recipe}\n\
             [recipe.env]\nNCCL_ALGO = 'Ring'\n{more}\n[fault]\n{fault}\n"
        );
        let source = Source::new("case.toml", text);
        let loaded = Scenario::from_source(&source, Path::new("case.toml"), &Overrides::default());
        loaded
            .unwrap_or_else(|findings| panic!("{findings:?}"))
            .scenario
    }

    fn checked(&self, fault: &str) -> Outcome {
        let checked = check(self.scenario(fault), CheckOptions::default(), &Silent);
        checked.unwrap_or_else(|error| panic!("{fault}: {error}"))
    }

    fn is_proved(&self) {
        let outcome = self.checked("");
        assert_eq!(outcome.grade(), Grade::Proved, "{:?}", outcome.origin);
    }

    /// The origin of `fault`, of the class and with the words that are expected.
    fn is_named(&self, fault: &str, (oracle, class): (OracleKind, OriginClass), words: &[&str]) {
        let outcome = self.checked(fault);
        assert!(
            outcome.grade() > Grade::Masked,
            "{fault}: {:?}",
            outcome.grade()
        );
        let origin = outcome.origin.expect("it has an origin");
        assert_eq!(
            (origin.oracle, origin.class),
            (oracle, class),
            "{}",
            origin.what
        );
        for word in words {
            assert!(origin.what.contains(word), "{fault}: {}", origin.what);
        }
    }

    fn hosts(&self, fault: (&str, &str)) -> bool {
        let places = places(self.scenario(""), &CheckOptions::default()).expect("it runs");
        let mut places = places.iter();
        places.any(|place| (place.kind.key(), place.at.as_str()) == fault)
    }
}

const LOST: (OracleKind, OriginClass) = (OracleKind::RES, OriginClass::LostState);
const HIDDEN: (OracleKind, OriginClass) = (OracleKind::RES, OriginClass::HiddenState);
const TORN: (OracleKind, OriginClass) = (OracleKind::RES, OriginClass::CheckpointSnapshot);
const APART: (OracleKind, OriginClass) = (OracleKind::XR, OriginClass::ReplicaDivergence);
const WRONG: (OracleKind, OriginClass) = (OracleKind::REF, OriginClass::WrongContribution);
const UNORDERED: (OracleKind, OriginClass) = (OracleKind::R2R, OriginClass::MissingWait);

#[test]
fn a_sound_resume_is_proved() {
    RESUMED.is_proved();
}

#[test]
fn a_load_without_its_gather_has_parameters_of_two_kinds() {
    let said = ["lacks model", "`parameters` on rank 0", "at start"];
    RESUMED.is_named("skipped_gather = 'load'", LOST, &said);
}

#[test]
fn main_parameters_made_of_rounded_ones_lose_bits() {
    let fault = "omit_component = 'main-params'";
    RESUMED.is_named(fault, LOST, &["lacks main-params", "`main_params`"]);
}

#[test]
fn an_rng_saved_as_a_copy_is_another_ranks() {
    let tensor = Case {
        recipe: "hidden_dropout = 0.1\nsequence_parallel = true",
        ..RESUMED
    };
    let said = [
        "lacks rng",
        "`model_parallel_rng` on rank 1",
        "those of rank 0",
    ];
    tensor.is_named("replica_rng = 'tp'", LOST, &said);
    let data = Case {
        recipe: "hidden_dropout = 0.1\ndata_parallel_random_init = true",
        ..RESUMED
    };
    data.is_proved();
    data.is_named("replica_rng = 'dp'", LOST, &["`rng` on rank 2", "rank 0"]);
}

#[test]
fn a_loader_that_draws_moves_the_default_rng() {
    let case = Case {
        recipe: "hidden_dropout = 0.1",
        ..RESUMED
    };
    case.is_proved();
    case.is_named(
        "loader_draw = 'resume'",
        LOST,
        &["lacks rng", "`rng` on rank 0"],
    );
    let said = ["at start", "`default_rng`", "ranks 0 and 1"];
    case.is_named("loader_draw = 'first-tensor-rank'", APART, &said);
}

#[test]
fn seeds_by_rank_start_copies_apart() {
    RESUMED.is_named("rank_seed = 'dp'", APART, &["at start", "ranks 0 and 2"]);
}

#[test]
fn a_shared_embedding_that_is_summed_early_lacks_ranks() {
    let case = Case {
        recipe: "pipeline_model_parallel_size = 2\nuntie_embeddings_and_output_weights = false",
        ..FOLLOWED
    };
    case.is_proved();
    let said = ["word_embeddings", "lacks microbatch"];
    case.is_named("early_reduce = 'word_embeddings'", WRONG, &said);
}

#[test]
fn aliased_gradients_are_doubled_and_missing() {
    FOLLOWED.is_proved();
    let said = ["lacks microbatch 0", "more than once"];
    FOLLOWED.is_named("aliased_slots = 'main_grad'", WRONG, &said);
}

#[test]
fn a_flag_of_the_process_is_hidden_state() {
    let said = ["`is_first_microbatch` of rank 0", "no component"];
    RESUMED.is_named("stale_flag = 'first-microbatch'", HIDDEN, &said);
    let said = ["lacks microbatch 0"];
    FOLLOWED.is_named("stale_flag = 'first-microbatch'", WRONG, &said);
}

#[test]
fn a_variable_that_is_set_too_late_is_said() {
    let outcome = FOLLOWED.checked("stale_flag = 'NCCL_ALGO'");
    let said = |note: &String| note.starts_with("NCCL_ALGO was set too late");
    assert!(outcome.notes.iter().any(said), "{:?}", outcome.notes);
    let with_rank = FOLLOWED.scenario("stale_flag = { at = 'NCCL_ALGO', rank = 1 }");
    let refused = check(with_rank, CheckOptions::default(), &Silent);
    let refused = refused.expect_err("it is refused").to_string();
    assert!(refused.contains("made once"), "{refused}");
}

#[test]
fn workers_and_epochs_resume_where_they_were() {
    let case = Case {
        // With REF: what a checkpoint says of the data is no fault of the straight run.
        oracles: "'R2R', 'RES', 'XR', 'REF'",
        recipe: "num_workers = 2\nepoch_samples = 18",
        more: "[checkpoint]\nrestarts = [[1, 2], [2]]",
        ..RESUMED
    };
    case.is_proved();
    let said = ["lacks data-position", "`data_position`"];
    case.is_named("lost_position = 'prefetched'", LOST, &said);
    case.is_named(
        "lost_position = 'epoch'",
        HIDDEN,
        &["`data_epoch` of rank 0"],
    );
}

#[test]
fn a_counter_of_this_process_only_repeats_data() {
    let case = Case {
        more: "[checkpoint]\nrestarts = [[1, 2]]",
        ..RESUMED
    };
    let said = ["lacks data-position", "`data_position`"];
    case.is_named("lost_position = 'yielded'", LOST, &said);
}

const SAVED: Case = Case {
    recipe: "async_save = true\nhidden_dropout = 0.1",
    more: "[checkpoint]\nrestarts = [[1], [2]]",
    ..RESUMED
};

#[test]
fn a_background_writer_gives_what_was_asked_for() {
    SAVED.is_proved();
}

#[test]
fn a_component_handed_over_by_reference_is_of_another_step() {
    let said = ["after step 1", "optimizer-step of step 2", "main-params"];
    SAVED.is_named("shared_staging = 'optimizer-step'", TORN, &said);
    // The last rank's shard is of rows that no token has read: its moments stay 0.
    let said = [
        "exp-avg (on ranks 0, 1, 2, 3, 4, 5, 6) of step 2",
        "optimizer-step",
    ];
    SAVED.is_named("shared_staging = 'exp-avg'", TORN, &said);
}

#[test]
fn a_late_tracker_names_another_iteration() {
    let said = ["after step 1", "names iteration 2"];
    SAVED.is_named("late_tracker = 'iteration'", TORN, &said);
}

#[test]
fn both_waits_of_a_save_are_needed() {
    let dropped = "drop_wait = 'checkpoint.stage'";
    SAVED.is_named(dropped, UNORDERED, &["checkpoint.stage"]);
    let dropped = "drop_wait = 'checkpoint.writer'";
    SAVED.is_named(dropped, UNORDERED, &["checkpoint.writer"]);
}

/// Files of two saves: the rank and the step are named, for ranks and steps that are told.
#[test]
fn files_of_an_earlier_save_are_named() {
    let case = Case {
        more: "[checkpoint]\nrestarts = [[2]]",
        ..RESUMED
    };
    let said = ["the file of rank 2 has data-position of step 1"];
    let fault = "mixed_generations = { at = 'data-position', rank = 2 }";
    case.is_named(fault, TORN, &said);
    let said = ["the file of rank 0 has exp-avg of step 1", "6 more parts"];
    case.is_named("mixed_generations = 'exp-avg'", TORN, &said);
    assert!(case.hosts(("mixed_generations", "rng")));
    // Nothing was saved before the first cut.
    assert!(!RESUMED.hosts(("mixed_generations", "rng")));
    let scenario = RESUMED.scenario("mixed_generations = 'exp-avg'");
    let refused = check(scenario, CheckOptions::default(), &Silent).expect_err("nothing is met");
    assert!(refused.to_string().contains("no run comes by"), "{refused}");
}

const STOPPED: (OracleKind, OriginClass) = (OracleKind::R2R, OriginClass::CollectiveMismatch);

#[test]
fn calls_that_ranks_do_not_share_are_a_verdict() {
    let case = Case {
        recipe: "overlap_grad_reduce = true\nddp_bucket_size = 2000",
        ..RESUMED
    };
    let said = ["ranks [3]", "reduce_scatter", "ddp.bucket"];
    let fault = "container_order = { at = 'grad_reduce', rank = 3 }";
    case.is_named(fault, STOPPED, &said);
    let fault = "skip_collective = { at = 'ddp.bucket0.reduce_scatter', rank = 1 }";
    let outcome = RESUMED.checked(fault);
    assert_eq!(outcome.grade(), Grade::Divergent);
    let stop = outcome.stop.expect("it stopped");
    assert_eq!(stop.class, OriginClass::CollectiveMismatch);
    let named: Vec<u32> = stop
        .sides
        .iter()
        .flat_map(|side| side.ranks.clone())
        .collect();
    assert!(named.contains(&1) && named.len() > 1, "{named:?}");
    assert_eq!(stop.site().map(|site| &*site.op), Some("reduce_scatter"));
    assert!(outcome.hazards.is_empty() && outcome.replay.is_none());
}

/// No fault is of one scenario: each is listed wherever the program comes by its place.
#[test]
fn places_are_listed_where_they_are() {
    let everywhere = [
        ("skipped_gather", "load"),
        ("replica_rng", "tp"),
        ("replica_rng", "dp"),
        ("loader_draw", "resume"),
        ("loader_draw", "first-tensor-rank"),
        ("rank_seed", "dp"),
        ("aliased_slots", "main_grad"),
        ("stale_flag", "first-microbatch"),
        ("stale_flag", "NCCL_ALGO"),
        ("lost_position", "yielded"),
    ];
    for fault in everywhere {
        assert!(RESUMED.hosts(fault), "{fault:?}");
    }
    let saved = [
        ("shared_staging", "exp-avg"),
        ("late_tracker", "iteration"),
        ("drop_wait", "checkpoint.stage"),
        ("drop_wait", "checkpoint.writer"),
    ];
    for fault in saved {
        assert!(SAVED.hosts(fault) && !RESUMED.hosts(fault), "{fault:?}");
    }
}
