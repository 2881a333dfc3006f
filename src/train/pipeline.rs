//! The microbatches of one step through this rank's model chunks.

use crate::job::{Slot, Work};
use crate::model::{Generators, Gpt, Saved};
use crate::world::{Handle, Lane, Phase, Rank, Segments, Tensor};

/// Neighbours of a chunk, as global ranks. Chunks are dealt to stages in turn: after the last
/// stage comes the next chunk of the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbours {
    pub previous: Option<u32>,
    pub next: Option<u32>,
}

/// Outputs and their gradients go on lanes of their own: with two stages and several chunks both
/// travel between the same two ranks, in orders that are not each other's (Megatron-LM,
/// `_p2p_ops`, gives them different process groups for that reason).
const OUTPUTS: Lane = Lane(0);
const GRADIENTS: Lane = Lane(1);

/// A model chunk and its activations in flight.
#[derive(Debug)]
pub struct Chunk {
    pub gpt: Gpt,
    /// Activations in flight, by slot.
    pub saved: Vec<Saved>,
    /// The module that its messages are named by.
    module: String,
    neighbours: Neighbours,
    /// Sends that still read a slot's output, and its input's gradient.
    sending_output: Vec<Option<Handle>>,
    sending_grad: Vec<Option<Handle>>,
}

/// The model chunks of a rank, and what they share.
#[derive(Debug)]
pub struct Pipeline {
    pub chunks: Vec<Chunk>,
    schedule: Vec<Slot>,
    /// `[local tokens, hidden]`: the gradient on its way down the layers.
    grad: Tensor,
    rng: Generators,
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
    /// What token losses are multiplied by before the sum that is differentiated.
    pub loss_scale: f32,
}

impl Pipeline {
    /// `gpts` are the chunks with their neighbours, in order; `schedule` is what this stage works
    /// on in a step.
    pub fn new(
        rank: &mut Rank,
        gpts: Vec<(Gpt, Neighbours)>,
        schedule: Vec<Slot>,
        rng: Generators,
    ) -> Pipeline {
        let shape = gpts[0].0.stage.shape.clone();
        let words = shape.local_tokens() * shape.hidden_size;
        let count = gpts.len();
        let mut place = 0;
        let chunks = gpts
            .into_iter()
            .enumerate()
            .map(|(number, (gpt, neighbours))| {
                let slots = in_flight(&schedule, number as u32);
                let places = place..place + slots;
                place = places.end;
                Chunk {
                    saved: places.map(|place| gpt.allocate(rank, place)).collect(),
                    gpt,
                    module: match count {
                        1 => "pipeline".to_string(),
                        _ => format!("pipeline.chunk{number}"),
                    },
                    neighbours,
                    sending_output: vec![None; slots as usize],
                    sending_grad: vec![None; slots as usize],
                }
            });
        Pipeline {
            chunks: chunks.collect(),
            grad: rank.alloc("grad", shape.params_dtype, words),
            schedule,
            rng,
        }
    }

    /// Every microbatch forward and backward; gradients are in their slots, losses in `losses`.
    pub fn run(&mut self, rank: &mut Rank, data: &StepData<'_>) {
        for Slot {
            work,
            microbatch,
            chunk,
            ..
        } in &self.schedule
        {
            let chunk = &mut self.chunks[*chunk as usize];
            rank.set_microbatch(Some(*microbatch));
            match work {
                Work::Forward => chunk.forward(rank, data, *microbatch, self.rng),
                Work::Backward => chunk.backward(rank, data, *microbatch, self.grad),
            }
        }
        for chunk in &mut self.chunks {
            chunk.finish(rank);
        }
        rank.set_microbatch(None);
    }
}

impl Chunk {
    fn slot(&self, microbatch: u32) -> usize {
        microbatch as usize % self.saved.len()
    }

    fn forward(&mut self, rank: &mut Rank, data: &StepData<'_>, microbatch: u32, rng: Generators) {
        rank.set_phase(Phase::Forward);
        let slot = self.slot(microbatch);
        if let Some(handle) = self.sending_output[slot].take() {
            rank.wait(handle);
        }
        let saved = &self.saved[slot];
        self.gpt.stage.take_rng(rank, rng, saved.rng);
        match self.neighbours.previous {
            Some(previous) => rank.module(&self.module, |rank| {
                let handle = rank.recv_on(OUTPUTS, "recv_forward", previous, saved.input);
                rank.wait(handle);
            }),
            None => {
                let tokens = self.microbatch_of(data.tokens, microbatch);
                self.gpt.embed(rank, saved, tokens);
            }
        }
        self.gpt.forward(rank, saved);
        match self.neighbours.next {
            Some(next) => {
                let output = saved.output();
                let handle = rank.module(&self.module, |rank| {
                    rank.send_on(OUTPUTS, "send_forward", next, output)
                });
                self.sending_output[slot] = Some(handle);
            }
            None => {
                let targets = self.microbatch_of(data.targets, microbatch);
                let losses = self.microbatch_of(data.losses, microbatch);
                self.gpt.loss(rank, saved, targets, losses);
            }
        }
    }

    fn backward(&mut self, rank: &mut Rank, data: &StepData<'_>, microbatch: u32, grad: Tensor) {
        rank.set_phase(Phase::Backward);
        let slot = self.slot(microbatch);
        if let Some(handle) = self.sending_grad[slot].take() {
            rank.wait(handle);
        }
        let saved = &self.saved[slot];
        match self.neighbours.next {
            Some(next) => rank.module(&self.module, |rank| {
                let handle = rank.recv_on(GRADIENTS, "recv_backward", next, grad);
                rank.wait(handle);
            }),
            None => {
                let targets = self.microbatch_of(data.targets, microbatch);
                self.gpt
                    .loss_backward(rank, saved, targets, data.loss_scale, grad, microbatch);
            }
        }
        self.gpt.backward(rank, saved, grad, microbatch);
        match self.neighbours.previous {
            Some(previous) => {
                let grad = saved.grad_input;
                let handle = rank.module(&self.module, |rank| {
                    rank.send_on(GRADIENTS, "send_backward", previous, grad)
                });
                self.sending_grad[slot] = Some(handle);
            }
            None => {
                let segments = &data.segments[microbatch as usize];
                self.gpt.embed_backward(rank, saved, segments, microbatch);
            }
        }
    }

    /// Waits for what is still being sent.
    fn finish(&mut self, rank: &mut Rank) {
        for slot in 0..self.saved.len() {
            for handle in [
                self.sending_output[slot].take(),
                self.sending_grad[slot].take(),
            ] {
                handle.into_iter().for_each(|handle| rank.wait(handle));
            }
        }
    }

    /// Row `microbatch` of a `[microbatches, tokens]` tensor that this stage must have.
    fn microbatch_of(&self, tensor: Option<Tensor>, microbatch: u32) -> Tensor {
        let tensor = tensor.expect("the first and the last stage hold the step's data");
        let tokens = self.gpt.stage.shape.tokens();
        tensor.slice(microbatch * tokens, tokens)
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
