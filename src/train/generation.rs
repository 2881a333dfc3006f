//! Checkpoints on disk, laid out as Megatron-LM does (`megatron/training/checkpointing.py`): a
//! folder an iteration, a file a rank in it, and a tracker that names the latest iteration and is
//! written last.
//!
//! A folder is written aside and then renamed as a whole, and so is the tracker: a process that is
//! killed leaves nothing half-written under a final name. All files of a folder bear the digest
//! of one state, so that a file that an earlier save left behind is refused (NVIDIA-NeMo/
//! Megatron-Bridge#5604: a root that was used again by fewer ranks).

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::numerics::Digest;
use crate::train::checkpoint::{Checkpoint, STEPS_KEY};
use crate::train::tensor_file::{CheckpointError, TensorFile, damaged, io_error};

/// Megatron-LM's `get_checkpoint_tracker_filename`.
const TRACKER: &str = "latest_checkpointed_iteration.txt";
const GENERATION_KEY: &str = "bitproof.generation";
const RANKS_KEY: &str = "bitproof.ranks";

/// A folder that checkpoints are saved in.
#[derive(Clone, Debug)]
pub struct CheckpointRoot(PathBuf);

impl CheckpointRoot {
    pub fn new(path: &Path) -> CheckpointRoot {
        CheckpointRoot(path.to_path_buf())
    }

    /// Saves a generation, in the place of one of the same iteration, and then names it. While an
    /// older one is taken away, no tracker names it.
    ///
    /// # Errors
    /// Any failure of the file system.
    pub fn save(&self, checkpoint: &Checkpoint) -> Result<(), CheckpointError> {
        let (folder, aside) = (self.folder(checkpoint.steps), self.aside(checkpoint.steps));
        if folder.exists() {
            self.forget()?;
        }
        for stale in [&aside, &folder] {
            if stale.exists() {
                fs::remove_dir_all(stale).map_err(|source| io_error(stale, source))?;
            }
        }
        fs::create_dir_all(&aside).map_err(|source| io_error(&aside, source))?;
        let generation = generation(checkpoint);
        let ranks = checkpoint.ranks().count();
        for (rank, state) in checkpoint.ranks() {
            let mut file = TensorFile::default();
            let entries = [
                (STEPS_KEY, checkpoint.steps.to_string()),
                (GENERATION_KEY, generation.clone()),
                (RANKS_KEY, ranks.to_string()),
            ];
            for (key, value) in entries {
                file.metadata.insert(key.to_string(), value);
            }
            for (component, name, tensor) in state.tensors() {
                let name = format!("{rank}/{component}/{name}");
                file.tensors.insert(name, tensor.clone());
            }
            file.write(&aside.join(file_name(rank)))?;
        }
        fs::rename(&aside, &folder).map_err(|source| io_error(&folder, source))?;
        self.track(checkpoint.steps)
    }

    /// Names no iteration any more: before what it names is taken away.
    ///
    /// # Errors
    /// Any failure of the file system.
    pub fn forget(&self) -> Result<(), CheckpointError> {
        let path = self.0.join(TRACKER);
        match fs::remove_file(&path) {
            Err(source) if source.kind() != std::io::ErrorKind::NotFound => {
                Err(io_error(&path, source))
            }
            _ => Ok(()),
        }
    }

    /// Names the latest iteration.
    fn track(&self, steps: u32) -> Result<(), CheckpointError> {
        let (path, aside) = (
            self.0.join(TRACKER),
            self.0.join(format!("{TRACKER}.partial")),
        );
        let write = || -> std::io::Result<()> {
            let mut file = fs::File::create(&aside)?;
            file.write_all(steps.to_string().as_bytes())?;
            file.sync_all()?;
            fs::rename(&aside, &path)?;
            fs::File::open(&self.0)?.sync_all()
        };
        write().map_err(|source| io_error(&path, source))
    }

    /// The generation that the tracker names.
    ///
    /// # Errors
    /// A root without a tracker, files that are missing, damaged, or of another generation.
    pub fn load(&self) -> Result<Checkpoint, CheckpointError> {
        let tracker = self.0.join(TRACKER);
        let text = fs::read_to_string(&tracker).map_err(|source| io_error(&tracker, source))?;
        let steps: u32 = text
            .trim()
            .parse()
            .map_err(|_| damaged(&tracker, "it names no iteration"))?;
        let folder = self.folder(steps);
        let mut joined: Option<(Checkpoint, TensorFile)> = None;
        let mut rank = 0;
        loop {
            let path = folder.join(file_name(rank));
            let file = TensorFile::load(&path)?;
            let part = Checkpoint::of_file(&file, &path)?;
            let (checkpoint, first) = match joined.take() {
                None => (part, file),
                Some((mut checkpoint, first)) => {
                    if file.metadata != first.metadata {
                        let reason = "it is of another generation than rank 0's file";
                        return Err(damaged(&path, reason));
                    }
                    checkpoint.join(part);
                    (checkpoint, first)
                }
            };
            rank += 1;
            if rank == first.number(RANKS_KEY, &path)? {
                if checkpoint.steps != steps {
                    return Err(damaged(&path, format!("it is not of iteration {steps}")));
                }
                let asked = first.metadata.get(GENERATION_KEY);
                return match asked == Some(&generation(&checkpoint)) {
                    true => Ok(checkpoint),
                    false => Err(damaged(&folder, "its bytes are not those that were saved")),
                };
            }
            joined = Some((checkpoint, first));
        }
    }

