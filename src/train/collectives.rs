//! The reducing collectives of one step of training, at any size: what each adds up, over which
//! ranks, and how often. Nothing runs, so the job may be as large as it is.
//!
//! Collectives that only move data (parameter gathers, activations between stages) have no order
//! and are left out.

use std::ops::Range;

use crate::job::{BucketError, Buffer};
use crate::model::{Parameter, Recompute, stage_parameters};
use crate::numerics::Dtype;
use crate::plan::{Collective, Reduction};
use crate::recipe::PositionEmbedding;
use crate::train::bucket::chunk_buffers;
use crate::train::gradient::shards;
use crate::train::options::TrainOptions;
use crate::train::process_groups::{CommunicatorKind, ProcessGroups};
use crate::world::{Family, GroupId};

/// One reducing collective of a step, over each of its groups.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StepCollective {
    /// `grad_reduce.stage0.bucket2`: the pipeline stage is in it where stages differ.
    pub name: String,
    /// What of the training it is; `None` of one that was listed and not derived.
    pub family: Option<Family>,
    pub collective: Collective,
    pub reduction: Reduction,
    /// What travels, and what each partial sum is rounded to; of a sum in fp32 what travels.
    pub dtype: Dtype,
    /// Of the whole reduced buffer.
    pub elements: u64,
    /// Groups that each do this, as places in [`ProcessGroups::communicators`].
    pub groups: Vec<GroupId>,
    /// How often each does it in a step.
    pub times: u64,
}

/// The collectives of a step, in the order of its phases: forward and backward, gradients, the
/// optimizer, the reported loss.
///
/// # Errors
/// Buckets that Megatron would not lay out.
///
/// # Panics
/// Where torch's DDP reduces the gradients: its buckets are not Megatron's.
pub fn step_collectives(options: &TrainOptions) -> Result<Vec<StepCollective>, BucketError> {
    assert!(options.torch_ddp.is_none(), "Megatron's own buckets");
    let groups = options.layout.process_groups();
    let mut list = List {
        options,
        groups: &groups,
        found: Vec::new(),
    };
    let stages = 0..options.layout.pipeline_model_parallel_size;
    list.activations(stages.clone());
    list.cross_entropy();
    for stage in stages.clone() {
        list.gradients(stage)?;
    }
    for stage in stages {
        list.partial_gradients(stage);
    }
    list.shared_embedding();
    list.scalars();
    Ok(list.found)
}

/// Collectives while they are listed.
struct List<'a> {
    options: &'a TrainOptions,
    groups: &'a ProcessGroups,
    found: Vec<StepCollective>,
}

