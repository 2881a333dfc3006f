//! When each bucket is reduced and gathered in a step: Megatron-LM's DistributedDataParallel.
//!
//! With `overlap_grad_reduce` a bucket's reduction is issued in the last microbatch's backward, as
//! soon as the last of its gradients has been made, and is waited for before the optimizer; with
//! `align_grad_reduce` the stages behind the first one issue theirs in the pipeline's bubble
//! (schedules.py, `grad_sync_func`). Without it everything happens after the last backward, one
//! bucket after another.
//!
//! With `overlap_param_gather` the optimizer leaves other ranks' parameters as they were. A module
//! whose parameters are still old waits in front of its next forward, and the next bucket's gather
//! is issued behind that wait (param_and_grad_buffer.py, `finish_param_sync`); with
//! `align_param_gather` an interleaved schedule issues a chunk's gathers together.
//!
//! The hook of a gradient that a replayed CUDA graph has made runs on a stream of its own, as
//! autograd hands it nothing that would order it: `start_grad_sync` waits for the replays of all
//! the bucket's parameters (`_cudagraph_wgrad_ready_event`). Autograd itself orders the hook of an
//! eager gradient behind the stream that made it: the edge `grad_reduce.bucketN.autograd`.

use crate::fault::FaultKind;
use crate::model::{ParameterHooks, ParameterId};
use crate::train::gradient::{Gradients, Reduction, Sent, bucket_module};
use crate::train::optimizer::Optimizer;
use crate::world::{GRAD_HOOK_STREAM, Handle, Phase, Rank};

/// Whether the parameters of a bucket are what all ranks' optimizers made of them.
#[derive(Clone, Copy, Debug)]
enum Values {
    Whole,
    /// Only this rank's shard is new.
    Stale,
    Arriving(Handle),
}

#[derive(Clone, Debug)]
struct BucketState {
    chunk: usize,
    /// Parameters whose gradients of the last microbatch are still awaited.
    awaited: u32,
    /// Replays that have made some of them.
    replays: Vec<Handle>,
    sent: Option<Sent>,
    values: Values,
}

/// The buckets of one rank during one step.
#[derive(Debug)]
pub struct DataParallel<'a> {
    reduction: Reduction<'a>,
    gradients: &'a Gradients,
    optimizer: &'a Optimizer,
    buckets: Vec<BucketState>,
    /// The bucket of each parameter.
    bucket_of: Vec<usize>,
    /// Whether reductions are issued as gradients become ready.
    reduces_when_ready: bool,
    /// The fault of that name: all are reduced after the backward, the last one first.
    is_reversed: bool,
    /// Whether a wait for one bucket's parameters issues the next gather.
    gathers_ahead: bool,
}

