//! The parameters of one rank: names, shapes, how each is cut out of the whole model's, and where
//! each lies in the flat buffers.

use std::ops::Range;

use crate::model::shape::{ModelShape, ModuleOrder};
use crate::recipe::{Normalization, PositionEmbedding};
use crate::world::Tensor;

/// How a parameter of the whole model is split over tensor-parallel ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partition {
    /// Every rank holds all of it.
    Replicated,
    /// Rows `p * rows .. (p + 1) * rows` of `[groups, whole rows, columns]`, from each group:
    /// one group for a plain column-parallel weight, two for gate and up of SwiGLU.
    Rows { groups: u32 },
    /// Columns `p * columns .. (p + 1) * columns`: a row-parallel weight.
    Columns,
}

/// What a parameter is for, where that decides how it starts and who counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// A matrix or a table of embeddings: drawn.
    Weight,
    /// A norm's gain: starts at 1.
    Gain,
    /// Starts at 0.
    Bias,
    /// The word embedding of a first pipeline stage, which the last stage's output layer shares.
    SharedEmbedding,
    /// The last stage's copy of it: Megatron-LM's `param.shared`. Starts as the embedding does and
    /// is not counted again in the gradient norm.
    SharedCopy,
}

/// One parameter, as this rank holds it: `[rows, columns]`, C order. A gain has one row, and so has
/// a bias that is not split; one split over tensor-parallel ranks has one column.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Megatron-LM's name, with the layer's number in the whole model.
    pub name: String,
    pub rows: u32,
    pub columns: u32,
    pub partition: Partition,
    /// Weight decay applies: tensors of two dimensions.
    pub decays: bool,
    pub role: Role,
    /// Under sequence parallelism its gradient has seen this rank's tokens only, and is summed
    /// over tensor-parallel ranks: Megatron-LM's attribute of this name on norms and on the biases
    /// of row-parallel linears.
    pub sequence_parallel: bool,
}

/// The name of the word embedding, also where its copy stands.
const WORD_EMBEDDING: &str = "embedding.word_embeddings.weight";

