//! The microbatches of one step through this rank's model chunks.

mod around;
mod chunk;

use crate::job::{Slot, Work};
use crate::model::{Generators, Gpt, LossFactor};
use crate::recipe::CudaGraphImpl;
use crate::train::data_parallel::DataParallel;
use crate::train::options::TrainOptions;
use crate::world::{Handle, Phase, Rank, Segments, Tensor};
use around::Around;
pub use chunk::Chunk;

/// Neighbours of a chunk, as global ranks. Chunks are dealt to stages in turn: after the last
/// stage comes the next chunk of the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbours {
    pub previous: Option<u32>,
    pub next: Option<u32>,
}

/// A message that another stage may still be reading.
#[derive(Clone, Copy, Debug)]
struct Sending {
    handle: Handle,
    chunk: usize,
    /// A stage's output: a buffer of its own, which nobody needs once it is sent.
    output: Option<Tensor>,
}

/// The model chunks of a rank, and what they share.
///
/// In the interleaved schedule sends and receives are waited for before the next forward, or the
/// next backward: they overlap with what is computed between (Megatron-LM,
/// `overlap_p2p_communication`, its default there). In 1F1B a send is issued together with the
/// receive that the next computation needs, and both are waited for at once (p2p_communication.py,
/// `send_forward_recv_backward` and its kin).
#[derive(Debug)]
pub struct Pipeline {
    pub chunks: Vec<Chunk>,
    schedule: Vec<Slot>,
    around: Vec<Around>,
    overlaps: bool,
    /// Whether the first two chunks gather their parameters when a step begins.
    gathers_first: bool,
    /// `[local tokens, hidden]`: the gradient on its way down the layers, where it starts here.
    grad: Option<Tensor>,
    rng: Generators,
    sending_output: Option<Sending>,
    sending_grad: Option<Sending>,
}

/// What the first and the last stage know of a step's data.
#[derive(Clone, Debug)]
pub struct StepData<'a> {
    /// `[microbatches, tokens]` u32, on the first and the last stage.
    pub tokens: Option<Tensor>,
    pub targets: Option<Tensor>,
    /// Of each microbatch, on the first stage.
    pub segments: &'a [Segments],
    /// `[microbatches, tokens]` fp32, on the last stage.
    pub losses: Option<Tensor>,
    /// On the last stage.
    pub loss_factor: Option<LossFactor>,
}

impl Pipeline {
    /// `gpts` are the chunks of pipeline stage `stage` with their neighbours, in order.
    pub fn new(
        rank: &mut Rank,
        options: &TrainOptions,
        stage: u32,
        gpts: Vec<(Gpt, Neighbours)>,
        rng: Generators,
    ) -> Pipeline {
        let schedule = options.pipeline_schedule(stage);
        let schedule = schedule.expect("the options were checked");
        let count = gpts.len();
        let starts_gradient = gpts.iter().any(|(_, of)| of.next.is_none());
        let mut place = 0;
        let mut chunks = Vec::with_capacity(count);
        for (number, (gpt, neighbours)) in gpts.into_iter().enumerate() {
            let slots = places(options, &schedule, number as u32);
            let module = match count {
                1 => "pipeline".to_string(),
                _ => format!("pipeline.chunk{number}"),
            };
            let places = place..place + slots;
            place = places.end;
            chunks.push(Chunk::new(rank, gpt, module, neighbours, places));
        }
        let shape = &options.model;
        let words = shape.local_tokens() * shape.hidden_size;
        Pipeline {
            chunks,
            around: around::of(options, stage, &schedule),
            overlaps: count > 1,
            gathers_first: around::aligns_gathers(options),
            grad: starts_gradient.then(|| rank.alloc("grad", shape.params_dtype, words)),
            schedule,
            rng,
            sending_output: None,
            sending_grad: None,
        }
    }

    /// From now on the layers' CUDA graphs are replayed.
    pub fn capture(&mut self, rank: &mut Rank) {
        rank.set_phase(Phase::Forward);
        rank.module("cuda_graph", |rank| {
            for chunk in &mut self.chunks {
                chunk.gpt.capture(rank, &mut chunk.saved);
            }
        });
    }

