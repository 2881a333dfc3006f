//! A record of the op stream: Megatron-LM pull request 7262's, with microbatch and phase.
//!
//! `schema_version`, `seq`, `rank`, `iteration`, `kind`, `name`, `payload{id, scope, in, out}`; an
//! operand has `shape`, `dtype`, `numel`, `digest` (`torch.hash_tensor`, 16 hex digits) and, where
//! the recorder knows them, `bytes64` (a hash of the bytes in order), `write_only`, `tainted`.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::damage::{Damage, Whereabouts};
use super::json::{self, Extra, Text, is_name, set};

/// The version of records that is read.
pub const SCHEMA_VERSION: u64 = 1;

/// One line.
#[derive(Clone, Debug, Default)]
pub struct Record<'a> {
    pub seq: u64,
    pub rank: u64,
    pub iteration: Option<u64>,
    pub microbatch: Option<u64>,
    pub phase: Text<'a>,
    /// `op`, `collective`, `grad`, `param`, or what the recorder calls it.
    pub kind: Text<'a>,
    pub name: Text<'a>,
    /// With the kind, what a record is known by within an iteration.
    pub id: Text<'a>,
    /// The path of modules.
    pub scope: Text<'a>,
    pub inputs: Vec<Operand<'a>>,
    pub outputs: Vec<Operand<'a>>,
    /// Other fields of the payload, then those of the record.
    pub extra: Extra<'a>,
}

/// A tensor's fingerprint.
#[derive(Clone, Debug, Default)]
pub struct Operand<'a> {
    pub shape: Vec<u64>,
    pub dtype: Text<'a>,
    pub numel: u64,
    pub value: Value<'a>,
    pub extra: Extra<'a>,
}

/// What is known of a tensor's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// Digests, the second one aware of order.
    Digest {
        digest: Text<'a>,
        bytes64: Option<Text<'a>>,
    },
    /// Nothing, and why.
    Unknown(Unknown),
}

/// Why an operand has no digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unknown {
    WriteOnly,
    /// Of memory that nobody has written yet.
    Tainted,
    /// A collective was still writing it.
    InFlight,
    /// Too large for the recorder.
    Oversize,
    /// The recorder does not say.
    Unsaid,
}

impl Value<'_> {
    /// Whether these are digests of other bytes, as far as both say.
    pub fn differs(&self, other: &Value<'_>) -> bool {
        let (
            Value::Digest {
                digest: a,
                bytes64: x,
            },
            Value::Digest {
                digest: b,
                bytes64: y,
            },
        ) = (self, other)
        else {
            return false;
        };
        a != b || matches!((x, y), (Some(x), Some(y)) if x != y)
    }

    pub fn is_known(&self) -> bool {
        matches!(self, Value::Digest { .. })
    }

    /// The same, no longer borrowed from a line.
    pub fn into_owned(self) -> Value<'static> {
        match self {
            Value::Digest { digest, bytes64 } => Value::Digest {
                digest: digest.into_owned(),
                bytes64: bytes64.map(Text::into_owned),
            },
            Value::Unknown(why) => Value::Unknown(why),
        }
    }
}

impl Default for Value<'_> {
    fn default() -> Self {
        Value::Unknown(Unknown::Unsaid)
    }
}

impl Unknown {
    pub fn words(self) -> &'static str {
        match self {
            Unknown::WriteOnly => "only written by their op",
            Unknown::Tainted => "of memory that nobody has written yet",
            Unknown::InFlight => "that a collective was still writing",
            Unknown::Oversize => "too large for the recorder",
            Unknown::Unsaid => "without a digest",
        }
    }
}

impl Record<'_> {
    /// Reads one line.
    ///
    /// # Errors
    /// Whatever is not as the format says.
    pub fn read<'a>(here: &Whereabouts<'a>) -> Result<Record<'a>, Damage> {
        let record: Record<'a> = json::record(here)?;
        match record.complaint() {
            Some(message) => Err(here.damage("wrong-field", 0, message)),
            None => Ok(record),
        }
    }

    /// What a record may not say, whatever its types.
    fn complaint(&self) -> Option<String> {
        let names = [("kind", &self.kind), ("name", &self.name), ("id", &self.id)];
        for (field, text) in names {
            if !is_name(text) {
                let most = json::NAME_CHARS_MAX;
                return Some(format!(
                    "`{field}` has 1 to {most} characters, none a control"
                ));
            }
        }
        let operands = self.inputs.iter().chain(&self.outputs);
        operands.into_iter().find_map(Operand::complaint)
    }
}

