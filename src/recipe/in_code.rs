//! Recipes made in a program rather than in a file.

use std::collections::BTreeMap;

use super::{
    Autotune, CUDA_GRAPH_WARMUP_STEPS, CudaGraphImpl, DataParallelKind, Determinism,
    DistributedBackend, LocalOrder, LossScaling, LrDecayStyle, Normalization, PositionEmbedding,
    Recipe, TransformerImpl,
};
use crate::diagnostic::{Diagnostic, InvalidInput, Source};

const SMALL: Recipe = Recipe {
    world_size: 2,
    tensor_model_parallel_size: 1,
    pipeline_model_parallel_size: 1,
    num_virtual_stages_per_pipeline_rank: 1,
    microbatch_group_size_per_virtual_pipeline_stage: 1,
    sequence_parallel: false,
    use_tp_pp_dp_mapping: false,
    num_layers: 1,
    hidden_size: 16,
    ffn_hidden_size: 16,
    num_attention_heads: 4,
    num_query_groups: 4,
    kv_channels: 4,
    seq_length: 8,
    max_position_embeddings: 8,
    padded_vocab_size: 256,
    transformer_impl: TransformerImpl::TransformerEngine,
    normalization: Normalization::RMSNorm,
    norm_epsilon: 1e-5,
    swiglu: true,
    disable_bias_linear: true,
    position_embedding_type: PositionEmbedding::Rope,
    rotary_base: 10_000.0,
    attention_dropout: 0.0,
    hidden_dropout: 0.0,
    untie_embeddings_and_output_weights: true,
    micro_batch_size: 1,
    global_batch_size: 2,
    train_iters: 2,
    lr: 5e-3,
    lr_decay_style: LrDecayStyle::Constant,
    lr_decay_iters: 2,
    lr_warmup_iters: 0,
    min_lr: 0.0,
    adam_beta1: 0.9,
    adam_beta2: 0.999,
    adam_eps: 1e-8,
    weight_decay: 0.01,
    clip_grad: 1.0,
    seed: 1234,
    bf16: false,
    loss_scaling: LossScaling::DEFAULT,
    accumulate_allreduce_grads_in_fp32: true,
    grad_reduce_in_bf16: false,
    use_distributed_optimizer: false,
    num_distributed_optimizer_instances: 1,
    overlap_grad_reduce: false,
    align_grad_reduce: true,
    overlap_param_gather: false,
    align_param_gather: true,
    ddp_reduce_scatter_with_fp32_accumulation: false,
    ddp_bucket_size: None,
    ddp: DataParallelKind::Megatron,
    bucket_cap_mb: None,
    find_unused_parameters: false,
    distributed_backend: DistributedBackend::Nccl,
    recompute_granularity: None,
    recompute_method: None,
    recompute_num_layers: 0,
    recompute_modules: Vec::new(),
    cpu_offloading_num_layers: 0,
    cpu_offloading_double_buffering: false,
    cuda_graph_impl: CudaGraphImpl::None,
    cuda_graph_warmup_steps: CUDA_GRAPH_WARMUP_STEPS,
    async_save: false,
    exit_duration_in_mins: None,
    data_parallel_random_init: false,
    num_workers: 0,
    epoch_samples: None,
    determinism: Determinism::ORDERED,
    env: BTreeMap::new(),
};

impl Recipe {
    /// A recipe from a text in the form of a recipe file. Keys that are left out have the defaults
    /// that a file would have.
    ///
    /// # Errors
    /// Everything that is wrong with the text, with line and caret.
    pub fn from_toml(text: &str) -> Result<Recipe, InvalidInput> {
        let (recipe, _) = Recipe::from_source(&Source::new("<recipe>", text))?;
        Ok(recipe)
    }

