//! The parameters of one rank: names, shapes, how each is cut out of the whole model's, and where
//! each lies in the flat buffers.

use crate::model::shape::ModelShape;
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

/// One parameter, as this rank holds it: `[rows, columns]`, C order. A gain has one row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parameter {
    /// Megatron-LM's name, with the layer's number in the whole model.
    pub name: String,
    pub rows: u32,
    pub columns: u32,
    pub partition: Partition,
    /// Weight decay applies: tensors of two dimensions.
    pub decays: bool,
}

impl Parameter {
    pub fn len(&self) -> u32 {
        self.rows * self.columns
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
        }
    }

    fn gain(name: String, columns: u32) -> Parameter {
        Parameter {
            name,
            rows: 1,
            columns,
            partition: Partition::Replicated,
            decays: false,
        }
    }
}

/// A parameter's place in the stage's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ParameterId(pub u32);

/// The parameters of pipeline stage `stage`, in the order the modules are built.
pub fn stage_parameters(shape: &ModelShape, stage: u32) -> Vec<Parameter> {
    let hidden = shape.hidden_size;
    let rows = |groups| Partition::Rows { groups };
    let mut list = Vec::new();
    if stage == 0 {
        let name = "embedding.word_embeddings.weight".to_string();
        list.push(Parameter::matrix(
            name,
            shape.local_vocab(),
            hidden,
            rows(1),
        ));
    }
    let first = stage * shape.layers_per_stage();
    for layer in first..first + shape.layers_per_stage() {
        let named = |rest: &str| format!("decoder.layers.{layer}.{rest}.weight");
        let (width, ffn) = (shape.local_width(), shape.local_ffn());
        list.push(Parameter::gain(named("input_layernorm"), hidden));
        list.push(Parameter::matrix(
            named("self_attention.linear_qkv"),
            3 * width,
            hidden,
            rows(1),
        ));
        let proj = named("self_attention.linear_proj");
        list.push(Parameter::matrix(proj, hidden, width, Partition::Columns));
        list.push(Parameter::gain(named("pre_mlp_layernorm"), hidden));
        list.push(Parameter::matrix(
            named("mlp.linear_fc1"),
            2 * ffn,
            hidden,
            rows(2),
        ));
        list.push(Parameter::matrix(
            named("mlp.linear_fc2"),
            hidden,
            ffn,
            Partition::Columns,
        ));
    }
    if stage + 1 == shape.pipeline_model_parallel_size {
        list.push(Parameter::gain(
            "decoder.final_layernorm.weight".to_string(),
            hidden,
        ));
        let head = "output_layer.weight".to_string();
        list.push(Parameter::matrix(
            head,
            shape.local_vocab(),
            hidden,
            rows(1),
        ));
    }
    list
}

/// Parameters and the flat buffers that hold their values and their gradients.
#[derive(Clone, Debug)]
pub struct ParameterStore {
    pub parameters: Vec<Parameter>,
    /// First word of each parameter in the flat buffers.
    pub offsets: Vec<u32>,
    /// `[flat length]`, in the model's type.
    pub values: Tensor,
    /// `[microbatches, flat length]` fp32: one slot a microbatch, summed by a fold.
    pub slots: Tensor,
}

impl ParameterStore {
    pub fn value(&self, id: ParameterId) -> Tensor {
        let place = id.0 as usize;
        self.values
            .slice(self.offsets[place], self.parameters[place].len())
    }

    /// Where the gradient of one microbatch goes.
    pub fn slot(&self, id: ParameterId, microbatch: u32) -> Tensor {
        let place = id.0 as usize;
        let start = microbatch * self.values.len + self.offsets[place];
        self.slots.slice(start, self.parameters[place].len())
    }

    /// The parameter with this name. Names come from `stage_parameters`, so it is there.
    pub fn find(&self, name: &str) -> ParameterId {
        let place = self
            .parameters
            .iter()
            .position(|parameter| parameter.name == name);
        ParameterId(place.expect("a stage's modules only name the stage's parameters") as u32)
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
