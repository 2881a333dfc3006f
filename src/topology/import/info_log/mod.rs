//! What NCCL said it does, in logs of `NCCL_DEBUG=INFO`: rings, trees and channels of each
//! communicator, rank by rank, and which rank runs on which GPU of which host.
//!
//! `Trees` lines need the subsystem INIT, which is on; `Ring` lines need GRAPH. Rank 0 prints whole
//! rings (`Channel 00/16 : ...`), cut where they are long: those are used where no rank's line says
//! otherwise.

mod joined;
mod line;
mod resolved;

use std::collections::{BTreeMap, BTreeSet};

use super::{Given, Imported, Machine, Refused, name_of};
use crate::diagnostic::{Diagnostic, Place, Source, escaped};
use crate::topology::{Allocation, ChannelGraph, MAX_RANKS, Placement, Recorded, Slot, Topology};
use joined::{Join, Joins};
use resolved::{Communicator, resolved};

/// A process and its device: what has one rank in each communicator.
type Process = (String, u64, Option<u32>);

pub(super) fn import(sources: &[Source], given: &Given) -> Result<Imported, Refused> {
    let joins = Joins::of(sources)?;
    let groups = grouped(&joins, sources)?;
    let Some(world) = groups.iter().max_by_key(|group| group.ranks.len()) else {
        let place = Place::new(&sources[0], 0..sources[0].text.len());
        let finding = Diagnostic::error("no-communicator", "no rank of the log joins anything");
        return Err(Box::new(finding.at(&place, "no `Init START` line")));
    };
    let ranks = processes(world, sources)?;
    one_numbering(&groups, world, &ranks, sources)?;
    let mut notes = Vec::new();
    let mut recorded = Recorded::default();
    let mut unknown = 0;
    for group in groups.iter().filter(|group| group.nranks > 1) {
        let members = members(group, &ranks, sources)?;
        match resolved(group, sources)? {
            Ok(channels) => {
                let channels = std::sync::Arc::new(channels);
                let before = recorded.insert(members, channels.clone());
                if before.is_some_and(|before| before != channels) {
                    let message = "two communicators of the same ranks have different channels";
                    let finding =
                        group.ranks[&0]
                            .at
                            .refused(sources, "two-communicators", message.into());
                    return Err(Box::new(finding.with_help("import the logs of one run")));
                }
            }
            Err(why) => {
                unknown += 1;
                if unknown <= 3 {
                    notes.push(format!("not recorded, of {} ranks: {why}", group.nranks));
                }
            }
        }
    }
    if unknown > 3 {
        notes.push(format!("and {} more communicators", unknown - 3));
    }
    if unknown > 0 {
        notes.push(
            "their rings are in logs of NCCL_DEBUG_SUBSYS=INIT,ENV,GRAPH of all ranks".into(),
        );
    }
    notes.extend(variables(&joins));
    let allocation = placed(world, name_of(sources, given), recorded, &mut notes);
    Ok(Imported {
        machine: Machine::Allocation(allocation),
        notes,
    })
}

/// Variables that change rings, trees or channels, as NCCL found them.
fn variables(joins: &Joins) -> Vec<String> {
    let known = joins.variables.iter();
    let set = known.map(|(name, value)| format!("{name}={}", escaped(value)));
    let set: Vec<String> = set.take(40).collect();
    match set[..] {
        [] => Vec::new(),
        _ => vec![format!("NCCL found in the environment: {}", set.join(" "))],
    }
}

