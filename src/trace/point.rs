//! What a record is known by: its place in a rank's own stream.

use super::op::Record;

/// A record, as it is named.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    pub iteration: Option<u64>,
    pub kind: String,
    pub name: String,
    pub id: String,
    pub seq: u64,
    pub microbatch: Option<u64>,
    pub phase: String,
    pub scope: String,
}

impl Point {
    pub fn of(record: &Record<'_>) -> Point {
        Point {
            iteration: record.iteration,
            kind: record.kind.to_string(),
            name: record.name.to_string(),
            id: record.id.to_string(),
            seq: record.seq,
            microbatch: record.microbatch,
            phase: record.phase.to_string(),
            scope: record.scope.to_string(),
        }
    }
}