impl Operand<'_> {
    fn complaint(&self) -> Option<String> {
        let product = self
            .shape
            .iter()
            .try_fold(1u64, |all, size| all.checked_mul(*size));
        if product != Some(self.numel) {
            return Some(format!(
                "numel {} is not the product of {:?}",
                self.numel, self.shape
            ));
        }
        let Value::Digest { digest, bytes64 } = &self.value else {
            return None;
        };
        let is_hex = |text: &str| {
            let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            matches!(text.len(), 16 | 32 | 64) && text.bytes().all(hex)
        };
        let bad = std::iter::once(digest)
            .chain(bytes64)
            .find(|text| !is_hex(text))?;
        let flushed = match bad.starts_with("__staged_") {
            true => "; this one was never flushed",
            false => "",
        };
        Some(format!("a digest has 16, 32 or 64 digits 0-9a-f{flushed}"))
    }

    /// Whether the two have other bytes, as far as both say.
    pub fn differs_in_value(&self, other: &Operand<'_>) -> bool {
        self.value.differs(&other.value)
    }

    /// Whether one side knows a value and the other does not, or not for the same reason. Whether a
    /// collective was still under way when its operand was looked at is a matter of time alone.
    pub fn differs_in_knowledge(&self, other: &Operand<'_>) -> bool {
        let in_flight = Value::Unknown(Unknown::InFlight);
        match (&self.value, &other.value) {
            (x, y) if *x == in_flight || *y == in_flight => false,
            (Value::Digest { .. }, Value::Digest { .. }) => false,
            (Value::Unknown(a), Value::Unknown(b)) => a != b,
            _ => true,
        }
    }
}

/// A field that a format does not have, kept as it is written.
macro_rules! visitor {
    ($name:ident, $value:ident, $expected:literal) => {
        struct $name;
        impl<'de: 'a, 'a> Deserialize<'de> for $value<'a> {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_map($name)
            }
        }
        impl<'de> Visitor<'de> for $name {
            type Value = $value<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str($expected)
            }
            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
                $value::of(map)
            }
        }
    };
}

visitor!(RecordVisitor, Record, "a record of the op stream");
visitor!(PayloadVisitor, Payload, "a payload with id, in and out");
visitor!(
    OperandVisitor,
    Operand,
    "an operand with shape, dtype and numel"
);

/// What stands in a record's `payload`.
#[derive(Default)]
struct Payload<'a> {
    id: Option<Text<'a>>,
    scope: Option<Text<'a>>,
    inputs: Option<Vec<Operand<'a>>>,
    outputs: Option<Vec<Operand<'a>>>,
    extra: Extra<'a>,
}

impl<'a> Payload<'a> {
    fn of<A: MapAccess<'a>>(mut map: A) -> Result<Payload<'a>, A::Error> {
        let mut payload = Payload::default();
        while let Some(key) = map.next_key::<Text<'a>>()? {
            match &*key {
                "id" => set(&mut payload.id, &key, map.next_value()?)?,
                "scope" => set(&mut payload.scope, &key, map.next_value()?)?,
                "in" => set(&mut payload.inputs, &key, map.next_value()?)?,
                "out" => set(&mut payload.outputs, &key, map.next_value()?)?,
                _ => payload.extra.push(key, map.next_value()?)?,
            }
        }
        Ok(payload)
    }
}

impl<'a> Record<'a> {
    fn of<A: MapAccess<'a>>(mut map: A) -> Result<Record<'a>, A::Error> {
        let (mut version, mut seq, mut rank) = (None::<u64>, None, None);
        let (mut iteration, mut microbatch) = (None::<Option<u64>>, None::<Option<u64>>);
        let (mut phase, mut kind, mut name) = (None, None, None);
        let mut payload: Option<Payload<'a>> = None;
        let mut others = Extra::default();
        while let Some(key) = map.next_key::<Text<'a>>()? {
            match &*key {
                "schema_version" => set(&mut version, &key, map.next_value()?)?,
                "seq" => set(&mut seq, &key, map.next_value()?)?,
                "rank" => set(&mut rank, &key, map.next_value()?)?,
                "iteration" => set(&mut iteration, &key, map.next_value()?)?,
                "microbatch" => set(&mut microbatch, &key, map.next_value()?)?,
                "phase" => set(&mut phase, &key, map.next_value()?)?,
                "kind" => set(&mut kind, &key, map.next_value()?)?,
                "name" => set(&mut name, &key, map.next_value()?)?,
                "payload" => set(&mut payload, &key, map.next_value()?)?,
                _ => others.push(key, map.next_value()?)?,
            }
        }
        let version = version.ok_or_else(|| Error::missing_field("schema_version"))?;
        if version != SCHEMA_VERSION {
            let message = format!("schema_version {version}: only {SCHEMA_VERSION} is known");
            return Err(Error::custom(message));
        }
        let payload = payload.ok_or_else(|| Error::missing_field("payload"))?;
        let mut extra = payload.extra;
        for (key, value) in others.0 {
            extra.push(key, value)?;
        }
        Ok(Record {
            seq: seq.ok_or_else(|| Error::missing_field("seq"))?,
            rank: rank.ok_or_else(|| Error::missing_field("rank"))?,
            iteration: iteration.ok_or_else(|| Error::missing_field("iteration"))?,
            microbatch: microbatch.flatten(),
            phase: phase.unwrap_or_default(),
            kind: kind.ok_or_else(|| Error::missing_field("kind"))?,
            name: name.ok_or_else(|| Error::missing_field("name"))?,
            id: payload
                .id
                .ok_or_else(|| Error::missing_field("payload.id"))?,
            scope: payload.scope.unwrap_or_default(),
            inputs: payload.inputs.unwrap_or_default(),
            outputs: payload.outputs.unwrap_or_default(),
            extra,
        })
    }
}

