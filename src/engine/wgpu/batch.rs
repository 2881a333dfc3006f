//! Batches: launches that become one dispatch.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::shard::{Shard, Words};
use super::stream::{Dispatch, TABLE_WORDS, Told};
use crate::engine::launch::Signature;
use crate::engine::{EngineError, Launch, ProgramId};
use crate::kernel::HEADER_WORDS;

/// A launch with its operands where they lie.
pub(super) struct Placed<'a> {
    /// Its place in the run.
    pub number: usize,
    pub launch: &'a Launch,
    pub operands: Vec<Words>,
}

type Key = (ProgramId, [u32; 3], Vec<u32>);

/// Records all launches, those of one program with one grid on the same heaps as one dispatch.
///
/// # Errors
/// Earlier work that failed, where a wait for it was needed first.
pub(super) fn record(
    shard: &mut Shard,
    signatures: &[Arc<Signature>],
    run: u64,
    launches: Vec<Placed<'_>>,
) -> Result<(), EngineError> {
    let count = launches.iter().map(|placed| placed.number + 1).max();
    shard.begin(run, count.unwrap_or(0))?;
    let mut groups: BTreeMap<Key, Vec<Placed<'_>>> = BTreeMap::new();
    for placed in launches {
        let heaps = placed.operands.iter().map(|words| words.heap).collect();
        let key = (placed.launch.program, placed.launch.grid, heaps);
        groups.entry(key).or_default().push(placed);
    }
    for ((program, grid, heaps), mut placed) in groups {
        let signature = &signatures[program.0 as usize];
        let row_words = shard.program(program).row_words as usize;
        let along_z = shard.device.limits.max_compute_workgroups_per_dimension / grid[2];
        let in_table = (TABLE_WORDS - HEADER_WORDS as usize) / row_words;
        let most = (along_z as usize).min(in_table).max(1);
        while !placed.is_empty() {
            let rest = placed.split_off(most.min(placed.len()));
            let code = |placed: &Placed<'_>| shard.code(run, placed.number);
            let table = table(signature, row_words, &placed, shard.device.rounds_max, code);
            let group = shard.group(program, &heaps);
            let told = Told {
                signature: signature.clone(),
                run,
                launches: placed.iter().map(|placed| placed.number).collect(),
                extents: extents(signature, &placed),
            };
            let dispatch = Dispatch {
                pipeline: shard.program(program).pipeline.clone(),
                group,
                table,
                grid: [grid[0], grid[1], grid[2] * placed.len() as u32],
                told,
            };
            shard.record(dispatch);
            placed = rest;
        }
    }
    Ok(())
}

/// The table of `kernel::lower`.
fn table(
    signature: &Signature,
    row_words: usize,
    placed: &[Placed<'_>],
    rounds_max: u32,
    code: impl Fn(&Placed<'_>) -> u32,
) -> Vec<u32> {
    let rows = placed.len() * row_words;
    let mut table = Vec::with_capacity(HEADER_WORDS as usize + rows);
    table.extend([placed[0].launch.grid[2], 0.0f32.to_bits(), rounds_max, 0]);
    assert_eq!(table.len(), HEADER_WORDS as usize);
    for placed in placed {
        table.extend(placed.launch.grid);
        table.push(code(placed));
        for (words, operand) in placed.operands.iter().zip(&signature.operands) {
            let step = operand.element_words;
            table.extend([words.start / step, words.len / step]);
        }
        table.extend(&placed.launch.params);
    }
    assert_eq!(table.len(), HEADER_WORDS as usize + rows);
    table
}

fn extents(signature: &Signature, placed: &[Placed<'_>]) -> Vec<u32> {
    let of = |placed: &Placed<'_>| {
        let pairs = placed.operands.iter().zip(&signature.operands);
        pairs
            .map(|(words, operand)| words.len / operand.element_words)
            .collect::<Vec<u32>>()
    };
    placed.iter().flat_map(of).collect()
}
