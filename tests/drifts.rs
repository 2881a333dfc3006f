//! XR names the step and the node that let a drift of copies in, from the run itself: over ranks of
//! DP, TP with and without sequence parallelism, and stages that share an embedding; from the
//! start, from a later step, and where a bit has changed by itself.

use std::path::Path;

use bitproof::diagnostic::Source;
use bitproof::prove::outcome::{OracleVerdict, Outcome};
use bitproof::prove::{CheckOptions, Grade, Silent, check};
use bitproof::scenario::{OracleKind, OriginClass, Overrides, Scenario};

/// Every rank holds all optimizer state.
const WHOLE: &str = "use_distributed_optimizer = false";
/// Two stages, and one matrix on both.
const TIED: &str = "tensor_model_parallel_size = 1\npipeline_model_parallel_size = 2\n\
                    sequence_parallel = false\nuntie_embeddings_and_output_weights = false";

/// Three steps of the zoo's job, with some keys laid over it.
fn checked(keys: &str, tail: &str) -> Outcome {
    let text = format!(
        "name = 'x'\nrecipe = 'recipes/gpt-8.toml'\nsteps = 3\noracles = ['R2R', 'RES', 'XR']\n\
         [override]\n{keys}\n{tail}\n"
    );
    let (path, source) = ("scenarios/case.toml", Source::new("case.toml", text));
    let loaded = Scenario::from_source(&source, Path::new(path), &Overrides::default());
    let loaded = loaded.unwrap_or_else(|findings| panic!("{findings:?}"));
    let checked = check(loaded.scenario, CheckOptions::default(), &Silent);
    checked.unwrap_or_else(|error| panic!("{tail}: {error}"))
}

/// What XR says.
fn detail(outcome: &Outcome) -> (OracleVerdict, String) {
    let mut oracles = outcome.oracles.iter();
    let result = oracles.find(|result| result.oracle == OracleKind::XR);
    let result = result.expect("XR was asked for");
    (result.verdict, result.detail.clone().unwrap_or_default())
}

fn says(text: &str, words: &[&str]) {
    for word in words {
        assert!(text.contains(word), "`{word}` is not in: {text}");
    }
}

/// The drift that `fault` makes is the origin, and is told with these words.
fn is_let_in(keys: &str, fault: &str, words: &[&str]) {
    let outcome = checked(keys, &format!("[fault]\n{fault}"));
    assert_eq!(outcome.grade(), Grade::Divergent, "{fault}");
    let origin = outcome.origin.as_ref().expect("it has an origin");
    let named = (origin.oracle, origin.class);
    assert_eq!(
        named,
        (OracleKind::XR, OriginClass::ReplicaDivergence),
        "{fault}"
    );
    says(&origin.what, words);
    assert_eq!(
        detail(&outcome),
        (OracleVerdict::Different, origin.what.clone())
    );
}

const UPDATE: &str = "let in at step 2, optimizer, optimizer, adamw";

/// The controls: these jobs without a fault.
#[test]
fn sound_copies_stay_equal() {
    for keys in [WHOLE, "", "sequence_parallel = false", TIED] {
        let outcome = checked(keys, "");
        assert_eq!(
            detail(&outcome),
            (OracleVerdict::Equal, String::new()),
            "{keys}"
        );
        assert!(
            outcome.grade() < Grade::Vacuous,
            "{keys}: {:?}",
            outcome.origin
        );
    }
}

#[test]
fn data_parallel_ranks_that_do_not_reduce() {
    let fault = "skip_collective = { at = 'ddp.bucket0.all_reduce', step = 2 }";
    let said = [
        "after step 2",
        "ranks 0 and 2 of dp0",
        UPDATE,
        "`grads` differs already, as computed at step 2, microbatch 0, backward",
        "whose operands differ already, in words that are not matched one by one",
    ];
    is_let_in(WHOLE, fault, &said);
}

