//! Tensors that ranks have captured, a file each: safetensors, or the bytes alone.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

use safetensors::SafeTensors;

use crate::diagnostic::{Diagnostic, Place, Source, escaped, nearest, open_regular};
use crate::numerics::Dtype;

/// Bytes of the largest file that is read.
pub const SHARD_BYTES_MAX: u64 = 4 << 30;
/// Bytes of all tensors of a folder that are held at once, as words of four.
const FOLDER_BYTES_MAX: u64 = 32 << 30;
/// Files of the largest folder.
const FILES_MAX: usize = 100_000;

/// How tensors are found in files.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// The type of files without a header.
    pub dtype: Option<Dtype>,
    /// The tensor's name, where a file has several.
    pub tensor: Option<String>,
}

/// One tensor, its shape left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shard {
    pub dtype: Dtype,
    /// Bits of f32, each a value of the type.
    pub words: Vec<u32>,
}

/// The tensors of a folder, by rank: the last number in a file's name, from 0 without a gap.
///
/// # Errors
/// What is wrong with the folder or a file in it, by name.
pub fn read_folder(folder: &Path, wanted: &Wanted) -> Result<Vec<Shard>, Box<Diagnostic>> {
    let mut shards: Vec<Shard> = Vec::new();
    let mut bytes = 0;
    each(folder, wanted, &mut |_, shard, path| {
        bytes += 4 * shard.words.len() as u64;
        if bytes > FOLDER_BYTES_MAX {
            let message = format!("more than {} GiB with those before", FOLDER_BYTES_MAX >> 30);
            return Err(finding("too-large", &message, path));
        }
        shards.push(shard);
        Ok(())
    })?;
    Ok(shards)
}

/// Reads one tensor after the other, and keeps none. All have the type and size of the first.
///
/// # Errors
/// As for [`read_folder`], and what `see` says.
pub fn each(folder: &Path, wanted: &Wanted, see: &mut See<'_>) -> Result<(), Box<Diagnostic>> {
    let mut first = None;
    for (rank, path) in by_rank(folder)? {
        let shard = read_file(&path, wanted)?;
        let own = (shard.dtype, shard.words.len());
        let (dtype, elements) = *first.get_or_insert(own);
        if own != (dtype, elements) {
            let message = format!(
                "{} elements of {}, rank 0 has {elements} of {dtype}",
                own.1, own.0
            );
            return Err(finding("unequal-shards", &message, &path));
        }
        see(rank, shard, &path)?;
    }
    Ok(())
}

/// What is done with each rank's tensor.
pub type See<'a> = dyn FnMut(u64, Shard, &Path) -> Result<(), Box<Diagnostic>> + 'a;

fn by_rank(folder: &Path) -> Result<BTreeMap<u64, PathBuf>, Box<Diagnostic>> {
    let unreadable = |error: std::io::Error| finding("unreadable-file", &error.to_string(), folder);
    let entries = std::fs::read_dir(folder).map_err(unreadable)?;
    let mut files: BTreeMap<u64, PathBuf> = BTreeMap::new();
    for (number, entry) in entries.enumerate() {
        if number >= FILES_MAX {
            let message = format!("more than {FILES_MAX} files");
            return Err(finding("too-many", &message, folder));
        }
        let path = entry.map_err(unreadable)?.path();
        if !is_tensor_file(&path) {
            continue;
        }
        let Some(rank) = last_number(&path) else {
            let message = "no rank in the file's name: expected a number, as in rank_0.bin";
            return Err(finding("no-rank", message, &path));
        };
        if let Some(other) = files.insert(rank, path.clone()) {
            let message = format!("rank {rank} is also in `{}`", other.display());
            return Err(finding("two-of-a-rank", &message, &path));
        }
    }
    if files.is_empty() {
        let message = "no tensors: expected a file a rank, .safetensors or .bin";
        return Err(finding("no-shards", message, folder));
    }
    let gap = (0..).zip(files.keys()).find(|(rank, found)| rank != *found);
    if let Some((rank, _)) = gap {
        let message = format!("rank {rank} has no file, and others have: ranks are counted from 0");
        return Err(finding("no-such-rank", &message, folder));
    }
    Ok(files)
}

fn is_tensor_file(path: &Path) -> bool {
    let ending = path.extension().and_then(|ending| ending.to_str());
    matches!(ending, Some("safetensors" | "bin"))
}

/// The last number in a file's name, its ending left out.
fn last_number(path: &Path) -> Option<u64> {
    let stem = path.file_stem()?.to_str()?;
    let digits = stem.rsplit(|c: char| !c.is_ascii_digit());
    digits
        .into_iter()
        .find(|part| !part.is_empty())?
        .parse()
        .ok()
}

