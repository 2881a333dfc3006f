//! What differs between a job and the small recipe that stands for it, a line each.

use super::Change;
use crate::recipe::{CudaGraphImpl, Recipe};

/// A key, how a recipe has it, and why it may differ.
type Row = (&'static str, fn(&Recipe) -> Option<u32>, &'static str);

const WIDTH: &str = "heads, groups and ratios are kept";
const BYTES: &str = "plans are those of the full size";
const FRACTION: &str = "in proportion to the steps";

const ROWS: [Row; 19] = [
    (
        "num_layers",
        |recipe| Some(recipe.num_layers),
        "layers of every stage and chunk",
    ),
    ("hidden_size", |recipe| Some(recipe.hidden_size), WIDTH),
    (
        "ffn_hidden_size",
        |recipe| Some(recipe.ffn_hidden_size),
        WIDTH,
    ),
    (
        "num_attention_heads",
        |recipe| Some(recipe.num_attention_heads),
        WIDTH,
    ),
    (
        "num_query_groups",
        |recipe| Some(recipe.num_query_groups),
        WIDTH,
    ),
    ("kv_channels", |recipe| Some(recipe.kv_channels), WIDTH),
    ("seq_length", |recipe| Some(recipe.seq_length), BYTES),
    (
        "max_position_embeddings",
        |recipe| Some(recipe.max_position_embeddings),
        "the same multiple of seq_length, at most 4",
    ),
    (
        "padded_vocab_size",
        |recipe| Some(recipe.padded_vocab_size),
        "the model reads bytes",
    ),
    (
        "micro_batch_size",
        |recipe| Some(recipe.micro_batch_size),
        BYTES,
    ),
    (
        "microbatches of a rank",
        |recipe| Some(recipe.microbatch_count()),
        "as many as fill the pipeline, and at least 8",
    ),
    (
        "determinism.wgrad_splits",
        |recipe| Some(recipe.determinism.wgrad_splits),
        "4 where their order is free or timed; at most the tokens of a microbatch",
    ),
    (
        "train_iters",
        |recipe| Some(recipe.train_iters),
        "steps repeat each other",
    ),
    (
        "lr_decay_iters",
        |recipe| Some(recipe.lr_decay_iters),
        FRACTION,
    ),
    (
        "lr_warmup_iters",
        |recipe| Some(recipe.lr_warmup_iters),
        FRACTION,
    ),
    (
        "recompute_num_layers",
        |recipe| Some(recipe.recompute_num_layers),
        "the same fraction of a chunk",
    ),
    (
        "cpu_offloading_num_layers",
        |recipe| Some(recipe.cpu_offloading_num_layers),
        "the same fraction of the layers",
    ),
    (
        "cuda_graph_warmup_steps",
        |recipe| {
            let is_read = recipe.cuda_graph_impl == CudaGraphImpl::TransformerEngine;
            is_read.then_some(recipe.cuda_graph_warmup_steps)
        },
        "steps repeat each other",
    ),
    (
        "ddp_bucket_size",
        |recipe| recipe.ddp_bucket_size,
        "a bucket is the same fraction of a stage's parameters",
    ),
];

/// Where the small recipe has another size than the job.
pub(super) fn of_sizes(full: &Recipe, here: &Recipe) -> Vec<Change> {
    let text = |size: Option<u32>| match size {
        Some(size) => size.to_string(),
        None if full.overlap_grad_reduce => "Megatron's default".to_string(),
        None => "one bucket".to_string(),
    };
    let changed = ROWS.into_iter().filter(|(_, of, _)| of(full) != of(here));
    let change = |(key, of, why): Row| Change {
        key,
        from: text(of(full)),
        to: text(of(here)),
        why,
    };
    changed.map(change).collect()
}
