//! Two records of one name, side by side.

use super::divergence::Difference;
use super::ops;
use crate::trace::op::{Operand, Record, Unknown, Value};

/// Fields that tell people or programs something, and differ between equal runs.
const NOT_COMPARED: [&str; 17] = [
    // How a collective's end was known is a matter of time.
    "completed",
    "note",
    "storage",
    "stream",
    "event",
    "events",
    "ptr",
    "data_ptr",
    "pointer",
    "byte_range",
    "address",
    "time",
    "pid",
    "host",
    "thread",
    "device_index",
    "storage_offset",
];

/// What differs between two records that are known by the same name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contrast {
    /// Fields that differ beside values.
    pub metadata: Vec<String>,
    /// Inputs with other bytes, those apart that the op only writes.
    pub inputs: Vec<usize>,
    /// An operand that the op only writes was digested, and differs.
    pub is_write_only_different: bool,
    pub outputs: Vec<usize>,
    /// Whether a field of an input differs beside its value.
    pub is_input_metadata_different: bool,
    /// Inputs that both sides know, write-only ones apart.
    pub known_inputs: u64,
    pub unknown_inputs: u64,
}

impl Contrast {
    pub fn of(a: &Record<'_>, b: &Record<'_>) -> Contrast {
        let mut found = Contrast::default();
        for (field, differs) in [
            ("name", a.name != b.name),
            ("phase", a.phase != b.phase),
            ("microbatch", a.microbatch != b.microbatch),
            ("scope", a.scope != b.scope),
        ] {
            if differs {
                found.metadata.push(field.to_string());
            }
        }
        found.extras(a, b);
        let before = found.metadata.len();
        found.operands("in", &a.inputs, &b.inputs);
        found.is_input_metadata_different = found.metadata.len() > before;
        found.operands("out", &a.outputs, &b.outputs);
        let written = ops::written_only(&a.name, a.inputs.len(), a.outputs.len());
        let is_skipped = |at: usize| at < written;
        for (at, (x, y)) in a.inputs.iter().zip(&b.inputs).enumerate() {
            let is_written = Value::Unknown(Unknown::WriteOnly);
            let is_known = x.value.is_known() && y.value.is_known();
            match (is_skipped(at), x.differs_in_value(y)) {
                (true, differs) => found.is_write_only_different |= differs,
                (false, true) => found.inputs.push(at),
                (false, false) => {}
            }
            if !is_skipped(at) && x.value != is_written {
                found.known_inputs += u64::from(is_known);
                found.unknown_inputs += u64::from(!is_known);
            }
        }
        let outputs = a.outputs.iter().zip(&b.outputs).enumerate();
        let other = outputs.filter(|(_, (x, y))| x.differs_in_value(y));
        found.outputs.extend(other.map(|(at, _)| at));
        found
    }

    fn extras(&mut self, a: &Record<'_>, b: &Record<'_>) {
        differing(
            a.extra.iter(),
            |key| b.extra.get(key),
            "",
            &mut self.metadata,
        );
        let lacking = b.extra.iter().filter(|(key, _)| a.extra.get(key).is_none());
        differing(lacking, |_| None, "", &mut self.metadata);
    }

    fn operands(&mut self, which: &str, a: &[Operand<'_>], b: &[Operand<'_>]) {
        if a.len() != b.len() {
            self.metadata
                .push(format!("{which} ({} and {})", a.len(), b.len()));
        }
        for (at, (x, y)) in a.iter().zip(b).enumerate() {
            let place = format!("{which}[{at}].");
            for (field, differs) in [
                ("shape", x.shape != y.shape),
                ("dtype", x.dtype != y.dtype),
                ("digest (known on one side)", x.differs_in_knowledge(y)),
            ] {
                if differs {
                    self.metadata.push(format!("{place}{field}"));
                }
            }
            differing(
                x.extra.iter(),
                |key| y.extra.get(key),
                &place,
                &mut self.metadata,
            );
            let lacking = y.extra.iter().filter(|(key, _)| x.extra.get(key).is_none());
            differing(lacking, |_| None, &place, &mut self.metadata);
        }
    }

    /// Whether the records say the same.
    pub fn is_same(&self) -> bool {
        self.metadata.is_empty()
            && self.inputs.is_empty()
            && self.outputs.is_empty()
            && !self.is_write_only_different
    }

    /// Nothing where no input's value is known.
    pub fn own_inputs_match(&self) -> Option<bool> {
        let is_known = self.known_inputs > 0 || self.is_input_metadata_different;
        is_known.then_some(self.inputs.is_empty() && !self.is_input_metadata_different)
    }

    /// In what they differ.
    pub fn difference(&self) -> Difference {
        if !self.metadata.is_empty() {
            let fields = self.metadata.clone();
            return Difference::Metadata { fields };
        }
        let inputs = self.inputs.iter().map(|at| format!("in[{at}]"));
        let outputs = self.outputs.iter().map(|at| format!("out[{at}]"));
        Difference::Content {
            operands: inputs.chain(outputs).collect(),
        }
    }
}

fn differing<'a, 'b>(
    fields: impl Iterator<Item = (&'a str, &'b str)>,
    other: impl Fn(&str) -> Option<&'b str>,
    place: &str,
    found: &mut Vec<String>,
) {
    for (key, value) in fields {
        if !NOT_COMPARED.contains(&key) && other(key) != Some(value) {
            found.push(format!("{place}{key}"));
        }
    }
}
