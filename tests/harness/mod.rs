//! Runs the training program on a small world, for tests.
#![allow(dead_code, reason = "each test binary uses its own part")]

pub mod reference;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bitproof::engine::cpu::CpuEngine;
use bitproof::kernel::Registry;
use bitproof::model::{ModelShape, ModuleOrder, Orders, Recompute, Role, stage_parameters};
use bitproof::numerics::Dtype;
use bitproof::plan::{Arithmetic, Combine, Piece, Plan, Tree};
use bitproof::recipe::{CudaGraphImpl, LrDecayStyle, Normalization, PositionEmbedding};
use bitproof::train::{
    Corpus, FlatLayout, Initial, Layout, Run, Saves, TrainOptions, Trainer, program,
};
use bitproof::world::{
    CollectiveShape, Communicator, PlanSource, Rank, RankError, RunOptions, RunRecord, Unobserved,
    World, order::combine_of,
};

/// Every reduction a chain in group order, each partial sum in the buffer's type.
pub struct ChainPlans(pub Arc<[Communicator]>);

impl PlanSource for ChainPlans {
    fn plans(&self, shape: CollectiveShape) -> Result<Arc<[Arc<Plan>]>, String> {
        let n = self.0[shape.group.0 as usize].ranks.len() as u32;
        let arithmetic = match combine_of(shape.kind).ok_or("no reduction")? {
            Combine::Sum => Arithmetic::sum(shape.dtype, shape.dtype, shape.dtype),
            Combine::Max => Arithmetic::max(shape.dtype),
        };
        let tree = Tree::Chain {
            ring: (0..n).collect(),
            start: 0,
        };
        let pieces = vec![Piece {
            range: 0..shape.elements,
            tree,
        }];
        let plan = Plan {
            addend_count: n,
            element_count: shape.elements,
            arithmetic,
            pieces,
        };
        Ok(Arc::from(vec![Arc::new(plan)]))
    }
}

/// A model that trains in no time: 2 layers, a head for each of up to 4 tensor-parallel ranks.
pub fn small_options() -> TrainOptions {
    TrainOptions {
        model: ModelShape {
            num_layers: 2,
            hidden_size: 16,
            ffn_hidden_size: 32,
            num_attention_heads: 4,
            num_query_groups: 4,
            kv_channels: 4,
            padded_vocab_size: 32,
            seq_length: 8,
            max_position_embeddings: 8,
            micro_batch_size: 2,
            module_order: ModuleOrder::TransformerEngine,
            normalization: Normalization::RMSNorm,
            norm_epsilon: 1e-5,
            swiglu: true,
            add_bias_linear: false,
            position_embedding_type: PositionEmbedding::Rope,
            rotary_base: 10_000.0,
            attention_dropout: 0.0,
            hidden_dropout: 0.0,
            untie_embeddings_and_output_weights: true,
            params_dtype: Dtype::F32,
            tensor_model_parallel_size: 1,
            pipeline_model_parallel_size: 1,
            sequence_parallel: false,
            wgrad_splits: 3,
            orders: Orders::ORDERED,
        },
        layout: Layout::plain(1, 1, 1),
        microbatch_group_size_per_virtual_pipeline_stage: 1,
        global_batch_size: 8,
        use_distributed_optimizer: false,
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
        lr_decay_iters: 100,
        lr_warmup_iters: 0,
        min_lr: 0.0,
        adam_beta1: 0.9,
        adam_beta2: 0.95,
        adam_eps: 1e-8,
        weight_decay: 0.1,
        clip_grad: 1.0,
        seed: 1234,
        recompute: Recompute::Nothing,
        cpu_offloading_num_layers: 0,
        cpu_offloading_double_buffering: false,
        cuda_graph_impl: CudaGraphImpl::None,
        cuda_graph_warmup_steps: 3,
        data_parallel_random_init: false,
        num_workers: 0,
        epoch_samples: None,
        async_save: false,
        exits_by_clock: false,
    }
}

/// Four layers, so that two stages can have two chunks each.
pub fn deep_options() -> TrainOptions {
    let mut options = small_options();
    options.model.num_layers = 4;
    options
}

/// The interleaved schedule with `chunks` model chunks a stage and groups of `group` microbatches.
pub fn interleaved(mut options: TrainOptions, chunks: u32, group: u32) -> TrainOptions {
    options.layout.num_virtual_stages_per_pipeline_rank = chunks;
    options.model.pipeline_model_parallel_size *= chunks;
    options.microbatch_group_size_per_virtual_pipeline_stage = group;
    options
}

