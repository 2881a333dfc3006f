//! Random recipes: accepted exactly when an independent reading of the rules accepts them, with
//! sizes that multiply back, and a text and a hash that survive a round trip.

use std::path::Path;

use bitproof::diagnostic::Source;
use bitproof::recipe::Recipe;
use bitproof::scenario::{Overrides, Scenario};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, TestRunner};

/// The numbers of a recipe that rules relate, drawn so that sound recipes are about as frequent as
/// broken ones.
#[derive(Clone, Debug)]
struct Numbers {
    world: u32,
    tensor: u32,
    pipeline: u32,
    sequence_parallel: bool,
    layers: u32,
    hidden: u32,
    ffn: u32,
    heads: u32,
    seq: u32,
    vocab: u32,
    micro: u32,
    global: u32,
    splits: u32,
    bf16: bool,
    sharded: bool,
    in_bf16: bool,
    with_fp32_accumulation: bool,
}

fn numbers() -> impl Strategy<Value = Numbers> {
    let layout = (
        select(vec![4u32, 8, 16, 24]),
        select(vec![1u32, 2, 3]),
        select(vec![1u32, 2]),
    );
    let model = (
        select(vec![2u32, 4, 6]),
        select(vec![16u32, 24, 32, 48, 520]),
        select(vec![48u32, 64, 96, 52]),
        select(vec![2u32, 4, 6]),
        select(vec![256u32, 384, 260]),
    );
    let batch = (
        select(vec![2u32, 8, 12, 6]),
        select(vec![1u32, 2]),
        select(vec![8u32, 16, 48, 20]),
        select(vec![1u32, 3, 13]),
    );
    let switches = (
        any::<[bool; 3]>(),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.2),
    );
    (layout, model, batch, switches).prop_map(
        |((world, tensor, pipeline), (layers, hidden, ffn, heads, vocab), batch, switches)| {
            let (seq, micro, global, splits) = batch;
            let ([sequence_parallel, bf16, sharded], in_bf16, with_fp32_accumulation) = switches;
            Numbers {
                world,
                tensor,
                pipeline,
                sequence_parallel,
                layers,
                hidden,
                ffn,
                heads,
                seq,
                vocab,
                micro,
                global,
                splits,
                bf16,
                sharded,
                in_bf16,
                with_fp32_accumulation,
            }
        },
    )
}

/// Recipes of one rank whose sizes divide, each small or at its limit.
fn extremes() -> impl Strategy<Value = String> {
    let model = (
        select(vec![1u32, 1024]),
        select(vec![64u32, 4096, 16_384]),
        select(vec![64u32, 65_536]),
        select(vec![256u32, 262_144]),
        select(vec![16u32, 1 << 24]),
    );
    let batch = (
        select(vec![8u32, 4096, 65_536]),
        select(vec![1u32, 1024]),
        select(vec![1u32, 1024]),
        select(vec![1u32, 8, 256]),
        select(vec![1u32, 1 << 20]),
    );
    (model, batch).prop_map(|((layers, hidden, ffn, vocab, positions), batch)| {
        let (seq, micro, count, splits, bucket) = batch;
        format!(
            "world_size = 1\nnum_layers = {layers}\nhidden_size = {hidden}\n\
             ffn_hidden_size = {ffn}\nnum_attention_heads = {}\nseq_length = {seq}\n\
             max_position_embeddings = {}\npadded_vocab_size = {vocab}\n\
             micro_batch_size = {micro}\nglobal_batch_size = {}\ntrain_iters = 3\nlr = 1e-3\n\
             overlap_grad_reduce = true\nddp_bucket_size = {bucket}\n\
             [determinism]\nwgrad_splits = {}\n",
            hidden / 64,
            seq.max(positions),
            micro * count,
            splits.min(seq * micro),
        )
    })
}

impl Numbers {
    fn text(&self) -> String {
        format!(
            "world_size = {}\ntensor_model_parallel_size = {}\npipeline_model_parallel_size = {}\n\
             sequence_parallel = {}\nnum_layers = {}\nhidden_size = {}\nffn_hidden_size = {}\n\
             num_attention_heads = {}\nseq_length = {}\npadded_vocab_size = {}\n\
             micro_batch_size = {}\nglobal_batch_size = {}\nbf16 = {}\n\
             use_distributed_optimizer = {}\ngrad_reduce_in_bf16 = {}\n\
             ddp_reduce_scatter_with_fp32_accumulation = {}\ntrain_iters = 3\nlr = 1e-3\n\
             [determinism]\nwgrad_splits = {}\n",
            self.world,
            self.tensor,
            self.pipeline,
            self.sequence_parallel,
            self.layers,
            self.hidden,
            self.ffn,
            self.heads,
            self.seq,
            self.vocab,
            self.micro,
            self.global,
            self.bf16,
            self.sharded,
            self.in_bf16,
            self.with_fp32_accumulation,
            self.splits,
        )
    }

