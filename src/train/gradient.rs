//! From microbatch gradients to what the optimizer reads: accumulation, the sum of norms and
//! row-parallel biases over tensor-parallel ranks, the average over data-parallel ones (all of
//! them, or first those of an optimizer instance and then the instances), the sum of a shared
//! embedding over the two stages that hold it.

use crate::model::ParameterStore;
use crate::numerics::Dtype;
use crate::plan::{Combine, Init};
use crate::train::bucket::FlatLayout;
use crate::train::options::TrainOptions;
use crate::train::process_groups::GroupIds;
use crate::world::{Family, GroupId, Handle, LocalOrder, Phase, Rank, SlotFold, Tensor};

/// The gradient buffers of one rank.
#[derive(Clone, Debug)]
pub struct Gradients {
    /// `[flat length]` fp32: the sum over microbatches.
    flat: Tensor,
    /// What the optimizer reads: this rank's shard, or `flat` itself.
    pub reduced: Tensor,
    /// Blocks of all ranks for one bucket each, before they are added here in fp32.
    received: Option<Tensor>,
    /// Norms and row-parallel biases one after another, as Megatron coalesces them.
    coalesced: Option<Tensor>,
    sequence_parallel: Vec<Tensor>,
}

/// What a reduction works on.
#[derive(Clone, Copy, Debug)]
pub struct Reduction<'a> {
    pub options: &'a TrainOptions,
    pub layout: &'a FlatLayout,
    /// All chunks' parameters; the slots of each chunk lie one chunk after another.
    pub store: &'a ParameterStore,
    pub groups: GroupIds,
}

/// Whether optimizer state is cut into shards.
pub fn shards(options: &TrainOptions) -> bool {
    options.use_distributed_optimizer && options.layout.instance_size() > 1
}

/// The module that a bucket's reduction is named by.
const BUCKET: &str = "ddp.bucket";

fn bucket_module(number: usize) -> String {
    format!("{BUCKET}{number}")
}

fn reduce_dtype(options: &TrainOptions) -> Dtype {
    if options.grad_reduce_in_bf16 {
        Dtype::Bf16
    } else {
        Dtype::F32
    }
}

impl Gradients {
    /// The number of the bucket that is reduced in `module`.
    pub fn bucket_of(module: &str) -> Option<usize> {
        module.strip_prefix(BUCKET)?.parse().ok()
    }

    pub fn allocate(
        rank: &mut Rank,
        options: &TrainOptions,
        store: &ParameterStore,
        layout: &FlatLayout,
    ) -> Gradients {
        let dtype = reduce_dtype(options);
        let flat = if options.microbatches() == 1 {
            store.slots
        } else {
            rank.alloc("main_grad", Dtype::F32, layout.len())
        };
        let whole = Tensor { dtype, ..flat };
        let reduced = if shards(options) {
            rank.alloc("grad_shard", dtype, layout.shard_len())
        } else {
            whole
        };
        let by_hand = shards(options) && options.ddp_reduce_scatter_with_fp32_accumulation;
        let sequence_parallel = sequence_parallel(store, flat);
        let words = sequence_parallel.iter().map(|gain| gain.len).sum();
        let meets = options.model.splits_sequence();
        Gradients {
            flat,
            reduced,
            received: by_hand.then(|| rank.alloc("grad_received", dtype, layout.len())),
            coalesced: meets.then(|| rank.alloc("gains_grad", Dtype::F32, words)),
            sequence_parallel,
        }
    }

    /// Runs the whole reduction, on all slots of the step.
    pub fn reduce(&self, rank: &mut Rank, reduction: &Reduction<'_>) {
        rank.set_phase(Phase::GradReduce);
        rank.set_microbatch(None);
        self.accumulate(rank, reduction);
        self.meet_gains(rank, reduction.groups.tensor);
        self.scale(rank, reduction.options);
        self.meet_data(rank, reduction);
        self.meet_embedding(rank, reduction);
    }