/// Joins of one communicator together, each rank once.
fn grouped<'a>(joins: &'a Joins, sources: &[Source]) -> Result<Vec<Communicator<'a>>, Refused> {
    let mut addresses = Addresses::new();
    for (place, join) in joins.list.iter().enumerate() {
        if let Some(comm) = &join.comm {
            let address = (&*join.writer.host, join.writer.pid, &**comm);
            addresses.entry(address).or_default().push((place, join));
        }
    }
    let mut groups: BTreeMap<String, Communicator<'a>> = BTreeMap::new();
    for (place, join) in joins.list.iter().enumerate() {
        let (Some(rank), Some(nranks)) = (join.rank, join.nranks) else {
            // Rings of who does not say what it joins.
            continue;
        };
        if rank >= nranks || nranks > MAX_RANKS {
            let message = format!("rank {rank} of {nranks}: at most {MAX_RANKS} are supported");
            return Err(Box::new(join.at.refused(sources, "log-line", message)));
        }
        let group = groups
            .entry(key((place, join), &addresses, 0))
            .or_insert_with(|| Communicator {
                nranks,
                is_named: join.id.is_some() || join.split.is_some(),
                ranks: BTreeMap::new(),
            });
        if group.nranks != nranks {
            let message = format!(
                "a communicator of {nranks} ranks, others say {}",
                group.nranks
            );
            return Err(Box::new(join.at.refused(sources, "log-line", message)));
        }
        let before = group.ranks.insert(rank, join);
        if let Some(before) = before.filter(|before| !same(before, join)) {
            let mut finding = join.at.refused(
                sources,
                "rank-twice",
                format!("rank {rank} of {nranks} joins one communicator twice"),
            );
            if !group.is_named {
                finding = finding.with_note(
                    "this version of NCCL prints no commId, so communicators of the same size \
                     cannot be told apart",
                );
            }
            let first = Place::new(&sources[before.at.file], before.at.span.clone());
            return Err(Box::new(
                finding.with_context(Some(&first), "the first time"),
            ));
        }
    }
    Ok(groups.into_values().collect())
}

/// The same rank in two copies of a log.
fn same(a: &Join, b: &Join) -> bool {
    let rings = |join: &Join| -> Vec<(u32, u32, u32)> {
        let rings = join.rings.iter();
        rings
            .map(|(channel, (before, after, _))| (*channel, *before, *after))
            .collect()
    };
    let branches = |join: &Join| -> Vec<line::Branch> {
        join.branches.values().map(|(branch, _)| *branch).collect()
    };
    a.writer == b.writer && rings(a) == rings(b) && branches(a) == branches(b)
}

/// The joins of each address, in the order of the log: an address is used again when a
/// communicator is gone.
type Addresses<'a> = BTreeMap<(&'a str, u64, &'a str), Vec<(usize, &'a Join)>>;

/// What tells communicators apart: the id, or for a split one the parent's and which split it was.
fn key((place, join): (usize, &Join), addresses: &Addresses<'_>, depth: usize) -> String {
    if let Some(id) = &join.id {
        return format!("id {id}");
    }
    let nranks = join.nranks.unwrap_or(0);
    let Some((parent, count, color)) = &join.split else {
        return format!("unnamed of {nranks}");
    };
    let parents = addresses.get(&(&*join.writer.host, join.writer.pid, &**parent));
    // The parent is there before it is split.
    let before = parents.and_then(|all| all.iter().rfind(|(at, _)| *at < place));
    let parent = match before {
        // Splits of splits are few: a longer way is a circle of addresses that were used again.
        Some(parent) if depth < 16 => key(*parent, addresses, depth + 1),
        _ => "unknown".to_string(),
    };
    format!("{parent}, split {count} colour {color}")
}

fn process(join: &Join) -> Process {
    (
        join.writer.host.clone(),
        join.writer.pid,
        join.nvml_dev.or(join.cuda_dev).or(join.writer.dev),
    )
}

