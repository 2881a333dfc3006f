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
    /// The run differs from its own exact repetition.
    pub corruption: Option<Corruption>,
}

/// What changed by itself: a run that was repeated in every respect gave other bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Corruption {
    pub rank: u32,
    pub step: u32,
    pub place: CorruptPlace,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CorruptPlace {
    /// What a node wrote, though it was given the same.
    Node(String),
    /// Memory, after the step and before anybody read it.
    Buffer(String),
}

impl std::fmt::Display for Corruption {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Corruption { rank, step, place } = self;
        write!(f, "corruption: the same run done again gives other bytes, ")?;
        match place {
            CorruptPlace::Node(node) => write!(
                f,
                "first in what `{node}` wrote in step {step} on rank {rank}"
            ),
            CorruptPlace::Buffer(buffer) => write!(
                f,
                "first in `{buffer}` of rank {rank} after step {step}, which nothing wrote then"
            ),
        }
    }
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

/// Worker threads of the second run.
pub fn other(workers: usize) -> usize {
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

/// The error of a reference run that stopped: of both runs, or of this one alone.
///
/// # Errors
/// A failure of the machine.
pub fn told_of_stop(
    session: &mut Session,
    workers: usize,
    error: CheckError,
) -> Result<CheckError, CheckError> {
    if !matches!(error, CheckError::Stopped(_)) {
        return Ok(error);
    }
    session.set_workers(other(workers))?;
    let steps = session.steps();
    let second = session.plain_run(&perturbed(), steps);
    session.set_workers(workers)?;
    match second.map_err(CheckError::from) {
        Ok(_) => Ok(error.not_repeated(&[])),
        Err(second) if second.is_stop() => Ok(error),
        Err(second) => Err(second),
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
    if equal {
        session.set_workers(workers)?;
        return Ok(None);
    }
    let recorded = RunOptions {
        record_nodes: true,
        ..perturbed()
    };
    let b = session.plain_run(&recorded, steps.clone())?;
    session.set_workers(workers)?;
    let plain = RunOptions {
        record_nodes: true,
        record_buffers: true,
        ..RunOptions::default()
    };
    let reference = RunOptions {
        faults: session.corruption(),
        ..plain.clone()
    };
    let a = session.plain_run(&reference, steps.clone())?;
    let found = first_difference(&a.records, &b.records);
    let found = found.ok_or_else(|| {
        CheckError::Internal("two runs differ, and no node of theirs does".to_string())
    })?;
    let again = session.plain_run(&plain, steps)?;
    Ok(Some(NodeDifference {
        corruption: corruption(&a, &again),
        ..found
    }))
}

/// Where a run first differs from its repetition.
fn corruption(run: &RunRecord, again: &RunRecord) -> Option<Corruption> {
    let node = first_difference(&run.records, &again.records)?.a;
    let mut buffers = run.buffers.iter();
    let changed = buffers.find(|(key, digest)| again.buffers.get(*key) != Some(digest));
    Some(match changed {
        Some(((step, rank, name, _), _)) if *step < node.site.step => Corruption {
            rank: *rank,
            step: *step,
            place: CorruptPlace::Buffer(name.clone()),
        },
        _ => Corruption {
            rank: node.rank,
            step: node.site.step,
            place: CorruptPlace::Node(node.site.node()),
        },
    })
}

/// Metrics as bytes: NaN equals NaN, -0 differs from +0.
pub fn same_bits(a: &BTreeMap<(u32, String), f32>, b: &BTreeMap<(u32, String), f32>) -> bool {
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|((k, x), (l, y))| k == l && x.to_bits() == y.to_bits())
}

/// The first metric of `of` that `other` has in other bits, or has not.
pub fn first_other_metric<'a>(of: &'a RunRecord, other: &RunRecord) -> Option<&'a (u32, String)> {
    let mut metrics = of.metrics.iter();
    let differs = |(key, value): &(&(u32, String), &f32)| {
        other.metrics.get(*key).map(|value| value.to_bits()) != Some(value.to_bits())
    };
    metrics.find(differs).map(|(key, _)| key)
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
            corruption: None,
        })
    });
    firsts.min_by_key(|difference| {
        let record = &difference.a;
        (record.site.step, record.wave, record.rank)
    })
}

/// The same of runs that launch a step's nodes in other orders, some of them in one run only: node
/// by node of those that both have, by site.
pub fn first_difference_at_sites(a: &[NodeRecord], b: &[NodeRecord]) -> Option<NodeDifference> {
    let of_b: BTreeMap<(u32, String, u32), &NodeRecord> = at_sites(b).collect();
    let both = at_sites(a).filter_map(|(key, a)| Some((a, *of_b.get(&key)?)));
    let differing = both
        .enumerate()
        .filter(|(_, (a, b))| a.digest != b.digest)
        .map(|(place, (a, b))| NodeDifference {
            a: a.clone(),
            b: b.clone(),
            equal_before: place as u64,
            corruption: None,
        });
    differing.min_by_key(|difference| {
        let record = &difference.a;
        (record.site.step, record.wave, record.rank)
    })
}

/// Each node with its rank, its site, and how often that came before.
fn at_sites(records: &[NodeRecord]) -> impl Iterator<Item = ((u32, String, u32), &NodeRecord)> {
    let mut counts: BTreeMap<(u32, String), u32> = BTreeMap::new();
    records.iter().map(move |record| {
        let (rank, site) = (record.rank, record.site.to_string());
        let count = counts.entry((rank, site.clone())).or_insert(0);
        *count += 1;
        ((rank, site, *count - 1), record)
    })
}