    fn accumulate(&self, rank: &mut Rank, reduction: &Reduction<'_>) {
        let microbatches = reduction.options.microbatches();
        if microbatches == 1 {
            return;
        }
        for (number, chunk) in reduction.layout.chunks.iter().enumerate() {
            let (start, len) = (chunk.words.start, chunk.words.end - chunk.words.start);
            let slots = reduction.store.slots;
            let fold = SlotFold {
                family: Family::MicrobatchAccumulation,
                addends: slots.slice(microbatches * start, microbatches * len),
                slots: microbatches,
                out: self.flat.slice(start, len),
                init: Init::First,
                order: reduction.options.model.orders.microbatch_accumulation,
            };
            let module = match reduction.layout.chunks.len() {
                1 => "main_grad".to_string(),
                _ => format!("main_grad.chunk{number}"),
            };
            rank.module(&module, |rank| rank.fold("accumulate", fold));
        }
    }

    /// Under sequence parallelism a norm, or the bias of a row-parallel linear, has seen only this
    /// rank's tokens (Megatron-LM, `_allreduce_non_tensor_model_parallel_grads`; done there after
    /// the data-parallel reduction).
    fn meet_gains(&self, rank: &mut Rank, group: GroupId) {
        let Some(coalesced) = self.coalesced else {
            return;
        };
        let places = self.sequence_parallel.iter().scan(0, |start, gain| {
            let together = coalesced.slice(*start, gain.len);
            *start += gain.len;
            Some((together, *gain))
        });
        rank.module("main_grad.layernorm", |rank| {
            for (together, apart) in places.clone() {
                rank.copy("coalesce", apart, together);
            }
            let family = Family::NormWeightTp;
            let handle = rank.all_reduce("all_reduce", family, group, coalesced, Combine::Sum);
            rank.wait(handle);
            for (together, apart) in places {
                rank.copy("split", together, apart);
            }
        });
    }

    /// Averages by scaling before the sum, as Megatron's DDP does.
    fn scale(&self, rank: &mut Rank, options: &TrainOptions) {
        let ranks = options.layout.data_parallel_size;
        let dtype = reduce_dtype(options);
        if ranks == 1 && dtype == Dtype::F32 {
            return;
        }
        let values = Tensor { dtype, ..self.flat };
        let factor = 1.0 / ranks as f32;
        let params = [values.len, factor.to_bits(), dtype.code()];
        rank.module("main_grad", |rank| {
            rank.launch("scale", "scale", [values.len, 1, 1], &[values], &params);
        });
    }

    fn meet_data(&self, rank: &mut Rank, reduction: &Reduction<'_>) {
        let Reduction {
            options,
            layout,
            groups,
            ..
        } = *reduction;
        if options.layout.data_parallel_size == 1 {
            return;
        }
        let whole = Tensor {
            dtype: reduce_dtype(options),
            ..self.flat
        };
        let mut handles = Vec::with_capacity(layout.buckets.len());
        for (number, bucket) in layout.buckets.iter().enumerate() {
            let words = whole.slice(bucket.range.start, bucket.len());
            let shard = self.shard_of(options, bucket.range.start, bucket.len());
            rank.module(&bucket_module(number), |rank| {
                let handle = rank.edge(&format!("grad_reduce.bucket{number}"), |rank| {
                    self.issue(rank, groups, words, shard)
                });
                handles.push(handle);
            });
        }
        for (number, (handle, bucket)) in handles.into_iter().zip(&layout.buckets).enumerate() {
            let shard = self.shard_of(options, bucket.range.start, bucket.len());
            rank.module(&bucket_module(number), |rank| {
                rank.wait(handle);
                self.add_received(rank, options, bucket.range.start, bucket.len(), shard);
            });
        }
        self.meet_instances(rank, reduction);
    }