    /// TP 1, PP 1, DP 2; one layer 16 wide with four heads; one sequence of 8 bytes a rank; fp32;
    /// two steps; every order fixed. A start for `Recipe { num_layers: 4, ..Recipe::small() }`.
    ///
    /// All fields are numbers, not rules: who changes `num_attention_heads` changes
    /// `num_query_groups` and `kv_channels` along with it. [`Recipe::from_toml`] derives them.
    pub fn small() -> Recipe {
        SMALL
    }

    /// The recipe, if every rule between its values holds.
    ///
    /// # Errors
    /// The rules that are broken, in the text that the recipe would have in a file.
    pub fn validated(self) -> Result<Recipe, InvalidInput> {
        let text = toml::to_string(&self).expect("plain data has a TOML form");
        let read = Recipe::from_toml(&text)?;
        if read == self {
            return Ok(self);
        }
        let message = "the recipe is another one when it is read from a file";
        Err(Diagnostic::error("not-canonical", message).into())
    }
}

impl Determinism {
    /// Every order fixed, and weight gradients in one part.
    pub const ORDERED: Determinism = Determinism {
        embedding_backward: LocalOrder::Ordered,
        norm_weight_grad: LocalOrder::Ordered,
        wgrad_split_k: LocalOrder::Ordered,
        microbatch_accumulation: LocalOrder::Ordered,
        attention_backward: LocalOrder::Ordered,
        wgrad_splits: 1,
        autotune: Autotune::Fixed,
    };

    /// The same with one switch, named by its key in a recipe, in another position. `None` for a
    /// key that is no order switch.
    #[must_use]
    pub fn with_order(mut self, key: &str, order: LocalOrder) -> Option<Determinism> {
        let switch = match key {
            "embedding_backward" => &mut self.embedding_backward,
            "norm_weight_grad" => &mut self.norm_weight_grad,
            "wgrad_split_k" => &mut self.wgrad_split_k,
            "microbatch_accumulation" => &mut self.microbatch_accumulation,
            "attention_backward" => &mut self.attention_backward,
            _ => return None,
        };
        *switch = order;
        Some(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_small_recipe_is_sound_and_small() {
        let small = Recipe::small();
        assert_eq!(small.clone().validated().unwrap(), small);
        // What it has in common with a file's defaults.
        let short = "world_size = 2\nnum_layers = 1\nhidden_size = 16\nffn_hidden_size = 16\n\
                     num_attention_heads = 4\nseq_length = 8\nmicro_batch_size = 1\n\
                     global_batch_size = 2\ntrain_iters = 2\nlr = 5e-3\n";
        assert_eq!(Recipe::from_toml(short).unwrap(), small);
        assert_eq!(small.data_parallel_size(), 2);
        assert_eq!(small.determinism, Determinism::ORDERED);
    }

    #[test]
    fn a_recipe_in_code_is_held_to_the_rules_of_a_file() {
        let odd = Recipe {
            world_size: 3,
            tensor_model_parallel_size: 2,
            ..Recipe::small()
        };
        let refused = odd.validated().unwrap_err();
        assert_eq!(refused.diagnostics()[0].code, "does-not-divide");
        let shown = refused.to_string();
        assert!(
            shown.contains("world_size = 3") && shown.contains('^'),
            "{shown}"
        );
        for lr in [f32::NAN, f32::INFINITY, -1.0] {
            let recipe = Recipe {
                lr,
                ..Recipe::small()
            };
            assert!(recipe.validated().is_err(), "lr = {lr}");
        }
        assert!(Recipe::from_toml("world_size = ").is_err());
    }

    #[test]
    fn every_order_switch_can_be_flipped_and_nothing_else() {
        for (key, _) in Determinism::ORDERED.orders() {
            let flipped = Determinism::ORDERED.with_order(key, LocalOrder::Arrival);
            let orders = flipped.expect("a switch").orders();
            for (other, order) in orders {
                assert_eq!(order == LocalOrder::Arrival, other == key, "{key}, {other}");
            }
        }
        assert_eq!(
            Determinism::ORDERED.with_order("wgrad_splits", LocalOrder::Arrival),
            None
        );
    }
}
