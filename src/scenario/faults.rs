//! The faults of a recipe under check: a scenario's `[fault]`.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Serialize, Serializer, ser::SerializeMap};

use super::{CheckpointPlan, FAULTS_MAX, Scenario};
use crate::diagnostic::document::{Item, Reader, Table, Value};
use crate::diagnostic::{Findings, escaped};
use crate::fault::{BitFlip, Component, Fault, FaultFacts, FaultKind, FlipTarget};

/// Bytes of the name of an edge, a node or a buffer.
const NAME_BYTES_MAX: usize = 512;
/// The key of bit flips, which are no faults of the recipe.
const FLIP_BIT: &str = "flip_bit";

/// What is wrong on purpose.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Act in every run of a check.
    pub named: BTreeSet<Fault>,
    /// Act in the reference run only.
    pub flips: BTreeSet<BitFlip>,
    /// What checkpoints lack: it is in `checkpoint.omit`, too.
    pub omitted: BTreeSet<Component>,
}

impl Faults {
    pub fn is_empty(&self) -> bool {
        self.named.is_empty() && self.flips.is_empty() && self.omitted.is_empty()
    }
}

impl Faults {
    /// What checkpoints lack, as faults.
    pub fn omissions(&self) -> BTreeSet<Fault> {
        self.omitted.iter().copied().map(omission).collect()
    }
}

fn omission(component: Component) -> Fault {
    Fault::everywhere(FaultKind::OmitComponent, component.name())
}

impl Serialize for Faults {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut by_key: BTreeMap<&str, Vec<&Fault>> = BTreeMap::new();
        let omissions = self.omissions();
        for fault in self.named.iter().chain(&omissions) {
            by_key.entry(fault.kind.key()).or_default().push(fault);
        }
        let mut map = serializer.serialize_map(None)?;
        for (key, faults) in &by_key {
            map.serialize_entry(key, faults)?;
        }
        if !self.flips.is_empty() {
            map.serialize_entry(FLIP_BIT, &self.flips)?;
        }
        map.end()
    }
}

impl Scenario {
    /// Everything that is wrong on purpose, in words.
    pub fn fault_words(&self) -> Vec<String> {
        let named = self.faults.named.iter().map(ToString::to_string);
        let omitted = self.checkpoint.omit.iter();
        let omitted = omitted.map(|component| omission(*component).to_string());
        let flips = self.faults.flips.iter();
        let flips = flips.map(|flip| format!("{FLIP_BIT}: {flip}, in the reference run only"));
        named.chain(omitted).chain(flips).collect()
    }
}

/// What a fault's rank and step can be.
#[derive(Clone, Copy)]
pub(super) struct Bounds {
    pub ranks: u32,
    pub steps: u32,
}

/// Reads `[fault]`; what checkpoints lack is added to `checkpoint`.
pub(super) fn read(
    reader: &mut Reader<'_>,
    bounds: Bounds,
    checkpoint: &mut CheckpointPlan,
) -> Faults {
    let mut faults = Faults::default();
    let Some(table) = reader.table("fault") else {
        return faults;
    };
    let mut reader = Reader::new(table, "fault", reader.findings);
    let mut count = 0;
    for facts in &FaultKind::FACTS {
        let Some(entry) = reader.entry(facts.key) else {
            continue;
        };
        for item in listed(&entry.item) {
            count += 1;
            let Some(fault) = fault(&mut reader, facts, item, bounds) else {
                continue;
            };
            match facts.kind {
                FaultKind::OmitComponent => {
                    let omitted = omit(&mut reader, item, &fault);
                    checkpoint.omit.extend(omitted);
                    faults.omitted.extend(omitted);
                }
                _ => {
                    faults.named.insert(fault);
                }
            }
        }
    }
    if let Some(entry) = reader.entry(FLIP_BIT) {
        for item in listed(&entry.item) {
            count += 1;
            faults.flips.extend(flip(&mut reader, item, bounds));
        }
    }
    if count > FAULTS_MAX {
        let message = format!("{count} faults: at most {FAULTS_MAX} can be planted at once");
        let place = reader.place().clone();
        let finding = crate::diagnostic::Diagnostic::error("out-of-range", message);
        reader.findings.push(finding.at(&place, ""));
    }
    reader.finish();
    faults
}

/// One value, or those of an array.
fn listed(item: &Item) -> &[Item] {
    match &item.value {
        Value::Array(items) => items,
        _ => std::slice::from_ref(item),
    }
}