/// GPT-3's model instead of Llama's: every option that Megatron-LM defaults to.
pub fn as_gpt3(options: &mut TrainOptions) {
    let model = &mut options.model;
    model.normalization = Normalization::LayerNorm;
    model.swiglu = false;
    model.add_bias_linear = true;
    model.position_embedding_type = PositionEmbedding::LearnedAbsolute;
    model.max_position_embeddings = model.seq_length + 4;
    model.untie_embeddings_and_output_weights = false;
    model.attention_dropout = 0.2;
    model.hidden_dropout = 0.1;
}

/// Seeded weights, but gains and biases off their first values, so that each counts. The same whole
/// model under every layout.
pub fn with_biases(options: &TrainOptions) -> Initial {
    let mut shape = options.model.clone();
    shape.tensor_model_parallel_size = 1;
    let seeded = Initial::Seeded(options.seed);
    let mut whole = BTreeMap::new();
    for stage in 0..shape.pipeline_model_parallel_size {
        for parameter in stage_parameters(&shape, stage) {
            let mut values = seeded.values(&parameter, 0, 1).expect("seeded");
            if matches!(parameter.role, Role::Gain | Role::Bias) {
                for (place, value) in values.iter_mut().enumerate() {
                    *value += (place * 7 % 11) as f32 / 16.0 - 0.25;
                }
            }
            whole.insert(parameter.whole_name().to_string(), values);
        }
    }
    Initial::Given(Arc::new(whole))
}

/// The same with other sizes of the layout.
pub fn with_layout(mut options: TrainOptions, tp: u32, pp: u32, dp: u32) -> TrainOptions {
    options.model.tensor_model_parallel_size = tp;
    options.model.pipeline_model_parallel_size = pp;
    options.layout.tensor_model_parallel_size = tp;
    options.layout.pipeline_model_parallel_size = pp;
    options.layout.data_parallel_size = dp;
    options
}

/// Samples of a small vocabulary, without structure.
pub fn small_corpus(options: &TrainOptions) -> Corpus {
    let mut state = 12_345u32;
    let mut token = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 16) % options.model.padded_vocab_size
    };
    let length = options.model.seq_length as usize + 1;
    let samples = (0..24).map(|_| (0..length).map(|_| token()).collect());
    Corpus::Samples(samples.collect::<Vec<Vec<u32>>>().into())
}

/// A world for `options`, with the real kernels.
pub fn world(options: &TrainOptions) -> World {
    let communicators: Arc<[Communicator]> = options.layout.communicators().into();
    World {
        ranks: options.layout.world_size(),
        communicators: communicators.clone(),
        registry: Arc::new(Registry::new().expect("the kernels load")),
        plans: Arc::new(ChainPlans(communicators)),
    }
}

/// Words that `inspect` read on each rank.
pub type Seen = BTreeMap<u32, Vec<u32>>;

/// Trains `steps` steps; after each one `inspect` may read the rank's memory.
pub fn train(
    options: &TrainOptions,
    corpus: &Corpus,
    initial: &Initial,
    steps: u32,
    inspect: impl Fn(&mut Rank, &Trainer, u32) -> Result<Vec<u32>, RankError> + Sync,
) -> (RunRecord, BTreeMap<u32, Seen>) {
    options.check().expect("options fit");
    corpus
        .check(options.model.seq_length, options.model.padded_vocab_size)
        .expect("data fits");
    let seen: Mutex<BTreeMap<u32, Seen>> = Mutex::new(BTreeMap::new());
    let groups = options.layout.process_groups();
    let program = |rank: &mut Rank| {
        let groups = groups.of_rank(rank.id);
        let mut trainer = Trainer::new(rank, options, groups, corpus.clone(), initial, None)?;
        rank.end_setup()?;
        for step in 0..steps {
            trainer.step(rank, step, step + 1 == steps)?;
            let words = inspect(rank, &trainer, step)?;
            seen.lock()
                .unwrap()
                .entry(step)
                .or_default()
                .insert(rank.id, words);
        }
        Ok(())
    };
    let mut engine = CpuEngine::new(1).expect("the engine starts");
    // Every access of the first two steps is checked for order, and for unwritten words.
    let run = RunOptions {
        hazard_steps_max: 2,
        ..RunOptions::default()
    };
    let record = world(options).run(&mut engine, &run, &program, &mut Unobserved);
    let record = record.unwrap_or_else(|error| panic!("{error}"));
    assert!(record.hazards.is_empty(), "{:#?}", record.hazards);
    (record, seen.into_inner().unwrap())
}

