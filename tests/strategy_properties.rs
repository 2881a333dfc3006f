//! Properties of whole checks over drawn recipes: fixed orders are proved, a freed order never
//! passes, and what the sweep says of each freed sum is what brute force says of it.
//!
//! Hundreds of checks have to fit into minutes, so most of them ask for the run-to-run oracle
//! alone: restarts and replicas have properties of their own, and the planted faults of a check
//! cover them.

#[path = "strategies/brute.rs"]
mod brute;

use std::collections::BTreeSet;

use bitproof::engine::EngineError;
use bitproof::numerics::ladder::Rung;
use bitproof::prove::session::Session;
use bitproof::prove::sweep::{Sweep, SweepOptions};
use bitproof::prove::switch::families_of;
use bitproof::strategies::{self, Limits};
use bitproof::world::fold::{FoldLab, FoldNode};
use bitproof::world::{Choice, Family, Observer, RunOptions};
use bitproof::{
    CheckOptions, Determinism, Grade, LocalOrder, OracleKind, Outcome, Recipe, Scenario,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;

/// A check costs what its steps and ranks cost.
const LIMITS: Limits = Limits {
    ranks: 8,
    tensor: 2,
    pipeline: 2,
    virtual_stages: 2,
    data: 4,
    layers_a_stage: 1,
    micro_batch_size: 2,
    microbatches: 4,
    steps: 2,
};

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_iters: 200,
        ..ProptestConfig::default()
    }
}

fn scenario(recipe: &Recipe, oracles: &[OracleKind]) -> Scenario {
    let mut scenario = Scenario::of(recipe.clone()).expect("what is drawn is valid");
    scenario.oracles = oracles.iter().copied().collect();
    // What parts, parts in the first step, or in the first that replays CUDA graphs; another one
    // would double the cost.
    scenario.steps = recipe.eager_steps().map_or(1, |eager| eager + 1);
    scenario.checkpoint.restarts.clear();
    scenario
}

fn checked(scenario: &Scenario) -> Outcome {
    let outcome = bitproof::check(scenario, CheckOptions::default());
    outcome.unwrap_or_else(|error| panic!("{error}\n{scenario:#?}"))
}

/// The recipe with one order free.
fn freed(recipe: &Recipe, key: &str) -> Recipe {
    let determinism = recipe.determinism.with_order(key, LocalOrder::Arrival);
    Recipe {
        determinism: determinism.expect("a key of an order switch"),
        ..recipe.clone()
    }
}

proptest! {
    #![proptest_config(config(100))]

    /// With every order fixed and one allocation there is one plan for every sum, so every point is
    /// proved by P, or by L0 where no order could matter: for all inputs.
    #[test]
    fn fixed_orders_are_proved(recipe in strategies::ordered_recipes_within(LIMITS)) {
        let outcome = checked(&scenario(&recipe, &[OracleKind::R2R]));
        prop_assert_eq!(outcome.grade(), Grade::Proved, "{}", outcome);
        prop_assert_eq!(outcome.across, None);
        let by_structure = |rung: Option<Rung>| rung.is_some_and(Rung::holds_for_all_inputs);
        prop_assert!(outcome.points.iter().all(|count| by_structure(count.rung)));
        prop_assert!(outcome.mutants.total > 0, "nothing was planted");
    }

    /// One freed order: the family is named by a witness, or as one that was silent here and parts
    /// when its own data are amplified, or (beyond what can be decided) as sampled only. No pass.
    #[test]
    fn a_freed_order_is_never_a_pass(
        recipe in strategies::ordered_recipes_within(LIMITS),
        key in strategies::switch(),
    ) {
        let outcome = checked(&scenario(&freed(&recipe, key), &[OracleKind::R2R]));
        let told = told_of(&outcome, key);
        prop_assert!(told.is_some(), "{} passes: {}", key, outcome);
    }
}

/// How the outcome accuses the switch, if it does.
fn told_of(outcome: &Outcome, key: &str) -> Option<Grade> {
    let families: Vec<Family> = families_of(key).collect();
    let is_freed = |family: Family| families.contains(&family);
    let first = outcome.first_divergence.as_ref();
    let is_witnessed = first.is_some_and(|first| {
        first.family.is_some_and(is_freed) && first.variable.name == key && first.is_origin
    });
    let mut vacuity = outcome.vacuity.iter();
    let is_silent = vacuity.any(|finding| is_freed(finding.family));
    let has = |rung| {
        let mut points = outcome.points.iter().filter(|count| is_freed(count.family));
        points.any(|count| count.rung == rung)
    };
    let grade = outcome.grade();
    match grade {
        Grade::Divergent | Grade::Masked => is_witnessed && has(None),
        Grade::Vacuous => is_silent && !has(None),
        Grade::Bounded => has(Some(Rung::L5)) && !has(None),
        _ => false,
    }
    .then_some(grade)
}