    /// Each shard over the optimizer instances, bucket by bucket (Megatron-LM,
    /// `_ParamAndGradBucketGroup.start_grad_sync`).
    fn meet_instances(&self, rank: &mut Rank, reduction: &Reduction<'_>) {
        let Some(group) = reduction.groups.inter_instance else {
            return;
        };
        if !shards(reduction.options) {
            return;
        }
        let mut handles = Vec::new();
        for (number, bucket) in reduction.layout.buckets.iter().enumerate() {
            let shard = self.shard_of(reduction.options, bucket.range.start, bucket.len());
            let shard = shard.expect("the gradients are sharded");
            rank.module(&bucket_module(number), |rank| {
                let family = Family::OptimizerInstances;
                let op = "all_reduce_instances";
                let handle = rank.edge(&format!("instance_reduce.bucket{number}"), |rank| {
                    rank.all_reduce(op, family, group, shard, Combine::Sum)
                });
                handles.push(handle);
            });
        }
        handles.into_iter().for_each(|handle| rank.wait(handle));
    }

    fn issue(
        &self,
        rank: &mut Rank,
        groups: GroupIds,
        words: Tensor,
        shard: Option<Tensor>,
    ) -> Handle {
        let (family, group) = (Family::DpGradients, groups.intra_instance);
        match (shard, self.received) {
            (None, _) => rank.all_reduce("all_reduce", family, groups.data, words, Combine::Sum),
            (Some(shard), None) => {
                rank.reduce_scatter("reduce_scatter", family, group, words, shard)
            }
            (Some(_), Some(received)) => {
                let offset = words.start - self.flat.start;
                let blocks = received.slice(offset, words.len);
                rank.all_to_all("all_to_all", group, words, blocks)
            }
        }
    }

    /// The local half of `ddp_reduce_scatter_with_fp32_accumulation`: blocks in group order.
    fn add_received(
        &self,
        rank: &mut Rank,
        options: &TrainOptions,
        start: u32,
        len: u32,
        shard: Option<Tensor>,
    ) {
        let (Some(received), Some(out)) = (self.received, shard) else {
            return;
        };
        let fold = SlotFold {
            family: Family::DpGradients,
            addends: received.slice(start, len),
            slots: options.layout.instance_size(),
            out,
            init: Init::First,
            order: LocalOrder::Ordered,
        };
        rank.fold("fp32_accumulation", fold);
    }

    /// A shared embedding's gradient is the sum of what the first stage's look-up and the last
    /// stage's output layer gave, after the data-parallel reduction (Megatron-LM,
    /// `_allreduce_word_embedding_grads`). With the distributed optimizer each rank there sums the
    /// whole gradient, of which its own shard alone is valid; the bucket of its own makes both
    /// stages' shards the same rows. Here the shard alone is summed.
    fn meet_embedding(&self, rank: &mut Rank, reduction: &Reduction<'_>) {
        let Reduction {
            options,
            layout,
            store,
            groups,
        } = *reduction;
        let mut places = store.parameters.iter().zip(&store.offsets);
        let shared = places.find(|(parameter, _)| parameter.is_shared_embedding());
        let (Some((parameter, offset)), Some(group)) = (shared, groups.embedding) else {
            return;
        };
        let mut buckets = layout.buckets.iter();
        let bucket = buckets.find(|bucket| bucket.range.contains(offset));
        let bucket = bucket.expect("every parameter is in a bucket");
        let words = match self.shard_of(options, bucket.range.start, bucket.len()) {
            Some(shard) => {
                assert_eq!(bucket.range.start, *offset, "it is alone in its bucket");
                shard
            }
            None => self.reduced.slice(*offset, parameter.len()),
        };
        rank.module("main_grad.word_embeddings", |rank| {
            let family = Family::SharedEmbedding;
            let handle = rank.all_reduce("all_reduce", family, group, words, Combine::Sum);
            rank.wait(handle);
        });
    }

    fn shard_of(&self, options: &TrainOptions, start: u32, len: u32) -> Option<Tensor> {
        let ranks = options.layout.instance_size();
        shards(options).then(|| self.reduced.slice(start / ranks, len / ranks))
    }
}

/// The gradients that are sums over the tokens of one rank.
fn sequence_parallel(store: &ParameterStore, flat: Tensor) -> Vec<Tensor> {
    let list = store.parameters.iter().zip(&store.offsets);
    list.filter(|(parameter, _)| parameter.sequence_parallel)
        .map(|(parameter, offset)| flat.slice(*offset, parameter.len()))
        .collect()
}
