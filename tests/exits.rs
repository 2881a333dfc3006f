//! Jobs that end by the clock (`exit_duration_in_mins`): ranks that agree end after the same step,
//! whichever it is; ranks that go by their own clocks do not.

use std::collections::BTreeSet;
use std::path::Path;

use bitproof::diagnostic::Source;
use bitproof::prove::outcome::Outcome;
use bitproof::prove::session::Session;
use bitproof::prove::{CheckOptions, Silent, Token, check, replay};
use bitproof::scenario::{Grade, Overrides, Scenario};
use bitproof::world::{QueryId, RunOptions, RunRecord, Schedule};

const STEPS: u32 = 3;

fn scenario(recipe: &str, tail: &str) -> Scenario {
    let text = format!(
        "steps = {STEPS}\n[recipe]\nnum_layers = 2\nhidden_size = 32\nffn_hidden_size = 64\n\
         num_attention_heads = 4\nseq_length = 16\nmicro_batch_size = 1\ntrain_iters = {STEPS}\n\
         lr = 5e-3\nuse_distributed_optimizer = true\nexit_duration_in_mins = 230\n{recipe}\n\
         [recipe.env]\nNCCL_ALGO = \"Ring\"\n{tail}\n"
    );
    let source = Source::new("exits.toml", text.as_str());
    let loaded = Scenario::from_source(&source, Path::new("exits.toml"), &Overrides::default());
    loaded
        .unwrap_or_else(|diagnostics| panic!("{diagnostics:#?}\n{text}"))
        .scenario
}

fn checked(scenario: Scenario) -> Outcome {
    check(scenario, CheckOptions::default(), &Silent).expect("the check ends")
}

const TWO: &str = "world_size = 2\nglobal_batch_size = 4";
const STAGES: &str = "world_size = 4\npipeline_model_parallel_size = 2\nglobal_batch_size = 4";
const OWN: &str = "[fault]\nown_clock = \"exit_duration\"\n";

#[test]
fn ranks_that_agree_end_after_any_step() {
    for recipe in [TWO, STAGES] {
        let outcome = checked(scenario(recipe, ""));
        assert_eq!(outcome.grade(), Grade::Proved, "{outcome}");
        let notes = outcome.notes.join("\n");
        // After the first step, and after the second: one choice each, whoever's time is over.
        assert!(
            notes.contains("2 queries can be answered both ways"),
            "{notes}"
        );
        assert!(
            notes.contains("2 sets of answers were run, all that"),
            "{notes}"
        );
    }
    // What is still being written when the job ends is waited for.
    let saved = format!("{TWO}\nasync_save = true");
    let outcome = checked(scenario(&saved, ""));
    assert_eq!(outcome.grade(), Grade::Proved, "{outcome}");
}

/// microsoft/superbenchmark#347: a rank went into one more step than others, and never got out.
#[test]
fn a_rank_that_goes_by_its_own_clock_leaves_others_waiting() {
    for recipe in [TWO, STAGES] {
        let outcome = checked(scenario(recipe, OWN));
        assert_eq!(outcome.grade(), Grade::Divergent, "{outcome}");
        let said = outcome.to_string();
        assert!(
            said.contains("rank 0's clock says that `exit_duration` is over"),
            "{said}"
        );
        assert!(said.contains("the run stops"), "{said}");
    }
}

#[test]
fn the_answer_that_stops_a_run_is_replayed() {
    let outcome = checked(scenario(TWO, OWN));
    let token = outcome.replay.as_deref().expect("one answer explains it");
    let token = Token::decode(token).expect("a token of this check");
    let replayed = replay(scenario(TWO, OWN), &token, CheckOptions::default(), &Silent);
    assert_eq!(replayed.expect("the replay ends").grade(), Grade::Divergent);
}

fn run(session: &mut Session, over: &BTreeSet<QueryId>) -> RunRecord {
    let options = RunOptions {
        record_nodes: true,
        schedule: Schedule {
            not_ready: over.clone(),
            ..Schedule::default()
        },
        ..RunOptions::default()
    };
    let steps = 1..STEPS + 1;
    session.plain_run(&options, steps).expect("ranks agree")
}

/// One rank's answer stands for those of all: what others say beside it, or instead of it, makes
/// the very same run. All sets of answers are run.
#[test]
fn whose_time_is_over_makes_no_difference() {
    let scenario = scenario("world_size = 3\nglobal_batch_size = 3", "");
    let mut session = Session::new(scenario, &CheckOptions::default()).expect("it can be run");
    let straight = run(&mut session, &BTreeSet::new());
    let asked: Vec<QueryId> = straight.queries.iter().map(|query| query.id).collect();
    assert_eq!(asked.len(), 6, "three ranks after two steps");
    for mask in 1..1u32 << asked.len() {
        let over = (0..asked.len()).filter(|bit| mask >> bit & 1 == 1);
        let over: BTreeSet<QueryId> = over.map(|bit| asked[bit]).collect();
        let last = over.iter().map(|query| query.step).min().expect("one is");
        let first = asked.iter().find(|id| (id.rank, id.step) == (0, last));
        let stands = run(&mut session, &[*first.expect("rank 0 asks")].into());
        let found = run(&mut session, &over);
        assert_eq!(found.roots, stands.roots, "{over:?}");
        assert_eq!(found.metrics, stands.metrics, "{over:?}");
        assert_eq!(found.records.len(), stands.records.len(), "{over:?}");
        // And both are the straight run up to there.
        let is_there = |key: &&(u32, u32)| key.0 <= last;
        assert!(
            straight
                .roots
                .keys()
                .filter(is_there)
                .eq(found.roots.keys())
        );
        assert!(
            found
                .roots
                .iter()
                .all(|(key, root)| straight.roots[key] == *root)
        );
    }
}

/// Where the job is resumed after no step that its clock can end it after, the report says so.
#[test]
fn an_end_after_a_step_that_is_not_resumed_is_not_covered() {
    let missing = |restarts: &str| {
        let tail = format!("[checkpoint]\nrestarts = {restarts}\n");
        let outcome = checked(scenario(TWO, &tail));
        let said = outcome.not_covered.join("\n");
        said.contains("how a job goes on that its clock ends")
            .then_some(said)
    };
    assert!(missing("[[1]]").is_some_and(|said| said.contains("as after step 2")));
    assert_eq!(missing("[[1], [2]]"), None);
}