impl List<'_> {
    /// The groups of a kind, of one stage where it is given. None with one rank: they reduce
    /// nothing.
    fn groups_of(&self, kind: CommunicatorKind, stage: Option<u32>) -> Vec<GroupId> {
        let layout = &self.options.layout;
        let list = self.groups.kinds.iter().zip(&self.groups.communicators);
        let is_asked = |first: u32| stage.is_none_or(|own| layout.coordinates(first).stage == own);
        (0..)
            .zip(list)
            .filter(|(_, (own, group))| {
                **own == kind && group.ranks.len() > 1 && is_asked(group.ranks[0])
            })
            .map(|(place, _)| GroupId(place))
            .collect()
    }

    fn add(&mut self, found: StepCollective) {
        if found.times > 0 && !found.groups.is_empty() && found.elements > 0 {
            self.found.push(found);
        }
    }

    /// An all-reduced sum that each group does once.
    fn sum(&self, name: String, family: Family, groups: Vec<GroupId>) -> StepCollective {
        StepCollective {
            name,
            family: Some(family),
            collective: Collective::AllReduce,
            reduction: Reduction::Sum,
            dtype: Dtype::F32,
            elements: 1,
            groups,
            times: 1,
        }
    }

    fn microbatches(&self) -> u64 {
        u64::from(self.options.microbatches())
    }

    fn tokens(&self) -> u64 {
        let shape = &self.options.model;
        u64::from(shape.seq_length) * u64::from(shape.micro_batch_size)
    }

    fn last_stage(&self) -> u32 {
        self.options.layout.pipeline_model_parallel_size - 1
    }

    /// Partial activations over tensor-parallel ranks (Megatron-LM, tensor_parallel/mappings.py).
    fn activations(&mut self, stages: Range<u32>) {
        let options = self.options;
        let shape = &options.model;
        let splits = shape.splits_sequence();
        for stage in stages {
            let groups = self.groups_of(CommunicatorKind::TensorParallel, Some(stage));
            let sum = |name: &str, is_split: bool, a_microbatch: u64| StepCollective {
                collective: match is_split {
                    true => Collective::ReduceScatter,
                    false => Collective::AllReduce,
                },
                dtype: shape.params_dtype,
                elements: self.tokens() * u64::from(shape.hidden_size),
                times: a_microbatch * self.microbatches(),
                ..self.sum(
                    format!("{name}.stage{stage}"),
                    Family::TensorParallel,
                    groups.clone(),
                )
            };
            // Positions are added to whole sequences, so the words are, too.
            let learned = shape.position_embedding_type == PositionEmbedding::LearnedAbsolute;
            let embedding = sum("embedding", splits && !learned, u64::from(stage == 0));
            let head = u64::from(stage == self.last_stage());
            let layers = sum("layers", splits, layer_sums(options) + head);
            self.add(embedding);
            self.add(layers);
        }
    }

    /// The largest logit, the target's, and the sum of exponentials, over vocabulary shards
    /// (Megatron-LM, tensor_parallel/cross_entropy.py).
    fn cross_entropy(&mut self) {
        let groups = self.groups_of(CommunicatorKind::TensorParallel, Some(self.last_stage()));
        let of_tokens = |name: &str, reduction, times: u64| StepCollective {
            reduction,
            elements: self.tokens(),
            times: times * self.microbatches(),
            ..self.sum(name.to_string(), Family::VocabCrossEntropy, groups.clone())
        };
        let max = of_tokens("cross_entropy.max", Reduction::Max, 1);
        let sums = of_tokens("cross_entropy.sum", Reduction::Sum, 2);
        self.add(max);
        self.add(sums);
    }

    /// Buckets over data-parallel ranks, then over the instances of the distributed optimizer.
    fn gradients(&mut self, stage: u32) -> Result<(), BucketError> {
        let options = self.options;
        let sharded = shards(options);
        // Instances of one rank keep whole gradients, and reduce them over all at once.
        let several = sharded && options.layout.num_distributed_optimizer_instances > 1;
        let (kind, instances) = match several {
            true => (
                CommunicatorKind::IntraInstance,
                self.groups_of(CommunicatorKind::InterInstance, Some(stage)),
            ),
            false => (CommunicatorKind::DataParallel, Vec::new()),
        };
        let groups = self.groups_of(kind, Some(stage));
        let buffers = stage_buffers(options, stage)?;
        let buckets = buffers.iter().flat_map(|buffer| &buffer.buckets);
        for (number, bucket) in buckets.enumerate() {
            let name = |what: &str| format!("{what}.stage{stage}.bucket{number}");
            let in_fp32 = options.ddp_reduce_scatter_with_fp32_accumulation;
            self.add(StepCollective {
                collective: match (sharded, in_fp32) {
                    (false, _) => Collective::AllReduce,
                    (true, false) => Collective::ReduceScatter,
                    (true, true) => Collective::ReduceScatterFp32Accumulation,
                },
                dtype: options.reduce_dtype,
                elements: bucket.elements,
                ..self.sum(name("grad_reduce"), Family::DpGradients, groups.clone())
            });
            self.add(StepCollective {
                dtype: options.reduce_dtype,
                elements: bucket.elements / u64::from(options.layout.instance_size()),
                ..self.sum(
                    name("instance_reduce"),
                    Family::OptimizerInstances,
                    instances.clone(),
                )
            });
        }
        Ok(())
    }

    /// Gradients that each tensor-parallel rank has of its own tokens only
    /// (`_allreduce_non_tensor_model_parallel_grads`).
    fn partial_gradients(&mut self, stage: u32) {
        let options = self.options;
        if !options.model.splits_sequence() {
            return;
        }
        let partial = parameters(options, stage)
            .into_iter()
            .flatten()
            .filter(|parameter| parameter.sequence_parallel);
        let groups = self.groups_of(CommunicatorKind::TensorParallel, Some(stage));
        self.add(StepCollective {
            dtype: options.reduce_dtype,
            elements: partial.map(|parameter| elements(&parameter)).sum(),
            ..self.sum(
                format!("layernorm.stage{stage}"),
                Family::NormWeightTp,
                groups,
            )
        });
    }

    /// The two stages that share the word embedding (`_allreduce_word_embedding_grads`): the whole
    /// matrix, also where a rank keeps its shard of the sum only.
    fn shared_embedding(&mut self) {
        let options = self.options;
        if !options.model.copies_embedding() {
            return;
        }
        let shape = &options.model;
        let groups = self.groups_of(CommunicatorKind::Embedding, None);
        let name = "word_embeddings".to_string();
        self.add(StepCollective {
            dtype: options.reduce_dtype,
            elements: u64::from(shape.local_vocab()) * u64::from(shape.hidden_size),
            ..self.sum(name, Family::SharedEmbedding, groups)
        });
    }

    /// Whether a scaled gradient overflowed, the squared gradient norm, and the loss that a step
    /// reports.
    fn scalars(&mut self) {
        let options = self.options;
        let several = options.layout.num_distributed_optimizer_instances > 1;
        let whole_model = match (shards(options), several) {
            (false, _) => CommunicatorKind::ModelParallel,
            (true, false) => CommunicatorKind::World,
            (true, true) => CommunicatorKind::Instance,
        };
        if options.loss_scale.is_some() {
            let groups = self.groups_of(whole_model, None);
            self.add(StepCollective {
                reduction: Reduction::Max,
                ..self.sum("found_inf".to_string(), Family::FoundInf, groups)
            });
        }
        if options.clip_grad > 0.0 {
            let groups = self.groups_of(whole_model, None);
            self.add(self.sum("grad_norm".to_string(), Family::NormGlobal, groups));
        }
        let last = Some(self.last_stage());
        let groups = self.groups_of(CommunicatorKind::DataParallel, last);
        self.add(self.sum("loss".to_string(), Family::LossMean, groups));
    }
}

