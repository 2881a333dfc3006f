//! Records as lines for people, or as they are.

use super::boundary::BoundaryStream;
use super::certify::RankStream;
use super::convert::op_line;
use super::damage::Damage;
use super::folder::Folder;
use super::op::{Operand, Record, Value};
use crate::diagnostic::escaped;

/// Which records.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    pub rank: Option<u32>,
    pub iteration: Option<u64>,
    pub kind: Option<String>,
    /// At most this many of each rank.
    pub limit: u64,
    /// As JSON, one record a line.
    pub is_json: bool,
}

impl Filter {
    fn takes(&self, iteration: Option<u64>, kind: &str) -> bool {
        let is_iteration = self
            .iteration
            .is_none_or(|wanted| iteration == Some(wanted));
        is_iteration && self.kind.as_ref().is_none_or(|wanted| wanted == kind)
    }
}

/// Gives each line to `out`, rank after rank, until that wants no more.
///
/// # Errors
/// What cannot be trusted up to there.
pub fn show(
    folder: &Folder,
    filter: &Filter,
    mut out: impl FnMut(&str) -> bool,
) -> Result<(), Damage> {
    let own = |rank: u32| folder.own(rank);
    let is_wanted = |rank: u32| filter.rank.is_none_or(|wanted| wanted == rank);
    for (rank, files) in folder.ops.iter().filter(|(rank, _)| is_wanted(**rank)) {
        let mut stream = RankStream::open(files, own(*rank))?;
        let mut left = filter.limit;
        while left > 0 && stream.ready()? {
            let line = stream.certified(|record| {
                let is_taken = filter.takes(record.iteration, &record.kind);
                is_taken.then(|| match filter.is_json {
                    true => op_line(record, record.seq),
                    false => in_words(record),
                })
            })?;
            if let Some(line) = line {
                left -= 1;
                if !out(&line) {
                    return Ok(());
                }
            }
            stream.advance();
        }
    }
    if !folder.ops.is_empty() {
        return Ok(());
    }
    for (rank, files) in folder.boundary.iter().filter(|(rank, _)| is_wanted(**rank)) {
        let mut stream = BoundaryStream::open(files, own(*rank))?;
        let mut left = filter.limit;
        while left > 0
            && let Some(line) = stream.next(|record| {
                let is_taken = filter.takes(record.iteration, &record.event);
                is_taken.then(|| serde_json::to_string(record).expect("it has a JSON form"))
            })?
        {
            if let Some(line) = line {
                left -= 1;
                if !out(&line) {
                    return Ok(());
                }
            }
        }
    }
    Ok(())
}

fn in_words(record: &Record<'_>) -> String {
    let number = |value: Option<u64>| value.map_or("-".to_string(), |value| value.to_string());
    let list = |operands: &[Operand<'_>]| {
        let texts: Vec<String> = operands.iter().map(operand).collect();
        texts.join(" ")
    };
    let text = format!(
        "rank {} seq {} iteration {} microbatch {} {} {} {} {}: {} -> {}",
        record.rank,
        record.seq,
        number(record.iteration),
        number(record.microbatch),
        record.phase,
        record.kind,
        record.id,
        record.scope,
        list(&record.inputs),
        list(&record.outputs)
    );
    escaped(&text).into_owned()
}

pub(super) fn operand(operand: &Operand<'_>) -> String {
    let shape: Vec<String> = operand.shape.iter().map(u64::to_string).collect();
    let value = match &operand.value {
        Value::Digest { digest, bytes64 } => bytes64.as_ref().unwrap_or(digest).to_string(),
        Value::Unknown(why) => format!("({})", why.words()),
    };
    format!("{}[{}] {value}", operand.dtype, shape.join(","))
}
