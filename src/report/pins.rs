//! What pins a job's plans, for people and for programs.

use std::fmt::Write;

use serde_json::{Value, json};

use super::names::{counted, grouped};
use crate::plan::PLAN_BASIS;
use crate::prove::pin::{Cost, Judged, Pinned, Pins, Setting, Unpinned};
use crate::topology::Allocation;

/// Other sets and collectives that people are shown.
const SHOWN: usize = 8;

/// What pins a job, and what the job is called.
pub struct NamedPins<'a> {
    pub recipe: &'a str,
    pub allocations: &'a [Allocation],
    /// Ranks may be on any GPUs of an allocation.
    pub any_placement: bool,
    pub pins: &'a Pins,
}

impl NamedPins<'_> {
    pub fn to_human(&self) -> String {
        let names = self.allocations.iter().map(|one| &*one.name);
        let names = names.collect::<Vec<_>>().join(", ");
        let free = match self.any_placement {
            true => ", any rank on any GPU of the job",
            false => "",
        };
        let world = self.allocations[0].placement.world();
        let recipe = self.recipe;
        let mut text = format!("{recipe} on {names}{free}: {world} ranks\n\n");
        match (&self.pins.sets[..], &self.pins.left) {
            ([first, others @ ..], _) => self.pinned(&mut text, first, others),
            (_, Some((settings, left))) => self.unpinned(&mut text, settings, left),
            _ => {}
        }
        let _ = writeln!(text, "basis: {PLAN_BASIS}");
        text
    }

    fn pinned(&self, text: &mut String, first: &Pinned, others: &[Pinned]) {
        let collectives = counted(self.pins.collectives as u64, "collective");
        if first.settings.is_empty() {
            let _ = writeln!(text, "each of {collectives} has one plan as it is");
        } else {
            let _ = writeln!(text, "one plan for each of {collectives}, with");
            text.push_str(&indented(&first.settings));
        }
        let _ = writeln!(text, "cost of a step: {}", self.cost(first.cost));
        let _ = writeln!(
            text,
            "verified: plans built in each of {} that this leaves open; {} tried, and no set \
             with fewer settings pins them, nor does a part of this one",
            counted(first.ways as u64, "way"),
            counted(self.pins.tried as u64, "set"),
        );
        if !others.is_empty() {
            text.push_str("\nother sets of which no part pins them:\n");
        }
        for other in others.iter().take(SHOWN) {
            text.push_str(&indented(&other.settings));
            let _ = writeln!(text, "    {}", self.cost(other.cost));
        }
        if let more @ 1.. = others.len().saturating_sub(SHOWN) {
            let _ = writeln!(text, "  and {more} more: `--format json` has them");
        }
        if !first.beyond.is_empty() {
            text.push_str("\nnot pinned by it, as no plan is made of it:\n");
        }
        for one in &first.beyond {
            let _ = writeln!(text, "  - {one}");
        }
    }

    fn unpinned(&self, text: &mut String, settings: &[Setting], left: &[Unpinned]) {
        let _ = writeln!(
            text,
            "nothing pins every plan: {} tried. {} of {} without one plan where the fewest are, \
             {}",
            counted(self.pins.tried as u64, "set"),
            left.len(),
            counted(self.pins.collectives as u64, "collective"),
            match settings.is_empty() {
                true => "as it is",
                false => "with",
            },
        );
        text.push_str(&indented(settings));
        text.push_str("left:\n");
        for one in left.iter().take(SHOWN) {
            let _ = writeln!(text, "  {}: {}", one.name, in_words(&one.judged));
        }
        if let more @ 1.. = left.len().saturating_sub(SHOWN) {
            let _ = writeln!(text, "  and {more} more: `--format json` has them");
        }
        if self.allocations.len() > 1 {
            text.push_str("with one `--topology` alone: what pins the job there\n");
        }
    }

    /// A cost, and how it compares.
    fn cost(&self, cost: Option<Cost>) -> String {
        let Some(cost) = cost else {
            return "not known: NCCL may choose the algorithm of what has one order".to_string();
        };
        let said = |cost: Cost| {
            format!(
                "{} bytes on the wire, {} in a row, {} bytes on a channel",
                grouped(cost.wire_bytes),
                counted(cost.steps, "step"),
                grouped(cost.channel_bytes)
            )
        };
        match self.pins.now {
            Some(now) if now == cost => format!("{}, as it is now", said(cost)),
            Some(now) => format!("{}; now {}", said(cost), said(now)),
            None => said(cost),
        }
    }

    pub fn to_json(&self) -> Value {
        let set = |pinned: &Pinned| {
            json!({
                "settings": settings(&pinned.settings),
                "ways": pinned.ways,
                "cost": pinned.cost,
                "not_pinned": pinned.beyond,
            })
        };
        let left = self.pins.left.as_ref().map(|(with, left)| {
            json!({
                "settings": settings(with),
                "collectives": left.iter().map(unpinned).collect::<Vec<_>>(),
            })
        });
        let names = self.allocations.iter().map(|one| &*one.name);
        json!({
            "recipe": self.recipe,
            "topologies": names.collect::<Vec<_>>(),
            "any_placement": self.any_placement,
            "world_size": self.allocations[0].placement.world(),
            "basis": PLAN_BASIS,
            "is_pinned": !self.pins.sets.is_empty(),
            "collectives": self.pins.collectives,
            "tried": self.pins.tried,
            "now": self.pins.now,
            "sets": self.pins.sets.iter().map(set).collect::<Vec<_>>(),
            "left": left,
        })
    }
}

fn settings(settings: &[Setting]) -> Vec<String> {
    settings.iter().map(Setting::to_string).collect()
}

fn unpinned(one: &Unpinned) -> Value {
    match &one.judged {
        Judged::Open { between } => json!({ "name": one.name, "between": between }),
        Judged::Unknown { why } => json!({ "name": one.name, "unknown": why }),
        Judged::One { .. } => json!({ "name": one.name }),
    }
}

fn in_words(judged: &Judged) -> String {
    match judged {
        Judged::Open { between: [a, b] } => format!("other orders: {a}, against {b}"),
        Judged::Unknown { why } => format!("not known to have one plan: {why}"),
        Judged::One { .. } => "one plan".to_string(),
    }
}

fn indented(settings: &[Setting]) -> String {
    let line = |setting: &Setting| format!("  {setting}\n");
    settings.iter().map(line).collect()
}
