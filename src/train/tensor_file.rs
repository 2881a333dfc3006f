//! Named tensors and their metadata as one safetensors file.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

use safetensors::SafeTensors;
use safetensors::tensor::TensorView;

use crate::numerics::Dtype;
use crate::world::StateTensor;

/// Why a file of tensors could not be written or read.
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

/// What a file holds. bf16 and f16 tensors are packed bytes in it, and words here. Words that their
/// type does not hold, as a run with a fault can have them, are kept as they are, under a name that
/// ends in [`AS_WORDS`] and the type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TensorFile {
    pub metadata: BTreeMap<String, String>,
    pub tensors: BTreeMap<String, StateTensor>,
}

/// No tensor's own name has it.
const AS_WORDS: char = '#';

impl TensorFile {
    /// Writes the file aside and then renames it, so that no half of one is ever seen.
    pub fn save(&self, path: &Path) -> Result<(), CheckpointError> {
        let bytes = self.bytes(path)?;
        let aside = path.with_extension("partial");
        let write = || -> std::io::Result<()> {
            let mut file = std::fs::File::create(&aside)?;
            file.write_all(&bytes)?;
            file.sync_all()?;
            std::fs::rename(&aside, path)
        };
        write().map_err(|source| io_error(path, source))
    }

    /// Writes the file where it is, in a folder that has no final name yet.
    pub fn write(&self, path: &Path) -> Result<(), CheckpointError> {
        let bytes = self.bytes(path)?;
        std::fs::write(path, bytes).map_err(|source| io_error(path, source))
    }

    fn bytes(&self, path: &Path) -> Result<Vec<u8>, CheckpointError> {
        let packed = self.tensors.iter().map(|(name, tensor)| {
            let dtype = tensor.dtype;
            let bytes = bytes_of(dtype, &tensor.words);
            match dtype.wire_bytes() == 4 || unpacked_words(dtype, &bytes) == tensor.words {
                true => (name.clone(), dtype, bytes),
                false => {
                    let name = format!("{name}{AS_WORDS}{dtype}");
                    (name, Dtype::U32, bytes_of(Dtype::U32, &tensor.words))
                }
            }
        });
        let packed: Vec<(String, Dtype, Vec<u8>)> = packed.collect();
        let views = packed.iter().map(|(name, dtype, bytes)| {
            let count = bytes.len() / dtype.wire_bytes() as usize;
            let view = TensorView::new(file_dtype(*dtype), vec![count], bytes);
            (name, view.expect("bytes are whole elements"))
        });
        let metadata = self.metadata.clone().into_iter().collect();
        safetensors::serialize(views, Some(metadata)).map_err(|error| damaged(path, error))
    }

    /// Reads what `save` wrote.
    pub fn load(path: &Path) -> Result<TensorFile, CheckpointError> {
        let bytes = std::fs::read(path).map_err(|source| io_error(path, source))?;
        let (_, head) = SafeTensors::read_metadata(&bytes).map_err(|error| damaged(path, error))?;
        let metadata = head.metadata().clone().unwrap_or_default();
        let file = SafeTensors::deserialize(&bytes).map_err(|error| damaged(path, error))?;
        let mut tensors = BTreeMap::new();
        for (name, view) in file.tensors() {
            let other = || damaged(path, format!("`{name}` has the type {:?}", view.dtype()));
            let mut tensor = unpacked(&view).ok_or_else(other)?;
            let name = match name.split_once(AS_WORDS) {
                None => name,
                Some((own, dtype)) => {
                    tensor.dtype = half_type(dtype).ok_or_else(other)?;
                    own.to_string()
                }
            };
            tensors.insert(name, tensor);
        }
        Ok(TensorFile {
            metadata: metadata.into_iter().collect(),
            tensors,
        })
    }

