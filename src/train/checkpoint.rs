//! The training state of all ranks, in memory and as a safetensors file.

use std::collections::BTreeMap;
use std::path::Path;

use crate::train::tensor_file::{CheckpointError, TensorFile, damaged};
use crate::world::{Component, State, StateTensor};

/// The one metadata key of a checkpoint: the number of steps that were done.
pub(super) const STEPS_KEY: &str = "bitproof.steps";

/// One rank's tensors, as words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankState {
    tensors: BTreeMap<(Component, String), StateTensor>,
}

impl RankState {
    pub fn get(&self, component: Component, name: &str) -> Option<&[u32]> {
        self.tensor(component, name)
            .map(|tensor| tensor.words.as_slice())
    }

    pub fn tensor(&self, component: Component, name: &str) -> Option<&StateTensor> {
        self.tensors.get(&(component, name.to_string()))
    }

    /// Puts a tensor in, in the place of one of the same name.
    pub fn insert(&mut self, component: Component, name: &str, tensor: StateTensor) {
        self.tensors.insert((component, name.to_string()), tensor);
    }

    /// Every tensor by (component, name), ascending.
    pub fn tensors(&self) -> impl Iterator<Item = (Component, &str, &StateTensor)> {
        let entries = self.tensors.iter();
        entries.map(|((component, name), tensor)| (*component, name.as_str(), tensor))
    }
}

/// All ranks' state after `steps` steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    pub steps: u32,
    ranks: BTreeMap<u32, RankState>,
}

impl Checkpoint {
    pub fn new(steps: u32, ranks: BTreeMap<u32, RankState>) -> Checkpoint {
        Checkpoint { steps, ranks }
    }

    /// The state that a run kept after `steps` steps, without the `omitted` components.
    pub fn from_state(steps: u32, state: &State, omitted: &[Component]) -> Checkpoint {
        let mut ranks: BTreeMap<u32, RankState> = BTreeMap::new();
        for ((rank, component, name), tensor) in state {
            let kept = ranks.entry(*rank).or_default();
            if !omitted.contains(component) {
                kept.insert(*component, name, tensor.clone());
            }
        }
        Checkpoint { steps, ranks }
    }

    pub fn rank(&self, rank: u32) -> Option<&RankState> {
        self.ranks.get(&rank)
    }

    /// Writes a safetensors file, aside and then renamed, so that no half of one is ever seen.
    /// Tensors are named `rank/component/name`; bf16 and f16 ones hold packed bytes.
    ///
    /// # Errors
    /// Any failure of the file system.
    pub fn save(&self, path: &Path) -> Result<(), CheckpointError> {
        let mut file = TensorFile::default();
        let steps = self.steps.to_string();
        file.metadata.insert(STEPS_KEY.to_string(), steps);
        for (rank, state) in &self.ranks {
            for (component, name, tensor) in state.tensors() {
                let name = format!("{rank}/{component}/{name}");
                file.tensors.insert(name, tensor.clone());
            }
        }
        file.save(path)
    }

    /// Reads what `save` wrote.
    ///
    /// # Errors
    /// A file that cannot be read, or that is not such a checkpoint.
    pub fn load(path: &Path) -> Result<Checkpoint, CheckpointError> {
        Checkpoint::of_file(&TensorFile::load(path)?, path)
    }

    /// What a file holds: of all ranks, or of one.
    pub(super) fn of_file(file: &TensorFile, path: &Path) -> Result<Checkpoint, CheckpointError> {
        let steps = file.number(STEPS_KEY, path)?;
        let mut ranks: BTreeMap<u32, RankState> = BTreeMap::new();
        for (name, tensor) in &file.tensors {
            let (rank, component, name) = split_name(name)
                .ok_or_else(|| damaged(path, format!("`{name}` is not rank/component/name")))?;
            ranks
                .entry(rank)
                .or_default()
                .insert(component, name, tensor.clone());
        }
        Ok(Checkpoint { steps, ranks })
    }

    /// Every rank's state, ascending.
    pub fn ranks(&self) -> impl Iterator<Item = (u32, &RankState)> {
        self.ranks.iter().map(|(rank, state)| (*rank, state))
    }

    /// Takes the ranks of another part of the same checkpoint in.
    pub(super) fn join(&mut self, part: Checkpoint) {
        self.ranks.extend(part.ranks);
    }
}

fn split_name(name: &str) -> Option<(u32, Component, &str)> {
    let (rank, rest) = name.split_once('/')?;
    let (component, name) = rest.split_once('/')?;
    Some((rank.parse().ok()?, component_named(component)?, name))
}

/// The component that files call `name`.
pub(super) fn component_named(name: &str) -> Option<Component> {
    let mut components = Component::ALL.into_iter();
    components.find(|known| known.name() == name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numerics::Dtype;

    fn state() -> State {
        let mut state = State::new();
        let mut put = |rank, component, name: &str, dtype, words: &[u32]| {
            let tensor = StateTensor {
                dtype,
                words: words.to_vec(),
            };
            state.insert((rank, component, name.to_string()), tensor);
        };
        let half = [1.5f32.to_bits(), (-0.0f32).to_bits()];
        put(0, Component::Model, "a.weight", Dtype::Bf16, &half);
        put(0, Component::Rng, "rng", Dtype::U32, &[1, u32::MAX, 3, 4]);
        put(
            1,
            Component::MainParams,
            "main_params",
            Dtype::F32,
            &[0.1f32.to_bits()],
        );
        state
    }

    #[test]
    fn a_file_gives_the_same_state_back() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("step2.safetensors");
        let checkpoint = Checkpoint::from_state(2, &state(), &[]);
        checkpoint.save(&path).unwrap();
        assert_eq!(Checkpoint::load(&path).unwrap(), checkpoint);
        assert_eq!(
            std::fs::read_dir(folder.path()).unwrap().count(),
            1,
            "nothing left aside"
        );
    }

    #[test]
    fn omitted_components_are_left_out_and_only_they() {
        let checkpoint = Checkpoint::from_state(2, &state(), &[Component::Rng]);
        let rank = checkpoint.rank(0).unwrap();
        assert_eq!(rank.get(Component::Rng, "rng"), None);
        assert_eq!(rank.get(Component::Model, "a.weight").unwrap().len(), 2);
    }

    #[test]
    fn damage_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("c.safetensors");
        Checkpoint::from_state(2, &state(), &[])
            .save(&path)
            .unwrap();
        let bytes = std::fs::read(&path).unwrap();
        for length in [0, 4, 20, bytes.len() - 1] {
            std::fs::write(&path, &bytes[..length]).unwrap();
            assert!(matches!(
                Checkpoint::load(&path),
                Err(CheckpointError::Damaged { .. })
            ));
        }
    }
}