/// A name, or `{ at, rank, step }`.
fn fault(
    reader: &mut Reader<'_>,
    facts: &FaultFacts,
    item: &Item,
    bounds: Bounds,
) -> Option<Fault> {
    match &item.value {
        Value::Text(name) => {
            let name = named(reader, name, item)?;
            Some(Fault::everywhere(facts.kind, name))
        }
        Value::Table(table) => one_of(table, facts, bounds, reader.findings),
        _ => {
            let expected = format!("{} as a string, or {{ at, rank, step }}", facts.target);
            reader.wrong_type(facts.key, item, &expected, None).value
        }
    }
}

fn named(reader: &mut Reader<'_>, name: &str, item: &Item) -> Option<String> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let message = format!("a name of {} bytes", name.len());
        let label = format!("expected 1 to {NAME_BYTES_MAX} bytes");
        reader.complain("out-of-range", message, item, &label);
        return None;
    }
    Some(escaped(name).into_owned())
}

fn one_of(
    table: &Table,
    facts: &FaultFacts,
    bounds: Bounds,
    findings: &mut Findings,
) -> Option<Fault> {
    let path = format!("fault.{}", facts.key);
    let mut reader = Reader::new(table, &path, findings);
    let at = match reader.entry("at").map(|entry| &entry.item) {
        Some(item) => match &item.value {
            Value::Text(name) => named(&mut reader, name, item),
            _ => reader.wrong_type("at", item, "a string", None).value,
        },
        None => {
            reader.missing("at", facts.target);
            None
        }
    };
    let rank = within(&mut reader, "rank", bounds.ranks - 1, 0);
    let step = within(&mut reader, "step", bounds.steps, 0);
    reader.finish();
    Some(Fault {
        kind: facts.kind,
        at: at?,
        rank,
        step,
    })
}

fn within(reader: &mut Reader<'_>, key: &'static str, most: u32, least: u32) -> Option<u32> {
    let number = reader.count(key, least..=most, Some(least));
    number.is_given().then_some(number.value)
}

fn omit(reader: &mut Reader<'_>, item: &Item, fault: &Fault) -> Option<Component> {
    if fault.rank.is_some() || fault.step.is_some() {
        let message = "a checkpoint lacks a component on every rank".to_string();
        reader.complain("unknown-key", message, item, "expected `at` alone");
        return None;
    }
    let found = component(&fault.at);
    if found.is_none() {
        let message = format!("`{}` is no component", fault.at);
        reader.complain("unknown-value", message, item, &component_names());
    }
    found
}

fn component(name: &str) -> Option<Component> {
    Component::ALL
        .into_iter()
        .find(|component| component.name() == name)
}

fn component_names() -> String {
    format!(
        "expected {}",
        Component::ALL.map(Component::name).join(" or ")
    )
}

/// `{ node | buffer | component, rank, step, bit }`.
fn flip(reader: &mut Reader<'_>, item: &Item, bounds: Bounds) -> Option<BitFlip> {
    let Value::Table(table) = &item.value else {
        let expected = "a table { node | buffer | component, rank, step, bit }";
        return reader.wrong_type(FLIP_BIT, item, expected, None).value;
    };
    let mut reader = Reader::new(table, "fault.flip_bit", reader.findings);
    let node = reader
        .text("node")
        .map(|(name, _)| escaped(name).into_owned());
    let buffer = reader
        .text("buffer")
        .map(|(name, _)| escaped(name).into_owned());
    let words = Component::ALL.map(|component| (component.name(), component));
    let part = reader.word("component", &words, Component::Model);
    let part = part.is_given().then_some(part.value);
    let rank = reader.count("rank", 0..=bounds.ranks - 1, None);
    let step = reader.count("step", 1..=bounds.steps, None);
    let bit = reader.count("bit", 0..=i32::MAX as u32, Some(0));
    let mut targets = node.map(FlipTarget::Node).into_iter().collect::<Vec<_>>();
    targets.extend(buffer.map(FlipTarget::Buffer));
    targets.extend(part.map(FlipTarget::Component));
    if targets.len() != 1 {
        let message = "a bit flips in one place".to_string();
        let label = "expected one of `node`, `buffer` and `component`";
        reader.complain("missing-key", message, item, label);
    }
    let is_memory = !matches!(targets.first(), Some(FlipTarget::Node(_)));
    if is_memory && step.is_given() && step.value == bounds.steps {
        let message = "nothing reads memory after the last step".to_string();
        let label = "expected a `step` before the last";
        reader.complain("out-of-range", message, item, label);
    }
    reader.finish();
    let sound = rank.sound && step.sound && bit.sound && targets.len() == 1;
    sound.then(|| BitFlip {
        at: targets.remove(0),
        rank: rank.value,
        step: step.value,
        bit: bit.value,
    })
}
