//! RES on other allocations: a job that is killed and goes on on other hosts.

use std::path::Path;

use bitproof::diagnostic::Source;
use bitproof::prove::outcome::{Outcome, ReshardResult};
use bitproof::prove::{CheckOptions, Silent, check};
use bitproof::scenario::{Grade, OracleKind, Overrides, Scenario};

const STEPS: u32 = 3;

/// Eight ranks, of which the hosts of `second` are another allocation; `recipe` goes into the
/// recipe.
fn scenario(second: &str, recipe: &str) -> Scenario {
    let first = "[[0, 1, 2, 3], [4, 5, 6, 7]]";
    let place = |name: &str, hosts: &str| {
        let text = format!("name = '{name}'\nhosts = {hosts}");
        format!("{{ name = '{name}', text = \"\"\"{text}\"\"\" }}")
    };
    let text = format!(
        "steps = {STEPS}\nfree = [\"placement\"]\noracles = [\"R2R\", \"RES\", \"XR\"]\n\
         allocations = [{}, {}]\n[checkpoint]\nrestarts = [[1], [2]]\n\
         [recipe]\nworld_size = 8\nglobal_batch_size = 8\nnum_layers = 2\nhidden_size = 32\n\
         ffn_hidden_size = 64\nnum_attention_heads = 4\nseq_length = 16\nmicro_batch_size = 1\n\
         train_iters = {STEPS}\nlr = 5e-3\nbf16 = true\n{recipe}\n\
         [recipe.env]\nNCCL_ALGO = \"Ring\"\n",
        place("first", first),
        place("second", second)
    );
    let source = Source::new("moved.toml", text.as_str());
    let loaded = Scenario::from_source(&source, Path::new("moved.toml"), &Overrides::default());
    loaded
        .unwrap_or_else(|diagnostics| panic!("{diagnostics:#?}\n{text}"))
        .scenario
}

fn checked(scenario: Scenario) -> Outcome {
    check(scenario, CheckOptions::default(), &Silent).expect("the check ends")
}

fn moves(outcome: &Outcome) -> Vec<&ReshardResult> {
    let found = outcome.reshardings.iter();
    found.filter(|found| found.moved).collect()
}

/// Other hosts whose rings take the ranks in another order: the state arrives, and steps part where
/// the ring does.
const DEALT: &str = "[[0, 2, 4, 6], [1, 3, 5, 7]]";

#[test]
fn a_job_that_goes_on_on_other_hosts_has_its_state_and_their_orders() {
    let outcome = checked(scenario(DEALT, ""));
    let moves = moves(&outcome);
    let cuts: Vec<u32> = moves.iter().map(|found| found.after_step).collect();
    assert_eq!(cuts, [1, 2]);
    for found in moves {
        assert_eq!((&*found.from, &*found.to), ("first", "second"));
        assert!(
            found.run.words > 0 && found.run.differing.is_empty(),
            "{found:#?}"
        );
        // What parts, parts by a plan that differs; the sweep says so as well.
        assert!(!found.run.plans_differ.is_empty(), "{found:#?}");
        assert_eq!(found.run.unexcused, None, "{found:#?}");
        assert!(found.run.first_step.is_some(), "{found:#?}");
    }
    assert_eq!(outcome.across, Some(Grade::Divergent), "{outcome}");
    assert_eq!(outcome.within, Some(Grade::Proved), "{outcome}");
}

#[test]
fn where_every_sum_has_the_same_plan_the_job_goes_on_as_it_was() {
    // One rank of each pair that adds: two addends have one order.
    let pairs = "tensor_model_parallel_size = 2\npipeline_model_parallel_size = 2";
    let outcome = checked(scenario(DEALT, pairs));
    let moves = moves(&outcome);
    assert_eq!(moves.len(), 2, "{outcome}");
    for found in moves {
        assert_eq!(found.run.first_step, None, "{found:#?}");
        assert!(found.run.plans_differ.is_empty(), "{found:#?}");
    }
}

#[test]
fn a_job_with_one_allocation_goes_nowhere() {
    let mut scenario = scenario(DEALT, "");
    scenario.free.clear();
    scenario.allocations.truncate(1);
    assert!(moves(&checked(scenario)).is_empty());
    // Nor does one that nothing is asked of.
    let mut scenario = self::scenario(DEALT, "");
    scenario.oracles.remove(&OracleKind::RES);
    assert!(moves(&checked(scenario)).is_empty());
}
