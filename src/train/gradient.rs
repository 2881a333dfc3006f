//! The gradients of one rank, bucket by bucket: accumulated over microbatches, scaled, reduced over
//! data-parallel ranks (all of them, or first those of an optimizer instance and then the
//! instances). When each bucket's turn comes is [`crate::train::data_parallel`]'s matter; what is
//! summed afterwards is [`crate::train::finalize`]'s.

use crate::fault::FaultKind;
use crate::model::ParameterStore;
use crate::numerics::Dtype;
use crate::plan::{Combine, Init};
use crate::train::bucket::{Bucket, FlatLayout};
use crate::train::options::TrainOptions;
use crate::train::process_groups::GroupIds;
use crate::world::{EventId, Family, Handle, LocalOrder, Phase, Rank, SlotFold, StreamId, Tensor};

/// The gradient buffers of one rank.
#[derive(Clone, Debug)]
pub struct Gradients {
    /// `[flat length]` fp32: the sum over microbatches.
    pub(super) flat: Tensor,
    /// What the optimizer reads: this rank's shard, or `flat` itself.
    pub reduced: Tensor,
    /// Blocks of all ranks for one bucket each, before they are added here in fp32.
    received: Option<Tensor>,
}

/// What a reduction works on.
#[derive(Clone, Copy, Debug)]
pub struct Reduction<'a> {
    pub options: &'a TrainOptions,
    pub layout: &'a FlatLayout,
    /// All chunks' parameters; the slots of each bucket lie one bucket after another.
    pub store: &'a ParameterStore,
    pub groups: GroupIds,
    /// The first step of its process, whose buckets torch's DDP lays out anew.
    pub is_first_step: bool,
    /// The last microbatch's gradients overwrite those before them: a stale flag.
    pub overwrites: bool,
}

/// What a bucket's reduction is waited for by.
#[derive(Clone, Copy, Debug)]
pub enum Sent {
    /// One data-parallel rank: there is nothing to wait for.
    Nothing,
    Collective(Handle),
    /// Several collectives in a row, on a stream of their own.
    Stream(StreamId),
}

/// Whether optimizer state is cut into shards.
pub fn shards(options: &TrainOptions) -> bool {
    options.use_distributed_optimizer && options.layout.instance_size() > 1
}

impl TrainOptions {
    /// Whether a step may leave the gather of the parameters to the next step's forward.
    pub fn defers_param_gather(&self) -> bool {
        shards(self) && self.overlap_param_gather
    }
}

/// The op that reduces a process's first gradients in torch's DDP.
pub const FIRST_BUCKETS: &str = "all_reduce_in_first_buckets";

/// The module that a bucket's reduction is named by.
const BUCKET: &str = "ddp.bucket";

pub(super) fn bucket_module(number: usize) -> String {
    format!("{BUCKET}{number}")
}

/// Megatron-LM's `communication_stream` of a model chunk's DDP.
fn communication_stream(chunk: usize) -> StreamId {
    StreamId(1 + chunk as u32)
}

/// Recorded where a bucket's gradients are ready, and where its collectives are issued.
fn ready(number: usize) -> EventId {
    EventId(2 * number as u32)
}

