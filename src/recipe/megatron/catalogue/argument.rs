//! What is known of one argument.

use super::Feature;

/// How an argument is written, and what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `--x` sets true; false otherwise (`store_true`).
    On,
    /// `--no-x` or the like sets false; true otherwise (`store_false`).
    Off,
    /// `--no-x` and `--disable-x` set false: a configuration class's field whose default is true
    /// (`ArgumentGroupFactory`, `megatron/training/argument_utils.py`).
    GeneratedOff,
    /// `--x` or `--no-x` (`BooleanOptionalAction`).
    Toggle,
    Int,
    Float,
    Text,
    /// One of some words.
    Word(&'static [&'static str]),
    Ints,
    Floats,
    Texts,
}

/// What follows from an argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// The recipe follows it: what it sets.
    Used(&'static str),
    /// It names something that bitproof has in its own form: what takes its place.
    Replaced(&'static str),
    /// No bit of a training step follows from it: where it is read, or why.
    NoBits(&'static str),
    /// At its default nothing follows from it; otherwise bitproof would need this.
    Needs(&'static str),
    /// Read only by this part of Megatron.
    Part(Feature),
    /// Of this part, and looked at in every job: without the part Megatron refuses it, or does
    /// something else.
    Only(Feature),
    /// Bits may follow from it in a way that is not simulated: what it decides. The certificate
    /// names it under *not covered*. Of variables only.
    Open(&'static str),
}

/// An argument of Megatron-LM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    /// As on the command line, without the leading dashes; of a [`Kind::GeneratedOff`], without
    /// `no-` too.
    pub name: &'static str,
    /// Other spellings.
    pub also: &'static [&'static str],
    /// The name in an argument dump, where it is not `name` with underscores.
    pub renamed: Option<&'static str>,
    pub kind: Kind,
    /// As it would be written; empty for `None`, and for the default of a flag.
    pub default: &'static str,
    pub effect: Effect,
}

impl Argument {
    /// The name in an argument dump: the attribute of Megatron's `args`.
    pub fn dest(&self) -> String {
        match self.renamed {
            Some(dest) => dest.to_string(),
            None => self.name.replace('-', "_"),
        }
    }

    pub(super) const fn dest_of(mut self, dest: &'static str) -> Self {
        self.renamed = Some(dest);
        self
    }

    pub(super) const fn also(mut self, also: &'static [&'static str]) -> Self {
        self.also = also;
        self
    }

    /// The value of a flag that nobody gives.
    pub fn flag_default(&self) -> bool {
        match self.kind {
            Kind::On | Kind::Toggle => self.default == "true",
            Kind::Off | Kind::GeneratedOff => true,
            _ => false,
        }
    }

    pub fn is_flag(&self) -> bool {
        matches!(
            self.kind,
            Kind::On | Kind::Off | Kind::GeneratedOff | Kind::Toggle
        )
    }
}

pub(super) const fn arg(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    effect: Effect,
) -> Argument {
    Argument {
        name,
        also: &[],
        renamed: None,
        kind,
        default,
        effect,
    }
}

/// A flag that is off unless given.
pub(super) const fn flag(name: &'static str, effect: Effect) -> Argument {
    arg(name, Kind::On, "", effect)
}

/// A flag that switches `dest` off.
pub(super) const fn negation(name: &'static str, dest: &'static str, effect: Effect) -> Argument {
    arg(name, Kind::Off, "", effect).dest_of(dest)
}

/// A field whose default is true: `--no-name` and `--disable-name`.
pub(super) const fn default_on(name: &'static str, effect: Effect) -> Argument {
    arg(name, Kind::GeneratedOff, "", effect)
}
