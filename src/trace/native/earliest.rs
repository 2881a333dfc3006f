//! The first of all ranks' first differences, by the clock that simulated ranks share.

use std::collections::BTreeMap;

use rayon::prelude::*;

use crate::trace::certify::RankStream;
use crate::trace::damage::Damage;
use crate::trace::diff::{Comparison, Difference, Divergence, Side};
use crate::trace::folder::Folder;

/// Where two recordings part first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Earliest {
    pub divergence: Divergence,
    /// The ranks that part at this record, at this time.
    pub ranks: Vec<u32>,
}

/// The earliest difference of a comparison of two recordings; nothing where there is none.
///
/// # Errors
/// Files that changed since they were compared.
pub fn earliest(
    folders: [&Folder; 2],
    comparison: &Comparison,
) -> Result<Option<Earliest>, Damage> {
    let firsts: Vec<(&u32, &Divergence)> = comparison.firsts.iter().collect();
    let timed = firsts.into_par_iter().map(|(rank, first)| {
        let folder = match first.difference {
            Difference::Missing { from: Side::A } => folders[1],
            _ => folders[0],
        };
        let time = match folder.ops.contains_key(rank) {
            true => time_of(folder, *rank, first)?,
            // In the boundary stream alone: after all of its iteration.
            false => None,
        };
        let key = (time.unwrap_or(u64::MAX), first.point.iteration);
        Ok(((key, *rank), first))
    });
    let timed: BTreeMap<_, &Divergence> = timed.collect::<Result<_, Damage>>()?;
    let Some(((key, _), divergence)) = timed.iter().next() else {
        return Ok(None);
    };
    let name = |first: &Divergence| (first.point.kind.clone(), first.point.id.clone());
    let together = timed
        .iter()
        .filter(|((other, _), first)| other == key && name(first) == name(divergence));
    Ok(Some(Earliest {
        divergence: (*divergence).clone(),
        ranks: together.map(|((_, rank), _)| *rank).collect(),
    }))
}

fn time_of(folder: &Folder, rank: u32, first: &Divergence) -> Result<Option<u64>, Damage> {
    let mut stream = RankStream::open(&folder.ops[&rank], Some(rank))?;
    while stream.ready()? {
        let record = stream.record()?;
        let point = &first.point;
        if record.seq == point.seq && *record.id == *point.id {
            let time = record.extra.get("time");
            return Ok(time.and_then(|time| time.parse().ok()));
        }
        stream.advance();
    }
    Ok(None)
}
