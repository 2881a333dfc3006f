//! Strategies for property tests with `proptest` (cargo feature `strategies`): recipes, their order
//! switches, allocations, and scenarios.
//!
//! What is drawn is valid by construction, nothing is filtered. It shrinks to
//! [`Recipe::small`]'s kind: TP 1, PP 1, DP 2, one layer, few tokens, every order fixed.
//!
//! ```
//! use bitproof::{CheckOptions, Grade, Scenario, strategies};
//! use proptest::test_runner::{Config, TestCaseError, TestRunner};
//!
//! // Your own property in place of this one: whatever the layout, fixed orders are proved.
//! let mut runner = TestRunner::new(Config::with_cases(4));
//! let property = |recipe: bitproof::Recipe| {
//!     let scenario = Scenario::of(recipe).map_err(|e| TestCaseError::fail(e.to_string()))?;
//!     let outcome = bitproof::check(&scenario, CheckOptions::default());
//!     let outcome = outcome.map_err(|e| TestCaseError::fail(e.to_string()))?;
//!     match outcome.grade() {
//!         Grade::Proved => Ok(()),
//!         _ => Err(TestCaseError::fail(outcome.to_string())),
//!     }
//! };
//! runner.run(&strategies::ordered_recipes(), property).unwrap();
//! ```

mod course;
mod draws;

use std::collections::BTreeSet;

use course::{agains, courses};
use draws::{batches, layouts, models, precisions};
use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::{AllocationFile, Free, Scenario};
use crate::recipe::{Autotune, Determinism, LocalOrder, Recipe};

/// How large recipes may be drawn. The largest number of ranks bounds the product of the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Ranks in all; at least 2.
    pub ranks: u32,
    /// Tensor-parallel ranks: powers of two up to it, at most 64.
    pub tensor: u32,
    /// Pipeline stages.
    pub pipeline: u32,
    /// Model chunks of a pipeline stage, where there are stages to interleave.
    pub virtual_stages: u32,
    /// Data-parallel ranks.
    pub data: u32,
    /// Layers of a pipeline stage, or of each of its chunks.
    pub layers_a_stage: u32,
    /// Sequences of one rank in one microbatch.
    pub micro_batch_size: u32,
    /// Microbatches of one rank in one step; an interleaved pipeline has one a stage at least.
    pub microbatches: u32,
    /// Steps that are trained and checked; at least 2, so that a run can be resumed.
    pub steps: u32,
}

impl Default for Limits {
    /// Up to 16 ranks and a few dozen tokens a rank: a check takes a fraction of a second.
    fn default() -> Limits {
        Limits {
            ranks: 16,
            tensor: 4,
            pipeline: 2,
            virtual_stages: 2,
            data: 4,
            layers_a_stage: 2,
            micro_batch_size: 2,
            microbatches: 4,
            steps: 3,
        }
    }
}

/// Recipes of the default [`Limits`], with order switches in any position.
pub fn recipes() -> impl Strategy<Value = Recipe> {
    recipes_within(Limits::default())
}

/// Recipes of the default [`Limits`] in which every order is fixed.
pub fn ordered_recipes() -> impl Strategy<Value = Recipe> {
    ordered_recipes_within(Limits::default())
}

/// Recipes with order switches in any position, and tuned kernels that are timed where that leaves
/// them an order.
pub fn recipes_within(limits: Limits) -> impl Strategy<Value = Recipe> {
    let draws = (ordered_recipes_within(limits), switches(), any::<bool>());
    draws.prop_map(|(recipe, switches, timed)| Recipe {
        determinism: Determinism {
            wgrad_splits: recipe.determinism.wgrad_splits,
            autotune: match timed && switches.tuned_and_free().next().is_none() {
                true => Autotune::Timed,
                false => Autotune::Fixed,
            },
            ..switches
        },
        ..recipe
    })
}

