//! The training state in canonical form: whole tensors under Megatron-LM's names, whatever the
//! layout of the ranks that hold them.
//!
//! Two layouts have equal canonical states exactly if they train the same model from the same
//! point: tensor, pipeline and data parallelism, sharded optimizer state, buckets and padding are
//! all taken out. It is what a checkpoint of Megatron-LM's `torch_dist` format holds: whole
//! tensors by name, of which each rank writes and reads its part (`ShardedTensor`,
//! `megatron/core/dist_checkpointing/mapping.py`).
//!
//! - *model*: one tensor a parameter. Copies, of data-parallel ranks, of gains and biases that
//!   tensor-parallel ranks hold whole, of a matrix that two stages share, must agree.
//! - *main-params*, *exp-avg*, *exp-avg-sq*: one tensor a parameter, put together from the flat
//!   buffers, as Megatron-LM does with `--dist-ckpt-optim-fully-reshardable`.
//! - *rng*: one state for each (pipeline rank, tensor-parallel rank), as Megatron-LM shards it
//!   (`get_rng_state`, `megatron/training/checkpointing.py`). Where a run resumes with another
//!   tensor- or pipeline-parallel size it ignores them and starts with the seed's own states
//!   (`load_checkpoint`: "RNG state will be ignored"); so does [`CanonicalState::scatter`].
//! - all else, the optimizer's step and the data position: one cell, equal on all ranks.

mod compare;
mod file;
mod gather;
mod scatter;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use crate::numerics::Dtype;
use crate::train::options::TrainOptions;
use crate::world::{Component, StateTensor};

pub use compare::StateDifference;

/// All ranks' training state after `steps` steps, without their layout.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanonicalState {
    pub steps: u32,
    /// Parameters' tensors by the parameter's name, C order; cells by their own.
    tensors: BTreeMap<(Component, String), StateTensor>,
    generators: Generators,
}

/// Names and words of one rank's generators.
type GeneratorState = BTreeMap<String, StateTensor>;

/// RNG states by (pipeline rank, tensor-parallel rank), and the sizes of both.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Generators {
    pipeline: u32,
    tensor: u32,
    states: BTreeMap<(u32, u32), GeneratorState>,
}

/// How a component's tensors of one rank become the whole model's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// A tensor for each parameter of the rank.
    Parameters,
    /// One flat tensor over the parameters' owned words, of this name.
    Flat(&'static str),
    /// One state a (pipeline rank, tensor-parallel rank).
    Generator,
    /// The same on every rank.
    Single,
}

impl Form {
    fn of(component: Component) -> Form {
        match component {
            Component::Model => Form::Parameters,
            Component::MainParams => Form::Flat("main_params"),
            Component::ExpAvg => Form::Flat("exp_avg"),
            Component::ExpAvgSq => Form::Flat("exp_avg_sq"),
            Component::Rng => Form::Generator,
            _ => Form::Single,
        }
    }
}

/// State that is none of one layout.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CanonicalError {
    #[error(
        "{component} `{name}` differs between ranks {} and {} in element {element}",
        ranks.0, ranks.1
    )]
    Disagree {
        component: Component,
        name: String,
        /// Ranks of which each holds a copy.
        ranks: (u32, u32),
        /// Place in the whole tensor, C order.
        element: u64,
    },
    #[error("rank {rank} has no {component} `{name}`")]
    Missing {
        rank: u32,
        component: Component,
        name: String,
    },
    #[error("rank {rank} has {component} `{name}`, which its layout does not")]
    Unknown {
        rank: u32,
        component: Component,
        name: String,
    },
    #[error("{component} `{name}` of rank {rank} has {have} words, its layout {want}")]
    Length {
        rank: u32,
        component: Component,
        name: String,
        have: u64,
        want: u64,
    },
    #[error("{component} `{name}` has another type on rank {rank} than on a rank before it")]
    Type {
        rank: u32,
        component: Component,
        name: String,
    },
    #[error("no rank holds element {element} of {component} `{name}`")]
    Hole {
        component: Component,
        name: String,
        element: u64,
    },
}

impl CanonicalError {
    /// What it is about.
    pub fn tensor(&self) -> (Component, &str) {
        match self {
            CanonicalError::Disagree {
                component, name, ..
            }
            | CanonicalError::Missing {
                component, name, ..
            }
            | CanonicalError::Unknown {
                component, name, ..
            }
            | CanonicalError::Length {
                component, name, ..
            }
            | CanonicalError::Type {
                component, name, ..
            }
            | CanonicalError::Hole {
                component, name, ..
            } => (*component, name),
        }
    }
}

impl CanonicalState {
    pub fn tensor(&self, component: Component, name: &str) -> Option<&StateTensor> {
        self.tensors.get(&(component, name.to_string()))
    }

    /// The state with nothing of one component.
    pub fn without(&self, component: Component) -> CanonicalState {
        let mut less = self.clone();
        less.tensors.retain(|(of, _), _| *of != component);
        if Form::of(component) == Form::Generator {
            less.generators.states.clear();
        }
        less
    }

    /// The state with the tensors of one component that `other` has.
    pub fn with(&self, component: Component, other: &CanonicalState) -> CanonicalState {
        let mut mixed = self.without(component);
        let taken = other.tensors.iter().filter(|((of, _), _)| *of == component);
        let taken = taken.map(|(key, tensor)| (key.clone(), tensor.clone()));
        mixed.tensors.extend(taken);
        mixed
    }

    /// The state of a process that goes on at this sample.
    pub fn at_sample(&self, position: u32) -> CanonicalState {
        let mut other = self.clone();
        let key = (Component::DataPosition, "samples".to_string());
        if let Some(tensor) = other.tensors.get_mut(&key) {
            tensor.words = vec![position];
        }
        other
    }

    /// The state with the model's parameters rounded to another type.
    pub fn with_model_in(&self, dtype: Dtype) -> CanonicalState {
        let mut other = self.clone();
        let model = other.tensors.iter_mut();
        for (_, tensor) in model.filter(|((of, _), _)| *of == Component::Model) {
            let round = |word: &mut u32| *word = dtype.round(f32::from_bits(*word)).to_bits();
            tensor.words.iter_mut().for_each(round);
            tensor.dtype = dtype;
        }
        other
    }

    /// The state with another first element of one tensor; `None` where it has no such tensor.
    pub fn changed(&self, component: Component, name: &str) -> Option<CanonicalState> {
        let mut other = self.clone();
        let tensor = other.tensors.get_mut(&(component, name.to_string()))?;
        let word = tensor.words.first_mut()?;
        // One or two, of which every type has both.
        let (one, two) = (1f32.to_bits(), 2f32.to_bits());
        *word = if *word == two { one } else { two };
        Some(other)
    }

    /// The components that the state has anything of.
    pub fn components(&self) -> BTreeSet<Component> {
        let tensors = self.tensors.keys().map(|(component, _)| *component);
        let generators = self.generators.states.values();
        let has_generator = generators.flatten().next().is_some();
        tensors
            .chain(has_generator.then_some(Component::Rng))
            .collect()
    }

    /// The components that a run with `options` cannot take over: RNG states, where its tensor- or
    /// pipeline-parallel size is another.
    pub fn not_carried_to(&self, options: &TrainOptions) -> BTreeSet<Component> {
        let layout = &options.layout;
        let same = self.generators.tensor == layout.tensor_model_parallel_size
            && self.generators.pipeline == layout.pipeline_model_parallel_size;
        let mut left = self.components();
        left.retain(|component| Form::of(*component) == Form::Generator && !same);
        left
    }
}
