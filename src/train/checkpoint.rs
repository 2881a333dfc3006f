//! The training state of all ranks, in memory and as a safetensors file.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

use crate::numerics::Dtype;
use crate::world::{Component, State, StateTensor};

/// The one metadata key of a checkpoint: the number of steps that were done.
const STEPS_KEY: &str = "bitproof.steps";

/// One rank's tensors, as words.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankState {
    tensors: BTreeMap<(Component, String), StateTensor>,
}

impl RankState {
    pub fn get(&self, component: Component, name: &str) -> Option<&[u32]> {
        let key = (component, name.to_string());
        self.tensors.get(&key).map(|tensor| tensor.words.as_slice())
    }
}

/// All ranks' state after `steps` steps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    pub steps: u32,
    ranks: BTreeMap<u32, RankState>,
}

/// Why a checkpoint could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CheckpointError {
    #[error("{path}: {source}")]
    Io {
        path: String,
        source: std::io::Error,
    },
    #[error("{path} is not a checkpoint: {reason}")]
    Damaged { path: String, reason: String },
}

impl Checkpoint {
    /// The state that a run kept after `steps` steps, without the `omitted` components.
    pub fn from_state(steps: u32, state: &State, omitted: &[Component]) -> Checkpoint {
        let mut ranks: BTreeMap<u32, RankState> = BTreeMap::new();
        for ((rank, component, name), tensor) in state {
            let kept = ranks.entry(*rank).or_default();
            if !omitted.contains(component) {
                kept.tensors
                    .insert((*component, name.clone()), tensor.clone());
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
        let packed: Vec<(String, Dtype, Vec<u8>)> = self
            .ranks
            .iter()
            .flat_map(|(rank, state)| state.tensors.iter().map(move |entry| pack(*rank, entry)))
            .collect();
        let views = packed.iter().map(|(name, dtype, bytes)| {
            let count = bytes.len() / dtype.wire_bytes() as usize;
            let view = TensorView::new(file_dtype(*dtype), vec![count], bytes);
            (name.as_str(), view.expect("bytes are whole elements"))
        });
        let metadata = [(STEPS_KEY.to_string(), self.steps.to_string())];
        let bytes = safetensors::serialize(views, Some(metadata.into_iter().collect()))
            .map_err(|error| damaged(path, error))?;
        let aside = path.with_extension("partial");
        let write = || -> std::io::Result<()> {
            let mut file = std::fs::File::create(&aside)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            std::fs::rename(&aside, path)
        };
        write().map_err(|source| io_error(path, source))
    }

    /// Reads what `save` wrote.
    ///
    /// # Errors
    /// A file that cannot be read, or that is not such a checkpoint.
    pub fn load(path: &Path) -> Result<Checkpoint, CheckpointError> {
        let bytes = std::fs::read(path).map_err(|source| io_error(path, source))?;
        let (_, metadata) =
            SafeTensors::read_metadata(&bytes).map_err(|error| damaged(path, error))?;
        let steps = metadata
            .metadata()
            .as_ref()
            .and_then(|keys| keys.get(STEPS_KEY));
        let steps = steps.and_then(|steps| steps.parse().ok());
        let steps = steps.ok_or_else(|| damaged(path, format!("no number under {STEPS_KEY}")))?;
        let file = SafeTensors::deserialize(&bytes).map_err(|error| damaged(path, error))?;
        let mut ranks: BTreeMap<u32, RankState> = BTreeMap::new();
        for (name, view) in file.tensors() {
            let (rank, component, name) = split_name(&name)
                .ok_or_else(|| damaged(path, format!("`{name}` is not rank/component/name")))?;
            let tensor = unpack(&view).ok_or_else(|| {
                damaged(path, format!("`{name}` has the type {:?}", view.dtype()))
            })?;
            ranks
                .entry(rank)
                .or_default()
                .tensors
                .insert((component, name), tensor);
        }
        Ok(Checkpoint { steps, ranks })
    }
}

fn io_error(path: &Path, source: std::io::Error) -> CheckpointError {
    CheckpointError::Io {
        path: path.display().to_string(),
        source,
    }
}

fn damaged(path: &Path, reason: impl std::fmt::Display) -> CheckpointError {
    CheckpointError::Damaged {
        path: path.display().to_string(),
        reason: reason.to_string(),
    }
}

fn pack(
    rank: u32,
    ((component, name), tensor): (&(Component, String), &StateTensor),
) -> (String, Dtype, Vec<u8>) {
    let float = |word: &u32| f32::from_bits(*word);
    let bytes = match tensor.dtype {
        Dtype::F32 | Dtype::U32 => tensor.words.iter().flat_map(|w| w.to_le_bytes()).collect(),
        Dtype::Bf16 => tensor
            .words
            .iter()
            .flat_map(|w| half::bf16::from_f32(float(w)).to_le_bytes())
            .collect(),
        Dtype::F16 => tensor
            .words
            .iter()
            .flat_map(|w| half::f16::from_f32(float(w)).to_le_bytes())
            .collect(),
    };
    (
        format!("{rank}/{}/{name}", component.name()),
        tensor.dtype,
        bytes,
    )
}

fn unpack(view: &TensorView<'_>) -> Option<StateTensor> {
    let data = view.data();
    let wide = || {
        data.chunks_exact(4)
            .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
    };
    let narrow = || data.chunks_exact(2).map(|b| [b[0], b[1]]);
    let (dtype, words) = match view.dtype() {
        safetensors::Dtype::F32 => (Dtype::F32, wide().collect()),
        safetensors::Dtype::U32 => (Dtype::U32, wide().collect()),
        safetensors::Dtype::BF16 => (
            Dtype::Bf16,
            narrow()
                .map(|b| half::bf16::from_le_bytes(b).to_f32().to_bits())
                .collect(),
        ),
        safetensors::Dtype::F16 => (
            Dtype::F16,
            narrow()
                .map(|b| half::f16::from_le_bytes(b).to_f32().to_bits())
                .collect(),
        ),
        _ => return None,
    };
    Some(StateTensor { dtype, words })
}

fn file_dtype(dtype: Dtype) -> safetensors::Dtype {
    match dtype {
        Dtype::F32 => safetensors::Dtype::F32,
        Dtype::Bf16 => safetensors::Dtype::BF16,
        Dtype::F16 => safetensors::Dtype::F16,
        Dtype::U32 => safetensors::Dtype::U32,
    }
}

fn split_name(name: &str) -> Option<(u32, Component, String)> {
    let mut parts = name.splitn(3, '/');
    let rank = parts.next()?.parse().ok()?;
    let component = parts.next()?;
    let mut components = Component::ALL.into_iter();
    let component = components.find(|known| known.name() == component)?;
    Some((rank, component, parts.next()?.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

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
