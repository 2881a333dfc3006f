use super::*;
use crate::recipe::{LrDecayStyle, RecomputeGranularity};
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
        assert_eq!(least.num_virtual_stages_per_pipeline_rank, 1);
        assert_eq!(least.num_distributed_optimizer_instances, 1);
        assert_eq!(least.recompute_granularity, None);
        assert_eq!(least.lr_decay_style, LrDecayStyle::Constant);
        assert_eq!((least.lr_warmup_iters, least.min_lr), (0, 0.0));
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
    let sizes = |size: fn(&Recipe) -> u32| -> BTreeSet<u32> { draws.iter().map(size).collect() };
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

/// What is beside the sizes comes up, too, with a short last turn of an interleaved pipeline.
#[test]
fn recipes_differ_in_their_course() {
    let mut runner = TestRunner::deterministic();
    let draws: Vec<Recipe> = (0..300)
        .map(|_| recipes().new_tree(&mut runner).unwrap().current())
        .collect();
    let count = |is: fn(&Recipe) -> bool| draws.iter().filter(|recipe| is(recipe)).count();
    let is_interleaved = |r: &Recipe| r.num_virtual_stages_per_pipeline_rank > 1;
    let is_short = |r: &Recipe| {
        let group = r.microbatch_group_size_per_virtual_pipeline_stage;
        r.num_virtual_stages_per_pipeline_rank > 1 && !r.microbatch_count().is_multiple_of(group)
    };
    let (full, selective) = (RecomputeGranularity::Full, RecomputeGranularity::Selective);
    assert!((8..150).contains(&count(is_interleaved)));
    assert!(count(|r| r.num_distributed_optimizer_instances == 2) >= 10);
    for granularity in [full, selective] {
        let of = draws
            .iter()
            .filter(|r| r.recompute_granularity == Some(granularity));
        assert!(of.count() >= 30, "{granularity:?}");
    }
    for style in LrDecayStyle::WORDS.map(|(_, style)| style) {
        let of = draws.iter().filter(|r| r.lr_decay_style == style);
        assert!(of.count() >= 50, "{style:?}");
    }
    assert!((10..100).contains(&count(|r| r.exit_duration_in_mins.is_some())));
    assert!(count(|r| r.lr_warmup_iters > 0) >= 50 && count(|r| r.min_lr > 0.0) >= 50);
    // Two stages and turns of three of five microbatches.
    let five = Limits {
        microbatches: 5,
        ..Limits::default()
    };
    let mut drawn = (0..3_000).map(|_| {
        recipes_within(five)
            .new_tree(&mut runner)
            .unwrap()
            .current()
    });
    assert!(drawn.any(|recipe| is_short(&recipe)));
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
