//! R2R, the part that trusts nobody: the canonical schedule once more, in another shape that must
//! not matter. A difference is variation that the choice variables do not describe.

use std::collections::BTreeMap;

use crate::engine::EngineChoice;
use crate::prove::session::{CheckError, Session};
use crate::world::{MemoryOptions, NodeRecord, RunOptions, RunRecord};

/// Words before the first allocation of the second run: other addresses, same alignment.
const BASE_WORDS: u32 = 4160;
/// What unwritten memory of the second run holds: a finite number that no training produces.
const POISON: u32 = 0xdead_beef;
/// Launches of one engine call in the second run.
const BATCH_LAUNCHES: usize = 3;

/// The first node that differs between two runs of one schedule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeDifference {
    pub a: NodeRecord,
    pub b: NodeRecord,
    /// Nodes of the same rank before it that agree.
    pub equal_before: u64,
}

/// What differs in the second run, in words.
pub fn describe(engine: &EngineChoice, workers: usize) -> String {
    let where_it_runs = match engine {
        EngineChoice::Cpu => format!("with {} worker thread(s)", other(workers)),
        // Worker threads run nothing there: what runs at once is the device's affair.
        EngineChoice::Wgpu { .. } => "on the same adapter, opened anew".to_string(),
    };
    format!(
        "full second run {where_it_runs}, ranks started in descending order, at most \
         {BATCH_LAUNCHES} launches a dispatch, memory shifted by {BASE_WORDS} words, unwritten \
         memory filled with 0x{POISON:08x}"
    )
}

fn other(workers: usize) -> usize {
    if workers == 1 { 2 } else { 1 }
}

pub fn perturbed() -> RunOptions {
    RunOptions {
        start_descending: true,
        batch_launches_max: BATCH_LAUNCHES,
        memory: MemoryOptions {
            base_words: BASE_WORDS,
            poison: Some(POISON),
        },
        ..RunOptions::default()
    }
}

/// Runs again and compares every root and every metric with the reference run's.
///
/// # Errors
/// Whatever stops the second run.
pub fn second_run(
    session: &mut Session,
    workers: usize,
    reference: &RunRecord,
) -> Result<Option<NodeDifference>, CheckError> {
    session.set_workers(other(workers))?;
    let steps = session.steps();
    let second = session.plain_run(&perturbed(), steps.clone())?;
    let equal = second.roots == reference.roots && same_bits(&second.metrics, &reference.metrics);
    let difference = if equal {
        None
    } else {
        let recorded = RunOptions {
            record_nodes: true,
            ..perturbed()
        };
        let b = session.plain_run(&recorded, steps.clone())?;
        session.set_workers(workers)?;
        let recorded = RunOptions {
            record_nodes: true,
            faults: session.corruption(),
            ..RunOptions::default()
        };
        let a = session.plain_run(&recorded, steps)?;
        let found = first_difference(&a.records, &b.records);
        Some(found.ok_or_else(|| {
            CheckError::Internal("two runs differ, and no node of theirs does".to_string())
        })?)
    };
    session.set_workers(workers)?;
    Ok(difference)
}

/// Metrics as bytes: NaN equals NaN, -0 differs from +0.
pub fn same_bits(a: &BTreeMap<(u32, String), f32>, b: &BTreeMap<(u32, String), f32>) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|((k, x), (l, y))| k == l && x.to_bits() == y.to_bits())
}

/// The first node whose digests differ: the least (step, wave, rank) over all ranks' own orders.
pub fn first_difference(a: &[NodeRecord], b: &[NodeRecord]) -> Option<NodeDifference> {
    let mut of_rank: BTreeMap<u32, [Vec<&NodeRecord>; 2]> = BTreeMap::new();
    for (side, records) in [a, b].into_iter().enumerate() {
        for record in records {
            of_rank.entry(record.rank).or_default()[side].push(record);
        }
    }
    let firsts = of_rank.values().filter_map(|[a, b]| {
        let place = (0..a.len().min(b.len())).find(|place| {
            a[*place].digest != b[*place].digest || a[*place].site != b[*place].site
        })?;
        let (a, b) = (a[place].clone(), b[place].clone());
        Some(NodeDifference {
            a,
            b,
            equal_before: place as u64,
        })
    });
    firsts.min_by_key(|difference| {
        let record = &difference.a;
        (record.site.step, record.wave, record.rank)
    })
}
