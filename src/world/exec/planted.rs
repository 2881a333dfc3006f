//! Faults that are planted in the commands of a rank, as they come from its host: those of mutants
//! by rank, step and number, those of a scenario by name.

use std::collections::{BTreeMap, BTreeSet};

use crate::fault::{Fault, FaultKind};
use crate::kernel::Registry;
use crate::world::command::{Collective, CollectiveKind, Command, Issued};
use crate::world::rank::{COMPUTE_STREAM, GroupId, StreamId};
use crate::world::site::Phase;

use super::PlantedFault;
use super::hosts::FaultLog;
use super::protection::Protections;

/// A mutant's fault and how many commands it could have struck so far.
struct Pending {
    fault: PlantedFault,
    seen: u32,
    struck: bool,
}

/// The faults of a run that change commands.
pub(super) struct CommandFaults {
    pending: Vec<Pending>,
    named: Vec<Fault>,
    /// (rank, ticket) of collectives: tells their waits from others.
    collectives: BTreeSet<(u32, u32)>,
    protections: Protections,
}

/// What becomes of a command.
enum Fate {
    Untouched,
    Changed,
    Dropped,
}

impl CommandFaults {
    pub fn new(faults: &[PlantedFault]) -> Self {
        let mut pending = Vec::new();
        let mut named = Vec::new();
        for fault in faults {
            match fault {
                PlantedFault::Named(fault) => named.push(fault.clone()),
                PlantedFault::Fold { .. } | PlantedFault::State { .. } | PlantedFault::Flip(_) => {}
                by_number => pending.push(Pending {
                    fault: by_number.clone(),
                    seen: 0,
                    struck: false,
                }),
            }
        }
        CommandFaults {
            pending,
            named,
            collectives: BTreeSet::new(),
            protections: Protections::default(),
        }
    }

    /// Strikes `rank`'s commands, which its host issued in this order. Returns how many mutants'
    /// faults found their command.
    pub fn strike(
        &mut self,
        rank: u32,
        issued: &mut Vec<(StreamId, Issued)>,
        registry: &Registry,
        log: &mut FaultLog,
    ) -> u32 {
        let by_name = !self.named.is_empty() || log.lists;
        if self.pending.is_empty() && !by_name {
            return 0;
        }
        let mut released = match self.protects(log) {
            true => self.protections.of(rank, issued, registry),
            false => BTreeMap::new(),
        };
        let (mut struck, mut place) = (0, 0);
        issued.retain_mut(|(stream, issued)| {
            let early = released.remove(&place).unwrap_or_default();
            place += 1;
            if let (false, Command::Collective(call)) = (self.pending.is_empty(), &issued.command) {
                self.collectives.insert((rank, call.ticket.number));
            }
            let mut keep = true;
            for pending in self.pending.iter_mut().filter(|pending| !pending.struck) {
                let fate = pending.meet(rank, *stream, issued, &self.collectives, registry);
                pending.struck = !matches!(fate, Fate::Untouched);
                struck += u32::from(pending.struck);
                keep &= !matches!(fate, Fate::Dropped);
            }
            if by_name {
                let fate = self.meet_by_name(rank, issued, early, log);
                keep &= !matches!(fate, Fate::Dropped);
            }
            keep
        });
        struck
    }

    /// Whether it matters which waits protect what.
    fn protects(&self, log: &FaultLog) -> bool {
        let mut named = self.named.iter();
        log.lists || named.any(|fault| fault.kind == FaultKind::ReuseEarly)
    }

    /// Every command that a fault can name, and what those that name it do; `released` are the
    /// buffers that a wait protects.
    fn meet_by_name(
        &mut self,
        rank: u32,
        issued: &mut Issued,
        released: BTreeSet<String>,
        log: &mut FaultLog,
    ) -> Fate {
        let node = issued.site.node();
        let own = match &issued.command {
            Command::Wait { ticket } => Some((FaultKind::DropWait, ticket.edge.to_string())),
            Command::Collective(_) => Some((FaultKind::SkipCollective, node)),
            Command::Launch { .. } => Some((FaultKind::SkipLaunch, node)),
            Command::Copy { .. } => Some((FaultKind::SkipCopy, node)),
            _ => None,
        };
        let early = released
            .into_iter()
            .map(|name| (FaultKind::ReuseEarly, name));
        let mut fate = Fate::Untouched;
        for (kind, name) in own.into_iter().chain(early) {
            let step = issued.site.step;
            log.seen(kind, &name, rank, step);
            let strikes = |fault: &&Fault| fault.strikes(kind, &name, rank, step);
            let faults: Vec<&Fault> = self.named.iter().filter(strikes).collect();
            if faults.is_empty() {
                continue;
            }
            faults.into_iter().for_each(|fault| log.met(fault));
            fate = drop_or_skip(&mut issued.command);
        }
        fate
    }
}

/// The command never happens; what it would have completed is complete.
fn drop_or_skip(command: &mut Command) -> Fate {
    match command {
        Command::Collective(call) => {
            let ticket = call.ticket.clone();
            *command = Command::Record { ticket };
            Fate::Changed
        }
        _ => Fate::Dropped,
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
            (PlantedFault::DropWait { .. }, Command::Wait { ticket }) => {
                stream == COMPUTE_STREAM && collectives.contains(&(rank, ticket.number))
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
            _ => drop_or_skip(command),
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
        PlantedFault::Fold { .. }
        | PlantedFault::State { .. }
        | PlantedFault::Flip(_)
        | PlantedFault::Named(_) => {
            unreachable!("strikes no command by number")
        }
    }
}