/// The job's ranks have one order: that of its largest communicator. Where several are as large,
/// they must number the processes alike.
fn one_numbering(
    groups: &[Communicator<'_>],
    world: &Communicator<'_>,
    ranks: &BTreeMap<Process, u32>,
    sources: &[Source],
) -> Result<(), Refused> {
    let as_large = groups
        .iter()
        .filter(|group| group.ranks.len() == world.ranks.len());
    for group in as_large {
        if processes(group, sources)? != *ranks {
            let message = "two communicators of all processes number them differently";
            let finding = group.ranks[&0]
                .at
                .refused(sources, "two-orders", message.into());
            return Err(Box::new(finding.with_help(
                "which has the job's ranks is not in the log: give the lines of that one alone",
            )));
        }
    }
    Ok(())
}

/// The job's rank of each process. The largest communicator is that of all ranks.
fn processes(
    world: &Communicator<'_>,
    sources: &[Source],
) -> Result<BTreeMap<Process, u32>, Refused> {
    let missing: Vec<u32> = (0..world.nranks)
        .filter(|rank| !world.ranks.contains_key(rank))
        .collect();
    if let Some(first) = missing.first() {
        let (_, known) = world.ranks.first_key_value().expect("a group has a rank");
        let message = format!(
            "logs of {} of {} ranks are missing: rank {first} is the first",
            missing.len(),
            world.nranks
        );
        let finding = known
            .at
            .refused(sources, "missing-ranks", message)
            .with_help(
                "give the logs of all ranks; NCCL_DEBUG_FILE=nccl.%h.%p.log writes one a process",
            );
        return Err(Box::new(finding));
    }
    let mut ranks = BTreeMap::new();
    for (rank, join) in &world.ranks {
        if let Some(first) = ranks.insert(process(join), *rank) {
            let message = format!("ranks {first} and {rank} are one process on one GPU");
            let finding = join.at.refused(sources, "log-line", message);
            return Err(Box::new(finding.with_note(
                "hosts are told apart by the names in the log: two may have the same",
            )));
        }
    }
    Ok(ranks)
}

/// The job's ranks of a communicator, by its own.
fn members(
    group: &Communicator<'_>,
    ranks: &BTreeMap<Process, u32>,
    sources: &[Source],
) -> Result<Vec<u32>, Refused> {
    let mut members = Vec::new();
    let mut seen = BTreeSet::new();
    for join in group.ranks.values() {
        match ranks.get(&process(join)) {
            Some(rank) if seen.insert(*rank) => members.push(*rank),
            _ => {
                let message = "this process is not in the largest communicator of the logs, \
                               which gives ranks of the job their numbers";
                let finding = join
                    .at
                    .refused(sources, "unknown-process", message.to_string());
                return Err(Box::new(finding.with_help(
                    "let the job make a communicator of all ranks: \
                     torch.distributed.barrier() after init_process_group",
                )));
            }
        }
    }
    Ok(members)
}

/// Of each rank its number among the ranks of its node, where so many hosts are one.
fn numbered(slots: &[Slot], hosts_per_node: u32) -> Vec<u32> {
    let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
    let number = |slot: &Slot| {
        let count = counts.entry(slot.host / hosts_per_node).or_default();
        *count += 1;
        *count - 1
    };
    slots.iter().map(number).collect()
}

/// Hosts in the order of their first ranks, GPUs in the order of their devices.
fn placed(
    world: &Communicator<'_>,
    name: String,
    recorded: Recorded,
    notes: &mut Vec<String>,
) -> Allocation {
    let mut hosts: Vec<(&str, Vec<(u32, u32)>)> = Vec::new();
    let mut place_of: BTreeMap<&str, usize> = BTreeMap::new();
    for (rank, join) in &world.ranks {
        let host = &*join.writer.host;
        let place = *place_of.entry(host).or_insert_with(|| {
            hosts.push((host, Vec::new()));
            hosts.len() - 1
        });
        let dev = join.nvml_dev.or(join.cuda_dev).or(join.writer.dev);
        hosts[place].1.push((dev.unwrap_or(0), *rank));
    }
    let mut slots = vec![Slot { host: 0, gpu: 0 }; world.nranks as usize];
    for (host, (_, gpus)) in (0..).zip(&mut hosts) {
        gpus.sort_unstable();
        for (gpu, (_, rank)) in (0..).zip(gpus.iter()) {
            slots[*rank as usize] = Slot { host, gpu };
        }
    }
    let most = hosts.iter().map(|(_, gpus)| gpus.len()).max().unwrap_or(0) as u32;
    let count = hosts.len() as u32;
    let nodes = world.ranks.values().find_map(|join| join.nodes);
    let domain = match nodes {
        Some(nodes) if nodes > 0 && nodes < count && count.is_multiple_of(nodes) => count / nodes,
        _ => 1,
    };
    // Hosts are joined as they stand only where that numbers the ranks of a node as NCCL does.
    let own = numbered(&slots, domain);
    let mut joins = own.iter().zip(world.ranks.values());
    let is_as_numbered = joins.all(|(own, join)| join.local_rank == Some(*own));
    let domain = if is_as_numbered { domain } else { 1 };
    if let Some(nodes) = nodes.filter(|nodes| *nodes * domain != count) {
        notes.push(format!(
            "NCCL counts {nodes} nodes, the host names {count}: hosts_per_nvlink_domain is not \
             told, and of what is not recorded the rings would be built on hosts"
        ));
    }
    let names: Vec<String> = hosts
        .iter()
        .map(|(host, _)| escaped(host).into_owned())
        .collect();
    notes.push(format!("hosts: {}", names.join(" ")));
    Allocation {
        topology: Topology {
            name: name.clone(),
            hosts: count,
            gpus_per_host: most,
            hosts_per_nvlink_domain: domain,
            graph: ChannelGraph::ascending(most * domain),
            alone: None,
        },
        name,
        placement: Placement { slots },
        recorded,
        assumes: Vec::new(),
    }
}