/// The tensor of one file.
///
/// # Errors
/// What is wrong with it.
pub fn read_file(path: &Path, wanted: &Wanted) -> Result<Shard, Box<Diagnostic>> {
    let unreadable = |error: std::io::Error| finding("unreadable-file", &error.to_string(), path);
    let file = open_regular(path).map_err(unreadable)?;
    let mut bytes = Vec::new();
    let read = file.take(SHARD_BYTES_MAX + 1).read_to_end(&mut bytes);
    if read.map_err(unreadable)? as u64 > SHARD_BYTES_MAX {
        let message = format!("more than {} GiB", SHARD_BYTES_MAX >> 30);
        return Err(finding("too-large", &message, path));
    }
    match path
        .extension()
        .is_some_and(|ending| ending == "safetensors")
    {
        true => of_safetensors(&bytes, wanted, path),
        false => of_bytes(&bytes, wanted, path),
    }
}

fn of_bytes(bytes: &[u8], wanted: &Wanted, path: &Path) -> Result<Shard, Box<Diagnostic>> {
    let Some(dtype) = wanted.dtype else {
        let message = "a file of bytes alone does not say its type";
        let found = finding("no-dtype", message, path);
        return Err(Box::new(found.with_help("give it: `--dtype bf16`")));
    };
    let Some(words) = words(dtype, bytes) else {
        let message = format!("{} bytes are no whole elements of {dtype}", bytes.len());
        return Err(finding("wrong-size", &message, path));
    };
    Ok(Shard { dtype, words })
}

fn of_safetensors(bytes: &[u8], wanted: &Wanted, path: &Path) -> Result<Shard, Box<Diagnostic>> {
    let file = SafeTensors::deserialize(bytes)
        .map_err(|error| finding("damaged", &format!("no safetensors file: {error}"), path))?;
    let names = file.names();
    let name = match (&wanted.tensor, &names[..]) {
        (Some(name), _) => name.as_str(),
        (None, [only]) => *only,
        (None, _) => {
            let shown: Vec<&str> = names.iter().take(8).copied().collect();
            let message = format!("{} tensors: {}", names.len(), shown.join(", "));
            let found = finding("several-tensors", &message, path);
            return Err(Box::new(found.with_help("name one: `--tensor NAME`")));
        }
    };
    let view = file.tensor(name).map_err(|_| {
        let found = finding("no-such-tensor", &format!("no tensor `{name}`"), path);
        match nearest(name, names.iter().copied()) {
            Some(near) => Box::new(found.with_help(format!("did you mean `{near}`?"))),
            None => found,
        }
    })?;
    let dtype = match view.dtype() {
        safetensors::Dtype::F32 => Dtype::F32,
        safetensors::Dtype::BF16 => Dtype::Bf16,
        safetensors::Dtype::F16 => Dtype::F16,
        other => {
            let message = format!("`{name}` is of {other:?}: expected F32, BF16 or F16");
            return Err(finding("wrong-type", &message, path));
        }
    };
    let words = words(dtype, view.data());
    let words = words.ok_or_else(|| finding("damaged", "no whole elements", path))?;
    Ok(Shard { dtype, words })
}

/// Packed values as bits of f32. `None` where the last one is cut.
fn words(dtype: Dtype, bytes: &[u8]) -> Option<Vec<u32>> {
    let narrow = |b: &[u8]| match dtype {
        Dtype::Bf16 => u32::from(u16::from_le_bytes([b[0], b[1]])) << 16,
        _ => half::f16::from_le_bytes([b[0], b[1]]).to_f32().to_bits(),
    };
    let width = dtype.wire_bytes() as usize;
    bytes.len().is_multiple_of(width).then(|| {
        let values = bytes.chunks_exact(width);
        match width {
            4 => values
                .map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
                .collect(),
            _ => values.map(narrow).collect(),
        }
    })
}

/// What is wrong with a file.
pub fn finding(code: &'static str, message: &str, path: &Path) -> Box<Diagnostic> {
    let name = path.display().to_string();
    let file = Source::new(name.as_str(), "");
    let message = format!("{}: {}", escaped(&name), escaped(message));
    Box::new(Diagnostic::error(code, message).at(&Place::new(&file, 0..0), "read as a tensor"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_number_of_a_name_is_the_rank() {
        let rank = |name: &str| last_number(Path::new(name));
        assert_eq!(rank("step10_rank_003.bin"), Some(3));
        assert_eq!(rank("7"), Some(7));
        assert_eq!(rank("2.bf16.bin"), Some(16));
        assert_eq!(rank("rank.bin"), None);
        assert_eq!(rank("99999999999999999999999.bin"), None);
    }

    #[test]
    fn values_keep_their_bits() {
        assert_eq!(words(Dtype::Bf16, &[0x80, 0x3f]), Some(vec![0x3f80_0000]));
        assert_eq!(words(Dtype::F16, &[0, 0x3c]), Some(vec![0x3f80_0000]));
        assert_eq!(words(Dtype::F32, &[1, 0, 0, 0x80]), Some(vec![0x8000_0001]));
        assert_eq!(words(Dtype::F32, &[1, 0, 0]), None);
    }
}