    /// The number that the metadata have under `key`.
    pub fn number(&self, key: &str, path: &Path) -> Result<u32, CheckpointError> {
        let number = self.metadata.get(key).and_then(|text| text.parse().ok());
        number.ok_or_else(|| damaged(path, format!("no number under {key}")))
    }
}

pub(super) fn io_error(path: &Path, source: std::io::Error) -> CheckpointError {
    CheckpointError::Io {
        path: path.display().to_string(),
        source,
    }
}

pub(super) fn damaged(path: &Path, reason: impl std::fmt::Display) -> CheckpointError {
    CheckpointError::Damaged {
        path: path.display().to_string(),
        reason: reason.to_string(),
    }
}

/// A type of 16 bits, by its name.
fn half_type(name: &str) -> Option<Dtype> {
    let halves = [Dtype::Bf16, Dtype::F16];
    halves.into_iter().find(|dtype| dtype.to_string() == name)
}

fn bytes_of(dtype: Dtype, words: &[u32]) -> Vec<u8> {
    let words = words.iter();
    let float = |word: &u32| f32::from_bits(*word);
    match dtype {
        Dtype::F32 | Dtype::U32 => words.flat_map(|word| word.to_le_bytes()).collect(),
        Dtype::Bf16 => words
            .flat_map(|word| half::bf16::from_f32(float(word)).to_le_bytes())
            .collect(),
        Dtype::F16 => words
            .flat_map(|word| half::f16::from_f32(float(word)).to_le_bytes())
            .collect(),
    }
}

fn unpacked(view: &TensorView<'_>) -> Option<StateTensor> {
    let dtype = match view.dtype() {
        safetensors::Dtype::F32 => Dtype::F32,
        safetensors::Dtype::U32 => Dtype::U32,
        safetensors::Dtype::BF16 => Dtype::Bf16,
        safetensors::Dtype::F16 => Dtype::F16,
        _ => return None,
    };
    let words = unpacked_words(dtype, view.data());
    Some(StateTensor { dtype, words })
}

fn unpacked_words(dtype: Dtype, data: &[u8]) -> Vec<u32> {
    let narrow = || data.chunks_exact(2).map(|b| [b[0], b[1]]);
    match dtype {
        Dtype::F32 | Dtype::U32 => {
            let wide = data.chunks_exact(4);
            wide.map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect()
        }
        Dtype::Bf16 => narrow()
            .map(|b| half::bf16::from_le_bytes(b).to_f32().to_bits())
            .collect(),
        Dtype::F16 => narrow()
            .map(|b| half::f16::from_le_bytes(b).to_f32().to_bits())
            .collect(),
    }
}

fn file_dtype(dtype: Dtype) -> safetensors::Dtype {
    match dtype {
        Dtype::F32 => safetensors::Dtype::F32,
        Dtype::Bf16 => safetensors::Dtype::BF16,
        Dtype::F16 => safetensors::Dtype::F16,
        Dtype::U32 => safetensors::Dtype::U32,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Unwritten memory, and sums that a lost cast left as they were.
    #[test]
    fn words_that_their_type_does_not_hold_are_kept() {
        let tensor = |dtype, words: &[u32]| StateTensor {
            dtype,
            words: words.to_vec(),
        };
        let odd = [u32::MAX, 0x3f80_0001, 0x7fc0_0001, 0x3f80_0000];
        let file = TensorFile {
            metadata: BTreeMap::new(),
            tensors: BTreeMap::from([
                ("0/model/a".to_string(), tensor(Dtype::Bf16, &odd)),
                ("0/model/b".to_string(), tensor(Dtype::F16, &odd)),
                ("0/model/c".to_string(), tensor(Dtype::Bf16, &[0xbf80_0000])),
                ("0/rng/d".to_string(), tensor(Dtype::U32, &odd)),
            ]),
        };
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("file.safetensors");
        file.save(&path).expect("it is written");
        assert_eq!(TensorFile::load(&path).expect("it is read"), file);
    }
}