/// Activations that lack a sum over ranks.
#[test]
fn tensor_parallel_ranks_that_do_not_reduce() {
    let fault = "skip_collective = { at = 'decoder.layers.0.all_reduce', step = 2 }";
    let said = [
        "of tp0",
        UPDATE,
        "step 2, microbatch 0, forward, decoder.layers.0.self_attention.linear_proj, forward \
         (ranks 0 and 1), whose operands differ already, in words that are not matched",
    ];
    is_let_in("sequence_parallel = false", fault, &said);
}

/// Gradients of parts of a sequence that lack theirs.
#[test]
fn sequence_parallel_ranks_that_do_not_reduce() {
    let fault = "skip_collective = { at = 'main_grad.layernorm.all_reduce', step = 2 }";
    let said = [
        "after step 2",
        "layernorm.weight` differs between ranks 0 and 1 of tp0",
        UPDATE,
        "weight_grad (ranks 0 and 1)",
        "no collective on the way from there joins the two",
    ];
    is_let_in("", fault, &said);
}

#[test]
fn stages_that_share_an_embedding_and_do_not_reduce() {
    let fault = "skip_collective = { at = 'main_grad.word_embeddings.all_reduce', step = 2 }";
    let said = [
        "ranks 0 and 4 of embd0",
        UPDATE,
        "embedding.word_embeddings, weight_grad on rank 0 and step 2, microbatch 0, backward, \
         output_layer, wgrad on rank 4 was the last to write there",
    ];
    is_let_in(TIED, fault, &said);
}

/// An update that one replica leaves out.
#[test]
fn a_node_that_one_rank_does_not_run() {
    let fault = "skip_launch = { at = 'optimizer.adamw', rank = 2, step = 2 }";
    let said = [
        "after step 2",
        UPDATE,
        "which rank 2 does not run as rank 3 does: step 1, optimizer, optimizer, adamw was the \
         last to write there",
    ];
    is_let_in(WHOLE, fault, &said);
}

#[test]
fn copies_that_start_apart() {
    let said = [
        "at start",
        "setup, , parameters (ranks 0 and 2)",
        "give other words",
    ];
    is_let_in("", "rank_seed = 'dp'", &said);
    let said = [
        "`default_rng` differs",
        "data.loader, draw_base_seed on rank 0 and step 0, setup, , rng on rank 1",
    ];
    let fault = "loader_draw = 'first-tensor-rank'";
    is_let_in("hidden_dropout = 0.1", fault, &said);
}

/// Only the resumed run's copies part: a file of another step on one rank.
#[test]
fn copies_that_a_load_lets_part() {
    let tail = "[checkpoint]\nrestarts = [[2]]\n[fault]\n\
                mixed_generations = { at = 'rng', rank = 1 }";
    let outcome = checked("sequence_parallel = false\nhidden_dropout = 0.1", tail);
    let (verdict, said) = detail(&outcome);
    assert_eq!(verdict, OracleVerdict::Different);
    says(
        &said,
        &[
            "at start",
            "let in at step 0, setup, , rng (ranks 0 and 1)",
            "other words",
        ],
    );
}

/// What a machine does to one replica: the node that wrote other bytes, or memory after it.
#[test]
fn bits_that_change_by_themselves() {
    let told = |keys: &str, flip: &str, words: &[&str]| {
        let outcome = checked(keys, &format!("[fault]\nflip_bit = {{ {flip}, bit = 20 }}"));
        assert_eq!(outcome.grade(), Grade::Uncontrolled, "{flip}");
        says(&detail(&outcome).1, words);
    };
    let said = [
        "`exp_avg` differs between ranks 0 and 2 of dp0",
        "let in at step 1, optimizer, optimizer, adamw (ranks 0 and 2), or after it",
        "nobody wrote",
    ];
    told(WHOLE, "component = 'exp-avg', rank = 2, step = 1", &said);
    let said = [
        "ddp.bucket0, all_gather (ranks 1 and 3), or after it",
        "nobody wrote",
    ];
    told("", "buffer = 'parameters', rank = 1, step = 1", &said);
    let said = [
        UPDATE,
        "where the ranks read the same and write other bytes",
    ];
    told(WHOLE, "node = 'optimizer.adamw', rank = 2, step = 2", &said);
}