    /// The rules, in the words of the documentation: no code of the crate is used.
    fn is_sound(&self) -> bool {
        let Numbers {
            world,
            tensor,
            pipeline,
            ..
        } = *self;
        if !world.is_multiple_of(tensor * pipeline) {
            return false;
        }
        let data = world / tensor / pipeline;
        let divides = self.layers.is_multiple_of(pipeline)
            && self.heads.is_multiple_of(tensor)
            && self.hidden.is_multiple_of(self.heads)
            && self.global.is_multiple_of(self.micro * data);
        let even_heads = divides && (self.hidden / self.heads).is_multiple_of(2);
        let vec4 = |size: u32| size.is_multiple_of(tensor) && (size / tensor).is_multiple_of(4);
        let tokens = self.seq * self.micro;
        let split_sequence = self.seq.is_multiple_of(tensor) && tensor > 1;
        even_heads
            && self.hidden / self.heads <= 128
            && vec4(self.hidden)
            && vec4(self.ffn)
            && vec4(self.vocab)
            && tokens.is_multiple_of(4)
            && self.splits <= tokens
            && (!self.sequence_parallel || split_sequence)
            && (!self.in_bf16 || self.bf16)
            && (!self.with_fp32_accumulation || self.sharded)
    }
}

fn read(text: &str) -> Option<Recipe> {
    Recipe::from_source(&Source::new("recipe.toml", text))
        .ok()
        .map(|(recipe, _)| recipe)
}

/// Parameters of a stage, tensor by tensor, as a rank holds them.
fn parameters_of(recipe: &Recipe, stage: u32) -> u64 {
    let tensor = recipe.tensor_model_parallel_size;
    let hidden = recipe.hidden_size;
    let own_hidden = hidden / tensor;
    let own_ffn = recipe.ffn_hidden_size / tensor;
    let layer = [
        (hidden, 1),
        (own_hidden, hidden),
        (own_hidden, hidden),
        (own_hidden, hidden),
        (hidden, own_hidden),
        (hidden, 1),
        (own_ffn, hidden),
        (own_ffn, hidden),
        (hidden, own_ffn),
    ];
    let words = |shapes: &[(u32, u32)]| -> u64 {
        shapes
            .iter()
            .map(|(rows, columns)| u64::from(rows * columns))
            .sum()
    };
    let vocab = (recipe.padded_vocab_size / tensor, hidden);
    let mut total = u64::from(recipe.layers_per_stage()) * words(&layer);
    if stage == 0 {
        total += words(&[vocab]);
    }
    if stage + 1 == recipe.pipeline_model_parallel_size {
        total += words(&[vocab, (hidden, 1)]);
    }
    total
}

