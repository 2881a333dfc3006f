//! What of a record is drawn.

use serde::Serialize;

use crate::trace::op::Record;
use crate::trace::show::operand;

/// Operands that an event lists.
const OPERANDS_MAX: usize = 8;
/// What a record's stream is called where it tells none.
pub(super) const UNTOLD_STREAM: &str = "stream not recorded";

/// One record, no longer borrowed from its line.
#[derive(Clone, Debug)]
pub(super) struct Event {
    pub iteration: Option<u64>,
    pub name: String,
    pub kind: String,
    pub stream: String,
    /// Of a clock that all ranks share.
    pub time: Option<u64>,
    pub call: Option<Call>,
    pub details: Details,
}

/// What viewers show of an event that is selected.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Details {
    seq: u64,
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    iteration: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    microbatch: Option<u64>,
    #[serde(skip_serializing_if = "String::is_empty")]
    phase: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    scope: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    kernel: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    collective: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    group_seq: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(rename = "in", skip_serializing_if = "Vec::is_empty")]
    inputs: Vec<String>,
    #[serde(rename = "out", skip_serializing_if = "Vec::is_empty")]
    outputs: Vec<String>,
}

/// One rank's part in what several ranks do together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Call {
    /// Equal for all its members, and for nothing else.
    pub key: String,
    /// What it is called on its flow.
    pub name: String,
    pub members: Members,
}

/// Who takes part in a call, as far as records say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Members {
    Ranks(Vec<u32>),
    Count(u64),
    Untold,
}

impl Event {
    pub fn of(record: &Record<'_>) -> Event {
        let (name, scope) = (record.name.to_string(), record.scope.to_string());
        Event {
            iteration: record.iteration,
            name: match scope.is_empty() {
                true => name,
                false => format!("{scope}.{name}"),
            },
            kind: record.kind.to_string(),
            stream: stream_of(record),
            time: number(record, "time"),
            call: Call::of(record),
            details: Details::of(record, scope),
        }
    }
}

impl Details {
    fn of(record: &Record<'_>, scope: String) -> Details {
        let list = |operands: &[_]| operands.iter().take(OPERANDS_MAX).map(operand).collect();
        Details {
            seq: record.seq,
            id: record.id.to_string(),
            iteration: record.iteration,
            microbatch: record.microbatch,
            phase: record.phase.to_string(),
            scope,
            kernel: text(record, "kernel"),
            collective: text(record, "collective"),
            group: text(record, "group"),
            group_seq: number(record, "group_seq"),
            note: text(record, "note"),
            inputs: list(&record.inputs),
            outputs: list(&record.outputs),
        }
    }
}

impl Call {
    /// A collective is known by its group and the group's count of calls, a message between two
    /// ranks by both ends and their count; older recorders name neither, and there a call is known
    /// by its place in the program, as `trace diff` joins them.
    fn of(record: &Record<'_>) -> Option<Call> {
        let group = text(record, "group").unwrap_or_default();
        if &*record.kind == "message" {
            return Call::message(record, group);
        }
        if &*record.kind != "collective" {
            return None;
        }
        let name = text(record, "collective").unwrap_or_else(|| record.name.to_string());
        if let Some(seq) = number(record, "pair_seq") {
            return Call::pair(record, (group, seq));
        }
        let ranks = record.extra.get("group_ranks");
        let members = match (
            ranks.and_then(read::<Vec<u32>>),
            number(record, "group_size"),
        ) {
            (Some(ranks), _) => Members::Ranks(ranks),
            (None, Some(size)) => Members::Count(size),
            (None, None) => Members::Untold,
        };
        let (place, told) = match number(record, "group_seq") {
            Some(seq) => (format!("{seq}"), format!("{name} {group} #{seq}")),
            None => {
                let place = (
                    record.iteration,
                    record.microbatch,
                    &*record.phase,
                    &*record.id,
                );
                (
                    format!("{place:?}"),
                    format!("{name} {group} {}", record.id),
                )
            }
        };
        let key = (name, group, ranks.unwrap_or_default(), place);
        let key = format!("collective {key:?}");
        Some(Call {
            key,
            name: told,
            members,
        })
    }

    /// One end of a message that a check has recorded: both ends are recorded at the same time, and
    /// in the same order. Its count at that time is added where the stream is read.
    fn message(record: &Record<'_>, group: String) -> Option<Call> {
        let time = number(record, "time")?;
        let (from, to) = group.split_once(" to ")?;
        let ends = vec![from.parse().ok()?, to.parse().ok()?];
        Some(Call {
            key: format!("message {group} at {time}"),
            name: format!("message {group}"),
            members: Members::Ranks(ends),
        })
    }

    /// A `send` or `recv` of one process group, counted apart for each peer and way.
    fn pair(record: &Record<'_>, (group, seq): (String, u64)) -> Option<Call> {
        let own = u32::try_from(record.rank).ok()?;
        let peer = u32::try_from(number(record, "peer")?).ok()?;
        let (from, to) = match &*record.name {
            "send" => (own, peer),
            "recv" => (peer, own),
            _ => return None,
        };
        let tag = record.extra.get("tag").unwrap_or("null");
        Some(Call {
            key: format!("pair {:?}", (&group, from, to, tag, seq)),
            name: format!("{from} to {to} in {group} #{seq}"),
            members: Members::Ranks(vec![from, to]),
        })
    }
}

/// The stream that a record was issued on: its own field, or in `note` as our recorder for real
/// runs writes it.
fn stream_of(record: &Record<'_>) -> String {
    #[derive(serde::Deserialize)]
    struct Note {
        stream: Option<u64>,
    }
    let numbered = |number: u64| format!("stream {number}");
    let own = text(record, "stream").or_else(|| number(record, "stream").map(numbered));
    let noted = || {
        let note = record
            .extra
            .get("note")
            .filter(|note| note.starts_with('{'))?;
        read::<Note>(note)?.stream.map(numbered)
    };
    own.or_else(noted)
        .unwrap_or_else(|| UNTOLD_STREAM.to_string())
}

fn read<'a, T: serde::Deserialize<'a>>(json: &'a str) -> Option<T> {
    serde_json::from_str(json).ok()
}

fn text(record: &Record<'_>, key: &str) -> Option<String> {
    record.extra.get(key).and_then(read)
}

fn number(record: &Record<'_>, key: &str) -> Option<u64> {
    record.extra.get(key).and_then(read)
}
