//! All kernels by name. Linking is checked when the registry is made, each kernel is parsed and
//! validated when it is first asked for.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use super::error::KernelError;
use super::link::{Linked, Sources, link};
use super::{Kernel, shaders};

/// The kernels of `shaders/`, or of given sources.
pub struct Registry {
    entries: BTreeMap<String, Entry>,
}

/// The kernels that compute digests on an engine.
pub(crate) fn digest_kernels() -> Registry {
    Registry::from_sources(shaders::DIGEST).expect("shipped kernels link")
}

struct Entry {
    linked: Linked,
    kernel: OnceLock<Result<Kernel, KernelError>>,
}

impl Registry {
    /// The kernels that the crate is built with.
    ///
    /// # Errors
    /// A `// use:` that names no file, or goes round in a circle.
    pub fn new() -> Result<Registry, KernelError> {
        Registry::from_sources(shaders::SHADERS)
    }

    /// Kernels from `(name, WGSL)` pairs. A name with a `/` is a part that kernels may use.
    ///
    /// # Errors
    /// A `// use:` that names no source, or goes round in a circle.
    pub fn from_sources(sources: &[(&str, &str)]) -> Result<Registry, KernelError> {
        let sources: Sources = sources
            .iter()
            .map(|(name, text)| (name.to_string(), text.to_string()))
            .collect();
        let mut entries = BTreeMap::new();
        for name in sources.keys().filter(|name| !name.contains('/')) {
            let linked = link(name, &sources)?;
            entries.insert(
                name.clone(),
                Entry {
                    linked,
                    kernel: OnceLock::new(),
                },
            );
        }
        Ok(Registry { entries })
    }

    /// The kernel `name`.
    ///
    /// # Errors
    /// No such kernel, or one that cannot be used, with the file and line of the reason.
    pub fn get(&self, name: &str) -> Result<&Kernel, KernelError> {
        let entry = self.entries.get(name).ok_or_else(|| KernelError::Unknown {
            name: name.to_owned(),
        })?;
        let made = entry
            .kernel
            .get_or_init(|| Kernel::from_linked(name, &entry.linked));
        made.as_ref().map_err(KernelError::clone)
    }

    /// Names of all kernels, ascending.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// BLAKE3 over the names and linked texts of all kernels.
    pub fn hash(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        for (name, entry) in &self.entries {
            for text in [name.as_str(), entry.linked.text.as_str()] {
                hasher.update(&(text.len() as u64).to_le_bytes());
                hasher.update(text.as_bytes());
            }
        }
        *hasher.finalize().as_bytes()
    }
}
