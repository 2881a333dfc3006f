//! Single records, written.

use std::fmt::Write;

use crate::trace::boundary::{Boundary, Tensor};
use crate::trace::json::Extra;
use crate::trace::op::{Operand, Record, SCHEMA_VERSION, Unknown, Value};

/// A record of the op stream as one line, with its place `seq` in the file.
pub fn op_line(record: &Record<'_>, seq: u64) -> String {
    let mut line = head(
        seq,
        record.rank,
        [record.iteration, record.microbatch],
        [&record.phase, &record.kind, &record.name],
    );
    let payload = payload(record);
    write!(line, ",\"payload\":{payload}}}").expect("memory");
    line
}

fn payload(record: &Record<'_>) -> String {
    let (id, scope) = (quoted(&record.id), quoted(&record.scope));
    let (inputs, outputs) = (operands(&record.inputs), operands(&record.outputs));
    let extra = extras(&record.extra);
    format!("{{\"id\":{id},\"scope\":{scope},\"in\":{inputs},\"out\":{outputs}{extra}}}")
}

fn head(seq: u64, rank: u64, numbers: [Option<u64>; 2], names: [&str; 3]) -> String {
    let number = |value: Option<u64>| value.map_or("null".to_string(), |value| value.to_string());
    let [iteration, microbatch] = numbers.map(number);
    let [phase, kind, name] = names.map(quoted);
    format!(
        "{{\"schema_version\":{SCHEMA_VERSION},\"seq\":{seq},\"rank\":{rank},\
         \"iteration\":{iteration},\"microbatch\":{microbatch},\"phase\":{phase},\
         \"kind\":{kind},\"name\":{name}"
    )
}

fn operands(list: &[Operand<'_>]) -> String {
    let texts: Vec<String> = list.iter().map(operand).collect();
    format!("[{}]", texts.join(","))
}

fn operand(operand: &Operand<'_>) -> String {
    let dtype = quoted(&operand.dtype);
    let (shape, numel) = (sizes(&operand.shape), operand.numel);
    let value = match &operand.value {
        Value::Digest {
            digest,
            bytes64: Some(bytes64),
        } => format!("{},\"bytes64\":{}", quoted(digest), quoted(bytes64)),
        Value::Digest { digest, .. } => quoted(digest),
        Value::Unknown(Unknown::Oversize) => "\"skipped_oversize\"".to_string(),
        Value::Unknown(Unknown::WriteOnly) => {
            "null,\"bytes64\":null,\"write_only\":true".to_string()
        }
        Value::Unknown(Unknown::InFlight) => "null,\"in_flight\":true".to_string(),
        Value::Unknown(Unknown::Tainted) => "null,\"tainted\":true".to_string(),
        Value::Unknown(Unknown::Unsaid) => "null".to_string(),
    };
    let extra = extras(&operand.extra);
    format!("{{\"shape\":{shape},\"dtype\":{dtype},\"numel\":{numel},\"digest\":{value}{extra}}}")
}

fn extras(extra: &Extra<'_>) -> String {
    let mut text = String::new();
    for (key, value) in extra.iter() {
        write!(text, ",{}:{value}", quoted(key)).expect("memory");
    }
    text
}

fn sizes(shape: &[u64]) -> String {
    let texts: Vec<String> = shape.iter().map(u64::to_string).collect();
    format!("[{}]", texts.join(","))
}

fn quoted(text: &str) -> String {
    serde_json::to_string(text).expect("a string has a JSON form")
}

/// A record of the op stream as an `event` of pull request 6610: its payload is the `fields`.
pub fn boundary_of_op(record: &Record<'_>, occurrence: u64, sequence: u64) -> String {
    let number = |value: Option<u64>| value.map_or("null".to_string(), |value| value.to_string());
    let phase = match record.phase.is_empty() {
        true => "none",
        false => &record.phase,
    };
    let (kind, payload) = (quoted(&record.kind), payload(record));
    format!(
        "{{\"event\":\"event\",\"fields\":{{\"kind\":{kind},\"payload\":{payload}}},\
         \"iteration\":{},\"microbatch\":{},\"name\":{},\"occurrence\":{occurrence},\
         \"phase\":{},\"rank\":{},\"schema_version\":1,\"sequence\":{sequence}}}",
        number(record.iteration),
        number(record.microbatch),
        quoted(&record.name),
        quoted(phase),
        record.rank
    )
}

/// What a boundary record says of its tensor beside what every operand has.
fn other_fields(tensor: &Tensor<'_>) -> String {
    let fields = serde_json::to_value(tensor).expect("a tensor has a JSON form");
    let fields = fields.as_object().expect("a tensor is an object");
    let own = ["shape", "dtype", "numel", "sha256"];
    let others = fields
        .iter()
        .filter(|(key, _)| !own.contains(&key.as_str()));
    others
        .map(|(key, value)| format!(",{}:{value}", quoted(key)))
        .collect()
}

/// A boundary record as one of the op stream, of kind `boundary`: it shows no inputs.
pub fn op_of_boundary(record: &Boundary<'_>, seq: u64) -> String {
    let mut line = head(
        seq,
        record.rank,
        [record.iteration, record.microbatch],
        [&record.phase, "boundary", &record.name],
    );
    // Occurrences begin anew in each microbatch and phase; ids may not.
    let microbatch = record
        .microbatch
        .map_or(String::new(), |one| one.to_string());
    let id = format!(
        "{}:{}:{microbatch}:{}:{}",
        record.event, record.phase, record.name, record.occurrence
    );
    let output = record.tensor.as_ref().map(|tensor| {
        let digest = tensor
            .sha256
            .as_ref()
            .map_or("null".to_string(), |digest| quoted(digest));
        format!(
            "{{\"shape\":{},\"dtype\":{},\"numel\":{},\"digest\":{digest}{}}}",
            sizes(&tensor.shape),
            quoted(&tensor.dtype),
            tensor.numel,
            other_fields(tensor)
        )
    });
    let fields = record
        .fields
        .or(record.metadata)
        .map_or("{}", |fields| fields.get());
    let (id, outputs) = (quoted(&id), output.unwrap_or_default());
    write!(
        line,
        ",\"payload\":{{\"id\":{id},\"scope\":\"\",\"in\":[],\"out\":[{outputs}],\
         \"fields\":{fields}}}}}"
    )
    .expect("memory");
    line
}
