//! A canonical state as a safetensors file.

use std::path::Path;

use super::{CanonicalState, Form, Generators};
use crate::train::checkpoint::component_named;
use crate::train::tensor_file::{CheckpointError, TensorFile, damaged};
use crate::world::Component;

const STEPS_KEY: &str = "bitproof.canonical.steps";
const TENSOR_KEY: &str = "bitproof.canonical.tensor_model_parallel_size";
const PIPELINE_KEY: &str = "bitproof.canonical.pipeline_model_parallel_size";

impl CanonicalState {
    /// Writes a safetensors file, aside and then renamed. Tensors are named `component/name`, RNG
    /// states `rng/stage/tensor rank/name`.
    ///
    /// # Errors
    /// Any failure of the file system.
    pub fn save(&self, path: &Path) -> Result<(), CheckpointError> {
        let mut file = TensorFile::default();
        let numbers = [
            (STEPS_KEY, self.steps),
            (TENSOR_KEY, self.generators.tensor),
            (PIPELINE_KEY, self.generators.pipeline),
        ];
        for (key, number) in numbers {
            file.metadata.insert(key.to_string(), number.to_string());
        }
        for ((component, name), tensor) in &self.tensors {
            let name = format!("{component}/{name}");
            file.tensors.insert(name, tensor.clone());
        }
        for ((stage, tensor_rank), states) in &self.generators.states {
            for (name, tensor) in states {
                let name = format!("{}/{stage}/{tensor_rank}/{name}", Component::Rng);
                file.tensors.insert(name, tensor.clone());
            }
        }
        file.save(path)
    }

    /// Reads what `save` wrote.
    ///
    /// # Errors
    /// A file that cannot be read, or that is not such a state.
    pub fn load(path: &Path) -> Result<CanonicalState, CheckpointError> {
        let file = TensorFile::load(path)?;
        let mut state = CanonicalState {
            steps: file.number(STEPS_KEY, path)?,
            tensors: Default::default(),
            generators: Generators {
                tensor: file.number(TENSOR_KEY, path)?,
                pipeline: file.number(PIPELINE_KEY, path)?,
                states: Default::default(),
            },
        };
        for (name, tensor) in file.tensors {
            let unknown = || damaged(path, format!("`{name}` is not component/name"));
            let (component, rest) = name.split_once('/').ok_or_else(unknown)?;
            let component = component_named(component).ok_or_else(unknown)?;
            if Form::of(component) == Form::Generator {
                let (place, rest) = generator_place(rest).ok_or_else(unknown)?;
                let states = state.generators.states.entry(place).or_default();
                states.insert(rest.to_string(), tensor);
            } else {
                state.tensors.insert((component, rest.to_string()), tensor);
            }
        }
        Ok(state)
    }
}

/// (stage, tensor rank) and the name after them.
fn generator_place(text: &str) -> Option<((u32, u32), &str)> {
    let (stage, rest) = text.split_once('/')?;
    let (tensor_rank, name) = rest.split_once('/')?;
    Some(((stage.parse().ok()?, tensor_rank.parse().ok()?), name))
}
