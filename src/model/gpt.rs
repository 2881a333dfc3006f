//! One pipeline stage of the model, forward and backward of a microbatch.

use std::ops::Range;

use crate::model::cross_entropy::LossFactor;
use crate::model::cuda_graph::{Graphs, StaticBuffers};
use crate::model::dropout::{RNG_WORDS, Site};
use crate::model::embedding::Embedding;
use crate::model::head::{Head, HeadSaved};
use crate::model::offload::{Offload, OnHost, ReloadBuffers};
use crate::model::pass::{ParameterHooks, Pass};
use crate::model::stage::Stage;
use crate::model::transformer_layer::{LayerSaved, TransformerLayer};
use crate::numerics::Dtype;
use crate::world::{Phase, Rank, Segments, Tensor};

/// The modules of one stage.
#[derive(Clone, Debug)]
pub struct Gpt {
    pub stage: Stage,
    embedding: Option<Embedding>,
    pub(super) layers: Vec<TransformerLayer>,
    /// Runs of layers that are computed again in the backward.
    units: Vec<Range<u32>>,
    /// Activations of what is computed again, which no microbatch keeps: of a unit's layers, or of
    /// parts of one layer.
    workspace: Vec<LayerSaved>,
    pub(super) offload: Option<Offload>,
    pub(super) reload_buffers: Option<ReloadBuffers>,
    /// From the capture on.
    pub(super) graphs: Option<Graphs>,
    pub head: Option<Head>,
}

/// Activations of one microbatch in flight.
#[derive(Clone, Debug)]
pub struct Saved {
    /// `[local tokens, hidden]`: what enters the first layer, embedded here, or received from
    /// another stage into a buffer of its own.
    pub input: Tensor,
    /// Where layers are offloaded, those that have run and whose backward is to come.
    pub layers: Vec<LayerSaved>,
    /// Of the layers that are offloaded.
    pub(super) on_host: Vec<OnHost>,
    /// Where the layers are replayed: then `layers` are the graphs' own.
    pub(super) statics: Option<StaticBuffers>,
    /// Number of the slot.
    pub(super) place: u32,
    /// `[2, 4]`: RNG words that the masks of this microbatch are made from, of both generators.
    pub rng: Tensor,
    /// `[local tokens, hidden]`: gradient of `input`, sent to the stage before.
    pub grad_input: Tensor,
    /// Where the last stage ends.
    pub head: Option<HeadSaved>,
}

/// Which of a stage's ends another stage is at: there a message's own buffer takes the place of
/// memory that the microbatch keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    pub receives: bool,
    pub sends: bool,
}

impl Saved {
    /// Where the last layer writes to from now on.
    pub fn set_output(&mut self, output: Tensor) {
        if let Some(statics) = &mut self.statics {
            statics.returned = output;
            return;
        }
        let last = self.layers.last_mut();
        last.expect("a stage has at least one layer").output = output;
    }

    /// `[local tokens, hidden]`: what leaves the last layer.
    pub fn output(&self) -> Tensor {
        match (&self.statics, self.layers.last()) {
            (Some(statics), _) => statics.returned,
            (None, last) => last.expect("a stage has at least one layer").output,
        }
    }
}

impl Gpt {
    pub fn new(rank: &mut Rank, stage: Stage) -> Gpt {
        let last = stage.stage + 1 == stage.shape.pipeline_model_parallel_size;
        let layers = stage.shape.layers_per_stage();
        let workspace = 0..stage.recompute.workspace_layers(layers);
        let mut gpt = Gpt {
            units: stage.recompute.units(layers),
            offload: Offload::of(layers, stage.offloaded_layers, stage.double_buffering),
            reload_buffers: None,
            graphs: None,
            workspace: workspace
                .map(|layer| {
                    let name = format!("workspace.layer{layer}");
                    LayerSaved::allocate(rank, &stage, &name, None, true)
                })
                .collect(),
            embedding: (stage.stage == 0).then(|| Embedding::new(&stage)),
            layers: (0..layers)
                .map(|place| TransformerLayer::new(&stage, place))
                .collect(),
            head: last.then(|| Head::new(rank, &stage)),
            stage,
        };
        gpt.allocate_reload_buffers(rank);
        gpt
    }

