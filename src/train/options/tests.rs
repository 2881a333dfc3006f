//! Options that go together, and those that do not.

use super::*;
use crate::model::{ModuleOrder, Orders};
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
            module_order: ModuleOrder::TransformerEngine,
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
        reduce_dtype: Dtype::F32,
        loss_scale: None,
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
        cpu_offloading_double_buffering: false,
        cuda_graph_impl: CudaGraphImpl::None,
        cuda_graph_warmup_steps: 3,
        data_parallel_random_init: false,
        num_workers: 0,
        epoch_samples: None,
        exits_by_clock: false,
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
    let cases: [(Spoil, &str); 38] = [
        (
            |o| o.cuda_graph_impl = CudaGraphImpl::Local,
            "CUDA graphs of layers",
        ),
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