/// Runs the sweep on each freed sum alone, and brute force beside it.
struct Beside {
    options: SweepOptions,
    compared: Compared,
}

/// What was compared, and what came out.
#[derive(Clone, Copy, Debug, Default)]
struct Compared {
    parting: u64,
    exact: u64,
    /// Exact although at least three addends meet.
    exact_of_three: u64,
    /// Too large for brute force, or only sampled.
    undecided: u64,
}

/// Sums of one run that brute force is tried on: bounds a case's time.
const SUMS_MAX: u64 = 200;

impl Observer for Beside {
    fn on_fold(&mut self, node: &FoldNode, lab: &mut FoldLab<'_>) -> Result<(), EngineError> {
        let seen = &mut self.compared;
        let done = seen.parting + seen.exact + seen.undecided;
        if !matches!(node.choice, Choice::Arrival) || done >= SUMS_MAX {
            return Ok(());
        }
        let truth = brute::parts(node, lab)?;
        let mut sweep = Sweep::new(self.options.clone());
        sweep.on_fold(node, lab)?;
        let (key, _) = sweep
            .tallies
            .first_key_value()
            .expect("one point was tested");
        match (key.rung, truth) {
            (Some(Rung::L5), _) | (_, None) => seen.undecided += 1,
            (None, Some(parts)) => {
                assert!(parts, "{}: a witness, and no order parts", node.site);
                seen.parting += 1;
            }
            (Some(rung), Some(parts)) => {
                assert!(!parts, "{}: {rung:?}, and two orders part", node.site);
                seen.exact += 1;
                seen.exact_of_three += u64::from(node.addend_count() >= 3);
            }
        }
        Ok(())
    }
}

fn compare(recipe: Recipe) -> Compared {
    let scenario = Scenario::of(recipe).expect("what is drawn is valid");
    let mut session =
        Session::new(scenario, &CheckOptions::default()).expect("what is drawn can be run");
    let options = session.sweep_options();
    let mut beside = Beside {
        options,
        compared: Compared::default(),
    };
    let (run, steps) = (RunOptions::default(), session.steps());
    let record = session.run(&run, steps, None, &mut beside);
    record.expect("what is drawn can be run");
    beside.compared
}

/// The sweep against brute force over all orders, sum by sum, on the addends of real runs. All
/// order switches are free at once: a sum is tested on the reference run's inputs whatever else
/// varies.
#[test]
fn the_sweep_says_of_each_sum_what_brute_force_says() {
    let all = bitproof::strategies::switches;
    let mut total = Compared::default();
    let draws = (strategies::ordered_recipes_within(LIMITS), all());
    let mut runner = TestRunner::new(config(60));
    let seen = std::cell::RefCell::new(&mut total);
    runner
        .run(&draws, |(recipe, switches)| {
            let wgrad_splits = recipe.determinism.wgrad_splits;
            let determinism = Determinism {
                wgrad_splits,
                ..switches
            };
            let compared = compare(Recipe {
                determinism,
                ..recipe
            });
            let mut seen = seen.borrow_mut();
            seen.parting += compared.parting;
            seen.exact += compared.exact;
            seen.exact_of_three += compared.exact_of_three;
            seen.undecided += compared.undecided;
            Ok(())
        })
        .unwrap();
    // A comparison that saw one side only would be none.
    assert!(total.parting >= 200 && total.exact >= 200, "{total:?}");
    assert!(total.exact_of_three >= 1, "{total:?}");
}

/// Scenarios with restarts, replicas and free placement end in an outcome, whatever it is.
#[test]
fn every_scenario_that_is_drawn_can_be_checked() {
    let mut runner = TestRunner::new(config(10));
    let scenarios = strategies::scenarios_of(strategies::recipes_within(LIMITS));
    let mut grades = BTreeSet::new();
    let seen = std::cell::RefCell::new(&mut grades);
    runner
        .run(&scenarios, |scenario| {
            let outcome = checked(&scenario);
            prop_assert!(outcome.is_checked());
            prop_assert_ne!(outcome.grade(), Grade::Uncontrolled, "{}", outcome);
            prop_assert_eq!(outcome.across.is_some(), !scenario.free.is_empty());
            seen.borrow_mut().insert(outcome.grade());
            Ok(())
        })
        .unwrap();
    assert!(grades.len() >= 2, "{grades:?}");
}