proptest! {
    #![proptest_config(Config { cases: 2_000, failure_persistence: None, ..Config::default() })]

    #[test]
    fn a_recipe_is_accepted_exactly_when_its_rules_hold(numbers in numbers()) {
        let recipe = read(&numbers.text());
        prop_assert_eq!(recipe.is_some(), numbers.is_sound());
        let Some(recipe) = recipe else { return Ok(()) };
        let ranks = recipe.data_parallel_size() * numbers.tensor * numbers.pipeline;
        prop_assert_eq!(ranks, numbers.world);
        let sequences = recipe.microbatch_count() * numbers.micro * recipe.data_parallel_size();
        prop_assert_eq!(sequences, numbers.global);
        prop_assert_eq!(numbers.hidden % numbers.heads, 0);
        for stage in 0..numbers.pipeline {
            prop_assert_eq!(recipe.parameter_count(stage), parameters_of(&recipe, stage));
        }
        let again = read(&toml::to_string(&recipe).expect("a recipe has a TOML form"));
        prop_assert_eq!(again, Some(recipe));
    }

    #[test]
    fn a_sound_recipe_is_sound_to_the_training_program(numbers in numbers()) {
        if let Some(recipe) = read(&numbers.text()) {
            let options = bitproof::train::TrainOptions::from(&recipe);
            prop_assert!(options.check().is_ok(), "{:?}", options.check());
        }
    }

    /// Nor do sizes at their limits find the two of different minds: what no rank can hold is
    /// refused where it is written.
    #[test]
    fn limits_are_the_training_programs(text in extremes()) {
        if let Some(recipe) = read(&text) {
            let options = bitproof::train::TrainOptions::from(&recipe);
            prop_assert!(options.check().is_ok(), "{:?}\n{text}", options.check());
        }
    }

    #[test]
    fn a_recipe_that_is_drawn_is_sound_to_both(recipe in bitproof::strategies::recipes()) {
        let options = bitproof::train::TrainOptions::from(&recipe);
        prop_assert!(options.check().is_ok(), "{:?}", options.check());
        let text = toml::to_string(&recipe).expect("a recipe has a TOML form");
        prop_assert_eq!(read(&text), Some(recipe));
    }

    /// With GPT-3's options and grouped queries: what is accepted, the training program takes, and
    /// both count the same parameters. Widths that do not divide are refused, and nothing else.
    #[test]
    fn options_of_the_model_are_counted(
        numbers in numbers(),
        groups in select(vec![1u32, 2, 3, 4, 6]),
        channels in select(vec![4u32, 6, 8, 12]),
        flags in any::<[bool; 5]>(),
    ) {
        let [rms, swiglu, biases, learned, tied] = flags;
        let options = format!(
            "num_query_groups = {groups}\nkv_channels = {channels}\nnormalization = \"{}\"\n\
             swiglu = {swiglu}\ndisable_bias_linear = {}\nposition_embedding_type = \"{}\"\n\
             max_position_embeddings = 100\nuntie_embeddings_and_output_weights = {}\n",
            if rms { "RMSNorm" } else { "LayerNorm" },
            !biases,
            if learned { "learned_absolute" } else { "none" },
            !tied,
        );
        let recipe = read(&(options + &numbers.text()));
        let (heads, tensor) = (numbers.heads, numbers.tensor);
        let vec4 = |size: u32| size.is_multiple_of(4 * tensor);
        let widths = heads.is_multiple_of(groups)
            && groups.is_multiple_of(tensor)
            && vec4(heads * channels)
            && vec4((heads + 2 * groups) * channels);
        if numbers.is_sound() {
            prop_assert_eq!(recipe.is_some(), widths);
        }
        let Some(recipe) = recipe else { return Ok(()) };
        prop_assert!(widths);
        let options = bitproof::train::TrainOptions::from(&recipe);
        prop_assert!(options.check().is_ok(), "{:?}", options.check());
        for stage in 0..numbers.pipeline {
            let list = bitproof::model::stage_parameters(&options.model, stage);
            let count: u64 = list.iter().map(|parameter| u64::from(parameter.len())).sum();
            prop_assert_eq!(recipe.parameter_count(stage), count);
        }
    }

    #[test]
    fn a_scenario_keeps_its_hash_in_its_self_contained_text(numbers in numbers()) {
        let source = Source::new("case.toml", numbers.text());
        let path = Path::new("case.toml");
        let Ok(loaded) = Scenario::from_source(&source, path, &Overrides::default()) else {
            return Ok(());
        };
        let text = loaded.scenario.to_toml(Path::new("."));
        let again = Scenario::from_source(&Source::new("again", text), path, &Overrides::default());
        let again = again.expect("what was written can be read").scenario;
        prop_assert_eq!(loaded.scenario.content_hash(), again.content_hash());
        let other = Overrides { set: vec!["recipe.seed=77".into()], ..Overrides::default() };
        let other = Scenario::from_source(&source, path, &other).expect("still sound").scenario;
        prop_assert_ne!(loaded.scenario.content_hash(), other.content_hash());
    }
}

/// The properties above would hold vacuously if one kind of recipe were never drawn.
#[test]
fn sound_and_broken_recipes_are_both_drawn() {
    let mut runner = TestRunner::deterministic();
    let draw = |runner: &mut TestRunner| {
        numbers()
            .new_tree(runner)
            .expect("a strategy without rejections")
            .current()
            .is_sound()
    };
    let sound = (0..2_000).filter(|_| draw(&mut runner)).count();
    let text = |runner: &mut TestRunner| extremes().new_tree(runner).unwrap().current();
    let accepted = (0..2_000).filter(|_| read(&text(&mut runner)).is_some());
    let accepted = accepted.count();
    assert!(
        (20..1_980).contains(&accepted),
        "{accepted} of 2000 extremes are accepted"
    );
    assert!((20..1_980).contains(&sound), "{sound} of 2000 are sound");
}
