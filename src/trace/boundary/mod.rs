//! The boundary stream: rank-local tracing of Megatron-LM pull request 6610, schema version 1.
//!
//! Whatever that request's validator refuses is refused here. Fields stand in the order in which
//! they are written: sorted.

mod digest;
mod stream;

pub use digest::sha256;
pub use stream::{BoundaryCoverage, BoundaryStream, certify};

use serde::de::Deserializer;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::certify::identity;
use super::damage::{Damage, Whereabouts};
use super::json::{self, Text, is_name, strict};

/// One line.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Boundary<'a> {
    #[serde(borrow)]
    pub event: Text<'a>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub fields: Option<&'a RawValue>,
    #[serde(deserialize_with = "nullable")]
    pub iteration: Option<u64>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<&'a RawValue>,
    #[serde(deserialize_with = "nullable")]
    pub microbatch: Option<u64>,
    #[serde(borrow)]
    pub name: Text<'a>,
    pub occurrence: u64,
    #[serde(borrow)]
    pub phase: Text<'a>,
    pub rank: u64,
    pub schema_version: u64,
    pub sequence: u64,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub tensor: Option<Tensor<'a>>,
}

/// What a tensor record says of its tensor.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Tensor<'a> {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub all_finite: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub captured_numel: Option<u64>,
    #[serde(borrow)]
    pub device_type: Text<'a>,
    #[serde(borrow)]
    pub dtype: Text<'a>,
    pub exact_value_certificate: bool,
    #[serde(borrow)]
    pub layout: Text<'a>,
    pub mode: Mode,
    pub numel: u64,
    pub requires_grad: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_indices: Option<Vec<u64>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<Text<'a>>,
    pub shape: Vec<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stride: Option<Vec<i64>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Summary>,
    pub value_observed: bool,
}

/// How much of a tensor was looked at, weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    Metadata,
    Summary,
    Sampled,
    Full,
}

/// Statistics in float64; nothing where a value is not finite.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Summary {
    pub all_finite: bool,
    #[serde(deserialize_with = "nullable")]
    pub l2_norm: Option<f64>,
    #[serde(deserialize_with = "nullable")]
    pub maximum: Option<f64>,
    #[serde(deserialize_with = "nullable")]
    pub mean: Option<f64>,
    #[serde(deserialize_with = "nullable")]
    pub minimum: Option<f64>,
}

impl Serialize for Text<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self)
    }
}

/// A field that may be null and must be there.
fn nullable<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
    from: D,
) -> Result<Option<T>, D::Error> {
    Option::deserialize(from)
}

impl Boundary<'_> {
    /// Reads one line.
    ///
    /// # Errors
    /// Whatever the format's validator refuses.
    pub fn read<'a>(here: &Whereabouts<'a>) -> Result<Boundary<'a>, Damage> {
        let record: Boundary<'a> = json::record(here)?;
        match record.complaint() {
            Some(message) => Err(here.damage("wrong-field", 0, message)),
            None => Ok(record),
        }
    }

    /// What the record is known by, hashed.
    pub fn identity(&self) -> u64 {
        let number = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
        let (iteration, microbatch) = (number(self.iteration), number(self.microbatch));
        let occurrence = self.occurrence.to_string();
        identity(&[
            &iteration,
            &microbatch,
            &self.phase,
            &self.event,
            &self.name,
            &occurrence,
        ])
    }

    fn complaint(&self) -> Option<String> {
        let version = self.schema_version;
        if version != 1 {
            return Some(format!("schema_version {version}: only 1 is known"));
        }
        for (field, text) in [("name", &self.name), ("phase", &self.phase)] {
            if !is_name(text) {
                let most = json::NAME_CHARS_MAX;
                return Some(format!(
                    "`{field}` has 1 to {most} characters, none a control"
                ));
            }
        }
        let is_object = |value: Option<&RawValue>| value.is_some_and(|v| v.get().starts_with('{'));
        let twice = [self.fields, self.metadata].into_iter().flatten();
        if let Some(error) = twice.into_iter().find_map(|value| strict(value).err()) {
            return Some(error.to_string());
        }
        let tensor = self.tensor.as_ref();
        match (&*self.event, tensor) {
            ("event", None) if is_object(self.fields) && self.metadata.is_none() => None,
            ("event", _) => Some("an `event` has an object `fields`, and no tensor".into()),
            ("tensor", Some(tensor)) if is_object(self.metadata) && self.fields.is_none() => {
                tensor.complaint()
            }
            ("tensor", _) => Some("a `tensor` has objects `metadata` and `tensor`".into()),
            (other, _) => Some(format!("event `{other}`: expected `event` or `tensor`")),
        }
    }
}

impl Tensor<'_> {
    /// Where mode and fields contradict each other.
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
        let is_strided = &*self.layout == "strided";
        let dimensions = self.stride.as_ref().map(Vec::len);
        if is_strided && dimensions != Some(self.shape.len()) {
            return Some("a strided tensor has a stride for each size".into());
        }
        if self.value_observed != (self.mode != Mode::Metadata)
            || self.exact_value_certificate != (self.mode == Mode::Full)
        {
            return Some("value_observed or exact_value_certificate contradicts `mode`".into());
        }
        let has_digest = self.sha256.is_some()
            || self.captured_numel.is_some()
            || self.all_finite.is_some()
            || self.sample_indices.is_some();
        match self.mode {
            Mode::Metadata if has_digest || self.summary.is_some() => {
                Some("mode `metadata` carries no values".into())
            }
            Mode::Metadata => None,
            Mode::Summary if has_digest => Some("mode `summary` has no digest".into()),
            Mode::Summary => self.summary_complaint(),
            Mode::Sampled | Mode::Full => self.digest_complaint(),
        }
    }

    fn summary_complaint(&self) -> Option<String> {
        let Some(summary) = &self.summary else {
            return Some("mode `summary` has a `summary`".into());
        };
        let values = [summary.minimum, summary.maximum, summary.mean];
        let is_sound = match (self.numel, summary.all_finite) {
            (0, is_finite) => is_finite && summary.l2_norm == Some(0.0) && values == [None; 3],
            (_, true) => true,
            (_, false) => values.contains(&None) || summary.l2_norm.is_none(),
        };
        (!is_sound).then(|| "the summary contradicts itself".into())
    }

    fn digest_complaint(&self) -> Option<String> {
        let is_hex = |text: &Text<'_>| {
            let hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
            text.len() == 64 && text.bytes().all(hex)
        };
        if !self.sha256.as_ref().is_some_and(is_hex) {
            return Some("`sha256` has 64 digits 0-9a-f".into());
        }
        if self.summary.is_some() || self.all_finite.is_none() {
            return Some("a digest comes with `all_finite`, and without `summary`".into());
        }
        let Some(captured) = self.captured_numel else {
            return Some("a digest comes with `captured_numel`".into());
        };
        match (self.mode, &self.sample_indices) {
            (Mode::Full, None) if captured == self.numel => None,
            (Mode::Full, None) => Some(format!("captured_numel {captured} of {}", self.numel)),
            (Mode::Full, Some(_)) => Some("mode `full` has no `sample_indices`".into()),
            (_, Some(indices)) if indices.len() as u64 == captured && captured <= self.numel => {
                let is_even =
                    digest::sample_indices(self.numel, captured).eq(indices.iter().copied());
                (!is_even).then(|| "`sample_indices` are floor(i (numel-1) / (count-1))".into())
            }
            (_, _) => Some("`sample_indices` has `captured_numel` entries".into()),
        }
    }
}

#[cfg(test)]
mod tests;