fn done(number: usize) -> EventId {
    EventId(2 * number as u32 + 1)
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
        let dtype = options.reduce_dtype;
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
        Gradients {
            flat,
            reduced,
            received: by_hand.then(|| rank.alloc("grad_received", dtype, layout.len())),
        }
    }

    /// Issues the reduction of a bucket, all of whose gradients are in their slots (Megatron-LM,
    /// `_ParamAndGradBucketGroup.start_grad_sync`). With several optimizer instances and overlap
    /// its two collectives follow each other on a stream of their own.
    pub fn start(&self, rank: &mut Rank, reduction: &Reduction<'_>, number: usize) -> Sent {
        rank.set_phase(Phase::GradReduce);
        rank.set_microbatch(None);
        self.accumulate(rank, reduction, number);
        self.scale(rank, reduction, number);
        let options = reduction.options;
        if options.layout.data_parallel_size == 1 {
            return Sent::Nothing;
        }
        let bucket = &reduction.layout.buckets[number];
        let apart = options.overlap_grad_reduce && reduction.groups.inter_instance.is_some();
        rank.module(&bucket_module(number), |rank| {
            if !apart {
                return Sent::Collective(self.issue(rank, reduction, number));
            }
            let stream = communication_stream(bucket.chunk);
            rank.edge(&format!("grad_reduce.bucket{number}.ready"), |rank| {
                rank.record(ready(number));
            });
            rank.on_stream(stream, |rank| {
                rank.wait_event(ready(number));
                let handle = self.issue(rank, reduction, number);
                self.complete(rank, reduction, number, handle);
            });
            Sent::Stream(stream)
        })
    }

    /// The current stream goes on with the bucket's reduced gradients
    /// (`_ParamAndGradBucketGroup.finish_grad_sync`).
    pub fn finish(&self, rank: &mut Rank, reduction: &Reduction<'_>, number: usize, sent: Sent) {
        rank.set_phase(Phase::GradReduce);
        rank.set_microbatch(None);
        rank.module(&bucket_module(number), |rank| match sent {
            Sent::Nothing => {}
            Sent::Collective(handle) => self.complete(rank, reduction, number, handle),
            Sent::Stream(stream) => {
                rank.edge(&format!("grad_reduce.bucket{number}.finish"), |rank| {
                    rank.on_stream(stream, |rank| rank.record(done(number)));
                });
                rank.wait_event(done(number));
            }
        });
    }

    /// The sum over microbatches.
    fn accumulate(&self, rank: &mut Rank, reduction: &Reduction<'_>, number: usize) {
        let microbatches = reduction.options.microbatches();
        if microbatches == 1 {
            return;
        }
        let bucket = &reduction.layout.buckets[number];
        let (start, len) = (bucket.range.start, bucket.len());
        let slots = reduction.store.slots;
        let fold = SlotFold {
            family: Family::MicrobatchAccumulation,
            addends: slots.slice(microbatches * start, microbatches * len),
            slots: microbatches,
            out: self.flat.slice(start, len),
            init: Init::First,
            order: reduction.options.model.orders.microbatch_accumulation,
        };
        let slot = |place: u32| fold.addends.slice(place * len, len);
        let (last, earlier) = (slot(microbatches - 1), 0..microbatches - 1);
        let module = format!("main_grad.bucket{number}");
        rank.module(&module, |rank| {
            if reduction.overwrites {
                rank.copy("overwrite", last, fold.out);
                return;
            }
            if rank.has_fault(FaultKind::AliasedSlots, "main_grad") {
                earlier.for_each(|place| rank.copy("alias", last, slot(place)));
            }
            rank.fold("accumulate", fold);
        });
    }

    /// Averages by scaling before the sum, as Megatron's DDP does.
    fn scale(&self, rank: &mut Rank, reduction: &Reduction<'_>, number: usize) {
        let options = reduction.options;
        let ranks = options.layout.data_parallel_size;
        let dtype = options.reduce_dtype;
        if ranks == 1 && dtype == Dtype::F32 {
            return;
        }
        let values = self.words(options, &reduction.layout.buckets[number]);
        let factor = 1.0 / ranks as f32;
        let params = [values.len, factor.to_bits(), dtype.code()];
        rank.module(&format!("main_grad.bucket{number}"), |rank| {
            rank.launch("scale", "scale", [values.len, 1, 1], &[values], &params);
        });
    }

    fn issue(&self, rank: &mut Rank, reduction: &Reduction<'_>, number: usize) -> Handle {
        let (options, groups) = (reduction.options, reduction.groups);
        let bucket = &reduction.layout.buckets[number];
        let words = self.words(options, bucket);
        let (family, op) = match options.torch_ddp {
            Some(_) if reduction.is_first_step => (Family::FirstBuckets, FIRST_BUCKETS),
            _ => (Family::DpGradients, "all_reduce"),
        };
        let group = groups.intra_instance;
        let edge = format!("grad_reduce.bucket{number}");
        rank.edge(&edge, |rank| {
            match (self.shard_of(options, bucket), self.received) {
                (None, _) => rank.all_reduce(op, family, groups.data, words, Combine::Sum),
                (Some(shard), None) => {
                    rank.reduce_scatter("reduce_scatter", family, group, words, shard)
                }
                (Some(_), Some(received)) => {
                    let blocks = received.slice(bucket.range.start, bucket.len());
                    rank.all_to_all("all_to_all", group, words, blocks)
                }
            }
        })
    }

    /// What follows the first collective: its wait, the local half of
    /// `ddp_reduce_scatter_with_fp32_accumulation`, the sum over optimizer instances.
    fn complete(&self, rank: &mut Rank, reduction: &Reduction<'_>, number: usize, first: Handle) {
        let bucket = &reduction.layout.buckets[number];
        rank.wait(first);
        let Some(shard) = self.shard_of(reduction.options, bucket) else {
            return;
        };
        if let Some(received) = self.received {
            // Blocks in group order.
            let fold = SlotFold {
                family: Family::DpGradients,
                addends: received.slice(bucket.range.start, bucket.len()),
                slots: reduction.options.layout.instance_size(),
                out: shard,
                init: Init::First,
                order: LocalOrder::Ordered,
            };
            rank.fold("fp32_accumulation", fold);
        }
        if let Some(group) = reduction.groups.inter_instance {
            let (family, op) = (Family::OptimizerInstances, "all_reduce_instances");
            let handle = rank.edge(&format!("instance_reduce.bucket{number}"), |rank| {
                rank.all_reduce(op, family, group, shard, Combine::Sum)
            });
            rank.wait(handle);
        }
    }

    /// A bucket's accumulated gradients, in the type in which they are reduced.
    fn words(&self, options: &TrainOptions, bucket: &Bucket) -> Tensor {
        let dtype = options.reduce_dtype;
        let whole = Tensor { dtype, ..self.flat };
        whole.slice(bucket.range.start, bucket.len())
    }

    /// This rank's part of a bucket's reduced gradients, where they are cut.
    pub(super) fn shard_of(&self, options: &TrainOptions, bucket: &Bucket) -> Option<Tensor> {
        let ranks = options.layout.instance_size();
        let (start, len) = (bucket.range.start / ranks, bucket.len() / ranks);
        shards(options).then(|| self.reduced.slice(start, len))
    }
}
