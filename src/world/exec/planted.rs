//! Faults that are planted in the commands of a rank, as they come from its host.

use std::collections::BTreeSet;

use crate::kernel::Registry;
use crate::world::command::{Collective, CollectiveKind, Command, Issued};
use crate::world::rank::{COMPUTE_STREAM, GroupId, StreamId};
use crate::world::site::Phase;

use super::PlantedFault;

/// A fault and how many commands it could have struck so far.
struct Pending {
    fault: PlantedFault,
    seen: u32,
    struck: bool,
}

/// The faults of a run that change commands.
pub(super) struct CommandFaults {
    pending: Vec<Pending>,
    /// (rank, ticket) of the step's collectives: tells their waits from others.
    collectives: BTreeSet<(u32, u32)>,
}

/// What becomes of a command.
enum Fate {
    Untouched,
    Changed,
    Dropped,
}

impl CommandFaults {
    pub fn new(faults: &[PlantedFault]) -> Self {
        let strikes_commands = |fault: &&PlantedFault| {
            !matches!(
                fault,
                PlantedFault::Fold { .. } | PlantedFault::State { .. }
            )
        };
        let pending = faults.iter().filter(strikes_commands).map(|fault| Pending {
            fault: fault.clone(),
            seen: 0,
            struck: false,
        });
        CommandFaults {
            pending: pending.collect(),
            collectives: BTreeSet::new(),
        }
    }

    /// Strikes `rank`'s commands, which its host issued in this order. Returns how many faults
    /// found their command.
    pub fn strike(
        &mut self,
        rank: u32,
        issued: &mut Vec<(StreamId, Issued)>,
        registry: &Registry,
    ) -> u32 {
        if self.pending.is_empty() {
            return 0;
        }
        let mut struck = 0;
        issued.retain_mut(|(stream, issued)| {
            if let Command::Collective(call) = &issued.command {
                self.collectives.insert((rank, call.ticket));
            }
            let mut keep = true;
            for pending in self.pending.iter_mut().filter(|pending| !pending.struck) {
                let fate = pending.meet(rank, *stream, issued, &self.collectives, registry);
                pending.struck = !matches!(fate, Fate::Untouched);
                struck += u32::from(pending.struck);
                keep &= !matches!(fate, Fate::Dropped);
            }
            keep
        });
        struck
    }

    /// Tickets are numbered anew.
    pub fn end_step(&mut self, rank: u32) {
        self.collectives.retain(|(owner, _)| *owner != rank);
    }
}

impl Pending {
    fn meet(
        &mut self,
        rank: u32,
        stream: StreamId,
        issued: &mut Issued,
        collectives: &BTreeSet<(u32, u32)>,
        registry: &Registry,
    ) -> Fate {
        let (at, step, nth) = target(&self.fault);
        let here = at == rank && issued.site.step == step && issued.site.phase != Phase::Setup;
        if !here {
            return Fate::Untouched;
        }
        let in_group = |call: &Collective, group: GroupId| call.group == group;
        let candidate = match (&self.fault, &issued.command) {
            (PlantedFault::DropWait { .. }, Command::Wait { ticket, .. }) => {
                stream == COMPUTE_STREAM && collectives.contains(&(rank, *ticket))
            }
            (
                PlantedFault::SkipLaunch { .. } | PlantedFault::WrongKernelExtent { .. },
                Command::Launch { .. },
            ) => true,
            (PlantedFault::SkipCopy { op, .. }, Command::Copy { .. }) => {
                issued.site.op == *op.as_str()
            }
            (
                PlantedFault::MismatchCount { group, .. } | PlantedFault::MissingCall { group, .. },
                Command::Collective(call),
            ) => in_group(call, *group),
            _ => false,
        };
        self.seen += u32::from(candidate);
        if !candidate || self.seen <= nth {
            return Fate::Untouched;
        }
        self.fault.change(&mut issued.command, registry)
    }
}

impl PlantedFault {
    fn change(&self, command: &mut Command, registry: &Registry) -> Fate {
        match (self, &mut *command) {
            (PlantedFault::MissingCall { .. }, Command::Collective(call)) => {
                let ticket = call.ticket;
                *command = Command::Record { ticket };
                Fate::Changed
            }
            (PlantedFault::MismatchCount { .. }, Command::Collective(call)) => {
                shorten(call);
                Fate::Changed
            }
            (
                PlantedFault::WrongKernelExtent { .. },
                Command::Launch {
                    kernel, operands, ..
                },
            ) => {
                let linked = registry.get(kernel).ok();
                let last = linked.and_then(|linked| linked.operands.last());
                let element = last.map_or(1, |operand| operand.element_words);
                if let Some(tensor) = operands.last_mut() {
                    tensor.len = (tensor.len / element).saturating_sub(1) * element;
                }
                Fate::Changed
            }
            _ => Fate::Dropped,
        }
    }
}

/// One element fewer, where there is one; a block fewer where the group shares the buffer.
fn shorten(call: &mut Collective) {
    let (input, output) = (&mut call.input.len, &mut call.output.len);
    match call.kind {
        CollectiveKind::AllReduce { .. } | CollectiveKind::Broadcast { .. } => {
            *input = input.saturating_sub(1);
            *output = *input;
        }
        CollectiveKind::AllGather => *input = input.saturating_sub(1),
        CollectiveKind::ReduceScatter { .. } | CollectiveKind::AllToAll => {
            *output = output.saturating_sub(1);
        }
    }
}

/// Rank, step, and which of the step's commands of its kind (from 0).
fn target(fault: &PlantedFault) -> (u32, u32, u32) {
    match *fault {
        PlantedFault::DropWait { rank, step, nth }
        | PlantedFault::SkipLaunch { rank, step, nth }
        | PlantedFault::WrongKernelExtent { rank, step, nth }
        | PlantedFault::SkipCopy {
            rank, step, nth, ..
        }
        | PlantedFault::MismatchCount {
            rank, step, nth, ..
        }
        | PlantedFault::MissingCall {
            rank, step, nth, ..
        } => (rank, step, nth),
        PlantedFault::Fold { .. } | PlantedFault::State { .. } => {
            unreachable!("strikes no command")
        }
    }
}