/// Trains as told, faults and all, and reads nothing.
pub fn train_with(
    options: &TrainOptions,
    corpus: &Corpus,
    initial: &Initial,
    run: &RunOptions,
    steps: u32,
) -> RunRecord {
    options.check().expect("options fit");
    let part = Run {
        steps: 0..steps,
        checkpoint: None,
        saves_after: [steps.saturating_sub(1)].into(),
        variables: Vec::new().into(),
        saves: Saves::default(),
    };
    let program = program(
        Arc::new(options.clone()),
        corpus.clone(),
        initial.clone(),
        part,
    );
    let mut engine = CpuEngine::new(1).expect("the engine starts");
    let record = world(options).run(&mut engine, run, &program, &mut Unobserved);
    record.unwrap_or_else(|error| panic!("{error}"))
}

/// Reads the reduced gradients: `inspect` for `whole_gradients`.
pub fn read_gradients(rank: &mut Rank, trainer: &Trainer, _: u32) -> Result<Vec<u32>, RankError> {
    rank.read("gradients", trainer.gradients.reduced)
}

/// Puts the gradients that ranks hold together into whole tensors, each element from the last rank
/// that has it.
pub fn whole_gradients(options: &TrainOptions, seen: &Seen) -> BTreeMap<String, Vec<f32>> {
    let layout = &options.layout;
    let tp = layout.tensor_model_parallel_size;
    let sharded = options.use_distributed_optimizer && layout.instance_size() > 1;
    let mut whole: BTreeMap<String, Vec<f32>> = BTreeMap::new();
    for (rank, words) in seen {
        let place = layout.coordinates(*rank);
        let flat = FlatLayout::of(options, place.stage);
        let owned: Vec<u32> = if sharded {
            let shard = flat.shard(place.data % layout.instance_size());
            shard.into_iter().flatten().collect()
        } else {
            (0..flat.len()).collect()
        };
        assert_eq!(owned.len(), words.len());
        let at: BTreeMap<u32, u32> = owned.into_iter().zip(words.iter().copied()).collect();
        for (parameter, offset) in flat.parameters.iter().zip(&flat.offsets) {
            let copies = match parameter.partition {
                bitproof::model::Partition::Replicated => 1,
                _ => tp,
            };
            let length = (parameter.len() * copies) as usize;
            let tensor = whole
                .entry(parameter.name.clone())
                .or_insert_with(|| vec![f32::NAN; length]);
            for local in 0..parameter.len() {
                if let Some(word) = at.get(&(offset + local)) {
                    let global = parameter.global_index(local, place.tensor, tp);
                    tensor[global as usize] = f32::from_bits(*word);
                }
            }
        }
    }
    whole
}

/// Greatest difference over greatest magnitude, and the same of 2-norms.
pub fn distance(have: &[f32], want: &[f64]) -> (f64, f64) {
    assert_eq!(have.len(), want.len());
    assert!(
        have.iter().all(|x| x.is_finite()),
        "every element was computed"
    );
    let difference = |(a, b): (&f32, &f64)| (f64::from(*a) - b).abs();
    let (mut greatest, mut top, mut squares, mut norm) = (0f64, 0f64, 0f64, 0f64);
    for (a, b) in have.iter().zip(want) {
        let d = difference((a, b));
        greatest = greatest.max(d);
        top = top.max(b.abs());
        squares += d * d;
        norm += b * b;
    }
    (greatest / top, (squares / norm).sqrt())
}

/// All of each rank's training state, and the bits of the metrics.
pub type Trained = (BTreeMap<u32, Vec<u32>>, BTreeMap<(u32, String), u32>);

/// What `steps` of training come to, from seeded parameters. The run has no hazard.
pub fn trained(options: &TrainOptions, steps: u32) -> Trained {
    let (corpus, initial) = (small_corpus(options), Initial::Seeded(7));
    let (record, mut seen) = train(options, &corpus, &initial, steps, read_state);
    let metrics = record.metrics.into_iter();
    let metrics = metrics.map(|(key, value)| (key, value.to_bits())).collect();
    (seen.remove(&(steps - 1)).expect("it ran"), metrics)
}

fn read_state(rank: &mut Rank, trainer: &Trainer, _: u32) -> Result<Vec<u32>, RankError> {
    let optimizer = &trainer.optimizer;
    let mut words = Vec::new();
    for tensor in [
        trainer.store().values,
        optimizer.main_params,
        optimizer.exp_avg,
        optimizer.exp_avg_sq,
    ] {
        words.extend(rank.read("state", tensor)?);
    }
    Ok(words)
}
