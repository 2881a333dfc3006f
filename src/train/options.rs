//! What is trained and how: plain data under Megatron-LM's argument names.

use crate::model::{ModelShape, Orders, ShapeError};
use crate::numerics::Dtype;
use crate::recipe::Recipe;
use crate::train::layout::{Layout, LayoutError};

/// Everything that the training program depends on, apart from the data and the rank.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainOptions {
    pub model: ModelShape,
    pub layout: Layout,
    pub global_batch_size: u32,
    pub use_distributed_optimizer: bool,
    /// Gradients are rounded to bf16 before they are reduced, and reduced in bf16.
    pub grad_reduce_in_bf16: bool,
    /// Reduce-scatter as all-to-all and a local fp32 sum in group order; needs
    /// `use_distributed_optimizer`, as in Megatron-LM.
    pub ddp_reduce_scatter_with_fp32_accumulation: bool,
    /// Parameters after which a bucket closes; `None` is one bucket.
    pub ddp_bucket_size: Option<u32>,
    pub lr: f32,
    /// Steps over which the learning rate rises linearly to `lr`.
    pub lr_warmup_iters: u32,
    pub adam_beta1: f32,
    pub adam_beta2: f32,
    pub adam_eps: f32,
    pub weight_decay: f32,
    /// Greatest global gradient norm; 0 does not clip.
    pub clip_grad: f32,
    pub seed: u32,
}

impl From<&Recipe> for TrainOptions {
    fn from(recipe: &Recipe) -> TrainOptions {
        let determinism = &recipe.determinism;
        TrainOptions {
            model: ModelShape {
                num_layers: recipe.num_layers,
                hidden_size: recipe.hidden_size,
                ffn_hidden_size: recipe.ffn_hidden_size,
                num_attention_heads: recipe.num_attention_heads,
                padded_vocab_size: recipe.padded_vocab_size,
                seq_length: recipe.seq_length,
                micro_batch_size: recipe.micro_batch_size,
                norm_epsilon: recipe.norm_epsilon,
                rotary_base: recipe.rotary_base,
                hidden_dropout: recipe.hidden_dropout,
                params_dtype: if recipe.bf16 { Dtype::Bf16 } else { Dtype::F32 },
                tensor_model_parallel_size: recipe.tensor_model_parallel_size,
                pipeline_model_parallel_size: recipe.pipeline_model_parallel_size,
                sequence_parallel: recipe.sequence_parallel,
                wgrad_splits: determinism.wgrad_splits,
                orders: Orders {
                    embedding_backward: determinism.embedding_backward,
                    norm_weight_grad: determinism.norm_weight_grad,
                    wgrad_split_k: determinism.wgrad_split_k,
                    microbatch_accumulation: determinism.microbatch_accumulation,
                },
            },
            layout: Layout {
                tensor_model_parallel_size: recipe.tensor_model_parallel_size,
                pipeline_model_parallel_size: recipe.pipeline_model_parallel_size,
                num_virtual_stages_per_pipeline_rank: recipe.num_virtual_stages_per_pipeline_rank,
                data_parallel_size: recipe.data_parallel_size(),
                num_distributed_optimizer_instances: recipe.num_distributed_optimizer_instances,
                use_tp_pp_dp_mapping: recipe.use_tp_pp_dp_mapping,
            },
            global_batch_size: recipe.global_batch_size,
            use_distributed_optimizer: recipe.use_distributed_optimizer,
            grad_reduce_in_bf16: recipe.grad_reduce_in_bf16,
            ddp_reduce_scatter_with_fp32_accumulation: recipe
                .ddp_reduce_scatter_with_fp32_accumulation,
            ddp_bucket_size: recipe.ddp_bucket_size,
            lr: recipe.lr,
            lr_warmup_iters: 0,
            adam_beta1: recipe.adam_beta1,
            adam_beta2: recipe.adam_beta2,
            adam_eps: recipe.adam_eps,
            weight_decay: recipe.weight_decay,
            clip_grad: recipe.clip_grad,
            seed: recipe.seed as u32 ^ (recipe.seed >> 32) as u32,
        }
    }
}

/// Words that one buffer of one rank may have.
const WORDS_MAX: u64 = 1 << 28;

