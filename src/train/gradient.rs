//! From microbatch gradients to what the optimizer reads: accumulation, the gains' sum over
//! tensor-parallel ranks, the average over data-parallel ones.

use crate::model::{ParameterId, Partition, Stage};
use crate::numerics::Dtype;
use crate::plan::{Combine, Init};
use crate::train::bucket::FlatLayout;
use crate::train::options::TrainOptions;
use crate::train::process_groups::GroupIds;
use crate::world::{Family, Handle, LocalOrder, Phase, Rank, SlotFold, Tensor};

/// The gradient buffers of one rank.
#[derive(Clone, Debug)]
pub struct Gradients {
    /// `[flat length]` fp32: the sum over microbatches.
    flat: Tensor,
    /// What the optimizer reads: this rank's shard, or `flat` itself.
    pub reduced: Tensor,
    /// Blocks of all ranks for one bucket each, before they are added here in fp32.
    received: Option<Tensor>,
    /// Gains one after another, as Megatron coalesces them.
    coalesced: Option<Tensor>,
    gains: Vec<ParameterId>,
}

/// Whether optimizer state is cut into shards.
pub fn shards(options: &TrainOptions) -> bool {
    options.use_distributed_optimizer && options.layout.data_parallel_size > 1
}

fn reduce_dtype(options: &TrainOptions) -> Dtype {
    if options.grad_reduce_in_bf16 {
        Dtype::Bf16
    } else {
        Dtype::F32
    }
}

impl Gradients {
    pub fn allocate(
        rank: &mut Rank,
        options: &TrainOptions,
        stage: &Stage,
        layout: &FlatLayout,
    ) -> Gradients {
        let dtype = reduce_dtype(options);
        let flat = if options.microbatches() == 1 {
            stage.store.slots
        } else {
            rank.alloc("main_grad", Dtype::F32, layout.len())
        };
        let whole = Tensor { dtype, ..flat };
        let shard = layout.len() / options.layout.data_parallel_size;
        let reduced = if shards(options) {
            rank.alloc("grad_shard", dtype, shard)
        } else {
            whole
        };
        let by_hand = shards(options) && options.ddp_reduce_scatter_with_fp32_accumulation;
        let gains = replicated(stage);
        let gain_words = gains.len() as u32 * stage.shape.hidden_size;
        let meets = stage.shape.splits_sequence();
        Gradients {
            flat,
            reduced,
            received: by_hand.then(|| rank.alloc("grad_received", dtype, layout.len())),
            coalesced: meets.then(|| rank.alloc("gains_grad", Dtype::F32, gain_words)),
            gains,
        }
    }

    /// Runs the whole reduction, on all slots of the step.
    pub fn reduce(
        &self,
        rank: &mut Rank,
        options: &TrainOptions,
        stage: &Stage,
        layout: &FlatLayout,
        groups: GroupIds,
    ) {
        rank.set_phase(Phase::GradReduce);
        rank.set_microbatch(None);
        self.accumulate(rank, options, stage);
        self.meet_gains(rank, stage);
        self.scale(rank, options);
        self.meet_data(rank, options, layout, groups);
    }

    fn accumulate(&self, rank: &mut Rank, options: &TrainOptions, stage: &Stage) {
        if options.microbatches() == 1 {
            return;
        }
        let fold = SlotFold {
            family: Family::MicrobatchAccumulation,
            addends: stage.store.slots,
            slots: options.microbatches(),
            out: self.flat,
            init: Init::First,
            order: options.model.orders.microbatch_accumulation,
        };
        rank.module("main_grad", |rank| rank.fold("accumulate", fold));
    }

    /// Under sequence parallelism a gain has seen only this rank's tokens (Megatron-LM,
    /// `_allreduce_non_tensor_model_parallel_grads`; done there after the data-parallel reduction).
    fn meet_gains(&self, rank: &mut Rank, stage: &Stage) {
        let Some(coalesced) = self.coalesced else {
            return;
        };
        let hidden = stage.shape.hidden_size;
        let places = self.gains.iter().enumerate().map(|(place, id)| {
            let offset = stage.store.offsets[id.0 as usize];
            (
                coalesced.slice(place as u32 * hidden, hidden),
                self.flat.slice(offset, hidden),
            )
        });
        rank.module("main_grad.layernorm", |rank| {
            for (together, apart) in places.clone() {
                rank.copy("coalesce", apart, together);
            }
            let (family, group) = (Family::NormWeightTp, stage.tensor_group);
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

    fn meet_data(
        &self,
        rank: &mut Rank,
        options: &TrainOptions,
        layout: &FlatLayout,
        groups: GroupIds,
    ) {
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
            rank.module(&format!("ddp.bucket{number}"), |rank| {
                handles.push(self.issue(rank, groups, words, shard));
            });
        }
        for (number, (handle, bucket)) in handles.into_iter().zip(&layout.buckets).enumerate() {
            let shard = self.shard_of(options, bucket.range.start, bucket.len());
            rank.module(&format!("ddp.bucket{number}"), |rank| {
                rank.wait(handle);
                self.add_received(rank, options, bucket.range.start, bucket.len(), shard);
            });
        }
    }

    fn issue(
        &self,
        rank: &mut Rank,
        groups: GroupIds,
        words: Tensor,
        shard: Option<Tensor>,
    ) -> Handle {
        let (family, group) = (Family::DpGradients, groups.data);
        match (shard, self.received) {
            (None, _) => rank.all_reduce("all_reduce", family, group, words, Combine::Sum),
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
            slots: options.layout.data_parallel_size,
            out,
            init: Init::First,
            order: LocalOrder::Ordered,
        };
        rank.fold("fp32_accumulation", fold);
    }

    fn shard_of(&self, options: &TrainOptions, start: u32, len: u32) -> Option<Tensor> {
        let ranks = options.layout.data_parallel_size;
        shards(options).then(|| self.reduced.slice(start / ranks, len / ranks))
    }
}

/// Parameters that every tensor-parallel rank holds whole.
fn replicated(stage: &Stage) -> Vec<ParameterId> {
    let list = stage.store.parameters.iter().enumerate();
    list.filter(|(_, parameter)| parameter.partition == Partition::Replicated)
        .map(|(place, _)| ParameterId(place as u32))
        .collect()
}
