//! What a record says of how its op was called: the axes along which a fault may lie.
//!
//! Source: Megatron-LM pull request 7262, "discriminator table": hold the site fixed, vary output
//! type, operand type, accumulation, layout, fusion; its worked case broke with FP4 operands and
//! float32 output alone, whatever the accumulation.

use crate::trace::op::{Operand, Record};

/// One thing in which calls of an op may differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Axis {
    OperandDtype,
    OutputDtype,
    /// Whether the op adds to what its output held.
    Accumulate,
    Layout,
    Fused,
}

/// What a record says on each axis; nothing where it does not say.
pub(super) type Values = [Option<String>; Axis::ALL.len()];

impl Axis {
    pub(super) const ALL: [Axis; 5] = [
        Axis::OperandDtype,
        Axis::OutputDtype,
        Axis::Accumulate,
        Axis::Layout,
        Axis::Fused,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Axis::OperandDtype => "operand dtype",
            Axis::OutputDtype => "output dtype",
            Axis::Accumulate => "accumulate",
            Axis::Layout => "layout",
            Axis::Fused => "fused",
        }
    }

    pub(super) fn of(record: &Record<'_>) -> Values {
        Axis::ALL.map(|axis| axis.value(record))
    }

    fn value(self, record: &Record<'_>) -> Option<String> {
        match self {
            Axis::OperandDtype => listed(&record.inputs, |one| Some(one.dtype.to_string())),
            Axis::OutputDtype => listed(&record.outputs, |one| Some(one.dtype.to_string())),
            Axis::Accumulate => field(record, "accumulate"),
            Axis::Layout => field(record, "layout").or_else(|| {
                let operands: Vec<&Operand<'_>> =
                    record.inputs.iter().chain(&record.outputs).collect();
                listed(operands, layout)
            }),
            Axis::Fused => field(record, "fused"),
        }
    }
}

/// A field of the payload as people write it: 0 and 1 are no and yes.
fn field(record: &Record<'_>, key: &str) -> Option<String> {
    let json = record.extra.get(key)?;
    let text: Option<String> = serde_json::from_str(json).ok();
    Some(match (json, text) {
        ("null", _) => return None,
        ("0", _) => "false".to_string(),
        ("1", _) => "true".to_string(),
        (_, Some(text)) => text,
        (json, None) => json.to_string(),
    })
}

/// What each operand says; nothing where none does.
fn listed<'a, 'o: 'a>(
    operands: impl IntoIterator<Item = &'a Operand<'o>>,
    say: impl Fn(&Operand<'_>) -> Option<String>,
) -> Option<String> {
    let said: Vec<Option<String>> = operands.into_iter().map(say).collect();
    let untold = || "?".to_string();
    said.iter().any(Option::is_some).then(|| {
        let words: Vec<String> = said
            .into_iter()
            .map(|one| one.unwrap_or_else(untold))
            .collect();
        words.join(", ")
    })
}

/// An operand's layout by its name, else whether its strides are those of rows one after another.
fn layout(operand: &Operand<'_>) -> Option<String> {
    let named = operand.extra.get("layout");
    if let Some(named) = named.and_then(|json| serde_json::from_str::<String>(json).ok()) {
        return Some(named);
    }
    let strides: Vec<i64> = serde_json::from_str(operand.extra.get("stride")?).ok()?;
    let mut size = 1i64;
    let mut is_contiguous = strides.len() == operand.shape.len();
    for (length, stride) in operand.shape.iter().zip(&strides).rev() {
        is_contiguous &= *length == 1 || *stride == size;
        size = size.saturating_mul(i64::try_from(*length).unwrap_or(i64::MAX));
    }
    Some(match is_contiguous {
        true => "contiguous".to_string(),
        false => "strided".to_string(),
    })
}
