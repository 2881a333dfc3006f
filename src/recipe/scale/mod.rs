//! A recipe of a real job, made small enough to run on one machine.
//!
//! Which orders are possible follows from the layout, the types, the number of microbatches and the
//! switches: those are kept. How wide and deep the model is, how long its sequences are and how
//! many words it knows decides only how large each buffer is; the full sizes are kept beside the
//! small recipe, and plans are made from them.

mod data_parallel;
mod difference;
mod sizes;

pub use data_parallel::GrowError;

use serde::Serialize;

use super::{Autotune, CudaGraphImpl, LocalOrder, Recipe, default_ddp_bucket_size};
use sizes::Sizes;

/// What the caller knows beyond the recipe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScaleOptions {
    /// `--grow-dp`: the data-parallel size to run with.
    pub grow_dp: Option<u32>,
    /// Nobody said how many ranks the job has.
    pub world_is_assumed: bool,
    /// Layouts that the small model must divide into as well: tensor-parallel ranks, and model
    /// chunks over all stages.
    pub resumed_on: Vec<(u32, u32)>,
}

/// One value that differs from the job's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    pub key: &'static str,
    pub from: String,
    pub to: String,
    pub why: &'static str,
}

/// A recipe that runs, and the job that it stands for.
#[derive(Clone, Debug, PartialEq)]
pub struct Scaled {
    pub recipe: Recipe,
    /// The job: the recipe that was given, with more data-parallel ranks where their number was
    /// only assumed.
    pub full: Recipe,
    /// From the recipe that was given, layout first.
    pub changes: Vec<Change>,
}

/// Steps that are run: a restart after an odd and an even one, and another step after each.
const STEPS: u32 = 4;
/// Steps before a capture: the first one has what no later one has.
const EAGER_STEPS: u32 = 1;
/// Microbatches of a rank in a step, at most, where the pipeline needs no more.
const MICROBATCHES: u32 = 8;
/// Parts of a weight gradient whose order is free, at least.
const FREE_SPLITS: u32 = 4;

/// Scales `full` down, and its data parallelism up where that is asked for, or where a sum over
/// data-parallel ranks could otherwise not differ and nobody said how many there are.
///
/// # Errors
/// A data-parallel size that the layout does not allow.
pub fn scaled(full: &Recipe, options: &ScaleOptions) -> Result<Scaled, GrowError> {
    let ranks = data_parallel::wanted(full, options);
    let mut grown = full.grown(ranks)?;
    if !grown.overlap_grad_reduce {
        // Megatron splits gradients into buckets only where their reduction overlaps.
        grown.ddp_bucket_size = None;
    }
    let determinism = &mut grown.determinism;
    let is_free = determinism.wgrad_split_k == LocalOrder::Arrival;
    if is_free || determinism.autotune == Autotune::Timed {
        // How many parts a library makes is not known; of fewer than three no order differs, and
        // fewer than four have one configuration.
        determinism.wgrad_splits = determinism.wgrad_splits.max(FREE_SPLITS);
    }
    let recipe = small(&grown, &options.resumed_on);
    let mut changes = data_parallel::changes(full, &grown, options);
    changes.extend(difference::of_sizes(full, &recipe));
    let job = match options.world_is_assumed {
        true => grown,
        false => Recipe {
            ddp_bucket_size: grown.ddp_bucket_size,
            determinism: grown.determinism,
            ..full.clone()
        },
    };
    Ok(Scaled {
        recipe,
        full: job,
        changes,
    })
}

fn small(full: &Recipe, resumed_on: &[(u32, u32)]) -> Recipe {
    let sizes = Sizes::of(full, resumed_on);
    let steps = full.train_iters.min(STEPS);
    let microbatches = microbatches(full);
    let mut recipe = Recipe {
        num_layers: sizes.num_layers,
        hidden_size: sizes.hidden_size,
        ffn_hidden_size: sizes.ffn_hidden_size,
        num_attention_heads: sizes.num_attention_heads,
        num_query_groups: sizes.num_query_groups,
        kv_channels: sizes.kv_channels,
        seq_length: sizes.seq_length,
        max_position_embeddings: sizes.max_position_embeddings,
        padded_vocab_size: sizes.padded_vocab_size,
        micro_batch_size: sizes.micro_batch_size,
        global_batch_size: sizes.micro_batch_size * microbatches * full.data_parallel_size(),
        train_iters: steps,
        lr_decay_iters: full.lr_decay_iters,
        lr_warmup_iters: full.lr_warmup_iters,
        recompute_num_layers: recomputed(full, &sizes),
        cpu_offloading_num_layers: offloaded(full, sizes.num_layers),
        cuda_graph_warmup_steps: warmup_steps(full),
        ..full.clone()
    };
    schedule(full, &mut recipe);
    let tokens = recipe.seq_length * recipe.micro_batch_size;
    recipe.determinism.wgrad_splits = full.determinism.wgrad_splits.min(tokens);
    recipe.ddp_bucket_size = bucket_size(full, &recipe);
    recipe
}

