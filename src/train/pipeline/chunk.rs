//! One model chunk with its activations in flight and its messages.

use std::collections::VecDeque;
use std::ops::Range;

use super::{Neighbours, StepData};
use crate::job::Work;
use crate::model::{Ends, Generators, Gpt, ParameterHooks, Saved};
use crate::world::{Handle, Lane, Rank, Tensor};

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
    pub(super) module: String,
    neighbours: Neighbours,
    /// Receives that were issued and whose slots have not come, in order; no handle: waited for.
    outputs: VecDeque<(Option<Handle>, Tensor)>,
    gradients: VecDeque<(Option<Handle>, Tensor)>,
}

impl Chunk {
    /// `places` number the chunk's slots among all of the rank.
    pub fn new(
        rank: &mut Rank,
        gpt: Gpt,
        module: String,
        neighbours: Neighbours,
        places: Range<u32>,
    ) -> Chunk {
        let ends = Ends {
            receives: neighbours.previous.is_some(),
            sends: neighbours.next.is_some(),
        };
        Chunk {
            saved: places
                .map(|place| gpt.allocate(rank, place, ends))
                .collect(),
            gpt,
            module,
            neighbours,
            outputs: VecDeque::new(),
            gradients: VecDeque::new(),
        }
    }

    fn slot(&self, microbatch: u32) -> usize {
        microbatch as usize % self.saved.len()
    }

    /// Returns what is sent on, and the buffer that it is sent from.
    pub fn forward(
        &mut self,
        rank: &mut Rank,
        data: &StepData<'_>,
        microbatch: u32,
        rng: Generators,
        hooks: &mut dyn ParameterHooks,
    ) -> Option<(Handle, Tensor)> {
        let slot = self.slot(microbatch);
        self.gpt.stage.take_rng(rank, rng, self.saved[slot].rng);
        if self.neighbours.previous.is_some() {
            self.saved[slot].input = self.received(rank, Work::Forward);
        }
        if self.neighbours.next.is_some() {
            let output = self.new_message(rank, "pipeline.output");
            self.saved[slot].set_output(output);
        }
        let mut pass = self.gpt.pass(microbatch, hooks);
        if self.neighbours.previous.is_none() {
            let tokens = self.microbatch_of(data.tokens, microbatch);
            let saved = &mut self.saved[slot];
            self.gpt.embed(rank, &mut pass, saved, tokens);
        }
        self.gpt.forward(rank, &mut pass, &mut self.saved[slot]);
        let saved = &self.saved[slot];
        let Some(next) = self.neighbours.next else {
            let targets = self.microbatch_of(data.targets, microbatch);
            let losses = self.microbatch_of(data.losses, microbatch);
            self.gpt.loss(rank, &mut pass, saved, targets, losses);
            return None;
        };
        let output = saved.output();
        let handle = rank.module(&self.module, |rank| {
            rank.send_on(OUTPUTS, "send_forward", next, output)
        });
        Some((handle, output))
    }

    /// Returns what is sent back. `own` is where the gradient starts, on the last stage.
    pub fn backward(
        &mut self,
        rank: &mut Rank,
        data: &StepData<'_>,
        microbatch: u32,
        own: Option<Tensor>,
        hooks: &mut dyn ParameterHooks,
    ) -> Option<Handle> {
        let slot = self.slot(microbatch);
        let is_sent = self.neighbours.next.is_some();
        let received = is_sent.then(|| self.received(rank, Work::Backward));
        let grad = received.or(own).expect("the last stage has one");
        let mut pass = self.gpt.pass(microbatch, hooks);
        if self.neighbours.next.is_none() {
            let targets = self.microbatch_of(data.targets, microbatch);
            let saved = &self.saved[slot];
            let scale = data.loss_factor.expect("the last stage has a loss");
            self.gpt
                .loss_backward(rank, &mut pass, saved, targets, scale, grad);
        }
        self.gpt
            .backward(rank, &mut pass, &mut self.saved[slot], grad);
        let saved = &self.saved[slot];
        received.into_iter().for_each(|grad| rank.free(grad));
        let Some(previous) = self.neighbours.previous else {
            let segments = &data.segments[microbatch as usize];
            self.gpt.embed_backward(rank, &mut pass, saved, segments);
            return None;
        };
        rank.free(saved.input);
        let grad = saved.grad_input;
        let handle = rank.module(&self.module, |rank| {
            rank.send_on(GRADIENTS, "send_backward", previous, grad)
        });
        Some(handle)
    }

    /// Issues the next receive: of an output for a forward, of a gradient for a backward.
    pub fn receive(&mut self, rank: &mut Rank, work: Work) {
        let (lane, op, from, name) = match work {
            Work::Forward => {
                let from = self.neighbours.previous;
                (OUTPUTS, "recv_forward", from, "pipeline.input")
            }
            Work::Backward => {
                let from = self.neighbours.next;
                (GRADIENTS, "recv_backward", from, "pipeline.grad")
            }
        };
        let from = from.expect("only what another stage sends is received");
        let into = self.new_message(rank, name);
        let handle = rank.module(&self.module, |rank| rank.recv_on(lane, op, from, into));
        self.arriving(work).push_back((Some(handle), into));
    }

    /// The current stream goes on with what was received last.
    pub fn finish_receive(&mut self, rank: &mut Rank, work: Work) {
        let last = self.arriving(work).back_mut();
        let handle = last.and_then(|(handle, _)| handle.take());
        self.wait(rank, handle);
    }

    /// The next message, which may have been asked for before.
    fn received(&mut self, rank: &mut Rank, work: Work) -> Tensor {
        if self.arriving(work).is_empty() {
            self.receive(rank, work);
        }
        let next = self.arriving(work).pop_front();
        let (handle, message) = next.expect("it was asked for");
        self.wait(rank, handle);
        message
    }

    fn wait(&self, rank: &mut Rank, handle: Option<Handle>) {
        if let Some(handle) = handle {
            rank.module(&self.module, |rank| rank.wait(handle));
        }
    }

    fn arriving(&mut self, work: Work) -> &mut VecDeque<(Option<Handle>, Tensor)> {
        match work {
            Work::Forward => &mut self.outputs,
            Work::Backward => &mut self.gradients,
        }
    }

    /// `[local tokens, hidden]`.
    fn new_message(&self, rank: &mut Rank, name: &str) -> Tensor {
        let shape = &self.gpt.stage.shape;
        let words = shape.local_tokens() * shape.hidden_size;
        rank.alloc(name, shape.params_dtype, words)
    }

    /// Row `microbatch` of a `[microbatches, tokens]` tensor that this stage must have.
    fn microbatch_of(&self, tensor: Option<Tensor>, microbatch: u32) -> Tensor {
        let tensor = tensor.expect("the first and the last stage hold the step's data");
        let tokens = self.gpt.stage.shape.tokens();
        tensor.slice(microbatch * tokens, tokens)
    }
}
