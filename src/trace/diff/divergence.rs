//! Where one rank's two streams part.

use std::collections::BTreeMap;

use crate::trace::op::Record;
use crate::trace::point::Point;

/// Which of the two folders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    A,
    B,
}

impl Side {
    pub fn name(self) -> &'static str {
        match self {
            Side::A => "A",
            Side::B => "B",
        }
    }
}

/// In what two streams differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Difference {
    /// The record is in one stream only.
    Missing { from: Side },
    /// Both have it in this iteration, and another record stands in its place in B.
    Order { in_b: String },
    /// What the record says beside values: these fields.
    Metadata { fields: Vec<String> },
    /// These operands have other bytes.
    Content { operands: Vec<String> },
}

impl Difference {
    pub fn kind(&self) -> &'static str {
        match self {
            Difference::Missing { .. } => "missing",
            Difference::Order { .. } => "order",
            Difference::Metadata { .. } => "metadata",
            Difference::Content { .. } => "content",
        }
    }
}

/// Whether a difference was made here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Inputs equal, outputs different; of a collective, the inputs of its whole group.
    Origin,
    /// Inputs already different.
    Receiver,
    /// The record shows no inputs, or not all of them.
    Undecided,
}

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Role::Origin => "origin",
            Role::Receiver => "receiver",
            Role::Undecided => "undecided",
        }
    }
}

/// The first record of a rank that differs, in that rank's own order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Divergence {
    pub point: Point,
    pub difference: Difference,
    /// Nothing where the record shows no inputs.
    pub own_inputs_match: Option<bool>,
    /// Of a collective; nothing where a member's inputs are not known.
    pub group_inputs_match: Option<bool>,
    /// Inputs whose values are not known on both sides, write-only ones apart.
    pub unknown_inputs: u64,
    /// Records before it that agree, artefacts apart.
    pub matched_before: u64,
    pub matched_by_kind: BTreeMap<String, u64>,
    pub role: Role,
    /// The kernel that the record names.
    pub kernel: Option<String>,
    pub collective: Option<Collective>,
    /// It might be the probe's: nothing in the rest of the trace settles it.
    pub may_be_artefact: bool,
}

/// What joins a collective's records across ranks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Collective {
    pub iteration: Option<u64>,
    pub name: String,
    /// The group as the recorder names it.
    pub group: String,
    /// The number of the call in its group, else the record's id.
    pub call: String,
    /// The group's ranks, where they are recorded.
    pub ranks: Option<Vec<u32>>,
    pub algorithm: Option<String>,
    /// How many inputs this rank gives.
    pub inputs: usize,
}

/// The kernel that a record names, and the plan that it added by, where that is told too.
pub(super) fn kernel_of(record: &Record<'_>) -> Option<String> {
    let text = |key: &str| serde_json::from_str::<String>(record.extra.get(key)?).ok();
    let kernel = text("kernel")?;
    Some(match text("plan") {
        Some(plan) => format!("{kernel}, plan {plan}"),
        None => kernel,
    })
}

impl Collective {
    /// What joins the record with those of other ranks; nothing if it is no collective.
    pub fn of(record: &Record<'_>) -> Option<Collective> {
        if &*record.kind != "collective" {
            return None;
        }
        let text = |key: &str| record.extra.get(key);
        let ranks = text("group_ranks").or_else(|| text("ranks"));
        Some(Collective {
            iteration: record.iteration,
            name: record.name.to_string(),
            group: text("group").unwrap_or_default().to_string(),
            call: text("group_seq").map_or_else(|| record.id.to_string(), str::to_string),
            ranks: ranks.and_then(|ranks| serde_json::from_str(ranks).ok()),
            algorithm: text("algo").map(|algo| algo.trim_matches('"').to_string()),
            inputs: record.inputs.len(),
        })
    }
}
