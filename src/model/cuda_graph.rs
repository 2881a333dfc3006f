//! CUDA graphs of whole transformer layers: Megatron-LM's `--cuda-graph-impl`, `local`
//! (`cuda_graphs.py`, `CudaGraphManager`) or `transformer_engine` (Transformer Engine's
//! `graph.py`, `make_graphed_callables`).
//!
//! A replay runs the kernels of the forward, or the backward, that was captured: no bit changes.
//! What changes is memory. Everything that a graph reads and writes has one place from the capture
//! on, and the next replay overwrites it: what enters is copied in, what outlives the replay must
//! be copied out. `LAYER.cuda_graph` is the module of these copies.
//!
//! | | `local` | `transformer_engine` |
//! |---|---|---|
//! | graphs of a layer | one; with pipeline stages one a microbatch | one (one stage only, here) |
//! | `input` | into the first layer; others read the output before | into each layer |
//! | `output` | of the last layer, a clone | none: the static output itself is returned |
//! | `grad_output` | into the last layer; then one buffer for all | into each layer, one buffer |
//! | gradients of parameters | added inside the graph | static buffers, a copy of each |
//!
//! With `local`, autograd hands no gradient of a parameter over, so its hook knows of the replay by
//! an event only: the edge `LAYER.cuda_graph.wgrad_ready` (`bwd_graph_replay_complete_event`, which
//! `start_grad_sync` waits for). Each microbatch's gradient has a slot of its own here, which the
//! reduction sums: a replay writes the slot of its microbatch where Megatron-LM's adds to
//! `main_grad`. Runs of a layer before its capture (`cuda_graph_warmup_steps` of them with `local`)
//! work on copies and are not simulated; nor is it that gradients which Transformer Engine hands
//! over have the parameters' type: they are fp32, as in the eager steps.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::fault::FaultKind;
use crate::model::gpt::{Gpt, Saved, input_of};
use crate::model::parameter::ParameterId;
use crate::model::pass::{Pass, StaticGradients};
use crate::model::transformer_layer::{LayerSaved, TransformerLayer};
use crate::numerics::Dtype;
use crate::recipe::CudaGraphImpl;
use crate::world::{Rank, Tensor};

/// The graphs of a stage's layers.
#[derive(Clone, Debug)]
pub(super) struct Graphs {
    /// Megatron-LM's own.
    is_local: bool,
    /// Of each layer: its parameters, and where its graph leaves their gradients. No buffers where
    /// gradients are added inside.
    layers: Vec<(Vec<ParameterId>, StaticGradients)>,
}

/// What the graphs of one microbatch in flight read from outside, and leave for others.
#[derive(Clone, Debug)]
pub(super) struct StaticBuffers {
    /// What each layer's forward reads.
    inputs: Vec<Tensor>,
    /// What each layer's backward reads, and what it writes, but for the first layer's.
    grad_output: Tensor,
    grad_input: Tensor,
    /// What the last layer's caller gets.
    pub returned: Tensor,
}

impl Gpt {
    /// From now on the layers are replayed. The graphs' memory takes the place of that which the
    /// eager steps had.
    pub fn capture(&mut self, rank: &mut Rank, saved: &mut [Saved]) {
        let is_local = self.stage.cuda_graph_impl == CudaGraphImpl::Local;
        for saved in saved {
            self.give_up_eager(rank, saved);
            let layers = 0..self.layers.len();
            let layers = layers.map(|layer| {
                let name = format!("cuda_graph{}.layer{layer}", saved.place);
                LayerSaved::allocate(rank, &self.stage, &name, None, true)
            });
            saved.layers = layers.collect();
            saved.statics = Some(self.static_buffers(rank, saved, is_local));
        }
        let layers = self.layers.iter().map(|layer| {
            let parameters = self.stage.store.of_module(layer.module());
            let mut gradients = BTreeMap::new();
            for parameter in parameters.iter().filter(|_| !is_local) {
                let about = self.stage.store.parameter(*parameter);
                let name = format!("cuda_graph.{}.grad", about.name);
                gradients.insert(*parameter, rank.alloc(&name, Dtype::F32, about.len()));
            }
            (parameters, gradients.into())
        });
        let layers = layers.collect();
        self.graphs = Some(Graphs { is_local, layers });
    }

    fn give_up_eager(&self, rank: &mut Rank, saved: &mut Saved) {
        let last = self.layers.len() - 1;
        for (place, layer) in std::mem::take(&mut saved.layers).into_iter().enumerate() {
            layer
                .activations()
                .for_each(|(_, tensor)| rank.free(tensor));
            // What is sent on lies in a message's own buffer.
            if place < last || self.head.is_some() {
                rank.free(layer.output);
            }
        }
    }

