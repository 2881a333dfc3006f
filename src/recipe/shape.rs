//! Sizes that follow from a recipe. All divisions are exact: [`super::rules`] saw to it.

use super::Recipe;

impl Recipe {
    /// Ranks that hold the same parameters.
    pub fn data_parallel_size(&self) -> u32 {
        self.world_size / self.tensor_model_parallel_size / self.pipeline_model_parallel_size
    }

    /// Microbatches of one rank in one step.
    pub fn microbatch_count(&self) -> u32 {
        self.global_batch_size / self.micro_batch_size / self.data_parallel_size()
    }

    /// Transformer layers of one pipeline stage.
    pub fn layers_per_stage(&self) -> u32 {
        self.num_layers / self.pipeline_model_parallel_size
    }

    pub fn vocab_per_rank(&self) -> u32 {
        self.padded_vocab_size / self.tensor_model_parallel_size
    }

    /// Parameters that a rank of pipeline stage `stage` holds.
    ///
    /// A layer has four square attention matrices, three of the SwiGLU block and two norms.
    pub fn parameter_count(&self, stage: u32) -> u64 {
        assert!(
            stage < self.pipeline_model_parallel_size,
            "no stage {stage}"
        );
        let hidden = u64::from(self.hidden_size);
        let tensor = u64::from(self.tensor_model_parallel_size);
        let matrices = 4 * hidden * hidden + 3 * hidden * u64::from(self.ffn_hidden_size);
        let layer = matrices / tensor + 2 * hidden;
        let vocab = u64::from(self.vocab_per_rank()) * hidden;
        let first = if stage == 0 { vocab } else { 0 };
        let is_last = stage + 1 == self.pipeline_model_parallel_size;
        let last = if is_last { vocab + hidden } else { 0 };
        layer * u64::from(self.layers_per_stage()) + first + last
    }

    /// A lower bound of the bytes that all virtual ranks hold between steps: parameters, one
    /// gradient slot a microbatch, the summed gradient, and optimizer state (fp32 main
    /// parameters and two moments), at 4 bytes a word.
    pub fn state_bytes_min(&self) -> u64 {
        let stages = self.pipeline_model_parallel_size;
        let parameters: u64 = (0..stages).map(|stage| self.parameter_count(stage)).sum();
        let replicas = u64::from(self.world_size / stages);
        let shards = if self.use_distributed_optimizer {
            self.data_parallel_size()
        } else {
            1
        };
        let full_words = 2 + u64::from(self.microbatch_count());
        let copies = parameters.saturating_mul(replicas);
        let sharded = copies / u64::from(shards);
        copies
            .saturating_mul(full_words)
            .saturating_add(sharded.saturating_mul(3))
            .saturating_mul(4)
    }
}
