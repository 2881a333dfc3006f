//! The list of a step's collectives is what a step does: over drawn recipes, each reducing
//! collective of a run is on the list with its size, type, operation and plan, as often as the
//! list says, and nothing else is.

use std::collections::BTreeMap;

use bitproof::engine::EngineError;
use bitproof::plan::{Collective, Combine, Digest, Reduction};
use bitproof::prove::job_plans::JobPlans;
use bitproof::prove::session::Session;
use bitproof::strategies::{self, Limits};
use bitproof::world::command::CollectiveKind;
use bitproof::world::fold::{FoldJob, FoldLab, FoldNode};
use bitproof::world::{Family, Observer, RunOptions};
use bitproof::{CheckOptions, Recipe, Scenario};
use proptest::prelude::*;

const LIMITS: Limits = Limits {
    ranks: 16,
    tensor: 2,
    pipeline: 2,
    virtual_stages: 2,
    data: 4,
    layers_a_stage: 2,
    micro_batch_size: 2,
    microbatches: 4,
    steps: 2,
};

/// What tells collectives of one group apart.
type Key = (u32, Family, &'static str, String, u64);

/// Times in a step, and the plan.
type Counted = BTreeMap<Key, (u64, Digest)>;

#[derive(Default)]
struct Watch(Counted);

impl Observer for Watch {
    fn on_fold(&mut self, node: &FoldNode, _: &mut FoldLab<'_>) -> Result<(), EngineError> {
        let (Some(shape), FoldJob::Slots(job)) = (node.shape, &node.job) else {
            return Ok(());
        };
        let (family, operation) = match shape.kind {
            CollectiveKind::AllReduce { family, combine } => match combine {
                Combine::Sum => (family, "all-reduce"),
                Combine::Max => (family, "maximum"),
            },
            CollectiveKind::ReduceScatter { family } => (family, "reduce-scatter"),
            other => panic!("{} adds nothing", other.name()),
        };
        let elements = elements(family, shape.elements);
        let key = (
            shape.group.0,
            family,
            operation,
            shape.dtype.to_string(),
            elements,
        );
        let hash = match family {
            Family::SharedEmbedding => Digest::default(),
            _ => job.plan.hash(),
        };
        let counted = self.0.entry(key).or_insert((0, hash));
        assert_eq!(counted.1, hash, "one plan for one shape");
        counted.0 += 1;
        Ok(())
    }
}

/// Of a shared embedding a run sums the shard that it keeps, a job of Megatron-LM the whole matrix.
fn elements(family: Family, elements: u64) -> u64 {
    match family {
        Family::SharedEmbedding => 0,
        _ => elements,
    }
}

fn listed(recipe: &Recipe, scenario: &Scenario) -> Counted {
    let session = Session::new(scenario.clone(), &CheckOptions::default()).expect("it runs");
    let allocation = session.allocations[0].clone();
    let plans = JobPlans::of(recipe, allocation).expect("what runs has plans");
    let mut list = Counted::new();
    for one in &plans.collectives {
        let collective = &one.collective;
        let operation = match (collective.collective, collective.reduction) {
            (Collective::AllReduce, Reduction::Max) => "maximum",
            (Collective::AllReduce, _) => "all-reduce",
            (Collective::ReduceScatter, _) => "reduce-scatter",
            // A run has it as messages, and a fold of each rank's own.
            (Collective::ReduceScatterFp32Accumulation, _) => continue,
            (other, _) => panic!("{other:?} is not listed"),
        };
        let family = collective.family.expect("derived from a recipe");
        let dtype = collective.dtype.to_string();
        let elements = elements(family, collective.elements);
        for (group, plan) in collective.groups.iter().zip(&one.plans) {
            let key = (group.0, family, operation, dtype.clone(), elements);
            let hash = match family {
                Family::SharedEmbedding => Digest::default(),
                _ => plan.hash(),
            };
            list.entry(key).or_insert((0, hash)).0 += collective.times;
        }
    }
    list
}

fn ran(scenario: &Scenario) -> Counted {
    let options = CheckOptions::default();
    let mut session = Session::new(scenario.clone(), &options).expect("what is drawn runs");
    let mut watch = Watch::default();
    let run = session.run(&RunOptions::default(), 1..2, None, &mut watch);
    run.expect("a step runs");
    watch.0
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..Default::default()
    })]
    #[test]
    fn a_step_does_what_is_listed(recipe in strategies::ordered_recipes_within(LIMITS)) {
        prop_assume!(recipe.ddp == bitproof::recipe::DataParallelKind::Megatron);
        let scenario = Scenario::of(recipe.clone()).expect("what is drawn is valid");
        prop_assert_eq!(ran(&scenario), listed(&recipe, &scenario));
    }
}

/// The control: a list of another recipe is not what the step does.
#[test]
fn another_recipe_has_another_list() {
    let loaded = Scenario::load("scenarios/quickstart.toml".as_ref(), &Default::default());
    let scenario = loaded.expect("it is shipped").scenario;
    let ran = ran(&scenario);
    let recipe = &scenario.recipe;
    assert_eq!(ran, listed(recipe, &scenario));
    for other in [
        Recipe {
            micro_batch_size: 2,
            global_batch_size: recipe.global_batch_size * 2,
            ..recipe.clone()
        },
        Recipe {
            num_layers: recipe.num_layers * 2,
            ..recipe.clone()
        },
        Recipe {
            global_batch_size: recipe.global_batch_size * 2,
            ..recipe.clone()
        },
        Recipe {
            clip_grad: 0.0,
            ..recipe.clone()
        },
    ] {
        assert_ne!(ran, listed(&other, &scenario));
    }
}
