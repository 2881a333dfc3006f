//! Sizes that follow from a recipe. All divisions are exact: [`super::rules`] saw to it.

use super::{Normalization, PositionEmbedding, Recipe};

/// Parameters after which Megatron-LM closes a gradient bucket where none is given and reductions
/// overlap: 40 million, or one million a data-parallel rank (`DistributedDataParallel.__init__`).
pub fn default_ddp_bucket_size(data_parallel_size: u32) -> u64 {
    u64::from(data_parallel_size)
        .saturating_mul(1_000_000)
        .max(40_000_000)
}

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
    /// The last of several stages holds a copy of a shared embedding; on one stage it is the same
    /// matrix.
    pub fn parameter_count(&self, stage: u32) -> u64 {
        assert!(
            stage < self.pipeline_model_parallel_size,
            "no stage {stage}"
        );
        let hidden = u64::from(self.hidden_size);
        let vocab = u64::from(self.vocab_per_rank()) * hidden;
        let mut count = self.layer_parameters() * u64::from(self.layers_per_stage());
        if stage == 0 {
            count += vocab;
            if self.position_embedding_type == PositionEmbedding::LearnedAbsolute {
                count += u64::from(self.max_position_embeddings) * hidden;
            }
        }
        if stage + 1 == self.pipeline_model_parallel_size {
            let is_shared = !self.untie_embeddings_and_output_weights && stage == 0;
            count += self.norm_parameters() + if is_shared { 0 } else { vocab };
        }
        count
    }

    fn norm_parameters(&self) -> u64 {
        let vectors = match self.normalization {
            Normalization::RMSNorm => 1,
            Normalization::LayerNorm => 2,
        };
        vectors * u64::from(self.hidden_size)
    }

    /// Of one layer, on one rank: fused queries, keys and values, the projection, two linears of
    /// the MLP, two norms. Biases of column-parallel linears are split with their rows, those of
    /// row-parallel ones are whole everywhere.
    fn layer_parameters(&self) -> u64 {
        let of = |size: u32| u64::from(size);
        let (hidden, tensor) = (of(self.hidden_size), of(self.tensor_model_parallel_size));
        let width = of(self.num_attention_heads) * of(self.kv_channels);
        let keys = 2 * of(self.num_query_groups) * of(self.kv_channels);
        let halves = if self.swiglu { 2 } else { 1 };
        let ffn = of(self.ffn_hidden_size);
        let columns = width + keys + halves * ffn;
        let rows = width + ffn;
        let mut count = (columns + rows) * hidden / tensor + 2 * self.norm_parameters();
        if !self.disable_bias_linear {
            count += columns / tensor + 2 * hidden;
        }
        count
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
