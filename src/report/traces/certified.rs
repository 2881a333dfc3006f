//! What `trace certify` says.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::listed;
use crate::diagnostic::escaped;
use crate::report::counted;
use crate::trace::certify::{Certificate, Coverage, runs, runs_of};

/// What ranks that share a line have in common: their count of records, and their iterations.
type Alike<'a> = (u64, &'a [(u64, u64)]);

/// The certificate for people: ranks that cover alike share a line.
pub fn certificate_to_human(name: &str, certificate: &Certificate) -> String {
    let name = escaped(name);
    let mut text = match certificate.reasons.len() as u64 {
        0 => format!("{name}: can be trusted\n"),
        count => format!("{name}: not to be trusted, {}\n", counted(count, "reason")),
    };
    let mut alike: BTreeMap<Alike<'_>, Vec<u64>> = BTreeMap::new();
    let mut kinds: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut digested, mut recomputed) = (0, 0);
    for (rank, coverage) in &certificate.ranks {
        let key = (coverage.records, &coverage.iterations[..]);
        alike.entry(key).or_default().push(u64::from(*rank));
        for (kind, count) in &coverage.kinds {
            *kinds.entry(kind).or_default() += count;
        }
        digested += coverage.digested;
        recomputed += coverage.recomputed;
    }
    for ((records, iterations), ranks) in alike.iter().take(GROUPS_MAX) {
        let which = ranks_in_words(ranks);
        let records = counted(*records, "record");
        text.push_str(&format!(
            "  {which}: {records}{}\n",
            in_iterations(iterations)
        ));
    }
    if alike.len() > GROUPS_MAX {
        let more = (alike.len() - GROUPS_MAX) as u64;
        text.push_str(&format!("  and {} of ranks\n", counted(more, "more group")));
    }
    if !kinds.is_empty() {
        let counts: Vec<String> = kinds
            .iter()
            .map(|(kind, count)| format!("{count} {}", escaped(kind)))
            .collect();
        text.push_str(&format!("  records: {}\n", counts.join(", ")));
        text.push_str(&format!("  operands with a digest: {digested}\n"));
    }
    if recomputed > 0 {
        text.push_str(&format!("  recomputed as their forward: {recomputed}\n"));
    }
    if !certificate.boundary.is_empty() {
        let records: u64 = certificate.boundary.values().map(|one| one.records).sum();
        let streams = counted(certificate.boundary.len() as u64, "boundary stream");
        text.push_str(&format!("  {streams}: {}\n", counted(records, "record")));
    }
    text + &listed("not covered:", &certificate.not_covered)
}

/// Groups of ranks that are listed.
const GROUPS_MAX: usize = 12;

fn ranks_in_words(ranks: &[u64]) -> String {
    let which = runs_of(ranks.iter().copied());
    match ranks {
        [_] => format!("rank {which}"),
        _ => format!("ranks {which}, each"),
    }
}

fn in_iterations(iterations: &[(u64, u64)]) -> String {
    match iterations {
        [] => ", in no iteration".to_string(),
        _ => format!(", iterations {}", runs(iterations)),
    }
}

/// The certificate for programs.
pub fn certificate_to_json(name: &str, certificate: &Certificate) -> Value {
    let rank = |coverage: &Coverage| {
        let undigested = coverage.undigested.iter();
        let undigested: BTreeMap<&str, u64> = undigested
            .map(|(why, count)| (why.words(), *count))
            .collect();
        json!({
            "rank": coverage.rank,
            "records": coverage.records,
            "iterations": runs(&coverage.iterations),
            "kinds": coverage.kinds,
            "digested": coverage.digested,
            "undigested": undigested,
            "recomputed": coverage.recomputed,
        })
    };
    let boundary = certificate.boundary.iter().map(|(rank, coverage)| {
        json!({
            "rank": rank,
            "records": coverage.records,
            "iterations": runs(&coverage.iterations),
        })
    });
    let reasons = certificate
        .reasons
        .iter()
        .map(|reason| reason.to_diagnostic().to_json());
    json!({
        "folder": name,
        "trusted": certificate.is_trusted(),
        "reasons": reasons.collect::<Vec<_>>(),
        "ranks": certificate.ranks.values().map(rank).collect::<Vec<_>>(),
        "boundary": boundary.collect::<Vec<_>>(),
        "not_covered": certificate.not_covered,
    })
}
