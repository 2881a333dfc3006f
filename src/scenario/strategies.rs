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

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::{select, subsequence};

use super::{AllocationFile, Free, Scenario};
use crate::recipe::{Determinism, LocalOrder, Normalization, PositionEmbedding, Recipe};

/// How large recipes may be drawn. The largest number of ranks bounds the product of the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Ranks in all; at least 2.
    pub ranks: u32,
    /// Tensor-parallel ranks: powers of two up to it, at most 64.
    pub tensor: u32,
    /// Pipeline stages.
    pub pipeline: u32,
    /// Data-parallel ranks.
    pub data: u32,
    /// Layers of a pipeline stage.
    pub layers_a_stage: u32,
    /// Sequences of one rank in one microbatch.
    pub micro_batch_size: u32,
    /// Microbatches of one rank in one step.
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

/// Recipes with order switches in any position.
pub fn recipes_within(limits: Limits) -> impl Strategy<Value = Recipe> {
    (ordered_recipes_within(limits), switches()).prop_map(|(recipe, switches)| Recipe {
        determinism: Determinism {
            wgrad_splits: recipe.determinism.wgrad_splits,
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
    );
    draws.prop_map(|(layout, model, batch, precision)| {
        let recipe = layout.applied(Recipe::small());
        let recipe = model.applied(recipe);
        let recipe = batch.applied(recipe);
        precision.applied(recipe)
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

/// Sizes of the layout.
#[derive(Clone, Debug)]
struct Layout {
    tensor: u32,
    pipeline: u32,
    data: u32,
    sequence_parallel: bool,
    use_tp_pp_dp_mapping: bool,
}

fn layouts(limits: Limits) -> impl Strategy<Value = Layout> {
    let ranks = limits.ranks.max(2);
    let exponent = 0..=limits.tensor.clamp(1, 64).min(ranks).ilog2();
    // Two replicas are the least with a gradient sum, so one is no simplification of them.
    let data: Vec<u32> = match limits.data {
        0 | 1 => vec![1],
        most => [2, 1].into_iter().chain(3..=most).collect(),
    };
    let sizes = (exponent, 1..=limits.pipeline.max(1), select(data));
    (sizes, any::<[bool; 2]>()).prop_map(move |((exponent, pipeline, data), flags)| {
        let tensor = 1 << exponent;
        let pipeline = pipeline.min(ranks / tensor);
        Layout {
            tensor,
            pipeline,
            data: data.min(ranks / tensor / pipeline),
            sequence_parallel: flags[0] && tensor > 1,
            use_tp_pp_dp_mapping: flags[1],
        }
    })
}

impl Layout {
    fn applied(&self, recipe: Recipe) -> Recipe {
        Recipe {
            world_size: self.tensor * self.pipeline * self.data,
            tensor_model_parallel_size: self.tensor,
            pipeline_model_parallel_size: self.pipeline,
            microbatch_group_size_per_virtual_pipeline_stage: self.pipeline,
            sequence_parallel: self.sequence_parallel,
            use_tp_pp_dp_mapping: self.use_tp_pp_dp_mapping,
            ..recipe
        }
    }
}

/// Sizes of the model, as multiples of what the layout splits.
#[derive(Clone, Debug)]
struct Model {
    layers_a_stage: u32,
    heads_a_rank: u32,
    /// In units of four: a head is a whole number of vec4s.
    head_width: u32,
    ffn_width: u32,
    sequence: u32,
    /// Heads share keys and values by pairs, where there are pairs.
    shares_groups: bool,
    parts: Parts,
}

/// What a layer is made of; `false` is the small recipe's choice.
#[derive(Clone, Debug)]
struct Parts {
    layer_norm: bool,
    gelu: bool,
    biases: bool,
    learned_positions: bool,
    tied_embedding: bool,
    attention_dropout: bool,
    hidden_dropout: bool,
}

fn models(limits: Limits) -> impl Strategy<Value = Model> {
    let sizes = (
        1..=limits.layers_a_stage.max(1),
        1..=2u32,
        1..=2u32,
        1..=4u32,
    );
    (sizes, 1..=4u32, any::<[bool; 8]>()).prop_map(|(sizes, sequence, flags)| {
        let (layers_a_stage, heads_a_rank, head_width, ffn_width) = sizes;
        let [
            shares_groups,
            layer_norm,
            gelu,
            biases,
            learned_positions,
            ..,
        ] = flags;
        let [.., tied_embedding, attention_dropout, hidden_dropout] = flags;
        Model {
            layers_a_stage,
            heads_a_rank,
            head_width,
            ffn_width,
            sequence,
            shares_groups: shares_groups && heads_a_rank == 2,
            parts: Parts {
                layer_norm,
                gelu,
                biases,
                learned_positions,
                tied_embedding,
                attention_dropout,
                hidden_dropout,
            },
        }
    })
}

impl Parts {
    fn applied(&self, recipe: Recipe) -> Recipe {
        let dropout = |drops: bool| if drops { 0.1 } else { 0.0 };
        let mut recipe = Recipe {
            swiglu: !self.gelu,
            disable_bias_linear: !self.biases,
            untie_embeddings_and_output_weights: !self.tied_embedding,
            attention_dropout: dropout(self.attention_dropout),
            hidden_dropout: dropout(self.hidden_dropout),
            ..recipe
        };
        if self.layer_norm {
            recipe.normalization = Normalization::LayerNorm;
        }
        if self.learned_positions {
            recipe.position_embedding_type = PositionEmbedding::LearnedAbsolute;
        }
        recipe
    }
}

impl Model {
    fn applied(&self, recipe: Recipe) -> Recipe {
        let tensor = recipe.tensor_model_parallel_size;
        let heads = self.heads_a_rank * tensor;
        let width = 4 * self.head_width;
        // A multiple of four tokens, and of the ranks that sequence parallelism splits it over.
        let seq_length = self.sequence * tensor.max(4);
        let recipe = self.parts.applied(recipe);
        Recipe {
            num_layers: self.layers_a_stage * recipe.pipeline_model_parallel_size,
            hidden_size: heads * width,
            ffn_hidden_size: 4 * self.ffn_width * tensor,
            num_attention_heads: heads,
            num_query_groups: if self.shares_groups { tensor } else { heads },
            kv_channels: width,
            seq_length,
            max_position_embeddings: seq_length,
            ..recipe
        }
    }
}

/// Sizes of the batch, and how it is trained on.
#[derive(Clone, Debug)]
struct Batch {
    micro_batch_size: u32,
    microbatches: u32,
    steps: u32,
    wgrad_splits: u32,
    clips: bool,
    seed: u32,
}

fn batches(limits: Limits) -> impl Strategy<Value = Batch> {
    let sizes = (
        1..=limits.micro_batch_size.max(1),
        1..=limits.microbatches.max(1),
        2..=limits.steps.max(2),
        1..=8u32,
    );
    (sizes, any::<bool>(), any::<u32>()).prop_map(|(sizes, clips, seed)| {
        let (micro_batch_size, microbatches, steps, wgrad_splits) = sizes;
        Batch {
            micro_batch_size,
            microbatches,
            steps,
            wgrad_splits,
            clips,
            seed,
        }
    })
}

impl Batch {
    fn applied(&self, recipe: Recipe) -> Recipe {
        let tokens = recipe.seq_length * self.micro_batch_size;
        let sequences = self.micro_batch_size * self.microbatches;
        Recipe {
            micro_batch_size: self.micro_batch_size,
            global_batch_size: sequences * recipe.data_parallel_size(),
            train_iters: self.steps,
            lr_decay_iters: self.steps,
            clip_grad: if self.clips { 1.0 } else { 0.0 },
            seed: u64::from(self.seed),
            determinism: Determinism {
                wgrad_splits: self.wgrad_splits.min(tokens),
                ..Determinism::ORDERED
            },
            ..recipe
        }
    }
}

/// Types, and how gradients are reduced.
#[derive(Clone, Debug)]
struct Precision {
    bf16: bool,
    grad_reduce_in_bf16: bool,
    use_distributed_optimizer: bool,
    with_fp32_accumulation: bool,
    bucket_size: Option<u32>,
}

fn precisions() -> impl Strategy<Value = Precision> {
    (any::<[bool; 4]>(), prop::option::of(64..4096u32)).prop_map(|(flags, bucket_size)| {
        let [
            bf16,
            grad_reduce_in_bf16,
            use_distributed_optimizer,
            with_fp32_accumulation,
        ] = flags;
        Precision {
            bf16,
            grad_reduce_in_bf16,
            use_distributed_optimizer,
            with_fp32_accumulation,
            bucket_size,
        }
    })
}

impl Precision {
    fn applied(&self, recipe: Recipe) -> Recipe {
        let in_bf16 = self.grad_reduce_in_bf16 && self.bf16;
        let sharded = self.use_distributed_optimizer;
        Recipe {
            bf16: self.bf16,
            grad_reduce_in_bf16: in_bf16,
            accumulate_allreduce_grads_in_fp32: !in_bf16,
            use_distributed_optimizer: sharded,
            ddp_reduce_scatter_with_fp32_accumulation: self.with_fp32_accumulation && sharded,
            ddp_bucket_size: self.bucket_size,
            overlap_grad_reduce: self.bucket_size.is_some(),
            ..recipe
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::strategy::ValueTree;
    use proptest::test_runner::TestRunner;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

        #[test]
        fn every_recipe_that_is_drawn_is_valid(recipe in recipes()) {
            let limits = Limits::default();
            prop_assert!(recipe.world_size <= limits.ranks);
            let refused = recipe.validated().err();
            prop_assert!(refused.is_none(), "{}", refused.unwrap());
        }

        #[test]
        fn every_scenario_that_is_drawn_is_valid(scenario in scenarios()) {
            let refused = scenario.validate().err();
            prop_assert!(refused.is_none(), "{}", refused.unwrap());
        }
    }

    /// Where every simplification fails the same way, the least recipe is left.
    #[test]
    fn recipes_shrink_to_the_least() {
        let mut runner = TestRunner::deterministic();
        for _ in 0..20 {
            let mut tree = recipes().new_tree(&mut runner).unwrap();
            while tree.simplify() {}
            let least = tree.current();
            let Recipe {
                world_size,
                tensor_model_parallel_size: tensor,
                pipeline_model_parallel_size: pipeline,
                num_layers,
                seq_length,
                ..
            } = least;
            assert_eq!((world_size, tensor, pipeline), (2, 1, 1));
            assert_eq!((num_layers, seq_length, least.global_batch_size), (1, 4, 2));
            assert_eq!(least.determinism, Determinism::ORDERED);
            assert!(!least.bf16 && !least.use_distributed_optimizer);
            assert!(least.swiglu && least.disable_bias_linear && least.hidden_dropout == 0.0);
        }
    }

    /// The draws are worth their name: each layout size and each switch comes up.
    #[test]
    fn recipes_differ() {
        let mut runner = TestRunner::deterministic();
        let draws: Vec<Recipe> = (0..300)
            .map(|_| recipes().new_tree(&mut runner).unwrap().current())
            .collect();
        let sizes =
            |size: fn(&Recipe) -> u32| -> BTreeSet<u32> { draws.iter().map(size).collect() };
        assert_eq!(
            sizes(|r| r.tensor_model_parallel_size),
            BTreeSet::from([1, 2, 4])
        );
        assert_eq!(
            sizes(|r| r.pipeline_model_parallel_size),
            BTreeSet::from([1, 2])
        );
        assert_eq!(
            sizes(Recipe::data_parallel_size),
            BTreeSet::from([1, 2, 3, 4])
        );
        for (place, key) in switch_keys().into_iter().enumerate() {
            let is_free = |recipe: &&Recipe| {
                let orders = recipe.determinism.orders();
                orders.contains(&(key, LocalOrder::Arrival))
            };
            let free = draws.iter().filter(is_free).count();
            assert!(
                (60..240).contains(&free),
                "{place}: {key} free in {free} of 300"
            );
        }
    }

    #[test]
    fn allocations_place_each_rank_in_their_own_way() {
        let all = allocations_of(4);
        let names: Vec<&str> = all.iter().map(|file| &*file.name).collect();
        assert_eq!(names, ["block-1x4", "block-2x2", "dealt-2x2", "block-4x1"]);
        for (place, file) in all.iter().enumerate() {
            let placements = all[..place].iter().map(|other| &other.allocation.placement);
            assert!(
                placements
                    .clone()
                    .all(|other| *other != file.allocation.placement)
            );
        }
    }
}
