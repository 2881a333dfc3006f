//! What is drawn beside sizes: the learning rate's course, which activations are computed again in
//! backward or wait on the host, and instances of the optimizer. Laid on a recipe last, as each
//! depends on sizes.

use proptest::prelude::*;
use proptest::sample::select;

use super::super::restarts::default_restarts;
use crate::recipe::{
    CudaGraphImpl, LrDecayStyle, Recipe, RecomputeGranularity, RecomputeMethod, RecomputeModule,
};

/// The learning rate's course and its optimizer's instances.
#[derive(Clone, Debug)]
pub(super) struct Course {
    style: LrDecayStyle,
    warmup: u32,
    has_least: bool,
    /// Where the optimizer is distributed over an even number of ranks.
    two_instances: bool,
    /// The job ends by the clock.
    exits: bool,
}

pub(super) fn courses() -> impl Strategy<Value = Course> {
    let styles = [
        LrDecayStyle::Constant,
        LrDecayStyle::Linear,
        LrDecayStyle::Cosine,
    ];
    // One in eight: each step's clock is another run.
    let exits = prop_oneof![7 => Just(false), 1 => Just(true)];
    let draws = (select(styles.to_vec()), 0..=2u32, any::<[bool; 2]>(), exits);
    draws.prop_map(
        |(style, warmup, [has_least, two_instances], exits)| Course {
            style,
            warmup,
            has_least,
            two_instances,
            exits,
        },
    )
}

impl Course {
    pub fn applied(&self, recipe: Recipe) -> Recipe {
        let data = recipe.data_parallel_size();
        let cuts = recipe.use_distributed_optimizer && data.is_multiple_of(2);
        Recipe {
            lr_decay_style: self.style,
            lr_warmup_iters: match is_resumed_later(&recipe) {
                true => self.warmup.min(recipe.lr_decay_iters - 1),
                false => 0,
            },
            min_lr: if self.has_least { recipe.lr / 8.0 } else { 0.0 },
            exit_duration_in_mins: self.exits.then_some(230),
            num_distributed_optimizer_instances: if self.two_instances && cuts { 2 } else { 1 },
            ..recipe
        }
    }
}

/// Whether a run is resumed after a later step than the first by default: the first step of a
/// warm-up has a learning rate of 0, so that no restart before the second shows a lost model.
fn is_resumed_later(recipe: &Recipe) -> bool {
    let cuts = default_restarts(recipe.train_iters, recipe.overlap_param_gather);
    cuts.iter().flatten().any(|cut| *cut > 1)
}

/// What a stage computes again in backward, how many layers wait on the host for it, or whether
/// CUDA graphs keep its activations.
#[derive(Clone, Debug)]
pub(super) enum Again {
    Nothing,
    Parts(Vec<RecomputeModule>),
    Layers(RecomputeMethod, u32),
    OnHost(u32),
    /// Nothing, and layers are replayed.
    Replayed,
}

pub(super) fn agains() -> impl Strategy<Value = Again> {
    let modules = RecomputeModule::WORDS.map(|(_, module)| module);
    let parts = proptest::sample::subsequence(modules.to_vec(), 1..=modules.len());
    let methods = [RecomputeMethod::Uniform, RecomputeMethod::Block];
    let layers = (select(methods.to_vec()), 1..=2u32);
    prop_oneof![
        3 => Just(Again::Nothing),
        1 => parts.prop_map(Again::Parts),
        1 => layers.prop_map(|(method, layers)| Again::Layers(method, layers)),
        1 => (1..=2u32).prop_map(Again::OnHost),
        1 => Just(Again::Replayed),
    ]
}

impl Again {
    pub fn applied(&self, recipe: Recipe) -> Recipe {
        match self {
            Again::Nothing => recipe,
            Again::Parts(modules) => Recipe {
                recompute_granularity: Some(RecomputeGranularity::Selective),
                recompute_modules: modules.clone(),
                ..recipe
            },
            Again::Layers(method, layers) => Recipe {
                recompute_granularity: Some(RecomputeGranularity::Full),
                recompute_method: Some(*method),
                recompute_num_layers: *layers,
                ..recipe
            },
            Again::OnHost(layers) => Recipe {
                cpu_offloading_num_layers: match recipe.pipeline_model_parallel_size {
                    1 => (*layers).min(recipe.num_layers - 1),
                    _ => 0,
                },
                ..recipe
            },
            Again::Replayed => {
                let draws = recipe.hidden_dropout > 0.0 || recipe.attention_dropout > 0.0;
                let is_seen = recipe.train_iters > 1 && !draws;
                Recipe {
                    cuda_graph_impl: match is_seen {
                        true => CudaGraphImpl::Local,
                        false => CudaGraphImpl::None,
                    },
                    ..recipe
                }
            }
        }
    }
}