    /// Every microbatch forward and backward; gradients are in their slots, losses in `losses`.
    pub fn run(
        &mut self,
        rank: &mut Rank,
        data: &StepData<'_>,
        data_parallel: &mut DataParallel<'_>,
    ) {
        if self.gathers_first {
            rank.set_phase(Phase::Forward);
            (0..2).for_each(|chunk| data_parallel.gather_chunk(rank, chunk));
        }
        for place in 0..self.schedule.len() {
            let (slot, around) = (self.schedule[place], self.around[place]);
            rank.set_microbatch(Some(slot.microbatch));
            match slot.work {
                Work::Forward => {
                    rank.set_phase(Phase::Forward);
                    if let Some(chunk) = around.gathers_before {
                        data_parallel.gather_chunk(rank, chunk);
                    }
                    self.forward(rank, data, slot, data_parallel);
                }
                Work::Backward => {
                    rank.set_phase(Phase::Backward);
                    self.backward(rank, data, slot, data_parallel);
                }
            }
            self.exchange(rank, around);
            if let Some(chunk) = around.reduces_after {
                data_parallel.reduce_chunk(rank, chunk);
            }
        }
        self.finish_send(rank, Work::Forward);
        self.finish_send(rank, Work::Backward);
        rank.set_microbatch(None);
    }

    fn forward(
        &mut self,
        rank: &mut Rank,
        data: &StepData<'_>,
        slot: Slot,
        data_parallel: &mut DataParallel<'_>,
    ) {
        self.finish_send(rank, Work::Forward);
        let chunk = slot.chunk as usize;
        let mut hooks = data_parallel.hooks(chunk, slot.microbatch);
        let sent = self.chunks[chunk].forward(rank, data, slot.microbatch, self.rng, &mut hooks);
        self.sending_output = sent.map(|(handle, output)| Sending {
            handle,
            chunk,
            output: Some(output),
        });
    }

    fn backward(
        &mut self,
        rank: &mut Rank,
        data: &StepData<'_>,
        slot: Slot,
        data_parallel: &mut DataParallel<'_>,
    ) {
        self.finish_send(rank, Work::Backward);
        let chunk = slot.chunk as usize;
        let mut hooks = data_parallel.hooks(chunk, slot.microbatch);
        let sent = self.chunks[chunk].backward(rank, data, slot.microbatch, self.grad, &mut hooks);
        self.sending_grad = sent.map(|handle| Sending {
            handle,
            chunk,
            output: None,
        });
    }

    /// What follows a slot: the receive that stands beside its send, and both waits where they do
    /// not overlap with anything.
    fn exchange(&mut self, rank: &mut Rank, around: Around) {
        if let Some((work, chunk)) = around.receives_after {
            rank.set_phase(match work {
                Work::Forward => Phase::Forward,
                Work::Backward => Phase::Backward,
            });
            let chunk = &mut self.chunks[chunk];
            chunk.receive(rank, work);
            if !self.overlaps {
                chunk.finish_receive(rank, work);
            }
        }
        if !self.overlaps {
            self.finish_send(rank, Work::Forward);
            self.finish_send(rank, Work::Backward);
        }
    }

    /// Waits for what is still being sent. A stage's output is freed then, and not before
    /// (schedules.py, `deallocate_output_tensor`).
    fn finish_send(&mut self, rank: &mut Rank, work: Work) {
        let sending = match work {
            Work::Forward => self.sending_output.take(),
            Work::Backward => self.sending_grad.take(),
        };
        let Some(sending) = sending else {
            return;
        };
        rank.module(&self.chunks[sending.chunk].module, |rank| {
            rank.wait(sending.handle);
            if let Some(output) = sending.output {
                rank.free(output);
            }
        });
    }
}

/// Microbatches of a chunk that have memory of their own. Megatron-LM's graphs of a pipeline stage
/// are captured for each microbatch of a step (`CudaGraphManager`, `reuse_cudagraphs`).
pub(super) fn places(options: &TrainOptions, schedule: &[Slot], chunk: u32) -> u32 {
    let has_stages = options.layout.pipeline_model_parallel_size > 1;
    match options.cuda_graph_impl {
        CudaGraphImpl::Local if has_stages => options.microbatches(),
        _ => in_flight(schedule, chunk),
    }
}

/// Most microbatches of a chunk that are between their forward and the end of their backward at
/// once. A chunk's forwards and its backwards come in the order of microbatches, so microbatch m
/// may have slot m modulo this number.
pub(super) fn in_flight(schedule: &[Slot], chunk: u32) -> u32 {
    let (mut now, mut most) = (0u32, 0);
    for slot in schedule.iter().filter(|slot| slot.chunk == chunk) {
        match slot.work {
            Work::Forward => now += 1,
            Work::Backward => now -= 1,
        }
        most = most.max(now);
    }
    most
}

#[cfg(test)]
mod tests;