impl Parameter {
    pub fn len(&self) -> u32 {
        self.rows * self.columns
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The name of the whole model's tensor that this is a part of: a shared copy stands for the
    /// embedding.
    pub fn whole_name(&self) -> &str {
        match self.role {
            Role::SharedCopy => WORD_EMBEDDING,
            _ => &self.name,
        }
    }

    /// Whether it is the word embedding itself, no copy of it.
    pub(super) fn is_embedding(&self) -> bool {
        self.name == WORD_EMBEDDING
    }

    /// Whether the first and the last pipeline stage each hold one (Megatron-LM's
    /// `param.shared_embedding`).
    pub fn is_shared_embedding(&self) -> bool {
        matches!(self.role, Role::SharedEmbedding | Role::SharedCopy)
    }

    /// Where element `local` of rank `tp_rank` of `tp` stands in the whole model's tensor.
    pub fn global_index(&self, local: u32, tp_rank: u32, tp: u32) -> u64 {
        assert!(local < self.len() && tp_rank < tp);
        let (row, column) = (
            u64::from(local / self.columns),
            u64::from(local % self.columns),
        );
        let (rows, columns) = (u64::from(self.rows), u64::from(self.columns));
        let (place, ranks) = (u64::from(tp_rank), u64::from(tp));
        match self.partition {
            Partition::Replicated => u64::from(local),
            Partition::Columns => row * columns * ranks + place * columns + column,
            Partition::Rows { groups } => {
                let group_rows = rows / u64::from(groups);
                let (group, inner) = (row / group_rows, row % group_rows);
                let whole_row = (group * ranks + place) * group_rows + inner;
                whole_row * columns + column
            }
        }
    }

    /// Inputs of the whole model's linear map that one output sums over.
    pub fn fan_in(&self, tp: u32) -> u32 {
        match self.partition {
            Partition::Columns => self.columns * tp,
            _ => self.columns,
        }
    }

    fn matrix(name: String, rows: u32, columns: u32, partition: Partition) -> Parameter {
        Parameter {
            name,
            rows,
            columns,
            partition,
            decays: true,
            role: Role::Weight,
            sequence_parallel: false,
        }
    }

    /// A norm's gain or bias, or a row-parallel linear's bias.
    fn whole_vector(name: String, columns: u32, role: Role) -> Parameter {
        Parameter {
            name,
            rows: 1,
            columns,
            partition: Partition::Replicated,
            decays: false,
            role,
            sequence_parallel: true,
        }
    }

    /// The bias of a column-parallel linear, cut as its weight's rows.
    fn split_bias(name: String, rows: u32, groups: u32) -> Parameter {
        Parameter {
            name,
            rows,
            columns: 1,
            partition: Partition::Rows { groups },
            decays: false,
            role: Role::Bias,
            sequence_parallel: false,
        }
    }
}

/// A parameter's place in the stage's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ParameterId(pub u32);

/// The parameters of pipeline stage `stage`, in the order the modules are built.
pub fn stage_parameters(shape: &ModelShape, stage: u32) -> Vec<Parameter> {
    let hidden = shape.hidden_size;
    let mut list = Vec::new();
    if stage == 0 {
        list.push(word_embedding(shape, WORD_EMBEDDING, Role::SharedEmbedding));
        if shape.position_embedding_type == PositionEmbedding::LearnedAbsolute {
            let name = "embedding.position_embeddings.weight".to_string();
            let rows = shape.max_position_embeddings;
            list.push(Parameter::matrix(name, rows, hidden, Partition::Replicated));
        }
    }
    let first = stage * shape.layers_per_stage();
    for layer in first..first + shape.layers_per_stage() {
        layer_parameters(shape, layer, &mut list);
    }
    if stage + 1 == shape.pipeline_model_parallel_size {
        norm_parameters(shape, "decoder.final_layernorm", &mut list);
        // With one stage a shared matrix is the embedding itself.
        if shape.untie_embeddings_and_output_weights || shape.copies_embedding() {
            list.push(word_embedding(
                shape,
                "output_layer.weight",
                Role::SharedCopy,
            ));
        }
    }
    list
}

/// A `[local vocab, hidden]` matrix, with the role `shared` where both ends have one.
fn word_embedding(shape: &ModelShape, name: &str, shared: Role) -> Parameter {
    let (rows, columns) = (shape.local_vocab(), shape.hidden_size);
    let partition = Partition::Rows { groups: 1 };
    let mut parameter = Parameter::matrix(name.to_string(), rows, columns, partition);
    if shape.copies_embedding() {
        parameter.role = shared;
    }
    parameter
}

fn norm_parameters(shape: &ModelShape, module: &str, list: &mut Vec<Parameter>) {
    let hidden = shape.hidden_size;
    let weight = format!("{module}.weight");
    list.push(Parameter::whole_vector(weight, hidden, Role::Gain));
    if shape.normalization == Normalization::LayerNorm {
        let bias = format!("{module}.bias");
        list.push(Parameter::whole_vector(bias, hidden, Role::Bias));
    }
}

fn layer_parameters(shape: &ModelShape, layer: u32, list: &mut Vec<Parameter>) {
    let (hidden, ffn) = (shape.hidden_size, shape.local_ffn());
    let named = |rest: &str| format!("decoder.layers.{layer}.{rest}");
    // Column-parallel, in `groups` blocks of rows; then row-parallel.
    let column = |module: &str, rows, groups, list: &mut Vec<Parameter>| {
        let weight = named(&format!("{module}.weight"));
        list.push(Parameter::matrix(
            weight,
            rows,
            hidden,
            Partition::Rows { groups },
        ));
        if shape.add_bias_linear {
            let bias = named(&format!("{module}.bias"));
            list.push(Parameter::split_bias(bias, rows, groups));
        }
    };
    let row = |module: &str, columns, list: &mut Vec<Parameter>| {
        let weight = named(&format!("{module}.weight"));
        list.push(Parameter::matrix(
            weight,
            hidden,
            columns,
            Partition::Columns,
        ));
        if shape.add_bias_linear {
            let bias = named(&format!("{module}.bias"));
            list.push(Parameter::whole_vector(bias, hidden, Role::Bias));
        }
    };
    let halves = shape.fc1_halves();
    let norm = |list: &mut Vec<Parameter>| norm_parameters(shape, &named("input_layernorm"), list);
    let qkv = |list: &mut Vec<Parameter>| {
        column("self_attention.linear_qkv", shape.local_qkv(), 1, list);
    };
    let proj = |list: &mut Vec<Parameter>| {
        row("self_attention.linear_proj", shape.local_width(), list);
    };
    match shape.module_order {
        ModuleOrder::TransformerEngine => {
            proj(list);
            norm(list);
            qkv(list);
        }
        ModuleOrder::Local => {
            norm(list);
            proj(list);
            qkv(list);
        }
        ModuleOrder::Computed => {
            norm(list);
            qkv(list);
            proj(list);
        }
    }
    norm_parameters(shape, &named("pre_mlp_layernorm"), list);
    column("mlp.linear_fc1", halves * ffn, halves, list);
    row("mlp.linear_fc2", ffn, list);
}

/// Parameters and the flat buffers that hold their values and their gradients.
#[derive(Clone, Debug)]
pub struct ParameterStore {
    pub parameters: Vec<Parameter>,
    /// First word of each parameter in the flat buffers.
    pub offsets: Vec<u32>,
    /// Of each parameter: the flat words whose gradients are summed and reduced together.
    pub buckets: Vec<Range<u32>>,
    /// `[flat length]`, in the model's type.
    pub values: Tensor,
    /// Bucket after bucket, `[microbatches, the bucket's words]` fp32: one slot a microbatch,
    /// summed by a fold.
    pub slots: Tensor,
}

impl ParameterStore {
    pub fn value(&self, id: ParameterId) -> Tensor {
        let place = id.0 as usize;
        self.values
            .slice(self.offsets[place], self.parameters[place].len())
    }

