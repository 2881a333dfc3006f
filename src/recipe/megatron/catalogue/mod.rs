//! What is known of each argument of Megatron-LM: its kind, its default, and what follows from it.
//!
//! Names, kinds and defaults: `megatron/training/arguments.py`, the configuration classes that it
//! makes arguments of (`megatron/training/config/`, `TransformerConfig`, `ModelParallelConfig`), as
//! of August 2026, and the scripts' own arguments that functional tests use.

mod argument;
mod attention;
mod attributes;
mod checkpoint;
mod data;
mod distributed;
mod environment;
mod feature;
pub(crate) mod hydra;
mod inference;
mod layout;
mod logging;
mod memory;
mod model;
mod moe;
mod optimizer;
mod others;
mod precision;

pub use argument::{Argument, Effect, Kind};
pub(crate) use environment::names as variable_names;
pub use environment::{Variable, not_covered, variable};
pub use feature::Feature;

use std::collections::BTreeMap;

const AREAS: [&[Argument]; 13] = [
    layout::ARGUMENTS,
    model::ARGUMENTS,
    attention::ARGUMENTS,
    memory::ARGUMENTS,
    moe::ARGUMENTS,
    precision::ARGUMENTS,
    optimizer::ARGUMENTS,
    data::ARGUMENTS,
    checkpoint::ARGUMENTS,
    logging::ARGUMENTS,
    distributed::ARGUMENTS,
    inference::ARGUMENTS,
    others::ARGUMENTS,
];

/// Which way a spelling sets its argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spelling {
    /// On a command line: a flag stands for true.
    Positive,
    /// On a command line: a flag stands for false.
    Negative,
    /// An attribute, as in a dump: the value itself.
    Attribute,
}

/// Every argument, by every name it goes by.
pub struct Catalogue {
    flags: BTreeMap<String, (&'static Argument, Spelling)>,
    attributes: BTreeMap<String, &'static Argument>,
}

impl Default for Catalogue {
    fn default() -> Self {
        let mut catalogue = Catalogue {
            flags: BTreeMap::new(),
            attributes: BTreeMap::new(),
        };
        let flags = AREAS.iter().copied().chain([attributes::EARLIER]);
        for argument in flags.flatten() {
            for (flag, spelling) in spellings(argument) {
                let before = catalogue.flags.insert(flag.clone(), (argument, spelling));
                assert!(before.is_none(), "two arguments are called --{flag}");
            }
            catalogue
                .attributes
                .entry(argument.dest())
                .or_insert(argument);
        }
        for argument in attributes::ATTRIBUTES {
            catalogue
                .attributes
                .entry(argument.dest())
                .or_insert(argument);
        }
        catalogue.add_earlier_names();
        catalogue
    }
}

/// Every way in which an argument is written on a command line.
fn spellings(argument: &'static Argument) -> Vec<(String, Spelling)> {
    let names = std::iter::once(argument.name).chain(argument.also.iter().copied());
    let both = |name: &str| -> Vec<(String, Spelling)> {
        match argument.kind {
            Kind::Off => vec![(name.to_string(), Spelling::Negative)],
            Kind::GeneratedOff if name.starts_with("no-") => {
                vec![(name.to_string(), Spelling::Negative)]
            }
            Kind::GeneratedOff => vec![
                (format!("no-{name}"), Spelling::Negative),
                (format!("disable-{name}"), Spelling::Negative),
            ],
            Kind::Toggle => vec![
                (name.to_string(), Spelling::Positive),
                (format!("no-{name}"), Spelling::Negative),
            ],
            _ => vec![(name.to_string(), Spelling::Positive)],
        }
    };
    names.flat_map(both).collect()
}

impl Catalogue {
    /// Earlier versions called an attribute as its flag: `norm_epsilon`, `cuda_graph_scope`.
    fn add_earlier_names(&mut self) {
        for argument in AREAS.iter().copied().flatten() {
            if matches!(argument.kind, Kind::Off | Kind::GeneratedOff) {
                continue;
            }
            for name in std::iter::once(argument.name).chain(argument.also.iter().copied()) {
                let name = name.replace('-', "_");
                self.attributes.entry(name).or_insert(argument);
            }
        }
    }

    /// The argument that is written `name`: `--flag`, an attribute of a dump, or a dotted key.
    pub fn find(&self, name: &str) -> Option<(&'static Argument, Spelling)> {
        if let Some(flag) = name.strip_prefix("--") {
            return self.flags.get(flag).copied();
        }
        let attribute = if name.contains('.') {
            hydra::attribute(name)?
        } else {
            name
        };
        let argument = self.attributes.get(attribute)?;
        Some((argument, Spelling::Attribute))
    }

    /// The argument behind an attribute of `args`.
    pub fn attribute(&self, dest: &str) -> Option<&'static Argument> {
        self.attributes.get(dest).copied()
    }

    /// Every attribute that a dump of arguments may list, with what is known of it.
    pub fn attributes(&self) -> impl Iterator<Item = (&str, &'static Argument)> {
        self.attributes
            .iter()
            .map(|(dest, argument)| (dest.as_str(), *argument))
    }

    /// Names of the same sort as `name`, for a suggestion.
    pub fn names_like<'a>(&'a self, name: &str) -> Box<dyn Iterator<Item = &'a str> + 'a> {
        if name.starts_with("--") {
            Box::new(self.flags.keys().map(String::as_str))
        } else {
            Box::new(self.attributes.keys().map(String::as_str))
        }
    }

    pub fn flag_count(&self) -> usize {
        self.flags.len()
    }
}

#[cfg(test)]
mod tests;
