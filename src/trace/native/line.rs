//! Lines in the form that the readers of both streams know best.

use crate::numerics::{Digest, Dtype};
use crate::trace::op::SCHEMA_VERSION;

/// What a record is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A launch, a sum, a copy or an upload of one rank.
    Op,
    Collective,
    /// One end of a message.
    Message,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Kind::Op => "op",
            Kind::Collective => "collective",
            Kind::Message => "message",
        }
    }
}

/// What is known of a tensor's bytes. Tensors of the training program are rows of elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint {
    pub elements: u64,
    pub dtype: Dtype,
    pub digest: Digest,
}

/// A record of the op stream.
#[derive(Clone, Copy, Debug)]
pub struct OpLine<'a> {
    pub rank: u32,
    /// Nothing in set-up.
    pub iteration: Option<u32>,
    pub microbatch: Option<u32>,
    pub phase: &'a str,
    pub kind: Kind,
    pub name: &'a str,
    pub id: &'a str,
    /// The path of modules.
    pub scope: &'a str,
    pub inputs: &'a [Fingerprint],
    pub outputs: &'a [Fingerprint],
    /// Further fields, each with a comma before it.
    pub extra: &'a str,
}

impl OpLine<'_> {
    /// Writes the record with its place `seq` in the file.
    pub(super) fn write(&self, seq: u64, out: &mut Vec<u8>) {
        text(out, "{\"schema_version\":");
        number(out, SCHEMA_VERSION);
        text(out, ",\"seq\":");
        number(out, seq);
        text(out, ",\"rank\":");
        number(out, self.rank.into());
        text(out, ",\"iteration\":");
        optional(out, self.iteration);
        text(out, ",\"microbatch\":");
        optional(out, self.microbatch);
        text(out, ",\"phase\":");
        quoted(out, self.phase);
        text(out, ",\"kind\":");
        quoted(out, self.kind.name());
        text(out, ",\"name\":");
        quoted(out, self.name);
        text(out, ",\"payload\":{\"id\":");
        quoted(out, self.id);
        text(out, ",\"scope\":");
        quoted(out, self.scope);
        text(out, ",\"in\":");
        operands(out, self.inputs);
        text(out, ",\"out\":");
        operands(out, self.outputs);
        text(out, self.extra);
        text(out, "}}");
    }
}

fn operands(out: &mut Vec<u8>, operands: &[Fingerprint]) {
    out.push(b'[');
    for (place, operand) in operands.iter().enumerate() {
        text(out, if place == 0 { "" } else { "," });
        text(out, "{\"shape\":[");
        number(out, operand.elements);
        text(out, "],\"dtype\":\"");
        text(out, torch_name(operand.dtype));
        text(out, "\",\"numel\":");
        number(out, operand.elements);
        text(out, ",\"digest\":\"");
        hex(out, &operand.digest.0[..8]);
        text(out, "\",\"bytes64\":\"");
        hex(out, &operand.digest.0);
        text(out, "\"}");
    }
    out.push(b']');
}

/// The type as PyTorch calls it, and so a cluster's traces.
fn torch_name(dtype: Dtype) -> &'static str {
    match dtype {
        Dtype::F32 => "float32",
        Dtype::Bf16 => "bfloat16",
        Dtype::F16 => "float16",
        Dtype::U32 => "uint32",
    }
}

/// A step's end in the boundary stream.
pub fn step_line((sequence, rank): (u64, u32), iteration: u32) -> String {
    boundary_line((sequence, rank), iteration, "step", "{}")
}

/// A number that the user sees in the boundary stream: its bits decide, not their decimals.
pub fn metric_line(place: (u64, u32), iteration: u32, name: &str, value: f32) -> String {
    let fields = format!(
        "{{\"bits\":\"0x{:08x}\",\"value\":\"{value:?}\"}}",
        value.to_bits()
    );
    boundary_line(place, iteration, name, &fields)
}

fn boundary_line((sequence, rank): (u64, u32), iteration: u32, name: &str, fields: &str) -> String {
    let name = serde_json::to_string(name).expect("a string has a JSON form");
    format!(
        "{{\"event\":\"event\",\"fields\":{fields},\"iteration\":{iteration},\
         \"microbatch\":null,\"name\":{name},\"occurrence\":0,\"phase\":\"step\",\
         \"rank\":{rank},\"schema_version\":1,\"sequence\":{sequence}}}"
    )
}

fn text(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(text.as_bytes());
}

fn number(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0u8; 20];
    let mut first = digits.len();
    loop {
        first -= 1;
        digits[first] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[first..]);
}

fn optional(out: &mut Vec<u8>, value: Option<u32>) {
    match value {
        Some(value) => number(out, value.into()),
        None => text(out, "null"),
    }
}

fn hex(out: &mut Vec<u8>, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for byte in bytes {
        out.push(DIGITS[usize::from(byte >> 4)]);
        out.push(DIGITS[usize::from(byte & 15)]);
    }
}

/// Most names need no escapes.
fn quoted(out: &mut Vec<u8>, name: &str) {
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
    if name.bytes().all(is_plain) {
        out.push(b'"');
        text(out, name);
        out.push(b'"');
    } else {
        serde_json::to_writer(out, name).expect("a string has a JSON form");
    }
}
