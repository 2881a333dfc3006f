//! Faults whose consequence lies behind the step that they strike in, and checks in which what a
//! recipe asks for never happens.

use std::path::Path;

use bitproof::diagnostic::Source;
use bitproof::prove::outcome::{HIDDEN_GATHERS, Outcome};
use bitproof::prove::{CheckOptions, Silent, check};
use bitproof::scenario::{Grade, Overrides, Scenario};

/// A small job, with further keys of its recipe.
const RECIPE: &str = "
[recipe]
hidden_size = 16
ffn_hidden_size = 32
num_attention_heads = 2
seq_length = 8
micro_batch_size = 1
train_iters = 20
lr = 0.005
env = { NCCL_ALGO = 'Ring' }
";

const STAGES: &str = "bf16 = true\nuse_distributed_optimizer = true\nworld_size = 4\n\
    pipeline_model_parallel_size = 2\nnum_layers = 2\nglobal_batch_size = 4\n";
const SAVED: &str = "bf16 = true\nuse_distributed_optimizer = true\nworld_size = 2\n\
    num_layers = 1\nglobal_batch_size = 2\nasync_save = true\n";
const GATHERED: &str = "use_distributed_optimizer = true\noverlap_grad_reduce = true\n\
    ddp_bucket_size = 5000\noverlap_param_gather = true\nworld_size = 4\nnum_layers = 2\n\
    global_batch_size = 8\n";
const TIED: &str = "bf16 = true\nworld_size = 8\ntensor_model_parallel_size = 2\n\
    pipeline_model_parallel_size = 2\nsequence_parallel = true\n\
    untie_embeddings_and_output_weights = false\nnum_layers = 2\nglobal_batch_size = 4\n";

fn checked(head: &str, recipe: &str, more: &str) -> Outcome {
    let text = format!("{head}{RECIPE}{recipe}{more}\n");
    let source = Source::new("scenario.toml", text.as_str());
    let loaded = Scenario::from_source(&source, Path::new("scenario.toml"), &Overrides::default());
    let complaint = |diagnostics| panic!("{diagnostics:#?}\n{text}");
    let scenario = loaded.unwrap_or_else(complaint).scenario;
    check(scenario, CheckOptions::default(), &Silent).expect("the check ends")
}

/// What the gather of a step writes, the forward of the next one reads.
#[test]
fn a_wait_that_one_step_lacks_is_missed_by_the_next() {
    let sound = checked("steps = 5\noracles = ['R2R']", STAGES, "");
    assert_eq!(sound.hazards.len(), 0, "{:?}", sound.hazards);
    for step in [1, 3, 5] {
        let fault =
            format!("[fault]\ndrop_wait = {{ at = 'param_gather.bucket0', step = {step} }}");
        let outcome = checked("steps = 5\noracles = ['R2R']", STAGES, &fault);
        assert!(outcome.grade() >= Grade::Hazard, "{step}: {outcome:?}");
        let edge = outcome.hazards[0].edge.as_deref();
        assert_eq!(edge, Some("param_gather.bucket0"), "{step}");
    }
}

/// Saves of later steps are watched as far as a fault needs.
#[test]
fn a_late_save_without_its_wait_is_torn() {
    let head = "steps = 4\noracles = ['R2R', 'RES']";
    let more = "[checkpoint]\nrestarts = 'every-step'\n";
    let sound = checked(head, SAVED, more);
    assert_eq!(sound.hazards.len(), 0, "{:?}", sound.hazards);
    let fault = "[fault]\ndrop_wait = { at = 'checkpoint.stage', step = 4 }";
    let outcome = checked(head, SAVED, &format!("{more}{fault}"));
    assert!(outcome.grade() >= Grade::Hazard, "{:?}", outcome.origin);
}

/// A step whose state is kept leaves no gather to the next forward.
#[test]
fn restarts_that_hide_every_gather_are_vacuous() {
    let with = |restarts: &str| {
        let more = format!("[checkpoint]\nrestarts = {restarts}\n");
        checked("steps = 5\noracles = ['R2R', 'RES']", GATHERED, &more)
    };
    let hidden = with("'every-step'");
    assert_eq!(hidden.grade(), Grade::Vacuous, "{:?}", hidden.origin);
    assert!(hidden.notes.iter().any(|note| note == HIDDEN_GATHERS));
    let seen = with("[[2]]");
    assert_eq!(seen.grade(), Grade::Proved, "{:?}", seen.origin);
    assert!(seen.notes.iter().all(|note| note != HIDDEN_GATHERS));
}

/// Ranks are set up differently in what they count of a norm: no drift comes of that.
#[test]
fn a_drift_by_a_scalar_is_not_blamed_on_what_is_unlike_by_design() {
    let head = "steps = 3\noracles = ['XR']";
    for fault in [
        "{ at = 'optimizer.advance', rank = 6 }",
        "{ at = 'optimizer.clip', rank = 6, step = 2 }",
    ] {
        let outcome = checked(head, TIED, &format!("[fault]\nskip_launch = {fault}"));
        let origin = outcome.origin.expect("copies drift").what;
        assert!(!origin.contains("flags"), "{origin}");
        assert!(origin.contains("adamw"), "{origin}");
    }
}