impl<'a> Operand<'a> {
    fn of<A: MapAccess<'a>>(mut map: A) -> Result<Operand<'a>, A::Error> {
        let (mut shape, mut dtype, mut numel) = (None, None, None);
        let (mut digest, mut bytes64) = (None::<Option<Text<'a>>>, None::<Option<Text<'a>>>);
        let (mut write_only, mut tainted, mut in_flight) = (None, None, None);
        let mut extra = Extra::default();
        while let Some(key) = map.next_key::<Text<'a>>()? {
            match &*key {
                "shape" => set(&mut shape, &key, map.next_value()?)?,
                "dtype" => set(&mut dtype, &key, map.next_value()?)?,
                "numel" => set(&mut numel, &key, map.next_value()?)?,
                "digest" => set(&mut digest, &key, map.next_value()?)?,
                "bytes64" => set(&mut bytes64, &key, map.next_value()?)?,
                "write_only" => set(&mut write_only, &key, map.next_value()?)?,
                "tainted" => set(&mut tainted, &key, map.next_value()?)?,
                "in_flight" => set(&mut in_flight, &key, map.next_value()?)?,
                _ => extra.push(key, map.next_value()?)?,
            }
        }
        let flags = (write_only.unwrap_or(false), tainted.unwrap_or(false));
        let digest = digest.ok_or_else(|| Error::missing_field("digest"))?;
        // A recorder that leaves the one digest out may still have hashed the bytes.
        let digest = match (digest, bytes64.clone().flatten()) {
            (Some(digest), bytes) if &*digest == OVERSIZE => bytes.or(Some(digest)),
            (None, bytes) => bytes,
            (digest, _) => digest,
        };
        let value = match (digest, flags) {
            (Some(digest), _) if &*digest == OVERSIZE => Value::Unknown(Unknown::Oversize),
            (Some(_), (true, _)) => {
                return Err(Error::custom(
                    "an operand that is only written has no digest",
                ));
            }
            (Some(digest), _) => Value::Digest {
                digest,
                bytes64: bytes64.flatten(),
            },
            (None, _) if in_flight == Some(true) => Value::Unknown(Unknown::InFlight),
            (None, (true, _)) => Value::Unknown(Unknown::WriteOnly),
            (None, (false, true)) => Value::Unknown(Unknown::Tainted),
            (None, (false, false)) => Value::Unknown(Unknown::Unsaid),
        };
        Ok(Operand {
            shape: shape.ok_or_else(|| Error::missing_field("shape"))?,
            dtype: dtype.ok_or_else(|| Error::missing_field("dtype"))?,
            numel: numel.ok_or_else(|| Error::missing_field("numel"))?,
            value,
            extra,
        })
    }
}

/// What stands in a digest's place where a tensor was too large.
const OVERSIZE: &str = "skipped_oversize";

/// Whether a line is of this stream: it has a `seq`, which no boundary record has.
pub fn is_op_line(here: &Whereabouts<'_>) -> bool {
    #[derive(Deserialize)]
    struct Probe {
        seq: Option<IgnoredAny>,
        sequence: Option<IgnoredAny>,
    }
    let text = std::str::from_utf8(here.bytes).unwrap_or_default();
    match serde_json::from_str::<Probe>(text) {
        Ok(probe) => probe.seq.is_some() || probe.sequence.is_none(),
        // A damaged line: the stream's own reader says what is wrong with it.
        Err(_) => !text.contains("\"sequence\":"),
    }
}
