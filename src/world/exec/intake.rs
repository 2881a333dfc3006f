//! What ranks have sent when they park: commands that go to their streams, declarations, notes.

use crate::fault::FaultKind;
use crate::world::error::WorldError;
use crate::world::rank::{Declaration, Park, Parked};

use super::coordinator::{Coordinator, at};
use super::{PlantedFault, StateTensor};

/// Notes that are kept; more are only counted.
const NOTES_MAX: usize = 256;

impl Coordinator<'_> {
    pub(super) fn absorb(&mut self, mut parked: Parked) -> Result<(), WorldError> {
        let rank = parked.rank;
        let registry = &self.world.registry;
        let struck =
            self.command_faults
                .strike(rank, &mut parked.issued, registry, &mut self.fault_log);
        self.record.faults_planted += struck;
        for (kind, step, name) in &parked.asked {
            self.meet_asked(rank, *kind, *step, name);
        }
        let peak = self.record.peak_bytes.entry(rank).or_insert(0);
        *peak = parked.peak_bytes.max(*peak);
        let state = &mut self.ranks[rank as usize];
        let grown = state.memory.grow(self.engine, parked.extent_words);
        grown.map_err(|source| at(&rank.to_string(), "memory", source))?;
        self.heads.stir(rank);
        for (stream, issued) in parked.issued {
            if let Some(accesses) = &mut state.accesses {
                accesses.issued(stream, &issued);
            }
            state.hold.issues(issued.ordinal);
            let queue = state.streams.entry(stream).or_default();
            if queue.is_empty() && !state.hold.holds(issued.ordinal) {
                self.heads.appeared(rank, stream, &issued.command);
            }
            queue.push_back(issued);
        }
        state.finished = matches!(parked.park, Park::Finished(_));
        state.park = Some(parked.park);
        let room = NOTES_MAX.saturating_sub(self.record.notes.len());
        self.record.notes_beyond += parked.notes.len().saturating_sub(room) as u64;
        self.record
            .notes
            .extend(parked.notes.into_iter().take(room));
        for declaration in parked.declared {
            self.declare(rank, declaration);
        }
        Ok(())
    }

    /// The program has asked whether a fault strikes here.
    fn meet_asked(&mut self, rank: u32, kind: FaultKind, step: u32, name: &str) {
        self.fault_log.seen(kind, name, rank, step);
        for fault in &self.options.faults {
            if let PlantedFault::Named(fault) = fault
                && fault.strikes(kind, name, rank, step)
            {
                self.fault_log.met(fault);
            }
        }
    }

    fn declare(&mut self, rank: u32, declaration: Declaration) {
        match declaration {
            Declaration::Persisted {
                component,
                name,
                tensor,
            } => {
                self.ranks[rank as usize]
                    .persisted
                    .insert((component, name), tensor);
            }
            Declaration::Replicated {
                group,
                name,
                tensor,
            } => {
                self.replicas
                    .entry((group, name))
                    .or_default()
                    .insert(rank, tensor);
            }
            Declaration::Metric { name, tensor } => {
                self.ranks[rank as usize].metrics.insert(name, tensor);
            }
            Declaration::Saved {
                after,
                iteration,
                tensors,
            } => {
                let file = self.record.files.entry(after).or_default();
                file.iterations.insert(rank, iteration);
                for ((component, name), (dtype, words)) in tensors {
                    let tensor = StateTensor { dtype, words };
                    file.state.insert((rank, component, name), tensor);
                }
            }
        }
    }
}