impl<'a> DataParallel<'a> {
    /// At the beginning of a step. `stale`: only this rank's shard of the parameters is new.
    pub fn new(
        rank: &mut Rank,
        reduction: Reduction<'a>,
        gradients: &'a Gradients,
        optimizer: &'a Optimizer,
        stage: u32,
        stale: bool,
    ) -> DataParallel<'a> {
        let (options, layout) = (reduction.options, reduction.layout);
        let interleaves = options.layout.num_virtual_stages_per_pipeline_rank > 1;
        let aligned = options.align_grad_reduce && (interleaves || stage > 0);
        let values = if stale { Values::Stale } else { Values::Whole };
        let state = |chunk| BucketState {
            chunk,
            awaited: 0,
            replays: Vec::new(),
            sent: None,
            values,
        };
        let chunks = layout.buckets.iter().map(|bucket| bucket.chunk);
        let mut buckets: Vec<BucketState> = chunks.map(state).collect();
        let bucket_of: Vec<usize> = layout
            .offsets
            .iter()
            .map(|o| layout.bucket_at(*o))
            .collect();
        for number in &bucket_of {
            buckets[*number].awaited += 1;
        }
        let is_reversed = buckets.len() > 1
            && options.layout.data_parallel_size > 1
            && rank.has_fault(FaultKind::ContainerOrder, "grad_reduce");
        DataParallel {
            reduction,
            gradients,
            optimizer,
            buckets,
            bucket_of,
            reduces_when_ready: options.overlap_grad_reduce && !aligned && !is_reversed,
            is_reversed,
            gathers_ahead: !(interleaves && options.align_param_gather),
        }
    }

    /// What the modules of a chunk call on their way with a microbatch.
    pub fn hooks(&mut self, chunk: usize, microbatch: u32) -> ChunkHooks<'_, 'a> {
        ChunkHooks {
            data_parallel: self,
            chunk,
            microbatch,
        }
    }

    /// Issues all reductions of a chunk that has had its last backward.
    pub fn reduce_chunk(&mut self, rank: &mut Rank, chunk: usize) {
        for number in self.of_chunk(chunk) {
            self.reduce(rank, number);
        }
    }

    /// After the last backward: every bucket is reduced when this returns.
    pub fn finish_gradients(&mut self, rank: &mut Rank) {
        if self.is_reversed {
            for number in (0..self.buckets.len()).rev() {
                self.reduce(rank, number);
            }
        }
        if self.reduction.options.overlap_grad_reduce {
            for number in 0..self.buckets.len() {
                self.reduce(rank, number);
            }
        }
        for number in 0..self.buckets.len() {
            self.reduce(rank, number);
            let sent = self.buckets[number].sent.expect("it was issued");
            self.gradients.finish(rank, &self.reduction, number, sent);
        }
    }

    /// Issues the reduction of a bucket, unless that was done.
    fn reduce(&mut self, rank: &mut Rank, number: usize) {
        let bucket = &mut self.buckets[number];
        if bucket.sent.is_none() {
            bucket.sent = Some(self.gradients.start(rank, &self.reduction, number));
        }
    }

    /// The same from the hook of the bucket's last gradient, which a replayed graph has made, or
    /// autograd.
    fn reduce_in_hook(&mut self, rank: &mut Rank, number: usize, is_replayed: bool) {
        let replays = self.buckets[number].replays.clone();
        let is_alone = self.reduction.options.layout.data_parallel_size == 1;
        if replays.is_empty() || is_alone {
            return self.reduce(rank, number);
        }
        let eager = (!is_replayed).then(|| {
            let edge = format!("grad_reduce.bucket{number}.autograd");
            rank.edge(&edge, Rank::record_handle)
        });
        rank.on_stream(GRAD_HOOK_STREAM, |rank| {
            rank.module(&bucket_module(number), |rank| {
                let producers = eager.into_iter().chain(replays);
                producers.for_each(|producer| rank.wait(producer));
            });
            self.reduce(rank, number);
        });
    }

    /// Issues all gathers of a chunk that have not been.
    pub fn gather_chunk(&mut self, rank: &mut Rank, chunk: usize) {
        for number in self.of_chunk(chunk) {
            self.gather(rank, number);
        }
    }

    fn of_chunk(&self, chunk: usize) -> Vec<usize> {
        let numbers = 0..self.buckets.len();
        numbers
            .filter(|number| self.buckets[*number].chunk == chunk)
            .collect()
    }

    fn gather(&mut self, rank: &mut Rank, number: usize) {
        let bucket = &mut self.buckets[number];
        if let Values::Stale = bucket.values {
            let handle = self.optimizer.gather(rank, &self.reduction, number);
            bucket.values = Values::Arriving(handle);
        }
    }

    /// The current stream goes on with a bucket's new parameters.
    fn finish_gather(&mut self, rank: &mut Rank, number: usize) {
        self.gather(rank, number);
        let Values::Arriving(handle) = self.buckets[number].values else {
            return;
        };
        rank.module(&bucket_module(number), |rank| rank.wait(handle));
        self.buckets[number].values = Values::Whole;
        // Buckets lie in the order of the backward.
        let next = number.checked_sub(1).filter(|next| {
            self.gathers_ahead && self.buckets[*next].chunk == self.buckets[number].chunk
        });
        if let Some(next) = next {
            self.gather(rank, next);
        }
    }

    /// Whether every module has seen the parameters of the last step's optimizer.
    pub fn is_whole(&self) -> bool {
        let mut buckets = self.buckets.iter();
        buckets.all(|bucket| matches!(bucket.values, Values::Whole))
    }
}

/// The hooks of one chunk with one microbatch.
#[derive(Debug)]
pub struct ChunkHooks<'s, 'a> {
    data_parallel: &'s mut DataParallel<'a>,
    chunk: usize,
    microbatch: u32,
}

impl ChunkHooks<'_, '_> {
    fn bucket(&self, parameter: ParameterId) -> usize {
        let first = self.data_parallel.reduction.layout.chunks[self.chunk]
            .parameters
            .start;
        self.data_parallel.bucket_of[first + parameter.0 as usize]
    }

    fn arrived(&mut self, rank: &mut Rank, parameter: ParameterId, replayed: Option<Handle>) {
        let microbatches = self.data_parallel.reduction.options.microbatches();
        if self.microbatch + 1 < microbatches {
            return;
        }
        let number = self.bucket(parameter);
        let bucket = &mut self.data_parallel.buckets[number];
        let awaited = bucket.awaited.checked_sub(1);
        bucket.awaited = awaited.expect("a parameter has one gradient a microbatch");
        let known = bucket.replays.last().copied();
        bucket
            .replays
            .extend(replayed.filter(|new| known != Some(*new)));
        if bucket.awaited == 0 && self.data_parallel.reduces_when_ready {
            let is_replayed = replayed.is_some();
            self.data_parallel.reduce_in_hook(rank, number, is_replayed);
            rank.set_phase(Phase::Backward);
            rank.set_microbatch(Some(self.microbatch));
        }
    }
}

impl ParameterHooks for ChunkHooks<'_, '_> {
    fn before_forward(&mut self, rank: &mut Rank, parameter: ParameterId) {
        let bucket = self.bucket(parameter);
        self.data_parallel.finish_gather(rank, bucket);
    }

    fn after_gradient(&mut self, rank: &mut Rank, parameter: ParameterId) {
        self.arrived(rank, parameter, None);
    }

    fn after_replay(&mut self, rank: &mut Rank, parameter: ParameterId, replayed: Handle) {
        self.arrived(rank, parameter, Some(replayed));
    }
}
