//! What is trained and how: plain data under Megatron-LM's argument names.

use crate::job::{DdpOptions, ScheduleError, Slot, interleaved, one_f_one_b};
use crate::model::{ModelShape, Orders, Recompute, Selective, ShapeError};
use crate::numerics::Dtype;
use crate::recipe::{
    BUFFER_WORDS_MAX, DataParallelKind, LrDecayStyle, MICROBATCH_COUNT_MAX, Recipe,
    RecomputeGranularity, RecomputeMethod, RecomputeModule, StepSizes,
};
use crate::train::layout::{Layout, LayoutError};

/// Everything that the training program depends on, apart from the data and the rank.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainOptions {
    /// `pipeline_model_parallel_size` of the shape counts virtual stages: each model chunk is a
    /// stage of the model.
    pub model: ModelShape,
    pub layout: Layout,
    /// Microbatches that pass a chunk before the next chunk's turn; read with several chunks only.
    pub microbatch_group_size_per_virtual_pipeline_stage: u32,
    pub global_batch_size: u32,
    pub use_distributed_optimizer: bool,
    /// Gradients are rounded to bf16 before they are reduced, and reduced in bf16.
    pub grad_reduce_in_bf16: bool,
    /// Reduce-scatter as all-to-all and a local fp32 sum in group order; needs
    /// `use_distributed_optimizer`, as in Megatron-LM.
    pub ddp_reduce_scatter_with_fp32_accumulation: bool,
    /// Elements at which a bucket closes, where gradients are reduced during backward; `None` is
    /// Megatron's `max(40,000,000, 1,000,000 data_parallel_size)`.
    pub ddp_bucket_size: Option<u32>,
    /// Cuts the first stage's gradients into buckets, which are reduced while the last backward
    /// goes on; with `align_grad_reduce` the stages behind the first reduce in the pipeline's
    /// bubble.
    pub overlap_grad_reduce: bool,
    pub align_grad_reduce: bool,
    /// Parameters are gathered in the next step's forward, bucket by bucket; with
    /// `align_param_gather` an interleaved pipeline gathers a chunk's buckets together.
    pub overlap_param_gather: bool,
    pub align_param_gather: bool,
    /// torch's DistributedDataParallel reduces the gradients, not Megatron's.
    pub torch_ddp: Option<DdpOptions>,
    pub lr: f32,
    pub lr_decay_style: LrDecayStyle,
    /// Steps until the learning rate is `min_lr`, warm-up included.
    pub lr_decay_iters: u32,
    /// Steps over which the learning rate rises linearly from 0 to `lr`.
    pub lr_warmup_iters: u32,
    pub min_lr: f32,
    pub adam_beta1: f32,
    pub adam_beta2: f32,
    pub adam_eps: f32,
    pub weight_decay: f32,
    /// Greatest global gradient norm; 0 does not clip.
    pub clip_grad: f32,
    pub seed: u32,
    /// Activations that are computed again in the backward.
    pub recompute: Recompute,
    /// First layers whose activations wait in the host's memory for their backward.
    pub cpu_offloading_num_layers: u32,
    /// Data-parallel ranks draw from seeds of their own; parameters start equal all the same, as
    /// Megatron-LM broadcasts them.
    pub data_parallel_random_init: bool,
    /// Worker processes of the data loader, each with [`crate::train::PREFETCH_FACTOR`] batches
    /// ahead; 0 makes each batch when it is asked for.
    pub num_workers: u32,
    /// Samples of an epoch, which are shuffled in each; `None` is one endless epoch in order.
    pub epoch_samples: Option<u32>,
    /// Checkpoints are written in the background.
    pub async_save: bool,
}