/// As many microbatches as the job has, up to a number at which every sum over them has three
/// addends and every pipeline is full.
fn microbatches(full: &Recipe) -> u32 {
    let count = full.microbatch_count();
    let group = match full.num_virtual_stages_per_pipeline_rank {
        1 => 1,
        _ => full.microbatch_group_size_per_virtual_pipeline_stage.max(1),
    };
    let enough = MICROBATCHES.max(full.pipeline_model_parallel_size);
    count.min(enough.next_multiple_of(group))
}

/// Warm-up and decay end at the same fraction of the run.
fn schedule(full: &Recipe, recipe: &mut Recipe) {
    let fraction = |iters: u32| {
        let product = u64::from(iters) * u64::from(recipe.train_iters);
        let nearest = (product + u64::from(full.train_iters) / 2) / u64::from(full.train_iters);
        u32::try_from(nearest).unwrap_or(u32::MAX)
    };
    let decay = fraction(full.lr_decay_iters).max(1);
    // A warm-up stays one, and ends before the decay does, as Megatron asserts.
    let least = u32::from(full.lr_warmup_iters > 0);
    let warmup = fraction(full.lr_warmup_iters).max(least).min(decay - 1);
    (recipe.lr_decay_iters, recipe.lr_warmup_iters) = (decay, warmup);
}

/// Layers of a checkpointed unit or of a chunk's recomputed part, the same fraction of a chunk.
fn recomputed(full: &Recipe, sizes: &Sizes) -> u32 {
    let layers = full.recompute_num_layers;
    if layers == 0 {
        return 0;
    }
    let chunks = sizes::chunks(full);
    let (whole, here) = (full.num_layers / chunks, sizes.num_layers / chunks);
    (layers.min(whole) * here / whole).max(1)
}

/// Layers whose activations are offloaded, the same fraction of all. One that comes back while
/// another's backward runs does so here, too: where two layers or more stay, two do.
fn offloaded(full: &Recipe, layers: u32) -> u32 {
    let offloaded = full.cpu_offloading_num_layers;
    if offloaded == 0 {
        return 0;
    }
    let stay = (full.num_layers - offloaded).min(2);
    (offloaded * layers / full.num_layers).clamp(1, layers - stay)
}

/// Of graphs that have a warm-up.
fn warmup_steps(full: &Recipe) -> u32 {
    let steps = full.cuda_graph_warmup_steps;
    match full.cuda_graph_impl {
        CudaGraphImpl::TransformerEngine => steps.min(EAGER_STEPS),
        _ => steps,
    }
}

/// Parameters of a bucket, the same fraction of a stage's as at full size; `None` where that is
/// all of them.
fn bucket_size(full: &Recipe, here: &Recipe) -> Option<u32> {
    if !full.overlap_grad_reduce {
        return None;
    }
    let default = default_ddp_bucket_size(full.data_parallel_size());
    let size = full.ddp_bucket_size.map_or(default, u64::from);
    let largest = |recipe: &Recipe| {
        let stages = 0..recipe.pipeline_model_parallel_size;
        let chunks = u64::from(recipe.num_virtual_stages_per_pipeline_rank);
        let most = stages.map(|stage| recipe.parameter_count(stage)).max();
        most.map_or(1, |most| most.div_ceil(chunks).max(1))
    };
    let (whole, own) = (largest(full), largest(here));
    if size >= whole {
        return None;
    }
    let share = (u128::from(size) * u128::from(own)).div_ceil(u128::from(whole));
    u32::try_from(share.max(1)).ok()
}

#[cfg(test)]
mod tests;