    fn folder(&self, steps: u32) -> PathBuf {
        self.0.join(format!("iter_{steps:07}"))
    }

    fn aside(&self, steps: u32) -> PathBuf {
        self.0.join(format!("iter_{steps:07}.partial"))
    }
}

fn file_name(rank: u32) -> String {
    format!("rank_{rank:05}.safetensors")
}

/// A digest of everything that the generation holds.
fn generation(checkpoint: &Checkpoint) -> String {
    let mut all = Digest::of_bytes(&checkpoint.steps.to_le_bytes());
    for (rank, state) in checkpoint.ranks() {
        all = all.then(Digest::of_bytes(&rank.to_le_bytes()));
        for (component, name, tensor) in state.tensors() {
            let bytes: Vec<u8> = tensor.words.iter().flat_map(|w| w.to_le_bytes()).collect();
            let label = format!("{component}/{name}/{}", tensor.dtype);
            all = all.then(Digest::of_bytes(label.as_bytes()));
            all = all.then(Digest::of_bytes(&bytes));
        }
    }
    all.0.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::fault::Component;
    use crate::numerics::Dtype;
    use crate::train::checkpoint::RankState;
    use crate::world::StateTensor;

    fn checkpoint(steps: u32, ranks: u32, word: u32) -> Checkpoint {
        let state = |rank: u32| {
            let mut state = RankState::default();
            let tensor = StateTensor {
                dtype: Dtype::U32,
                words: vec![word, rank],
            };
            state.insert(Component::DataPosition, "samples", tensor);
            (rank, state)
        };
        Checkpoint::new(steps, (0..ranks).map(state).collect::<BTreeMap<_, _>>())
    }

    #[test]
    fn the_latest_generation_is_loaded_whole() {
        let folder = tempfile::tempdir().unwrap();
        let root = CheckpointRoot::new(folder.path());
        assert!(root.load().is_err(), "there is no tracker");
        for (steps, ranks, word) in [(1, 4, 7), (2, 4, 8), (2, 2, 9)] {
            let saved = checkpoint(steps, ranks, word);
            root.save(&saved).unwrap();
            assert_eq!(root.load().unwrap(), saved);
        }
        assert!(!folder.path().join("iter_0000002.partial").exists());
    }

    /// A process that is killed, or a machine that loses what it had not written to its disk: each
    /// file, and the tracker, may end at any byte. What is loaded then is a whole generation.
    #[test]
    fn a_save_that_ends_at_any_byte_is_refused_or_whole() {
        let folder = tempfile::tempdir().unwrap();
        let root = CheckpointRoot::new(folder.path());
        let saved = [checkpoint(1, 2, 6), checkpoint(12, 2, 7)];
        saved.iter().for_each(|one| root.save(one).unwrap());
        let names = [0, 1].map(|rank| root.folder(12).join(file_name(rank)));
        let (mut refused, mut loaded) = (0, 0);
        for path in names.into_iter().chain([folder.path().join(TRACKER)]) {
            let bytes = fs::read(&path).unwrap();
            for length in 0..=bytes.len() {
                fs::write(&path, &bytes[..length]).unwrap();
                match root.load() {
                    Ok(found) => {
                        assert!(saved.contains(&found), "{path:?} of {length} bytes");
                        loaded += 1;
                    }
                    Err(_) => refused += 1,
                }
            }
        }
        // The whole files, and a tracker that still names iteration 1.
        assert_eq!(loaded, 4);
        assert!(refused > 200, "{refused}");
    }

    /// The negative control of the digest: lengths and types are right, and a word is another.
    #[test]
    fn other_bytes_than_were_saved_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = CheckpointRoot::new(folder.path());
        root.save(&checkpoint(2, 2, 7)).unwrap();
        let path = root.folder(2).join(file_name(1));
        let sound = fs::read(&path).unwrap();
        for bit in 0..8 {
            let mut bytes = sound.clone();
            *bytes.last_mut().unwrap() ^= 1 << bit;
            fs::write(&path, bytes).unwrap();
            let refused = root.load().unwrap_err().to_string();
            assert!(refused.contains("not those that were saved"), "{refused}");
        }
        fs::write(&path, sound).unwrap();
        assert_eq!(root.load().unwrap(), checkpoint(2, 2, 7));
    }

    /// A file that an earlier save with more ranks left behind is not taken for one of this save.
    #[test]
    fn mixed_generations_are_refused() {
        let folder = tempfile::tempdir().unwrap();
        let root = CheckpointRoot::new(folder.path());
        root.save(&checkpoint(3, 4, 7)).unwrap();
        let name = file_name(2);
        let kept = fs::read(root.folder(3).join(&name)).unwrap();
        root.save(&checkpoint(3, 4, 8)).unwrap();
        fs::write(root.folder(3).join(&name), kept).unwrap();
        let refused = root.load().unwrap_err().to_string();
        assert!(refused.contains("another generation"), "{refused}");
        fs::remove_file(root.folder(3).join(&name)).unwrap();
        assert!(matches!(root.load(), Err(CheckpointError::Io { .. })));
    }
}