/// Options that do not go together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    #[error(transparent)]
    Shape(#[from] ShapeError),
    #[error(transparent)]
    Layout(#[from] LayoutError),
    #[error("the model is split {model} ways by {name}, the layout {layout} ways")]
    LayoutMismatch {
        name: &'static str,
        model: u32,
        layout: u32,
    },
    #[error(
        "global_batch_size {global} is not a positive multiple of micro_batch_size {micro} times \
         {data} data-parallel ranks"
    )]
    Batch { global: u32, micro: u32, data: u32 },
    #[error("a step of {0} microbatches is more than the limit of 4096")]
    TooManyMicrobatches(u32),
    #[error(
        "ddp_reduce_scatter_with_fp32_accumulation needs use_distributed_optimizer: an all-reduce \
         has no such form"
    )]
    Fp32AccumulationAlone,
    #[error("ddp_bucket_size is 0")]
    EmptyBucket,
    #[error("{name} = {value} is not a number that the optimizer can take")]
    Number { name: &'static str, value: String },
    #[error("a step's gradients or tokens would need {words} words a rank, more than {limit}")]
    TooLarge { words: u64, limit: u64 },
}

impl TrainOptions {
    /// Checks that everything divides and fits.
    pub fn check(&self) -> Result<(), OptionsError> {
        self.model.check()?;
        self.layout.check()?;
        self.check_layout()?;
        let (global, micro) = (self.global_batch_size, self.model.micro_batch_size);
        let data = self.layout.data_parallel_size;
        let each = u64::from(micro) * u64::from(data);
        if global == 0 || u64::from(global) % each != 0 {
            return Err(OptionsError::Batch {
                global,
                micro,
                data,
            });
        }
        if self.microbatches() > 4096 {
            return Err(OptionsError::TooManyMicrobatches(self.microbatches()));
        }
        if self.ddp_reduce_scatter_with_fp32_accumulation && !self.use_distributed_optimizer {
            return Err(OptionsError::Fp32AccumulationAlone);
        }
        if self.ddp_bucket_size == Some(0) {
            return Err(OptionsError::EmptyBucket);
        }
        self.check_numbers()?;
        self.check_words()
    }

    /// Microbatches of one step on one data-parallel rank.
    pub fn microbatches(&self) -> u32 {
        let each = self.model.micro_batch_size * self.layout.data_parallel_size;
        self.global_batch_size / each
    }

    fn check_layout(&self) -> Result<(), OptionsError> {
        let (model, layout) = (&self.model, &self.layout);
        let pairs = [
            (
                "tensor_model_parallel_size",
                model.tensor_model_parallel_size,
                layout.tensor_model_parallel_size,
            ),
            (
                "pipeline_model_parallel_size",
                model.pipeline_model_parallel_size,
                layout.pipeline_model_parallel_size,
            ),
        ];
        match pairs.into_iter().find(|(_, model, layout)| model != layout) {
            Some((name, model, layout)) => Err(OptionsError::LayoutMismatch {
                name,
                model,
                layout,
            }),
            None => Ok(()),
        }
    }

    fn check_numbers(&self) -> Result<(), OptionsError> {
        let fraction = |x: f32| (0.0..1.0).contains(&x);
        let numbers = [
            ("lr", self.lr, self.lr >= 0.0),
            ("adam_beta1", self.adam_beta1, fraction(self.adam_beta1)),
            ("adam_beta2", self.adam_beta2, fraction(self.adam_beta2)),
            ("adam_eps", self.adam_eps, self.adam_eps > 0.0),
            ("weight_decay", self.weight_decay, self.weight_decay >= 0.0),
            ("clip_grad", self.clip_grad, self.clip_grad >= 0.0),
        ];
        match numbers
            .into_iter()
            .find(|(_, value, good)| !good || !value.is_finite())
        {
            Some((name, value, _)) => Err(OptionsError::Number {
                name,
                value: value.to_string(),
            }),
            None => Ok(()),
        }
    }