impl From<&Recipe> for TrainOptions {
    fn from(recipe: &Recipe) -> TrainOptions {
        TrainOptions {
            model: model(recipe),
            layout: Layout {
                tensor_model_parallel_size: recipe.tensor_model_parallel_size,
                pipeline_model_parallel_size: recipe.pipeline_model_parallel_size,
                num_virtual_stages_per_pipeline_rank: recipe.num_virtual_stages_per_pipeline_rank,
                data_parallel_size: recipe.data_parallel_size(),
                num_distributed_optimizer_instances: recipe.num_distributed_optimizer_instances,
                use_tp_pp_dp_mapping: recipe.use_tp_pp_dp_mapping,
            },
            microbatch_group_size_per_virtual_pipeline_stage: recipe
                .microbatch_group_size_per_virtual_pipeline_stage,
            global_batch_size: recipe.global_batch_size,
            use_distributed_optimizer: recipe.use_distributed_optimizer,
            grad_reduce_in_bf16: recipe.grad_reduce_in_bf16,
            ddp_reduce_scatter_with_fp32_accumulation: recipe
                .ddp_reduce_scatter_with_fp32_accumulation,
            ddp_bucket_size: recipe.ddp_bucket_size,
            overlap_grad_reduce: recipe.overlap_grad_reduce,
            align_grad_reduce: recipe.align_grad_reduce,
            overlap_param_gather: recipe.overlap_param_gather,
            align_param_gather: recipe.align_param_gather,
            torch_ddp: torch_ddp(recipe),
            lr: recipe.lr,
            lr_decay_style: recipe.lr_decay_style,
            lr_decay_iters: recipe.lr_decay_iters,
            lr_warmup_iters: recipe.lr_warmup_iters,
            min_lr: recipe.min_lr,
            adam_beta1: recipe.adam_beta1,
            adam_beta2: recipe.adam_beta2,
            adam_eps: recipe.adam_eps,
            weight_decay: recipe.weight_decay,
            clip_grad: recipe.clip_grad,
            seed: recipe.seed as u32 ^ (recipe.seed >> 32) as u32,
            recompute: recompute(recipe),
            cpu_offloading_num_layers: recipe.cpu_offloading_num_layers,
            data_parallel_random_init: recipe.data_parallel_random_init,
            num_workers: recipe.num_workers,
            epoch_samples: recipe.epoch_samples,
            async_save: recipe.async_save,
        }
    }
}

fn model(recipe: &Recipe) -> ModelShape {
    let determinism = &recipe.determinism;
    ModelShape {
        num_layers: recipe.num_layers,
        hidden_size: recipe.hidden_size,
        ffn_hidden_size: recipe.ffn_hidden_size,
        num_attention_heads: recipe.num_attention_heads,
        num_query_groups: recipe.num_query_groups,
        kv_channels: recipe.kv_channels,
        padded_vocab_size: recipe.padded_vocab_size,
        seq_length: recipe.seq_length,
        max_position_embeddings: recipe.max_position_embeddings,
        micro_batch_size: recipe.micro_batch_size,
        normalization: recipe.normalization,
        norm_epsilon: recipe.norm_epsilon,
        swiglu: recipe.swiglu,
        add_bias_linear: !recipe.disable_bias_linear,
        position_embedding_type: recipe.position_embedding_type,
        rotary_base: recipe.rotary_base,
        attention_dropout: recipe.attention_dropout,
        hidden_dropout: recipe.hidden_dropout,
        untie_embeddings_and_output_weights: recipe.untie_embeddings_and_output_weights,
        params_dtype: if recipe.bf16 { Dtype::Bf16 } else { Dtype::F32 },
        tensor_model_parallel_size: recipe.tensor_model_parallel_size,
        pipeline_model_parallel_size: recipe
            .pipeline_model_parallel_size
            .saturating_mul(recipe.num_virtual_stages_per_pipeline_rank),
        sequence_parallel: recipe.sequence_parallel,
        wgrad_splits: determinism.wgrad_splits,
        orders: Orders {
            embedding_backward: determinism.embedding_backward,
            norm_weight_grad: determinism.tuned(determinism.norm_weight_grad),
            wgrad_split_k: determinism.tuned(determinism.wgrad_split_k),
            microbatch_accumulation: determinism.microbatch_accumulation,
            attention_backward: determinism.attention_backward,
        },
    }
}

fn torch_ddp(recipe: &Recipe) -> Option<DdpOptions> {
    let mebibytes = recipe.bucket_cap_mb.map(f64::from);
    (recipe.ddp == DataParallelKind::Torch).then(|| DdpOptions {
        bucket_cap: mebibytes.map(|mebibytes| (mebibytes * 1_048_576.0) as u64),
        find_unused_parameters: recipe.find_unused_parameters,
        ..DdpOptions::default()
    })
}

