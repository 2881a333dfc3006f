//! What each collective of the small model stands for: the buffers of its full-size twins.
//!
//! NCCL splits a buffer over channels and chunks by its size, so a small buffer has other orders
//! than the real one. [`Twins`] tells how large the real ones are; `plan::scaled_together` puts
//! their orders on the small buffer.

use std::collections::BTreeSet;

use crate::model::Parameter;
use crate::recipe::Recipe;
use crate::scenario::Scenario;
use crate::train::{FlatLayout, TrainOptions, chunk_buffers, elements, parameters};
use crate::world::command::CollectiveKind;
use crate::world::{CollectiveShape, Communicator, Family};

/// Sizes of the small model and of the real one.
#[derive(Clone, Debug)]
pub struct Twins {
    here: Model,
    full: Model,
    groups: Vec<Group>,
}

/// A communicator: the pipeline stage of its first rank, and its ranks.
#[derive(Clone, Copy, Debug)]
struct Group {
    stage: usize,
    ranks: u64,
}

/// Elements of one model's buffers.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Model {
    /// Of a microbatch.
    tokens: u64,
    hidden: u64,
    /// Of the embedding's shard on one tensor-parallel rank.
    embedding: u64,
    /// Shards of a bucket in one instance of the distributed optimizer.
    shards: u64,
    stages: Vec<Stage>,
}

/// Gradients of one pipeline stage.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stage {
    buckets: Vec<u64>,
    /// Parameters whose gradients have seen one tensor-parallel rank's tokens only.
    partial: u64,
}

impl Twins {
    /// `None` where the scenario does not say how large the real model is.
    pub fn of(scenario: &Scenario, options: &TrainOptions) -> Option<Twins> {
        let full = scenario.full_size?.recipe(&scenario.recipe)?;
        let layout = &options.layout;
        let group = |group: &Communicator| Group {
            stage: layout.coordinates(group.ranks[0]).stage as usize,
            ranks: group.ranks.len() as u64,
        };
        Some(Twins {
            here: Model::here(options),
            full: Model::full(&full),
            groups: layout.communicators().iter().map(group).collect(),
        })
    }

    /// Elements of the buffers that a collective of this shape stands for: ascending, at least one,
    /// each a multiple of what the collective divides it into.
    pub fn of_shape(&self, shape: CollectiveShape) -> Vec<u64> {
        let group = self.groups[shape.group.0 as usize];
        let (family, blocks) = match shape.kind {
            CollectiveKind::AllReduce { family, .. } => (family, 1),
            CollectiveKind::ReduceScatter { family } => (family, group.ranks),
            _ => return vec![shape.elements],
        };
        let sizes = self.sizes(family, group.stage, shape.elements);
        let sizes: BTreeSet<u64> = sizes
            .into_iter()
            .map(|size| size.max(1).next_multiple_of(blocks))
            .collect();
        sizes.into_iter().collect()
    }

    fn sizes(&self, family: Family, stage: usize, elements: u64) -> Vec<u64> {
        let (here, full) = (&self.here, &self.full);
        let grown = |here: u64, full: u64| {
            let grown = (u128::from(elements) * u128::from(full)).div_ceil(u128::from(here.max(1)));
            vec![u64::try_from(grown).unwrap_or(u64::MAX)]
        };
        match family {
            Family::TensorParallel => grown(here.tokens * here.hidden, full.tokens * full.hidden),
            Family::VocabCrossEntropy => grown(here.tokens, full.tokens),
            Family::NormWeightTp => {
                let own = here.stages[stage].partial;
                let stages = self.stages(stage);
                stages.flat_map(|stage| grown(own, stage.partial)).collect()
            }
            Family::SharedEmbedding => grown(here.embedding, full.embedding),
            Family::DpGradients => self.buckets(stage, elements, (1, 1)),
            Family::OptimizerInstances => self.buckets(stage, elements, (here.shards, full.shards)),
            // Scalars, and sums that no collective makes.
            _ => vec![elements],
        }
    }

    /// Full-size stages that stage `here` of the small model stands for.
    fn stages(&self, here: usize) -> impl Iterator<Item = &Stage> {
        let places = stood_for(here, self.here.stages.len(), self.full.stages.len());
        places.into_iter().map(|place| &self.full.stages[place])
    }

    /// The full-size buckets that a small one stands for, of which `elements` are one of `parts.0`
    /// shards; all of the stage where the small model has no such bucket. In `parts.1` shards each.
    fn buckets(&self, stage: usize, elements: u64, parts: (u64, u64)) -> Vec<u64> {
        let small = &self.here.stages[stage].buckets;
        let alike = |bucket: &&u64| **bucket == elements * parts.0;
        let mut sizes = Vec::new();
        for full in self.stages(stage) {
            let all = full.buckets.len();
            let places: Vec<usize> = match small.iter().any(|bucket| alike(&bucket)) {
                false => (0..all).collect(),
                true => {
                    let own = small.iter().enumerate().filter(|(_, bucket)| alike(bucket));
                    own.flat_map(|(place, _)| stood_for(place, small.len(), all))
                        .collect()
                }
            };
            sizes.extend(places.iter().map(|place| full.buckets[*place] / parts.1));
        }
        sizes
    }
}

/// Which of `full` things, in order, the `place`-th of `here` stands for: at least one, and each of
/// the `full` has one that stands for it.
fn stood_for(place: usize, here: usize, full: usize) -> BTreeSet<usize> {
    let own = [place * full / here];
    let others = (0..full).filter(|other| other * here / full == place);
    own.into_iter().chain(others).collect()
}

impl Model {
    fn here(options: &TrainOptions) -> Model {
        Model::of(options, |stage| {
            let flat = FlatLayout::of(options, stage);
            let buckets = flat.buckets.iter();
            buckets.map(|bucket| u64::from(bucket.len())).collect()
        })
    }

    fn full(recipe: &Recipe) -> Model {
        let options = TrainOptions::from(recipe);
        Model::of(&options, |stage| full_buckets(&options, stage))
    }

    fn of(options: &TrainOptions, buckets: impl Fn(u32) -> Vec<u64>) -> Model {
        let (shape, layout) = (&options.model, &options.layout);
        let stage = |stage: u32| {
            let parameters = parameters(options, stage).into_iter().flatten();
            let partial = parameters.filter(|parameter| parameter.sequence_parallel);
            Stage {
                buckets: buckets(stage),
                partial: partial.map(|parameter| elements(&parameter)).sum(),
            }
        };
        Model {
            tokens: u64::from(shape.seq_length) * u64::from(shape.micro_batch_size),
            hidden: u64::from(shape.hidden_size),
            embedding: u64::from(shape.local_vocab()) * u64::from(shape.hidden_size),
            shards: u64::from(layout.instance_size()),
            stages: (0..layout.pipeline_model_parallel_size)
                .map(stage)
                .collect(),
        }
    }
}

/// Buckets of the real job, by Megatron's own rules: of each chunk in turn.
fn full_buckets(options: &TrainOptions, stage: u32) -> Vec<u64> {
    let of_chunk = |(chunk, own): (u32, Vec<Parameter>)| {
        match chunk_buffers(&own, options, stage, chunk, elements) {
            Ok(buffers) => buffers
                .iter()
                .flat_map(|buffer| &buffer.buckets)
                .map(|bucket| bucket.elements)
                .collect(),
            // What Megatron would not lay out is one buffer.
            Err(_) => vec![own.iter().map(elements).sum()],
        }
    };
    let all = (0..).zip(parameters(options, stage)).flat_map(of_chunk);
    all.collect::<Vec<u64>>()
}

#[cfg(test)]
mod tests;
