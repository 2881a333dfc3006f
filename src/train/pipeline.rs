//! The microbatches of one step through this rank's stage.

use crate::job::{Slot, Work, one_f_one_b};
use crate::model::{Generators, Gpt, Saved};
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
    schedule: Vec<Slot>,
    saved: Vec<Saved>,
    /// `[local tokens, hidden]`: the gradient on its way down the layers.
    grad: Tensor,
    /// Sends that still read a slot's output, and its input's gradient.
    sending_output: Vec<Option<Handle>>,
    sending_grad: Vec<Option<Handle>>,
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
    pub fn new(
        rank: &mut Rank,
        gpt: Gpt,
        neighbours: Neighbours,
        microbatches: u32,
        rng: Generators,
    ) -> Pipeline {
        let shape = gpt.stage.shape.clone();
        let (stages, stage) = (shape.pipeline_model_parallel_size, gpt.stage.stage);
        let schedule = one_f_one_b(stages, stage, microbatches);
        let schedule = schedule.expect("the options' microbatches and stages were checked");
        let slots = in_flight(stages, stage, microbatches);
        let words = shape.local_tokens() * shape.hidden_size;
        Pipeline {
            schedule,
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
            let Slot {
                work, microbatch, ..
            } = self.schedule[place];
            match work {
                Work::Forward => self.forward(rank, data, microbatch),
                Work::Backward => self.backward(rank, data, microbatch),
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
        self.gpt.stage.take_rng(rank, self.rng, saved.rng);
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

/// Most microbatches of 1F1B that are between their forward and the end of their backward at once.
pub(super) fn in_flight(stages: u32, stage: u32, microbatches: u32) -> u32 {
    (stages - stage).min(microbatches)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_microbatch_once_in_order_and_as_many_in_flight_as_said() {
        for (stages, microbatches) in [(1, 1), (1, 4), (2, 4), (4, 2), (4, 9)] {
            for stage in 0..stages {
                let schedule = one_f_one_b(stages, stage, microbatches).unwrap();
                for wanted in [Work::Forward, Work::Backward] {
                    let of_work = schedule.iter().filter(|slot| slot.work == wanted);
                    assert!(of_work.map(|slot| slot.microbatch).eq(0..microbatches));
                }
                let (mut now, mut most) = (0u32, 0);
                for slot in &schedule {
                    match slot.work {
                        Work::Forward => now += 1,
                        Work::Backward => now -= 1,
                    }
                    most = most.max(now);
                }
                assert_eq!(most, in_flight(stages, stage, microbatches));
            }
        }
    }

    #[test]
    fn as_megatron_at_two_stages() {
        let steps = |stage| -> Vec<(Work, u32)> {
            let schedule = one_f_one_b(2, stage, 3).unwrap().into_iter();
            schedule.map(|slot| (slot.work, slot.microbatch)).collect()
        };
        let (f, b) = (Work::Forward, Work::Backward);
        assert_eq!(steps(0), [(f, 0), (f, 1), (b, 0), (f, 2), (b, 1), (b, 2)]);
        assert_eq!(steps(1), [(f, 0), (b, 0), (f, 1), (b, 1), (f, 2), (b, 2)]);
    }
}
