//! The words that a rank's memory has, before any rank exists.

use crate::model::{ModelShape, Parameter};
use crate::recipe::{CudaGraphImpl, Normalization};
use crate::train::bucket::FlatLayout;
use crate::train::gradient::shards;
use crate::train::options::TrainOptions;
use crate::train::pipeline::places;

/// Buffers start at multiples of this many words, as the ranks' allocator places them.
const ALIGN_WORDS: u64 = 64;

/// Words of one rank, by what they are for. A bf16 value has a word of its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankWords {
    /// Parameters, gradients (a slot a microbatch, their sum, the reduced shard), main parameters,
    /// two moments and the optimizer's scratch.
    pub state: u64,
    /// What backward needs of the microbatches in flight, on the device or the host, and the
    /// layers' scratch.
    pub activations: u64,
    /// The part of `state` that a checkpoint holds.
    pub persisted: u64,
}

impl RankWords {
    pub fn total(&self) -> u64 {
        self.state + self.activations
    }
}

/// Adds up buffers, each with its padding.
#[derive(Default)]
struct Buffers(u64);

impl Buffers {
    fn add(&mut self, count: u64, words: u64) {
        self.0 += count * words.max(1).next_multiple_of(ALIGN_WORDS);
    }
}

/// Words of a layer's tensors on one rank, for one microbatch.
struct LayerWords {
    /// `[tokens, hidden]` and `[local tokens, hidden]`.
    whole: u64,
    local: u64,
    /// What norms keep of each row.
    stats: u64,
    /// `[tokens, heads joined]`, `[tokens, qkv's rows]`, `[tokens, ffn]`, `[tokens, fc1's rows]`.
    width: u64,
    qkv: u64,
    ffn: u64,
    fc1: u64,
    scores: u64,
}

impl LayerWords {
    fn of(shape: &ModelShape) -> LayerWords {
        let (tokens, rows) = (u64::from(shape.tokens()), u64::from(shape.local_tokens()));
        let hidden = u64::from(shape.hidden_size);
        let ffn = tokens * u64::from(shape.local_ffn());
        LayerWords {
            whole: tokens * hidden,
            local: rows * hidden,
            stats: match shape.normalization {
                Normalization::RMSNorm => rows,
                Normalization::LayerNorm => 2 * rows,
            },
            width: tokens * u64::from(shape.local_width()),
            qkv: tokens * u64::from(shape.local_qkv()),
            ffn,
            fc1: u64::from(shape.fc1_halves()) * ffn,
            scores: tokens * u64::from(shape.local_heads()) * u64::from(shape.seq_length),
        }
    }

    /// (count, words): what `LayerSaved` has.
    fn saved(&self) -> [(u64, u64); 8] {
        [
            (2, self.whole),
            (2, self.stats),
            (2, self.local),
            (1, self.qkv),
            (1, self.width),
            (1, self.scores),
            (1, self.fc1),
            (1, self.ffn),
        ]
    }

    /// (count, words): what `Scratch` has.
    fn scratch(&self, shape: &ModelShape) -> [(u64, u64); 10] {
        let embedding = u64::from(shape.local_vocab()) * u64::from(shape.hidden_size);
        [
            (6, self.local),
            (2, self.whole),
            (1, self.ffn),
            (1, self.fc1),
            (1, self.qkv),
            (2, self.width),
            (1, u64::from(shape.key_blocks()) * self.width),
            (1, self.scores),
            (u64::from(shape.attention_dropout > 0.0), self.scores),
            (u64::from(shape.ties_on_one_stage()), embedding),
        ]
    }
}

impl TrainOptions {
    /// Words of a rank of pipeline stage `stage`, for options that pass [`TrainOptions::check`].
    pub fn rank_words(&self, stage: u32) -> RankWords {
        let layout = FlatLayout::of(self, stage);
        let flat = u64::from(layout.len());
        let shard = match shards(self) {
            true => u64::from(layout.shard_len()),
            false => flat,
        };
        let persisted = flat + 3 * shard;
        // What a background writer reads, and what it writes.
        let buffers = if self.async_save { 2 * persisted } else { 0 };
        RankWords {
            state: self.state_words(flat, shard) + buffers,
            activations: self.activation_words(stage, &layout.parameters),
            persisted,
        }
    }

    fn state_words(&self, flat: u64, shard: u64) -> u64 {
        let microbatches = u64::from(self.microbatches());
        let mut buffers = Buffers::default();
        buffers.add(1, flat);
        buffers.add(1, microbatches * flat);
        buffers.add(u64::from(microbatches > 1), flat);
        // Main parameters, two moments, squares, flags.
        buffers.add(5, shard);
        if shards(self) {
            // The reduced gradient and the updated parameters.
            buffers.add(2, shard);
            let by_hand = self.ddp_reduce_scatter_with_fp32_accumulation;
            buffers.add(u64::from(by_hand), flat);
        }
        buffers.0
    }

