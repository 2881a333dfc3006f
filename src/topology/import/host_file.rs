//! Host files and rank files: where ranks run, by host name.
//!
//! Open MPI: `HOST slots=8`, ranks fill slot after slot; MPICH: `HOST:8`; a list with a line a rank
//! (`SLURM_HOSTFILE`). Rank files: `rank 3=HOST slot=1:0`. Slots are cores: which GPU a rank takes
//! is not in them, and is that of its place among the host's ranks, as launchers do it.

use std::collections::BTreeMap;
use std::ops::Range;

use super::cluster::named;
use super::{Given, Imported, Machine, Refused, name_of};
use crate::diagnostic::{Diagnostic, Place, Source, escaped};
use crate::topology::{Allocation, ChannelGraph, MAX_RANKS, Placement, Recorded, Slot, Topology};

/// Lines without comments and blanks around, with their places.
fn lines(text: &str) -> impl Iterator<Item = (&str, Range<usize>)> {
    let mut at = 0;
    let all = text.split_inclusive('\n').map(move |line| {
        let start = at + (line.len() - line.trim_start().len());
        at += line.len();
        let kept = line.split('#').next().unwrap_or("").trim();
        (kept, start..start + kept.len())
    });
    all.filter(|(line, _)| !line.is_empty())
}

/// Whether every line is one of a rank file.
pub(super) fn is_rank_file(text: &str) -> bool {
    let mut lines = lines(text).peekable();
    lines.peek().is_some() && lines.all(|(line, _)| rank_line(line).is_some())
}

/// `rank R=HOST slot=...`: rank and host.
fn rank_line(line: &str) -> Option<(&str, &str)> {
    let (rank, rest) = line.strip_prefix("rank")?.split_once('=')?;
    let (host, slot) = rest.trim().split_once(char::is_whitespace)?;
    let is_slot = slot
        .trim_start()
        .strip_prefix("slot")
        .is_some_and(|s| s.trim_start().starts_with('='));
    (rank.starts_with(char::is_whitespace) && is_slot).then_some((rank.trim(), host))
}

/// Whether every line is one of a host file. A single word is no file of hosts.
pub(super) fn is_host_file(text: &str) -> bool {
    let all: Vec<Option<(&str, Slots)>> = lines(text).map(|(line, _)| host_line(line)).collect();
    let says_slots = all
        .iter()
        .flatten()
        .any(|(_, slots)| *slots != Slots::Unsaid);
    all.iter().all(Option::is_some) && (all.len() > 1 || says_slots)
}

/// What a line says of a host's slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Slots {
    Unsaid,
    Count(u32),
    /// No number, or none that is supported.
    Bad,
}

impl Slots {
    fn of(text: &str) -> Slots {
        match text.parse() {
            Ok(count) if (1..=MAX_RANKS).contains(&count) => Slots::Count(count),
            _ => Slots::Bad,
        }
    }
}

/// `HOST`, `HOST:8`, `HOST slots=8 max_slots=8`: the host and its slots.
fn host_line(line: &str) -> Option<(&str, Slots)> {
    let mut words = line.split_whitespace();
    let first = words.next()?;
    let (host, mut slots) = match first.split_once(':') {
        Some((host, slots)) => (host, Slots::of(slots)),
        None => (first, Slots::Unsaid),
    };
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._".contains(c);
    if host.is_empty() || !host.chars().all(is_name) {
        return None;
    }
    // Blanks may stand around the sign.
    let rest = words.collect::<Vec<_>>().join(" ");
    let rest = rest.replace(" =", "=").replace("= ", "=");
    for word in rest.split_whitespace() {
        match word.split_once('=')? {
            ("slots", count) => slots = Slots::of(count),
            ("max_slots" | "max-slots", _) => {}
            _ => return None,
        }
    }
    Some((host, slots))
}

/// A host of a file, and how many lines name it.
struct Line<'a> {
    host: &'a str,
    slots: Slots,
    times: u32,
    span: Range<usize>,
}

/// Ranks of each host, hosts in order.
struct Hosts {
    names: Vec<String>,
    ranks: Vec<Vec<u32>>,
    notes: Vec<String>,
}

fn refuse(source: &Source, span: Range<usize>, message: String, label: &str) -> Refused {
    let place = Place::new(source, span);
    Box::new(Diagnostic::error("host-file", message).at(&place, label))
}

/// The hosts of a file, each once.
fn hosts_of(source: &Source) -> Result<Vec<Line<'_>>, Refused> {
    let mut found: Vec<Line<'_>> = Vec::new();
    let mut place_of: BTreeMap<&str, usize> = BTreeMap::new();
    for (line, span) in lines(&source.text) {
        let (host, slots) = host_line(line).expect("the form has only such lines");
        if slots == Slots::Bad {
            let label = format!("expected 1 to {MAX_RANKS}");
            let message = "slots that are no number".to_string();
            return Err(refuse(source, span, message, &label));
        }
        let is_plain = slots == Slots::Unsaid;
        match place_of.get(host) {
            None => {
                place_of.insert(host, found.len());
                found.push(Line {
                    host,
                    slots,
                    times: 1,
                    span,
                });
            }
            Some(place) if place + 1 == found.len() && found[*place].slots == slots && is_plain => {
                found[*place].times += 1;
            }
            Some(_) => {
                let message = format!("`{}` is named again", escaped(host));
                let label = "launchers differ in what this means: name a host in one place";
                return Err(refuse(source, span, message, label));
            }
        }
        if found.len() > MAX_RANKS as usize {
            let span = found[found.len() - 1].span.clone();
            let message = format!("more than {MAX_RANKS} hosts");
            return Err(refuse(source, span, message, "with this one"));
        }
    }
    Ok(found)
}

