//! A rank's names: one text each, however many commands bear it.

use std::collections::{BTreeMap, BTreeSet};

use crate::world::site::Name;

/// Names that a rank has used.
#[derive(Debug, Default)]
pub(super) struct Names {
    known: BTreeSet<Name>,
    buffers: BTreeMap<Name, BufferNames>,
}

/// A buffer's name, and those of the two ops that begin and end it.
#[derive(Clone, Debug)]
pub(super) struct BufferNames {
    pub name: Name,
    pub alloc: Name,
    pub free: Name,
}

impl Names {
    pub fn of(&mut self, text: &str) -> Name {
        if let Some(name) = self.known.get(text) {
            return name.clone();
        }
        let name = Name::from(text);
        self.known.insert(name.clone());
        name
    }

    pub fn of_buffer(&mut self, text: &str) -> &BufferNames {
        let name = self.of(text);
        self.buffers
            .entry(name)
            .or_insert_with_key(|name| BufferNames {
                name: name.clone(),
                alloc: Name::from(&*format!("alloc {text}")),
                free: Name::from(&*format!("free {text}")),
            })
    }
}