/// Megatron-LM recomputes the core attention where no module is named.
fn recompute(recipe: &Recipe) -> Recompute {
    match recipe.recompute_granularity {
        None => Recompute::Nothing,
        Some(RecomputeGranularity::Full) => Recompute::Full {
            method: recipe.recompute_method.unwrap_or(RecomputeMethod::Uniform),
            layers: recipe.recompute_num_layers,
        },
        Some(RecomputeGranularity::Selective) => {
            let modules = &recipe.recompute_modules;
            let has = |module| modules.contains(&module);
            Recompute::Selective(Selective {
                core_attention: modules.is_empty() || has(RecomputeModule::CoreAttn),
                mlp: has(RecomputeModule::Mlp),
                layernorm: has(RecomputeModule::Layernorm),
            })
        }
    }
}

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
    #[error("a step of {0} microbatches is more than the limit of {MICROBATCH_COUNT_MAX}")]
    TooManyMicrobatches(u32),
    #[error(
        "ddp_reduce_scatter_with_fp32_accumulation needs use_distributed_optimizer: an all-reduce \
         has no such form"
    )]
    Fp32AccumulationAlone,
    #[error("ddp_bucket_size is 0")]
    EmptyBucket,
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
    #[error("num_distributed_optimizer_instances = {0} needs use_distributed_optimizer")]
    InstancesAlone(u32),
    #[error("torch's DistributedDataParallel needs the whole model on every rank, in fp32")]
    TorchDdp,
    #[error("full recomputation of 0 layers at a time")]
    RecomputesNoLayer,
    #[error(
        "activations of {offloaded} of {layers} layers on the host: expected fewer layers, one \
         pipeline stage and no recomputation"
    )]
    Offload { offloaded: u32, layers: u32 },
    #[error("lr_warmup_iters = {warmup} is not below lr_decay_iters = {decay}")]
    WarmupBeyondDecay { warmup: u32, decay: u32 },
    #[error("{samples} samples until the end of the learning rate's decay, more than 2^32 - 1")]
    LongDecay { samples: u64 },
    #[error("{name} = {value} is not a number that the optimizer can take")]
    Number { name: &'static str, value: String },
    #[error("epoch_samples is 0")]
    EmptyEpoch,
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
        if self.microbatches() > MICROBATCH_COUNT_MAX {
            return Err(OptionsError::TooManyMicrobatches(self.microbatches()));
        }
        if self.ddp_reduce_scatter_with_fp32_accumulation && !self.use_distributed_optimizer {
            return Err(OptionsError::Fp32AccumulationAlone);
        }
        if self.epoch_samples == Some(0) {
            return Err(OptionsError::EmptyEpoch);
        }
        if self.ddp_bucket_size == Some(0) {
            return Err(OptionsError::EmptyBucket);
        }
        let instances = self.layout.num_distributed_optimizer_instances;
        if instances > 1 && !self.use_distributed_optimizer {
            return Err(OptionsError::InstancesAlone(instances));
        }
        if self.torch_ddp.is_some() && !self.suits_torch_ddp() {
            return Err(OptionsError::TorchDdp);
        }
        if matches!(self.recompute, Recompute::Full { layers: 0, .. }) {
            return Err(OptionsError::RecomputesNoLayer);
        }
        self.check_offload()?;
        self.check_interleaving()?;
        self.check_numbers()?;
        self.check_decay()?;
        self.check_words()
    }

    /// Microbatches of one step on one data-parallel rank.
    pub fn microbatches(&self) -> u32 {
        let each = self.model.micro_batch_size * self.layout.data_parallel_size;
        self.global_batch_size / each
    }

    /// What a stage works on in a step, in order.
    ///
    /// # Errors
    /// Numbers of microbatches that Megatron-LM's interleaved schedule refuses.
    pub fn pipeline_schedule(&self, stage: u32) -> Result<Vec<Slot>, ScheduleError> {
        let (stages, microbatches) = (
            self.layout.pipeline_model_parallel_size,
            self.microbatches(),
        );
        let group = self.microbatch_group_size_per_virtual_pipeline_stage;
        match self.layout.num_virtual_stages_per_pipeline_rank {
            1 => one_f_one_b(stages, stage, microbatches),
            chunks => interleaved(stages, stage, chunks, microbatches, group),
        }
    }

    /// Samples after which the warm-up ends, and the decay: Megatron-LM counts both in samples.
    pub fn lr_samples(&self) -> (u32, u32) {
        let samples = |iterations: u32| iterations * self.global_batch_size;
        (samples(self.lr_warmup_iters), samples(self.lr_decay_iters))
    }

    fn suits_torch_ddp(&self) -> bool {
        let layout = &self.layout;
        let is_whole = layout.tensor_model_parallel_size * layout.virtual_stages() == 1;
        let is_plain = !self.use_distributed_optimizer && !self.overlap_grad_reduce;
        is_whole && is_plain && self.model.params_dtype == Dtype::F32 && !self.grad_reduce_in_bf16
    }

    /// `TransformerConfig.__post_init__` refuses the same.
    fn check_offload(&self) -> Result<(), OptionsError> {
        let (offloaded, layers) = (self.cpu_offloading_num_layers, self.model.num_layers);
        let has_one_stage = self.layout.virtual_stages() == 1;
        let is_sound = offloaded < layers && has_one_stage && self.recompute == Recompute::Nothing;
        match offloaded == 0 || is_sound {
            true => Ok(()),
            false => Err(OptionsError::Offload { offloaded, layers }),
        }
    }

    fn check_interleaving(&self) -> Result<(), OptionsError> {
        if self.layout.num_virtual_stages_per_pipeline_rank == 1 {
            return Ok(());
        }
        self.pipeline_schedule(0)?;
        Ok(())
    }

    /// `OptimizerParamScheduler.__init__` asserts the same.
    fn check_decay(&self) -> Result<(), OptionsError> {
        let (warmup, decay) = (self.lr_warmup_iters, self.lr_decay_iters);
        if warmup >= decay {
            return Err(OptionsError::WarmupBeyondDecay { warmup, decay });
        }
        let samples = u64::from(decay) * u64::from(self.global_batch_size);
        if samples > u64::from(u32::MAX) {
            return Err(OptionsError::LongDecay { samples });
        }
        Ok(())
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
                "pipeline stages and their chunks",
                model.pipeline_model_parallel_size,
                layout.virtual_stages(),
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
            (
                "min_lr",
                self.min_lr,
                (0.0..=self.lr).contains(&self.min_lr),
            ),
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
        let step = StepSizes {
            microbatches: self.microbatches(),
            data_parallel_size: self.layout.data_parallel_size,
            ddp_bucket_size: self.ddp_bucket_size,
        };
        let words = self.model.buffer_sizes().step_words_max(&step);
        if words > BUFFER_WORDS_MAX {
            return Err(OptionsError::TooLarge {
                words,
                limit: BUFFER_WORDS_MAX,
            });
        }
        Ok(())
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::model::Orders;
    use crate::numerics::Dtype;
    use crate::recipe::{Normalization, PositionEmbedding};

    pub fn options() -> TrainOptions {
        TrainOptions {
            model: ModelShape {
                num_layers: 4,
                hidden_size: 32,
                ffn_hidden_size: 64,
                num_attention_heads: 4,
                num_query_groups: 2,
                kv_channels: 8,
                padded_vocab_size: 256,
                seq_length: 32,
                max_position_embeddings: 32,
                micro_batch_size: 1,
                normalization: Normalization::LayerNorm,
                norm_epsilon: 1e-5,
                swiglu: false,
                add_bias_linear: true,
                position_embedding_type: PositionEmbedding::LearnedAbsolute,
                rotary_base: 10_000.0,
                attention_dropout: 0.1,
                hidden_dropout: 0.1,
                untie_embeddings_and_output_weights: false,
                params_dtype: Dtype::Bf16,
                tensor_model_parallel_size: 2,
                pipeline_model_parallel_size: 2,
                sequence_parallel: true,
                wgrad_splits: 3,
                orders: Orders::ORDERED,
            },
            layout: Layout::plain(2, 2, 4),
            microbatch_group_size_per_virtual_pipeline_stage: 2,
            global_batch_size: 16,
            use_distributed_optimizer: true,
            grad_reduce_in_bf16: false,
            ddp_reduce_scatter_with_fp32_accumulation: false,
            ddp_bucket_size: None,
            overlap_grad_reduce: false,
            align_grad_reduce: true,
            overlap_param_gather: false,
            align_param_gather: true,
            torch_ddp: None,
            lr: 1e-3,
            lr_decay_style: LrDecayStyle::Constant,
            lr_decay_iters: 8,
            lr_warmup_iters: 0,
            min_lr: 0.0,
            adam_beta1: 0.9,
            adam_beta2: 0.95,
            adam_eps: 1e-8,
            weight_decay: 0.1,
            clip_grad: 1.0,
            seed: 1,
            recompute: Recompute::Nothing,
            cpu_offloading_num_layers: 0,
            data_parallel_random_init: false,
            num_workers: 0,
            epoch_samples: None,
            async_save: false,
        }
    }

    fn interleave(options: &mut TrainOptions, group: u32) {
        options.layout.num_virtual_stages_per_pipeline_rank = 2;
        options.model.pipeline_model_parallel_size = 4;
        options.global_batch_size = 20;
        options.microbatch_group_size_per_virtual_pipeline_stage = group;
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
        let cases: [(Spoil, &str); 37] = [
            (
                |o| o.cpu_offloading_num_layers = 1,
                "1 of 4 layers on the host",
            ),
            (
                |o| {
                    o.recompute = Recompute::Full {
                        method: RecomputeMethod::Block,
                        layers: 0,
                    }
                },
                "recomputation of 0 layers",
            ),
            (|o| o.model.hidden_size = 0, "hidden_size is 0"),
            (|o| o.model.hidden_size = 36, "hidden_size"),
            (|o| o.model.num_query_groups = 0, "num_query_groups is 0"),
            (|o| o.model.num_query_groups = 1, "num_query_groups"),
            (|o| o.model.num_query_groups = 3, "num_query_groups"),
            (|o| o.model.kv_channels = 3, "kv_channels"),
            (|o| o.model.kv_channels = 130, "130 wide"),
            (
                |o| o.model.max_position_embeddings = 31,
                "max_position_embeddings only 31",
            ),
            (|o| o.model.hidden_size = u32::MAX, "wgrad parts"),
            (|o| o.model.num_attention_heads = 3, "num_attention_heads"),
            (|o| o.model.num_layers = 3, "num_layers"),
            (|o| o.model.num_layers = u32::MAX - 1, "gradients or tokens"),
            (|o| o.model.seq_length = 31, "seq_length"),
            (|o| o.model.seq_length = u32::MAX - 1, "words"),
            (|o| o.model.padded_vocab_size = 258, "padded_vocab_size"),
            (|o| o.model.wgrad_splits = 33, "wgrad_splits"),
            (|o| o.model.hidden_dropout = 1.0, "hidden_dropout"),
            (
                |o| o.model.attention_dropout = f32::NAN,
                "attention_dropout",
            ),
            (|o| o.model.rotary_base = 0.5, "rotary_base"),
            (|o| o.model.norm_epsilon = 0.0, "norm_epsilon"),
            (|o| o.layout.tensor_model_parallel_size = 4, "split 2 ways"),
            (
                |o| o.layout.data_parallel_size = 0,
                "data_parallel_size is 0",
            ),
            (|o| o.layout.data_parallel_size = u32::MAX, "ranks"),
            (|o| o.global_batch_size = 15, "global_batch_size"),
            (|o| o.global_batch_size = 4 * 1025, "1024"),
            (|o| o.ddp_bucket_size = Some(0), "ddp_bucket_size"),
            (|o| o.adam_beta2 = 1.0, "adam_beta2"),
            (|o| o.clip_grad = f32::INFINITY, "clip_grad"),
            (|o| o.min_lr = 2e-3, "min_lr"),
            (|o| o.lr_warmup_iters = 8, "not below lr_decay_iters"),
            (|o| o.lr_decay_iters = u32::MAX, "2^32 - 1"),
            (
                |o| o.layout.num_distributed_optimizer_instances = 3,
                "does not divide 4",
            ),
            (
                |o| {
                    o.layout.num_distributed_optimizer_instances = 2;
                    o.use_distributed_optimizer = false;
                },
                "needs use_distributed_optimizer",
            ),
            (|o| interleave(o, 1), "microbatch_group_size_per_vp_stage"),
            (|o| interleave(o, 4), "the last group has 1 of 5"),
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