pub(super) fn import_hosts(sources: &[Source], given: &Given) -> Result<Imported, Refused> {
    let [source] = sources else {
        return Err(super::second_file(sources));
    };
    let found = hosts_of(source)?;
    // Where one host has a line a rank, all have.
    let a_line_a_rank = found.iter().any(|line| line.times > 1);
    let mut hosts = Hosts {
        names: Vec::new(),
        ranks: Vec::new(),
        notes: vec![
            "ranks fill the hosts one after the other (`--map-by slot`, the default)".into(),
        ],
    };
    let mut next = 0;
    for Line {
        host,
        slots,
        times,
        span,
    } in found
    {
        let count = match slots {
            Slots::Count(count) => Some(count),
            _ if a_line_a_rank => Some(times),
            _ => given.gpus_per_host,
        };
        let Some(count) = count else {
            let message = format!("`{}` has no slots", escaped(host));
            let label = "expected slots=N, or `--gpus-per-host N`";
            return Err(refuse(source, span, message, label));
        };
        if count > MAX_RANKS - next {
            let message = format!("more than {MAX_RANKS} ranks");
            return Err(refuse(source, span, message, "with this host"));
        }
        hosts.names.push(host.to_string());
        hosts.ranks.push((next..next + count).collect());
        next += count;
    }
    Ok(hosts.into_allocation(name_of(sources, given)))
}

pub(super) fn import_ranks(sources: &[Source], given: &Given) -> Result<Imported, Refused> {
    let [source] = sources else {
        return Err(super::second_file(sources));
    };
    let refuse = |span: Range<usize>, message: String, label: &str| -> Refused {
        let place = Place::new(source, span);
        Box::new(Diagnostic::error("rank-file", message).at(&place, label))
    };
    let mut host_of: BTreeMap<u32, &str> = BTreeMap::new();
    for (line, span) in lines(&source.text) {
        let (rank, host) = rank_line(line).expect("the form has only such lines");
        let rank = rank.parse::<u32>().ok().filter(|rank| *rank < MAX_RANKS);
        let Some(rank) = rank else {
            let label = format!("expected a rank below {MAX_RANKS}");
            return Err(refuse(span, "no rank".into(), &label));
        };
        if host.starts_with('+') {
            let label = "expected a host's name: relative ones are the scheduler's";
            return Err(refuse(
                span,
                format!("a relative host `{}`", escaped(host)),
                label,
            ));
        }
        if host_of.insert(rank, host).is_some() {
            return Err(refuse(
                span,
                format!("rank {rank} is there twice"),
                "the second one",
            ));
        }
    }
    let gap = (0..)
        .zip(host_of.keys())
        .find(|(expected, rank)| expected != *rank);
    if let Some((rank, _)) = gap {
        let message = format!("rank {rank} is placed nowhere");
        return Err(refuse(0..source.text.len(), message, "of this file"));
    }
    let mut hosts = Hosts {
        names: Vec::new(),
        ranks: Vec::new(),
        notes: vec!["hosts stand in the order of their first ranks".into()],
    };
    let mut place_of: BTreeMap<&str, usize> = BTreeMap::new();
    for (rank, host) in host_of {
        match place_of.get(host) {
            Some(place) => hosts.ranks[*place].push(rank),
            None => {
                place_of.insert(host, hosts.names.len());
                hosts.names.push(host.to_string());
                hosts.ranks.push(vec![rank]);
            }
        }
    }
    Ok(hosts.into_allocation(name_of(sources, given)))
}

impl Hosts {
    fn into_allocation(self, name: String) -> Imported {
        let world: usize = self.ranks.iter().map(Vec::len).sum();
        let mut slots = vec![Slot { host: 0, gpu: 0 }; world];
        for (host, ranks) in (0..).zip(&self.ranks) {
            for (gpu, rank) in (0..).zip(ranks) {
                slots[*rank as usize] = Slot { host, gpu };
            }
        }
        let gpus_per_host = self.ranks.iter().map(Vec::len).max().unwrap_or(1) as u32;
        let mut notes = self.notes;
        notes.push(
            "which GPU of its host a rank takes is not in the file: that of its place among the \
             host's ranks is taken"
                .to_string(),
        );
        notes.push(named(&self.names));
        let topology = Topology {
            name: name.clone(),
            hosts: self.names.len() as u32,
            gpus_per_host,
            hosts_per_nvlink_domain: 1,
            graph: ChannelGraph::ascending(gpus_per_host),
            alone: None,
        };
        Imported {
            machine: Machine::Allocation(Allocation {
                name,
                topology,
                placement: Placement { slots },
                recorded: Recorded::default(),
                assumes: Vec::new(),
            }),
            notes,
        }
    }
}