    /// Memory for one microbatch in flight.
    pub fn allocate(&self, rank: &mut Rank, place: u32, ends: Ends) -> Saved {
        let layers = match self.offload {
            None => self.stage.shape.layers_per_stage(),
            Some(_) => 0,
        };
        let grad_input = self.alloc_hidden(rank, &format!("saved{place}.grad_input"));
        Saved {
            input: match ends.receives || self.offload.is_some() {
                // Nothing, until a message's buffer is put here, or a microbatch's own.
                true => grad_input.slice(0, 0),
                false => self.alloc_hidden(rank, &format!("saved{place}.input")),
            },
            on_host: self.allocate_on_host(rank, place),
            statics: None,
            place,
            layers: (0..layers)
                .map(|layer| {
                    let name = format!("saved{place}.layer{layer}");
                    let keeps_output = !(ends.sends && layer + 1 == layers);
                    self.allocate_layer(rank, layer, &name, keeps_output)
                })
                .collect(),
            rng: rank.alloc(&format!("saved{place}.rng"), Dtype::U32, 2 * RNG_WORDS),
            grad_input,
            head: self
                .head
                .as_ref()
                .map(|_| HeadSaved::allocate(rank, &self.stage, &format!("saved{place}.head"))),
        }
    }

    /// `[local tokens, hidden]`.
    pub(super) fn alloc_hidden(&self, rank: &mut Rank, name: &str) -> Tensor {
        let shape = &self.stage.shape;
        let words = shape.local_tokens() * shape.hidden_size;
        rank.alloc(name, shape.params_dtype, words)
    }

    pub(super) fn layer_count(&self) -> usize {
        self.layers.len()
    }

    /// What a layer of the stage is called.
    pub(super) fn module(&self, layer: u32) -> &str {
        self.layers[layer as usize].module()
    }

    /// Of a unit that is computed again only the last output is kept.
    fn allocate_layer(
        &self,
        rank: &mut Rank,
        layer: u32,
        name: &str,
        keeps_output: bool,
    ) -> LayerSaved {
        let Some(unit) = self.units.iter().find(|unit| unit.contains(&layer)) else {
            let shared = self.workspace.first();
            return LayerSaved::allocate(rank, &self.stage, name, shared, keeps_output);
        };
        let shared = self.workspace[(layer - unit.start) as usize];
        match layer + 1 == unit.end {
            true if keeps_output => shared.with_output(rank, name),
            true => shared.without_output(),
            false => shared,
        }
    }

    /// A microbatch's way through the stage.
    pub fn pass<'a>(&'a self, microbatch: u32, hooks: &'a mut dyn ParameterHooks) -> Pass<'a> {
        Pass::new(&self.stage, microbatch, hooks)
    }

    /// Embeds `tokens [tokens]` into `saved.input`: the first stage's beginning.
    pub fn embed(&self, rank: &mut Rank, pass: &mut Pass<'_>, saved: &mut Saved, tokens: Tensor) {
        self.make_room_for_input(rank, saved);
        let embedding = self
            .embedding
            .as_ref()
            .expect("only the first stage embeds");
        embedding.forward(rank, pass, tokens, saved.input);
        if self.stage.drops() {
            rank.module("embedding", |rank| {
                let (stage, x) = (&self.stage, saved.input);
                stage.dropout(rank, Site::Embedding, saved.rng, x, x);
            });
        }
    }

    /// All layers, from `saved.input` to `saved.output()`.
    pub fn forward(&self, rank: &mut Rank, pass: &mut Pass<'_>, saved: &mut Saved) {
        if let Some(graphs) = &self.graphs {
            return self.replay_forward(rank, pass, saved, graphs);
        }
        for (place, layer) in (0..).zip(&self.layers) {
            self.make_room(rank, saved, place);
            let input = input_of(saved, place as usize);
            let kept = saved.layers[place as usize];
            layer.forward(rank, pass, &kept, input, saved.rng);
            if self.units.iter().any(|unit| unit.contains(&place)) {
                layer.remember(rank, &kept);
            }
            self.start_offload(rank, saved, place);
        }
    }

