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

fn checked(scale: &str, steps: u32, more: &str) -> Outcome {
    let text = format!(
        "steps = {steps}\n\
         [recipe]\nworld_size = 8\ntensor_model_parallel_size = 2\nsequence_parallel = true\n\
         num_layers = 2\nhidden_size = 16\nffn_hidden_size = 32\nnum_attention_heads = 2\n\
         seq_length = 16\nmicro_batch_size = 1\nglobal_batch_size = 12\ntrain_iters = 20\n\
         lr = 0.005\naccumulate_allreduce_grads_in_fp32 = false\n\
         use_distributed_optimizer = true\nfp16 = true\ninitial_loss_scale = {scale}\n\
         loss_scale_window = 20\nhysteresis = 1\noverlap_grad_reduce = true\n\
         overlap_param_gather = true\nddp_bucket_size = 2000\n\
         [recipe.env]\nNCCL_ALGO = \"Ring\"\n[checkpoint]\nrestarts = [[1]]\n{more}\n"
    );
    let source = Source::new("scenario.toml", text.as_str());
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
