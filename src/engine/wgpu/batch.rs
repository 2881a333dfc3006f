//! Batches: launches that become one dispatch.

use std::collections::BTreeMap;

use super::{WgpuEngine, buffers};
use crate::engine::{ArenaId, EngineError, Launch, ProgramId};
use crate::kernel::HEADER_WORDS;

/// What the flag of a batch holds when every access was inside.
pub(super) const NO_FAULT: u32 = u32::MAX;
/// The flag holds instance x 16 + operand.
const MAX_INSTANCES: u32 = NO_FAULT / 16;

/// Launches of one program with one grid on the same arenas, ascending.
pub(super) struct Batch {
    pub launches: Vec<usize>,
}

impl Batch {
    /// All launches with work to do, in batches of at most `most_workgroups` along z.
    pub fn gather(launches: &[Launch], most_workgroups: u32) -> Vec<Batch> {
        type Key = (ProgramId, [u32; 3], Vec<ArenaId>);
        let mut groups: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
        for (place, launch) in launches.iter().enumerate() {
            if launch.grid.contains(&0) {
                continue;
            }
            let arenas = launch.operands.iter().map(|span| span.arena).collect();
            groups
                .entry((launch.program, launch.grid, arenas))
                .or_default()
                .push(place);
        }
        let mut batches = Vec::new();
        for ((_, grid, _), places) in groups {
            let instances = (most_workgroups / grid[2]).clamp(1, MAX_INSTANCES);
            let parts = places.chunks(instances as usize);
            batches.extend(parts.map(|part| Batch {
                launches: part.to_vec(),
            }));
        }
        batches
    }

    /// The table of `kernel::lower`.
    fn table(&self, engine: &WgpuEngine, launches: &[Launch]) -> Vec<u32> {
        let first = &launches[self.launches[0]];
        let program = &engine.programs[first.program.0 as usize];
        let mut table = vec![first.grid[2]];
        table.resize(HEADER_WORDS as usize, 0);
        for place in &self.launches {
            let launch = &launches[*place];
            table.extend(launch.grid);
            for (span, operand) in launch.operands.iter().zip(&program.signature.operands) {
                let step = operand.element_words;
                table.extend([span.offset_words / step, span.words / step]);
            }
            table.extend(&launch.params);
        }
        let rows = self.launches.len() * program.row_words as usize;
        assert_eq!(table.len(), HEADER_WORDS as usize + rows);
        table
    }
}

/// Runs the batches and gives the flag of each.
pub(super) fn dispatch(
    engine: &WgpuEngine,
    launches: &[Launch],
    batches: &[Batch],
) -> Result<Vec<u32>, EngineError> {
    let device = &engine.device;
    let mut flags = Vec::new();
    for batch in batches {
        let table = batch.table(engine, launches);
        let table_buffer = buffers::storage(device, table.len() as u64);
        buffers::write(device, &table_buffer, 0, &table);
        let flag = buffers::storage(device, 1);
        buffers::write(device, &flag, 0, &[NO_FAULT]);
        let first = &launches[batch.launches[0]];
        let program = &engine.programs[first.program.0 as usize];
        let arenas = first
            .operands
            .iter()
            .map(|span| &engine.arenas[span.arena.0 as usize].buffer);
        let entries: Vec<wgpu::BindGroupEntry> = arenas
            .chain([&table_buffer, &flag])
            .enumerate()
            .map(|(binding, buffer)| wgpu::BindGroupEntry {
                binding: binding as u32,
                resource: buffer.as_entire_binding(),
            })
            .collect();
        let group = device.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: None,
            layout: &program.layout,
            entries: &entries,
        });
        let mut encoder = device.device.create_command_encoder(&Default::default());
        let mut pass = encoder.begin_compute_pass(&Default::default());
        pass.set_pipeline(&program.pipeline);
        pass.set_bind_group(0, &group, &[]);
        let [x, y, z] = first.grid;
        pass.dispatch_workgroups(x, y, z * batch.launches.len() as u32);
        drop(pass);
        device.queue.submit([encoder.finish()]);
        flags.push(flag);
    }
    flags
        .iter()
        .map(|flag| Ok(buffers::read(device, flag, 0, 1)?[0]))
        .collect()
}
