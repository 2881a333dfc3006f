//! The microbatches of one step through this rank's stage.

use crate::model::{Gpt, Saved};
use crate::train::schedule::{Work, in_flight, one_forward_one_backward};
use crate::world::{Handle, Phase, Rank, Segments, Tensor};

/// Neighbours of a stage, as global ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbours {
    pub previous: Option<u32>,
    pub next: Option<u32>,
}

/// A stage, its activations in flight, and what its ends read and write.
#[derive(Debug)]
pub struct Pipeline {
    pub gpt: Gpt,
    neighbours: Neighbours,
    schedule: Vec<Work>,
    saved: Vec<Saved>,
    /// `[local tokens, hidden]`: the gradient on its way down the layers.
    grad: Tensor,
    /// Sends that still read a slot's output, and its input's gradient.
    sending_output: Vec<Option<Handle>>,
    sending_grad: Vec<Option<Handle>>,
    rng: Tensor,
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
    pub fn new(
        rank: &mut Rank,
        gpt: Gpt,
        neighbours: Neighbours,
        microbatches: u32,
        rng: Tensor,
    ) -> Pipeline {
        let shape = gpt.stage.shape.clone();
        let (stages, stage) = (shape.pipeline_model_parallel_size, gpt.stage.stage);
        let slots = in_flight(stages, stage, microbatches);
        let words = shape.local_tokens() * shape.hidden_size;
        Pipeline {
            schedule: one_forward_one_backward(stages, stage, microbatches),
            saved: (0..slots).map(|place| gpt.allocate(rank, place)).collect(),
            grad: rank.alloc("grad", shape.params_dtype, words),
            sending_output: vec![None; slots as usize],
            sending_grad: vec![None; slots as usize],
            gpt,
            neighbours,
            rng,
        }
    }

    /// Activations in flight, by slot.
    pub fn saved(&self) -> &[Saved] {
        &self.saved
    }

    /// Every microbatch forward and backward; gradients are in their slots, losses in `losses`.
    pub fn run(&mut self, rank: &mut Rank, data: &StepData<'_>) {
        for place in 0..self.schedule.len() {
            match self.schedule[place] {
                Work::Forward(microbatch) => self.forward(rank, data, microbatch),
                Work::Backward(microbatch) => self.backward(rank, data, microbatch),
            }
        }
        for slot in 0..self.saved.len() {
            for handle in [
                self.sending_output[slot].take(),
                self.sending_grad[slot].take(),
            ] {
                handle.into_iter().for_each(|handle| rank.wait(handle));
            }
        }
        rank.set_microbatch(None);
    }

    fn forward(&mut self, rank: &mut Rank, data: &StepData<'_>, microbatch: u32) {
        rank.set_phase(Phase::Forward);
        rank.set_microbatch(Some(microbatch));
        let slot = microbatch as usize % self.saved.len();
        if let Some(handle) = self.sending_output[slot].take() {
            rank.wait(handle);
        }
        let saved = &self.saved[slot];
        if self.gpt.stage.drops() {
            self.gpt.stage.take_rng(rank, self.rng, saved.rng);
        }
        match self.neighbours.previous {
            Some(previous) => rank.module("pipeline", |rank| {
                let handle = rank.recv("recv_forward", previous, saved.input);
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
                let handle =
                    rank.module("pipeline", |rank| rank.send("send_forward", next, output));
                self.sending_output[slot] = Some(handle);
            }
            None => {
                let targets = self.microbatch_of(data.targets, microbatch);
                let losses = self.microbatch_of(data.losses, microbatch);
                self.gpt.loss(rank, saved, targets, losses);
            }
        }
    }

    fn backward(&mut self, rank: &mut Rank, data: &StepData<'_>, microbatch: u32) {
        rank.set_phase(Phase::Backward);
        rank.set_microbatch(Some(microbatch));
        let slot = microbatch as usize % self.saved.len();
        if let Some(handle) = self.sending_grad[slot].take() {
            rank.wait(handle);
        }
        let (saved, grad) = (&self.saved[slot], self.grad);
        match self.neighbours.next {
            Some(next) => rank.module("pipeline", |rank| {
                let handle = rank.recv("recv_backward", next, grad);
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
                let handle = rank.module("pipeline", |rank| {
                    rank.send("send_backward", previous, grad)
                });
                self.sending_grad[slot] = Some(handle);
            }
            None => {
                let segments = &data.segments[microbatch as usize];
                self.gpt.embed_backward(rank, saved, segments, microbatch);
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