    /// The greatest flat buffers, in 64 bits, before anything multiplies in 32.
    fn check_words(&self) -> Result<(), OptionsError> {
        let model = &self.model;
        let hidden = u64::from(model.hidden_size);
        let layer = hidden * (4 * hidden + 3 * u64::from(model.ffn_hidden_size) + 2);
        let ends = hidden * (2 * u64::from(model.padded_vocab_size) + 1);
        let whole = layer
            .saturating_mul(u64::from(model.num_layers))
            .saturating_add(ends);
        // What alignment may add: to each parameter, and to each bucket.
        let parameters = 6 * u64::from(model.num_layers) + 3;
        let full = |size: u32| (whole / u64::from(size) + 1).min(parameters);
        let buckets = self.ddp_bucket_size.map_or(1, full);
        let padding = parameters + buckets * u64::from(self.layout.data_parallel_size);
        let flat = whole.saturating_add(padding.saturating_mul(64));
        let microbatches = u64::from(self.microbatches());
        let tokens = microbatches.saturating_mul(u64::from(model.tokens()));
        let words = flat.saturating_mul(microbatches).max(tokens);
        if words > WORDS_MAX {
            return Err(OptionsError::TooLarge {
                words,
                limit: WORDS_MAX,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Orders;
    use crate::numerics::Dtype;

    fn options() -> TrainOptions {
        TrainOptions {
            model: ModelShape {
                num_layers: 4,
                hidden_size: 32,
                ffn_hidden_size: 64,
                num_attention_heads: 4,
                padded_vocab_size: 256,
                seq_length: 32,
                micro_batch_size: 1,
                norm_epsilon: 1e-5,
                rotary_base: 10_000.0,
                hidden_dropout: 0.0,
                params_dtype: Dtype::Bf16,
                tensor_model_parallel_size: 2,
                pipeline_model_parallel_size: 2,
                sequence_parallel: true,
                wgrad_splits: 3,
                orders: Orders::ORDERED,
            },
            layout: Layout::plain(2, 2, 4),
            global_batch_size: 16,
            use_distributed_optimizer: true,
            grad_reduce_in_bf16: false,
            ddp_reduce_scatter_with_fp32_accumulation: false,
            ddp_bucket_size: None,
            lr: 1e-3,
            lr_warmup_iters: 0,
            adam_beta1: 0.9,
            adam_beta2: 0.95,
            adam_eps: 1e-8,
            weight_decay: 0.1,
            clip_grad: 1.0,
            seed: 1,
        }
    }

    #[test]
    fn good_options_pass() {
        assert_eq!(options().check(), Ok(()));
        assert_eq!(options().microbatches(), 4);
    }

    /// Every way of being wrong is an error that names what is wrong, never a panic.
    #[test]
    fn bad_options_are_named() {
        type Spoil = fn(&mut TrainOptions);
        let cases: [(Spoil, &str); 22] = [
            (|o| o.model.hidden_size = 0, "hidden_size is 0"),
            (|o| o.model.hidden_size = 36, "hidden_size"),
            (|o| o.model.hidden_size = u32::MAX, "wgrad parts"),
            (|o| o.model.num_attention_heads = 3, "num_attention_heads"),
            (|o| o.model.num_layers = 3, "num_layers"),
            (|o| o.model.num_layers = u32::MAX - 1, "gradients or tokens"),
            (|o| o.model.seq_length = 31, "seq_length"),
            (|o| o.model.seq_length = u32::MAX - 1, "words"),
            (|o| o.model.padded_vocab_size = 258, "padded_vocab_size"),
            (|o| o.model.wgrad_splits = 33, "wgrad_splits"),
            (|o| o.model.hidden_dropout = 1.0, "hidden_dropout"),
            (|o| o.model.hidden_dropout = f32::NAN, "hidden_dropout"),
            (|o| o.model.rotary_base = 0.5, "rotary_base"),
            (|o| o.model.norm_epsilon = 0.0, "norm_epsilon"),
            (|o| o.layout.tensor_model_parallel_size = 4, "split 2 ways"),
            (
                |o| o.layout.data_parallel_size = 0,
                "data_parallel_size is 0",
            ),
            (|o| o.layout.data_parallel_size = u32::MAX, "ranks"),
            (|o| o.global_batch_size = 15, "global_batch_size"),
            (|o| o.global_batch_size = 4 * 5000, "4096"),
            (|o| o.ddp_bucket_size = Some(0), "ddp_bucket_size"),
            (|o| o.adam_beta2 = 1.0, "adam_beta2"),
            (|o| o.clip_grad = f32::INFINITY, "clip_grad"),
        ];
        for (spoil, expected) in cases {
            let mut options = options();
            spoil(&mut options);
            let error = options.check().expect_err(expected).to_string();
            assert!(error.contains(expected), "{error} does not say {expected}");
        }
        let mut options = options();
        options.use_distributed_optimizer = false;
        options.ddp_reduce_scatter_with_fp32_accumulation = true;
        assert_eq!(options.check(), Err(OptionsError::Fp32AccumulationAlone));
    }
}