    /// Token losses of the last stage's output.
    pub fn loss(
        &self,
        rank: &mut Rank,
        pass: &mut Pass<'_>,
        saved: &Saved,
        targets: Tensor,
        losses: Tensor,
    ) {
        let (head, kept) = self.head_of(saved);
        head.forward(rank, pass, kept, saved.output(), targets, losses);
    }

    /// The gradient of the last stage's output, of the summed token losses times `scale`.
    pub fn loss_backward(
        &self,
        rank: &mut Rank,
        pass: &mut Pass<'_>,
        saved: &Saved,
        targets: Tensor,
        scale: LossFactor,
        grad: Tensor,
    ) {
        rank.set_phase(Phase::Backward);
        let (head, kept) = self.head_of(saved);
        head.backward(rank, pass, kept, saved.output(), targets, scale, grad);
    }

    fn head_of<'a>(&'a self, saved: &'a Saved) -> (&'a Head, &'a HeadSaved) {
        let both = self.head.as_ref().zip(saved.head.as_ref());
        both.expect("only the last stage has a loss")
    }

    /// All layers backwards: `grad` of the output goes in and is overwritten; the gradient of
    /// `saved.input` comes out in `saved.grad_input`.
    pub fn backward(&self, rank: &mut Rank, pass: &mut Pass<'_>, saved: &mut Saved, grad: Tensor) {
        if let Some(graphs) = &self.graphs {
            return self.replay_backward(rank, pass, saved, graphs, grad);
        }
        for place in (0..self.layers.len()).rev() {
            self.bring_back(rank, saved, place as u32);
            let ends = |unit: &&Range<u32>| unit.end as usize == place + 1;
            if let Some(unit) = self.units.iter().find(ends) {
                self.rerun(rank, pass, saved, unit);
            }
            let input = input_of(saved, place);
            let grad_input = if place == 0 { saved.grad_input } else { grad };
            let (layer, kept) = (&self.layers[place], &saved.layers[place]);
            layer.backward(rank, pass, kept, input, saved.rng, grad, grad_input);
            self.give_back(rank, saved, place as u32);
        }
    }

    /// The layers of a unit once more, into the workspace, from the RNG state of their forward: as
    /// Megatron-LM's `CheckpointFunction.backward`. Every tensor must come out as it was.
    fn rerun(&self, rank: &mut Rank, pass: &mut Pass<'_>, saved: &Saved, unit: &Range<u32>) {
        rank.module("recompute", |rank| {
            let rng = self.stage.restore_rng(rank, saved.rng);
            let mut input = input_of(saved, unit.start as usize);
            let layers = &self.layers[unit.start as usize..unit.end as usize];
            for (layer, kept) in layers.iter().zip(&self.workspace) {
                layer.forward(rank, pass, kept, input, rng);
                layer.expect(rank, kept);
                input = kept.output;
            }
        });
    }

    /// The first stage's end: `saved.grad_input` into the embedding's gradient slot.
    pub fn embed_backward(
        &self,
        rank: &mut Rank,
        pass: &mut Pass<'_>,
        saved: &Saved,
        segments: &Segments,
    ) {
        let embedding = self
            .embedding
            .as_ref()
            .expect("only the first stage embeds");
        let mut grad = saved.grad_input;
        if self.stage.drops() {
            grad = self.stage.scratch.masked;
            rank.module("embedding", |rank| {
                let (stage, x) = (&self.stage, saved.grad_input);
                stage.dropout(rank, Site::Embedding, saved.rng, x, grad);
            });
        }
        embedding.backward(rank, pass, segments, grad);
    }
}

/// What layer `place` of the stage reads.
pub(super) fn input_of(saved: &Saved, place: usize) -> Tensor {
    match place.checked_sub(1) {
        Some(before) => saved.layers[before].output,
        None => saved.input,
    }
}