    fn activation_words(&self, stage: u32, parameters: &[Parameter]) -> u64 {
        let shape = &self.model;
        let microbatches = self.microbatches();
        let stages = self.layout.pipeline_model_parallel_size;
        let sizes = LayerWords::of(shape);
        let tokens = u64::from(shape.tokens());
        let mut buffers = Buffers::default();
        self.add_saved(stage, &sizes, &mut buffers);
        self.add_graphs(stage, &sizes, parameters, &mut buffers);
        // One set for all: `Scratch`, the rotary tables, the pipeline's gradient, the data.
        for (count, words) in sizes.scratch(shape) {
            buffers.add(count, words);
        }
        if shape.wgrad_splits > 1 {
            let greatest = parameters.iter().map(Parameter::len).max().unwrap_or(0);
            buffers.add(1, u64::from(shape.wgrad_splits) * u64::from(greatest));
        }
        buffers.add(
            1,
            u64::from(shape.seq_length) * u64::from(shape.kv_channels),
        );
        buffers.add(3, u64::from(microbatches) * tokens);
        if stage + 1 == stages {
            let schedule = self.pipeline_schedule(stage);
            let schedule = schedule.expect("the options were checked");
            let last = self.layout.num_virtual_stages_per_pipeline_rank - 1;
            let kept = u64::from(places(self, &schedule, last));
            buffers.add(1 + kept, tokens * u64::from(shape.local_vocab()));
            buffers.add(kept, sizes.whole);
            buffers.add(5 * kept, tokens);
        }
        buffers.0
    }

    /// Microbatches whose activations a stage keeps at once, over its chunks.
    fn in_flight(&self, stage: u32) -> u64 {
        let schedule = self.pipeline_schedule(stage);
        let schedule = schedule.expect("the options were checked");
        let chunks = 0..self.layout.num_virtual_stages_per_pipeline_rank;
        chunks
            .map(|chunk| u64::from(places(self, &schedule, chunk)))
            .sum()
    }

    /// What microbatches in flight keep of each layer, `LayerSaved`, and what is kept of none.
    fn add_saved(&self, stage: u32, sizes: &LayerWords, buffers: &mut Buffers) {
        let in_flight = self.in_flight(stage);
        let layers = self.model.layers_per_stage();
        let units = self.recompute.units(layers);
        let again: u64 = units.iter().map(|unit| unit.len() as u64).sum();
        let chunks = u64::from(self.layout.num_virtual_stages_per_pipeline_rank);
        let workspace = chunks * u64::from(self.recompute.workspace_layers(layers));
        let offloaded = u64::from(self.cpu_offloading_num_layers);
        let kept = in_flight * (u64::from(layers) - again - offloaded);
        for (count, words) in sizes.saved() {
            buffers.add((kept + workspace) * count, words);
        }
        // On the host a layer's activations lie in one buffer.
        let together = sizes.saved().map(|(count, words)| count * words);
        buffers.add(in_flight * offloaded, together.into_iter().sum());
        if offloaded > 0 && self.cpu_offloading_double_buffering {
            for (count, words) in sizes.saved() {
                buffers.add(2 * count, words);
            }
            buffers.add(2, sizes.local);
        }
        // The input and its gradient, and the output of each unit that is computed again.
        buffers.add(in_flight * (2 + units.len() as u64), sizes.local);
        // Messages that an interleaved pipeline receives ahead of their slots.
        let group = self.microbatch_group_size_per_virtual_pipeline_stage;
        let ahead = group.saturating_sub(self.layout.pipeline_model_parallel_size) + 2;
        let several = self.layout.num_virtual_stages_per_pipeline_rank > 1;
        buffers.add(2 * u64::from(several) * u64::from(ahead), sizes.local);
    }

    /// What CUDA graphs have beside the layers' own tensors, for each microbatch in flight: what
    /// enters a layer and its gradients, what leaves the last one, gradients of parameters.
    fn add_graphs(
        &self,
        stage: u32,
        sizes: &LayerWords,
        parameters: &[Parameter],
        buffers: &mut Buffers,
    ) {
        let in_flight = self.in_flight(stage);
        let layers = u64::from(self.model.layers_per_stage());
        match self.cuda_graph_impl {
            CudaGraphImpl::None => {}
            // Input, gradient; a clone of the output, and the output that eager steps send off.
            CudaGraphImpl::Local => buffers.add(4 * in_flight, sizes.local),
            CudaGraphImpl::TransformerEngine => {
                buffers.add((layers + 2) * in_flight, sizes.local);
                for parameter in parameters {
                    buffers.add(1, u64::from(parameter.len()));
                }
            }
        }
    }
}