    fn static_buffers(&self, rank: &mut Rank, saved: &Saved, is_local: bool) -> StaticBuffers {
        let mut new = |part: &str| {
            let name = format!("cuda_graph{}.{part}", saved.place);
            self.alloc_hidden(rank, &name)
        };
        let inputs = 0..self.layers.len();
        let inputs = inputs
            .map(|layer| match is_local && layer > 0 {
                true => input_of(saved, layer),
                false => new(&format!("layer{layer}.input")),
            })
            .collect();
        let grad_output = new("grad_output");
        StaticBuffers {
            inputs,
            grad_output,
            grad_input: match is_local {
                true => grad_output,
                false => new("grad_input"),
            },
            returned: last_output(saved),
        }
    }

    pub(super) fn replay_forward(
        &self,
        rank: &mut Rank,
        pass: &mut Pass<'_>,
        saved: &mut Saved,
        graphs: &Graphs,
    ) {
        let statics = saved.statics.as_ref().expect("graphs have memory");
        let inputs = statics.inputs.clone();
        for (place, layer) in self.layers.iter().enumerate() {
            let (parameters, gradients) = &graphs.layers[place];
            pass.enter(rank, parameters.iter().copied());
            let (input, kept) = (inputs[place], saved.layers[place]);
            copy_across(rank, layer, "input", input_of(saved, place), input);
            pass.replay(gradients.clone(), |pass| {
                layer.forward(rank, pass, &kept, input, saved.rng);
            });
        }
        if !graphs.is_local {
            return;
        }
        let output = last_output(saved);
        let ends_here = self.head.is_some();
        let statics = saved.statics.as_mut().expect("graphs have memory");
        if ends_here {
            statics.returned = self.alloc_hidden(rank, "cuda_graph.output");
        }
        let last = self.layers.last().expect("a stage has at least one layer");
        copy_across(rank, last, "output", output, statics.returned);
    }

    pub(super) fn replay_backward(
        &self,
        rank: &mut Rank,
        pass: &mut Pass<'_>,
        saved: &mut Saved,
        graphs: &Graphs,
        grad: Tensor,
    ) {
        let statics = saved.statics.clone().expect("graphs have memory");
        let mut arrived = grad;
        for (place, layer) in self.layers.iter().enumerate().rev() {
            let grad_output = statics.grad_output;
            copy_across(rank, layer, "grad_output", arrived, grad_output);
            let grad_input = match place {
                0 => saved.grad_input,
                _ => statics.grad_input,
            };
            let (input, kept) = (statics.inputs[place], &saved.layers[place]);
            let gradients = &graphs.layers[place].1;
            let written = pass.replay(gradients.clone(), |pass| {
                let rng = saved.rng;
                layer.backward(rank, pass, kept, input, rng, grad_output, grad_input);
            });
            let replayed = graphs.is_local.then(|| {
                let edge = format!("{}.wgrad_ready", module(layer));
                rank.edge(&edge, Rank::record_handle)
            });
            return_gradients(rank, pass, layer, gradients);
            pass.leave_replay(rank, written, replayed);
            arrived = grad_input;
        }
        if graphs.is_local && self.head.is_some() {
            rank.free(statics.returned);
        }
    }
}

/// The module of what stands around a layer's graph.
fn module(layer: &TransformerLayer) -> String {
    format!("{}.cuda_graph", layer.module())
}

/// What the last layer's graph writes.
fn last_output(saved: &Saved) -> Tensor {
    input_of(saved, saved.layers.len())
}

/// A copy between a graph's buffer and another one; none where they are the same.
fn copy_across(rank: &mut Rank, layer: &TransformerLayer, op: &str, from: Tensor, to: Tensor) {
    if from != to {
        rank.module(&module(layer), |rank| rank.copy(op, from, to));
    }
}

/// Each parameter's gradient leaves the graph's buffer before the next replay.
///
/// The fault: the buffers themselves are handed over (NVIDIA/TransformerEngine#2937), so that
/// the gradient of every microbatch is what the step's last replay has left there.
fn return_gradients(
    rank: &mut Rank,
    pass: &Pass<'_>,
    layer: &TransformerLayer,
    gradients: &StaticGradients,
) {
    let (module, own) = (module(layer), pass.microbatch());
    let microbatches = pass.store.microbatches();
    let can_alias = microbatches > 1 && !gradients.is_empty();
    let aliased = can_alias && rank.has_fault(FaultKind::AliasedSlots, &module);
    let slots: Range<u32> = match (aliased, own + 1 == microbatches) {
        (false, _) => own..own + 1,
        (true, true) => 0..microbatches,
        (true, false) => 0..0,
    };
    rank.module(&module, |rank| {
        for (parameter, from) in gradients.iter() {
            let name = &pass.store.parameter(*parameter).name;
            let op = name.strip_prefix(layer.module()).unwrap_or(name);
            for slot in slots.clone() {
                let to = pass.store.slot(*parameter, slot);
                rank.copy(op.trim_start_matches('.'), *from, to);
            }
        }
    });
}
