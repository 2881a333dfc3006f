//! The real job that a small scenario stands for.

use serde::Serialize;

use crate::diagnostic::Findings;
use crate::diagnostic::document::{Reader, Table};
use crate::recipe::{
    MICROBATCH_COUNT_MAX, Recipe, SEQ_LENGTH_MAX, WGRAD_SPLITS_MAX, WORLD_SIZE_MAX,
};

/// Sizes that decide how many addends each family of sums has at full size. A key that the
/// scenario leaves out has the recipe's own value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct FullSize {
    pub tensor_model_parallel_size: u32,
    pub pipeline_model_parallel_size: u32,
    pub data_parallel_size: u32,
    /// Microbatches of one rank in one step.
    pub microbatch_count: u32,
    pub micro_batch_size: u32,
    pub seq_length: u32,
    pub wgrad_splits: u32,
}

impl FullSize {
    /// The recipe itself.
    pub fn of(recipe: &Recipe) -> FullSize {
        FullSize {
            tensor_model_parallel_size: recipe.tensor_model_parallel_size,
            pipeline_model_parallel_size: recipe.pipeline_model_parallel_size,
            data_parallel_size: recipe.data_parallel_size(),
            microbatch_count: recipe.microbatch_count(),
            micro_batch_size: recipe.micro_batch_size,
            seq_length: recipe.seq_length,
            wgrad_splits: recipe.determinism.wgrad_splits,
        }
    }

    /// Ranks of the full-size job.
    pub fn world_size(&self) -> u64 {
        u64::from(self.tensor_model_parallel_size)
            * u64::from(self.pipeline_model_parallel_size)
            * u64::from(self.data_parallel_size)
    }

    pub(super) fn read(table: &Table, recipe: &Recipe, findings: &mut Findings) -> FullSize {
        let own = FullSize::of(recipe);
        let mut reader = Reader::new(table, "full_size", findings);
        let mut count = |key, most, own| reader.count(key, 1..=most, Some(own)).value;
        let full = FullSize {
            tensor_model_parallel_size: count(
                "tensor_model_parallel_size",
                WORLD_SIZE_MAX,
                own.tensor_model_parallel_size,
            ),
            pipeline_model_parallel_size: count(
                "pipeline_model_parallel_size",
                WORLD_SIZE_MAX,
                own.pipeline_model_parallel_size,
            ),
            data_parallel_size: count("data_parallel_size", WORLD_SIZE_MAX, own.data_parallel_size),
            microbatch_count: count(
                "microbatch_count",
                MICROBATCH_COUNT_MAX,
                own.microbatch_count,
            ),
            micro_batch_size: count("micro_batch_size", 1 << 16, own.micro_batch_size),
            seq_length: count("seq_length", SEQ_LENGTH_MAX << 8, own.seq_length),
            wgrad_splits: count("wgrad_splits", WGRAD_SPLITS_MAX, own.wgrad_splits),
        };
        reader.finish();
        full
    }
}