/// Recipes in which every order is fixed.
pub fn ordered_recipes_within(limits: Limits) -> impl Strategy<Value = Recipe> {
    let draws = (
        layouts(limits),
        models(limits),
        batches(limits),
        precisions(),
        courses(),
        agains(),
    );
    draws.prop_map(|(layout, model, batch, precision, course, again)| {
        let recipe = layout.applied(Recipe::small());
        let recipe = model.applied(recipe);
        let recipe = batch.applied(recipe);
        let recipe = precision.applied(recipe);
        again.applied(course.applied(recipe))
    })
}

/// Every order switch that is simulated, in either position, with one split-K part.
pub fn switches() -> impl Strategy<Value = Determinism> {
    let keys = switch_keys();
    let count = keys.len();
    prop::collection::vec(any::<bool>(), count).prop_map(move |free| {
        let freed = keys.iter().zip(free).filter(|(_, free)| *free);
        freed.fold(Determinism::ORDERED, |switches, (key, _)| {
            let flipped = switches.with_order(key, LocalOrder::Arrival);
            flipped.expect("a key of an order switch")
        })
    })
}

/// One order switch, by its key in `[determinism]`.
pub fn switch() -> impl Strategy<Value = &'static str> {
    select(switch_keys())
}

/// Keys of the switches that the training program can run in arrival order.
fn switch_keys() -> Vec<&'static str> {
    let is_simulated = |key: &&'static str| {
        let flipped = Determinism::ORDERED.with_order(key, LocalOrder::Arrival);
        let determinism = flipped.expect("a key of an order switch");
        let recipe = Recipe {
            determinism,
            ..Recipe::small()
        };
        recipe.validated().is_ok()
    };
    let orders = Determinism::ORDERED.orders();
    orders
        .map(|(key, _)| key)
        .into_iter()
        .filter(is_simulated)
        .collect()
}

/// An allocation of `world_size` ranks to equal hosts: consecutive ranks together, or dealt out in
/// turn. Shrinks to one host.
///
/// # Panics
/// For a world of no rank, or of more than a topology can have.
pub fn allocations(world_size: u32) -> impl Strategy<Value = AllocationFile> {
    select(allocations_of(world_size))
}

/// Every such allocation, each placing the ranks in its own way.
fn allocations_of(world: u32) -> Vec<AllocationFile> {
    assert!(
        (1..=crate::topology::MAX_RANKS).contains(&world),
        "{world} ranks"
    );
    let mut all = Vec::new();
    for hosts in (1..=world).filter(|hosts| world.is_multiple_of(*hosts)) {
        let gpus = world / hosts;
        let block = AllocationFile::block(
            &format!("block-{hosts}x{gpus}"),
            &vec![gpus; hosts as usize],
        );
        all.push(block.expect("equal hosts, none empty"));
        if hosts > 1 && gpus > 1 {
            let ranks = |host: u32| (host..world).step_by(hosts as usize).collect::<Vec<_>>();
            let dealt: Vec<_> = (0..hosts).map(ranks).collect();
            let text = format!("name = \"dealt-{hosts}x{gpus}\"\nhosts = {dealt:?}");
            all.push(AllocationFile::from_toml(&text).expect("each rank once"));
        }
    }
    all
}

/// Scenarios around [`recipes`]: placed on hosts of eight, or free to run on either of two
/// allocations.
pub fn scenarios() -> impl Strategy<Value = Scenario> {
    scenarios_of(recipes())
}

/// Scenarios around recipes of one's own.
pub fn scenarios_of(recipes: impl Strategy<Value = Recipe>) -> impl Strategy<Value = Scenario> {
    recipes.prop_flat_map(|recipe| {
        let all = allocations_of(recipe.world_size);
        let pairs = match all.len() {
            1 => Just(Vec::new()).boxed(),
            _ => prop_oneof![Just(Vec::new()), subsequence(all, 2)].boxed(),
        };
        pairs.prop_map(move |allocations| {
            let free = match allocations.is_empty() {
                true => BTreeSet::new(),
                false => BTreeSet::from([Free::Placement]),
            };
            Scenario {
                allocations,
                free,
                ..Scenario::of(recipe.clone()).expect("what is drawn is valid")
            }
        })
    })
}

#[cfg(test)]
mod tests;
