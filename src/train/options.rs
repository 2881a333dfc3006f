//! What is trained and how: plain data under Megatron-LM's argument names.

use crate::job::{DdpOptions, ScheduleError, Slot, interleaved, one_f_one_b};
use crate::model::{ModelShape, ModuleOrder, Orders, Recompute, Selective, ShapeError};
use crate::numerics::Dtype;
use crate::recipe::{
    BUFFER_WORDS_MAX, CudaGraphImpl, DataParallelKind, LrDecayStyle, MICROBATCH_COUNT_MAX, Recipe,
    RecomputeGranularity, RecomputeMethod, RecomputeModule, StepSizes, TransformerImpl,
};
use crate::train::layout::{Layout, LayoutError};
use crate::train::loss_scaler::LossScale;

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
    /// Gradients are rounded to this before they are reduced, and reduced in it.
    pub reduce_dtype: Dtype,
    /// What the loss is multiplied by, where it is.
    pub loss_scale: Option<LossScale>,
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
    /// They come back into two buffers in turn, not into new memory.
    pub cpu_offloading_double_buffering: bool,
    /// Layers are captured as CUDA graphs, and replayed from then on.
    pub cuda_graph_impl: CudaGraphImpl,
    /// Steps of a process before Transformer Engine's graphs are captured.
    pub cuda_graph_warmup_steps: u32,
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
    /// After each step ranks ask their clocks whether to go on.
    pub exits_by_clock: bool,
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
            reduce_dtype: reduce_dtype(recipe),
            loss_scale: LossScale::of(&recipe.loss_scaling),
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
            cpu_offloading_double_buffering: recipe.cpu_offloading_double_buffering,
            cuda_graph_impl: recipe.cuda_graph_impl,
            cuda_graph_warmup_steps: recipe.cuda_graph_warmup_steps,
            data_parallel_random_init: recipe.data_parallel_random_init,
            num_workers: recipe.num_workers,
            epoch_samples: recipe.epoch_samples,
            async_save: recipe.async_save,
            exits_by_clock: recipe.exit_duration_in_mins.is_some(),
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
        module_order: match (recipe.ddp, recipe.transformer_impl) {
            (DataParallelKind::Torch, _) => ModuleOrder::Computed,
            (_, TransformerImpl::TransformerEngine) => ModuleOrder::TransformerEngine,
            (_, TransformerImpl::Local) => ModuleOrder::Local,
        },
        normalization: recipe.normalization,
        norm_epsilon: recipe.norm_epsilon,
        swiglu: recipe.swiglu,
        add_bias_linear: !recipe.disable_bias_linear,
        position_embedding_type: recipe.position_embedding_type,
        rotary_base: recipe.rotary_base,
        attention_dropout: recipe.attention_dropout,
        hidden_dropout: recipe.hidden_dropout,
        untie_embeddings_and_output_weights: recipe.untie_embeddings_and_output_weights,
        params_dtype: match (recipe.bf16, recipe.loss_scaling.fp16) {
            (true, _) => Dtype::Bf16,
            (false, true) => Dtype::F16,
            (false, false) => Dtype::F32,
        },
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

/// Gradients have the model's format unless they are reduced in fp32 (`_ParamAndGradBuffer`).
fn reduce_dtype(recipe: &Recipe) -> Dtype {
    let is_narrow_f16 = recipe.loss_scaling.fp16 && !recipe.accumulate_allreduce_grads_in_fp32;
    match (recipe.grad_reduce_in_bf16, is_narrow_f16) {
        (true, _) => Dtype::Bf16,
        (false, true) => Dtype::F16,
        (false, false) => Dtype::F32,
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
    #[error(
        "CUDA graphs of layers: expected Megatron's DDP, no dropout, no recomputation, no \
         offloading, and one pipeline stage where they are Transformer Engine's"
    )]
    CudaGraphs,
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
        self.check_cuda_graphs()?;
        self.check_interleaving()?;
        self.check_numbers()?;
        self.check_decay()?;
        self.check_words()
    }

    /// Microbatches of one step on one data-parallel rank.
    pub fn microbatches(&self) -> u32 {
        let ranks = u64::from(self.layout.data_parallel_size);
        let each = u64::from(self.model.micro_batch_size) * ranks;
        (u64::from(self.global_batch_size) / each) as u32
    }

    /// Steps of a process before its first replay of a CUDA graph, if there is one.
    pub fn eager_steps(&self) -> Option<u32> {
        let warmup = self.cuda_graph_warmup_steps;
        self.cuda_graph_impl.eager_steps(warmup)
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
        let is_single = [self.model.params_dtype, self.reduce_dtype] == [Dtype::F32; 2];
        is_whole && is_plain && is_single
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

    /// [`crate::recipe`] says why.
    fn check_cuda_graphs(&self) -> Result<(), OptionsError> {
        let draws = self.model.hidden_dropout > 0.0 || self.model.attention_dropout > 0.0;
        let keeps_all = self.recompute == Recompute::Nothing && self.cpu_offloading_num_layers == 0;
        let suits_stages = match self.cuda_graph_impl {
            CudaGraphImpl::None => return Ok(()),
            CudaGraphImpl::Local => true,
            CudaGraphImpl::TransformerEngine => self.layout.virtual_stages() == 1,
        };
        match suits_stages && !draws && keeps_all && self.torch_ddp.is_none() {
            true => Ok(()),
            false => Err(OptionsError::CudaGraphs),
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
pub(super) mod tests;