    /// Microbatches of a step: each has a slot of its own.
    pub fn microbatches(&self) -> u32 {
        self.slots.len / self.values.len
    }

    /// The parameters whose names begin with `module` and a dot, in order.
    pub fn of_module(&self, module: &str) -> Vec<ParameterId> {
        let begins = |parameter: &Parameter| {
            let rest = parameter.name.strip_prefix(module);
            rest.is_some_and(|rest| rest.starts_with('.'))
        };
        let places = (0..).zip(&self.parameters);
        let own = places.filter(|(_, parameter)| begins(parameter));
        own.map(|(place, _)| ParameterId(place)).collect()
    }

    /// Where the gradient of one microbatch goes.
    pub fn slot(&self, id: ParameterId, microbatch: u32) -> Tensor {
        let place = id.0 as usize;
        let bucket = &self.buckets[place];
        let microbatches = self.microbatches();
        let within = microbatch * (bucket.end - bucket.start) + self.offsets[place] - bucket.start;
        let start = microbatches * bucket.start + within;
        self.slots.slice(start, self.parameters[place].len())
    }

    /// The parameter with this name, if the stage has it.
    pub fn look_up(&self, name: &str) -> Option<ParameterId> {
        let mut names = self.parameters.iter();
        let place = names.position(|parameter| parameter.name == name)?;
        Some(ParameterId(place as u32))
    }

    /// The parameter with this name. Names come from `stage_parameters`, so it is there.
    pub fn find(&self, name: &str) -> ParameterId {
        self.look_up(name)
            .expect("a stage's modules only name the stage's parameters")
    }

    pub fn parameter(&self, id: ParameterId) -> &Parameter {
        &self.parameters[id.0 as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parameter(rows: u32, columns: u32, partition: Partition) -> Parameter {
        Parameter::matrix("w".to_string(), rows, columns, partition)
    }

    /// Every element of the whole tensor is held by exactly one rank, whatever the partition.
    #[test]
    fn shards_cover_the_whole_tensor_once() {
        for tp in [1, 2, 4] {
            for partition in [
                Partition::Rows { groups: 1 },
                Partition::Rows { groups: 2 },
                Partition::Columns,
            ] {
                let local = parameter(8, 6, partition);
                let mut seen = vec![0; (local.len() * tp) as usize];
                for rank in 0..tp {
                    for element in 0..local.len() {
                        seen[local.global_index(element, rank, tp) as usize] += 1;
                    }
                }
                assert!(
                    seen.iter().all(|count| *count == 1),
                    "{partition:?} over {tp}"
                );
            }
        }
    }

    #[test]
    fn gate_and_up_are_cut_apart() {
        // Whole [2 groups, 4 rows, 1 column]; rank 1 of 2 holds rows 2, 3 of each group.
        let local = parameter(4, 1, Partition::Rows { groups: 2 });
        let places: Vec<u64> = (0..4).map(|i| local.global_index(i, 1, 2)).collect();
        assert_eq!(places, [2, 3, 6, 7]);
    }
}