/// Sums over tensor-parallel ranks that a stage's layers make in a microbatch: two in a layer's
/// forward, two in its backward, and again those of what is recomputed.
fn layer_sums(options: &TrainOptions) -> u64 {
    let a_chunk = options.model.layers_per_stage();
    let again = match options.recompute {
        Recompute::Nothing => 0,
        Recompute::Full { .. } => {
            let units = options.recompute.units(a_chunk);
            2 * units
                .iter()
                .map(|unit| u64::from(unit.end - unit.start))
                .sum::<u64>()
        }
        Recompute::Selective(parts) => u64::from(parts.mlp) * u64::from(a_chunk),
    };
    let chunks = u64::from(options.layout.num_virtual_stages_per_pipeline_rank);
    chunks * (4 * u64::from(a_chunk) + again)
}

/// The parameters of each model chunk of a pipeline stage.
pub fn parameters(options: &TrainOptions, stage: u32) -> Vec<Vec<Parameter>> {
    let layout = &options.layout;
    let chunks = 0..layout.num_virtual_stages_per_pipeline_rank;
    chunks
        .map(|chunk| stage_parameters(&options.model, layout.virtual_stage(stage, chunk)))
        .collect()
}

/// The gradient buffers of a stage's chunks in turn, by Megatron's own rules.
fn stage_buffers(options: &TrainOptions, stage: u32) -> Result<Vec<Buffer>, BucketError> {
    let chunks = (0..).zip(parameters(options, stage));
    let buffers = chunks.map(|(chunk, own)| chunk_buffers(&own, options, stage, chunk, elements));
    let buffers: Vec<Vec<Buffer>> = buffers.collect::<Result<_, _>>()?;
    Ok(buffers.into_iter().flatten().collect())
}

/// In 64 bits: a full-size matrix may have more than 2^32 elements.
pub fn elements(parameter: &Parameter) -> u64 {
    u64::from(parameter.rows) * u64::from(parameter.columns)
}
