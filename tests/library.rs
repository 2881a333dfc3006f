//! The library as a program uses it: what is refused, how, and that nothing panics.

use std::path::Path;

use bitproof::diagnostic::Source;
use bitproof::scenario::Overrides;
use bitproof::{
    CheckOptions, Error, Free, Grade, InvalidInput, LocalOrder, OracleKind, Recipe, Scenario,
};

fn four_ranks() -> Recipe {
    Recipe {
        world_size: 4,
        global_batch_size: 12,
        ..Recipe::small()
    }
}

/// The codes of what is refused; a check that runs is a failure of the test.
fn refused(scenario: &Scenario) -> Vec<&'static str> {
    match bitproof::check(scenario, CheckOptions::default()) {
        Err(Error::Invalid(invalid)) => invalid.diagnostics().iter().map(|d| d.code).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_scenario_that_was_changed_into_nonsense_is_refused_and_says_why() {
    let sound = Scenario::of(four_ranks()).expect("a sound recipe");
    let changed = |change: fn(&mut Scenario)| {
        let mut scenario = sound.clone();
        change(&mut scenario);
        refused(&scenario)
    };
    assert_eq!(changed(|s| s.recipe.world_size = 0), ["out-of-range"]);
    assert_eq!(
        changed(|s| s.recipe.num_attention_heads = 3)[0],
        "does-not-divide"
    );
    assert_eq!(changed(|s| s.steps = 99), ["out-of-range"]);
    assert_eq!(changed(|s| s.oracles.clear()), ["nothing-checked"]);
    let freed = changed(|s| {
        s.free.insert(Free::Placement);
    });
    assert!(!freed.is_empty());
    assert!(!changed(|s| s.checkpoint.restarts = vec![vec![2, 1]]).is_empty());
    let huge = changed(|s| {
        s.recipe.hidden_size = 16_384;
        s.recipe.kv_channels = 128;
        s.recipe.num_attention_heads = 128;
        s.recipe.num_query_groups = 128;
        s.recipe.num_layers = 512;
    });
    assert_eq!(huge, ["too-large"]);
}

/// The recipe's rank has some 180 MiB, of 128 MiB that an adapter binds, and the machine has it.
#[cfg(feature = "wgpu")]
#[test]
fn a_rank_that_no_adapter_binds_is_refused_as_too_large() {
    use bitproof::CheckError;
    use bitproof::engine::{EngineChoice, EngineError};
    let recipe = Recipe {
        padded_vocab_size: 1 << 18,
        ..Recipe::small()
    };
    let scenario = Scenario::of(recipe).expect("a sound recipe");
    let options = CheckOptions {
        engine: EngineChoice::Wgpu { adapter: None },
        ..CheckOptions::default()
    };
    let finding = match bitproof::check(&scenario, options) {
        Err(Error::Check(CheckError::TooLarge(finding))) => finding,
        Err(Error::Check(CheckError::Engine(EngineError::NoAdapter { reason }))) => {
            let required = std::env::var("BITPROOF_REQUIRE_ADAPTER").is_ok_and(|v| v == "1");
            assert!(!required, "BITPROOF_REQUIRE_ADAPTER=1, but {reason}");
            eprintln!("SKIPPED, nothing was refused: {reason}");
            return;
        }
        other => panic!("{other:?}"),
    };
    assert_eq!(finding.code, "too-large-for-adapter");
    assert!(finding.help[0].contains("--engine cpu"), "{finding:?}");
    let error = Error::from(CheckError::TooLarge(finding.clone()));
    assert_eq!(error.to_string(), finding.message);
}

#[test]
fn a_token_is_replayed_for_its_own_scenario_only() {
    let mut recipe = four_ranks();
    recipe.determinism.microbatch_accumulation = LocalOrder::Arrival;
    let mut scenario = Scenario::of(recipe).expect("a sound recipe");
    scenario.oracles = [OracleKind::R2R].into();
    let options = CheckOptions::default();
    let outcome = bitproof::check(&scenario, options.clone()).expect("it runs");
    assert_eq!(outcome.grade(), Grade::Divergent, "{outcome}");
    let token = outcome.replay.clone().expect("a token");
    let again = bitproof::replay(&scenario, &token, options.clone()).expect("its own scenario");
    assert_eq!(again.witness, outcome.witness);

    let shown = outcome.to_string();
    assert!(
        shown.contains("divergent") && shown.contains(&token),
        "{shown}"
    );
    assert!(
        shown.chars().all(|c| c == '\n' || !c.is_control()),
        "styles in plain text"
    );

    let damaged = bitproof::replay(&scenario, &token[1..], options.clone());
    assert!(matches!(damaged, Err(Error::Invalid(_))), "{damaged:?}");
    scenario.seed += 1;
    let other = bitproof::replay(&scenario, &token, options);
    assert!(matches!(other, Err(Error::Check(_))), "{other:?}");
}

const JOB: &str = "\
MODEL_ARGS:
  --num-layers: 12
  --hidden-size: 512
  --num-attention-heads: 8
  --seq-length: 1024
  --max-position-embeddings: 1024
  --tensor-model-parallel-size: 2
  --micro-batch-size: 4
  --global-batch-size: 32
  --train-iters: 50
  --lr: 0.00015
  --lr-decay-style: constant
  --vocab-size: 50257
  --bf16: true
";

#[test]
fn a_job_of_megatron_is_sound_in_a_program_too() {
    let source = Source::new("model_config.yaml", JOB);
    let path = Path::new("model_config.yaml");
    let loaded = Scenario::from_source(&source, path, &Overrides::default());
    let scenario = loaded
        .unwrap_or_else(|found| panic!("{}", InvalidInput::new(found)))
        .scenario;
    assert!(scenario.imported.is_some() && scenario.full_size.is_some());
    let valid = scenario.validate();
    assert!(
        valid.is_ok(),
        "what was made of a job is sound: {}",
        valid.unwrap_err()
    );
}

#[test]
fn a_check_does_not_depend_on_the_number_of_workers() {
    let scenario = Scenario::of(four_ranks()).expect("a sound recipe");
    let losses = [0, 1, 3].map(|workers| {
        let outcome = bitproof::check(
            &scenario,
            CheckOptions {
                workers,
                ..CheckOptions::default()
            },
        );
        outcome.expect("it runs").losses
    });
    assert_eq!(losses[0], losses[1]);
    assert_eq!(losses[1], losses[2]);
}
