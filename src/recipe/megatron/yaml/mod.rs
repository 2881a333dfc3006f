//! A YAML 1.2 document whose every key and value knows where it was written.
//!
//! The events come from `saphyr-parser`; [`compose`] makes a tree of them, within limits, and
//! [`merge`] resolves `<<`. A scalar keeps its text: `1.0e-5`, `.01` and `949,50,1` mean what
//! Megatron's argument parser makes of them, not what YAML does.

mod compose;
mod merge;

use std::ops::Range;

pub(super) use compose::compose;
pub(super) use merge::{Entry, Merges};

use crate::diagnostic::{Place, Source};

/// A node by its number: nodes are numbered in the order in which they start, so that all that
/// is inside a collection follows it without a gap.
type NodeId = usize;

/// A whole document. Aliases share nodes: nothing is copied, and there is no cycle.
#[derive(Debug)]
pub(super) struct Document {
    source: Source,
    nodes: Vec<Node>,
}

#[derive(Debug)]
struct Node {
    kind: Kind,
    /// One after the last node inside.
    end: NodeId,
    /// An alias refers to it.
    is_aliased: bool,
}

#[derive(Debug)]
enum Kind {
    Scalar(Scalar),
    Sequence(Vec<Child>),
    Mapping(Vec<(Child, Child)>),
}

/// Where a node is used: at its own place, or at that of an alias.
#[derive(Clone, Debug)]
pub(super) struct Child {
    node: NodeId,
    span: Range<usize>,
}

/// One value without parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Scalar {
    pub text: String,
    /// Written without quotes, so that it may be a boolean, a null or a merge key.
    pub is_plain: bool,
}

impl Scalar {
    /// A boolean of YAML 1.2's core schema (section 10.3.2): `yes` and `on` are words.
    pub fn boolean(&self) -> Option<bool> {
        match (self.is_plain, self.text.as_str()) {
            (true, "true" | "True" | "TRUE") => Some(true),
            (true, "false" | "False" | "FALSE") => Some(false),
            _ => None,
        }
    }

    /// Nothing, `~` or `null`.
    pub fn is_null(&self) -> bool {
        self.is_plain && matches!(self.text.as_str(), "" | "~" | "null" | "Null" | "NULL")
    }
}

/// What a child is.
pub(super) enum View<'a> {
    Scalar(&'a Scalar),
    Sequence(&'a [Child]),
    Mapping,
}

impl View<'_> {
    pub fn kind(&self) -> &'static str {
        match self {
            View::Scalar(scalar) if scalar.is_null() => "empty",
            View::Scalar(_) => "one value",
            View::Sequence(_) => "a list",
            View::Mapping => "a mapping",
        }
    }
}

impl Document {
    pub fn root(&self) -> Child {
        let span = 0..self.source.text.len();
        Child { node: 0, span }
    }

    pub fn view(&self, child: &Child) -> View<'_> {
        match &self.nodes[child.node].kind {
            Kind::Scalar(scalar) => View::Scalar(scalar),
            Kind::Sequence(items) => View::Sequence(items),
            Kind::Mapping(_) => View::Mapping,
        }
    }

    /// Bytes of the scalar, or of the scalars of the list.
    pub fn text_bytes(&self, child: &Child) -> usize {
        let own = |child: &Child| match &self.nodes[child.node].kind {
            Kind::Scalar(scalar) => scalar.text.len(),
            Kind::Sequence(_) | Kind::Mapping(_) => 0,
        };
        match &self.nodes[child.node].kind {
            Kind::Sequence(items) => items.iter().map(own).sum(),
            Kind::Scalar(_) | Kind::Mapping(_) => own(child),
        }
    }

    pub fn place(&self, span: &Range<usize>) -> Place {
        Place::new(&self.source, span.clone())
    }

    pub fn place_of(&self, child: &Child) -> Place {
        self.place(&child.span)
    }

    /// Whether an item stands behind a dash, not in brackets.
    pub fn is_in_block(&self, item: &Child) -> bool {
        let before = &self.source.text[..item.span.start];
        let line = before.rsplit(['\n', '\r']).next().unwrap_or_default();
        line.trim_start().starts_with("- ")
    }

    /// Whether an alias somewhere refers to this node or to one inside it.
    pub fn is_referred_to(&self, child: &Child) -> bool {
        let inside = child.node..self.nodes[child.node].end;
        self.nodes[inside].iter().any(|node| node.is_aliased)
    }
}

#[cfg(test)]
mod tests;
