//! Steps that overflow are skipped, and which ones is not known before a run: what is looked for in
//! a step that runs the optimizer is looked for in the first that does.

use std::path::Path;

use bitproof::diagnostic::Source;
use bitproof::prove::outcome::Outcome;
use bitproof::prove::{CheckOptions, Silent, check};
use bitproof::scenario::{Grade, OriginClass, Overrides, Scenario};

/// Scales of which the first two steps overflow, and none.
const HIGH: &str = "262144.0";
const LOW: &str = "1024.0";

/// Restarted two steps before its end.
fn scenario(scale: &str, steps: u32, more: &str) -> String {
    let cut = steps - 2;
    format!(
        "steps = {steps}\n\
         [recipe]\nworld_size = 8\ntensor_model_parallel_size = 2\nsequence_parallel = true\n\
         num_layers = 2\nhidden_size = 16\nffn_hidden_size = 32\nnum_attention_heads = 2\n\
         seq_length = 16\nmicro_batch_size = 1\nglobal_batch_size = 12\ntrain_iters = 20\n\
         lr = 0.005\naccumulate_allreduce_grads_in_fp32 = false\n\
         use_distributed_optimizer = true\nfp16 = true\ninitial_loss_scale = {scale}\n\
         loss_scale_window = 20\nhysteresis = 1\noverlap_grad_reduce = true\n\
         overlap_param_gather = true\nddp_bucket_size = 2000\n\
         [recipe.env]\nNCCL_ALGO = \"Ring\"\n[checkpoint]\nrestarts = [[{cut}]]\n{more}\n"
    )
}

fn checked(scale: &str, steps: u32, more: &str) -> Outcome {
    outcome_of(&scenario(scale, steps, more))
}

fn outcome_of(text: &str) -> Outcome {
    let source = Source::new("scenario.toml", text);
    let loaded = Scenario::from_source(&source, Path::new("scenario.toml"), &Overrides::default());
    let scenario = loaded
        .unwrap_or_else(|found| panic!("{found:#?}\n{text}"))
        .scenario;
    check(scenario, CheckOptions::default(), &Silent).expect("the check ends")
}

fn skipped(outcome: &Outcome) -> bool {
    outcome
        .notes
        .iter()
        .any(|note| note.contains("the step is skipped"))
}

#[test]
fn a_wait_that_only_later_steps_need_is_missed_there() {
    let sound = checked(HIGH, 6, "");
    assert_eq!(sound.grade(), Grade::Proved, "{:#?}", sound.vacuity);
    for wait in [
        "param_gather.bucket0",
        "param_gather.bucket1",
        "optimizer.norm_global",
    ] {
        for scale in [HIGH, LOW] {
            let outcome = checked(scale, 6, &format!("[fault]\ndrop_wait = \"{wait}\""));
            assert_eq!(outcome.grade(), Grade::Divergent, "{wait} at {scale}");
            let origin = outcome.origin.expect("it has one");
            assert_eq!(
                origin.class,
                OriginClass::MissingWait,
                "{wait}: {}",
                origin.what
            );
            assert!(!outcome.hazards.is_empty());
        }
    }
}

/// The state after step 1 is kept, step 2 is skipped, and the third is the last.
#[test]
fn gathers_that_no_step_leaves_to_a_forward_prove_nothing() {
    let outcome = checked(HIGH, 3, "");
    assert_eq!(outcome.grade(), Grade::Vacuous);
    assert!(skipped(&outcome), "{:#?}", outcome.notes);
    let low = checked(LOW, 3, "");
    assert_eq!(low.grade(), Grade::Proved, "{:#?}", low.notes);
}

/// The host that reads a flag before its sum is there goes another way than others: what was
/// unordered is named before the stop that follows.
#[test]
fn a_flag_that_is_read_too_early_is_named_before_the_stop() {
    for scale in [HIGH, LOW] {
        for wait in ["grad_scaler.found_inf", "grad_scaler.found_inf.start"] {
            let outcome = checked(scale, 4, &format!("[fault]\ndrop_wait = \"{wait}\""));
            // All flags are alike at the low scale, and nobody goes another way.
            let grade = outcome.grade();
            assert!(
                [Grade::Divergent, Grade::Hazard].contains(&grade),
                "{wait}: {grade:?}"
            );
            assert_eq!(outcome.stop.is_some(), scale == HIGH, "{wait}");
            let origin = outcome.origin.expect("it has one");
            assert_eq!(origin.class, OriginClass::MissingWait, "{}", origin.what);
            assert!(
                outcome.mutants.missed.is_empty(),
                "{:#?}",
                outcome.mutants.missed
            );
            let hazard = outcome.hazards.first().expect("the pair is told");
            assert!(hazard.buffer.contains("found_inf"), "{}", hazard.buffer);
        }
    }
}

/// No choice of the model's makes one rank alone see an infinity.
#[test]
fn a_flag_that_flips_on_one_rank_stops_one_of_two_runs() {
    let flip = "[fault]\n\
        flip_bit = { node = \"grad_scaler.found_inf\", rank = 1, step = 2, bit = 30 }";
    let outcome = checked(LOW, 4, flip);
    assert_eq!(outcome.grade(), Grade::Uncontrolled);
    let origin = outcome.origin.expect("it has one");
    assert_eq!(origin.class, OriginClass::Uncontrolled);
    assert!(origin.what.contains("one of two runs"), "{}", origin.what);
    assert!(outcome.stop.is_some());
}

/// A mutant that only the scenario's own fault lets stop is no failure of the check.
#[test]
fn a_flag_that_is_not_shared_is_a_verdict() {
    let skip = "[fault]\nskip_collective = \"grad_scaler.found_inf\"";
    let outcome = checked(LOW, 4, skip);
    assert_eq!(outcome.grade(), Grade::Vacuous, "all flags are alike");
    let outcome = checked(HIGH, 4, skip);
    assert_eq!(outcome.grade(), Grade::Divergent);
}

/// Behind steps that change nothing, a checkpoint that lacks all of it is what a fresh start has.
#[test]
fn restarts_before_the_first_step_that_counts_prove_nothing() {
    let resumed_at = |cut: u32, lacks: &str| {
        let checkpoint = format!("[checkpoint]\nrestarts = [[1], [{cut}]]\nomit = [{lacks}]\n");
        outcome_of(&scenario(HIGH, 6, "").replace("[checkpoint]\nrestarts = [[4]]\n", &checkpoint))
    };
    for lacks in [
        "",
        "\"model\", \"exp-avg\", \"optimizer-step\", \"scheduler\"",
    ] {
        let early = resumed_at(2, lacks);
        assert_eq!(early.grade(), Grade::Vacuous, "{lacks}");
        assert!(early.mutants.coinciding.contains(&"lost-model".to_string()));
        let told = early
            .notes
            .iter()
            .any(|note| note.contains("RES could not have found them"));
        assert!(told, "{:#?}", early.notes);
    }
    assert_eq!(resumed_at(4, "").grade(), Grade::Proved);
    assert_eq!(resumed_at(4, "\"exp-avg\"").grade(), Grade::Divergent);
}
