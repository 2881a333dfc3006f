//! SimAI's topologies for ns-3: a line of counts, one with the switches' numbers, one a link.
//!
//! `nodes gpus_per_server nvswitches switches links gpu_type`; GPUs are 0, 1, ..., by server.

use std::ops::Range;

use super::{Given, Imported, Machine, Refused, name_of};
use crate::diagnostic::{Diagnostic, Place, Source, escaped};
use crate::topology::{ChannelGraph, MAX_RANKS, Topology};

/// Whether a text begins like one: five numbers and a name of a GPU.
pub(super) fn is_topology(text: &str) -> bool {
    let Some(first) = text.lines().next() else {
        return false;
    };
    let words: Vec<&str> = first.split_whitespace().collect();
    let is_number = |word: &&str| word.bytes().all(|byte| byte.is_ascii_digit());
    words.len() == 6 && words[..5].iter().all(is_number) && !is_number(&words[5])
}

/// The first line.
struct Counts {
    nodes: u64,
    gpus: u64,
    gpus_per_server: u64,
    nvswitches: u64,
    switches: u64,
    links: u64,
}

fn refuse(source: &Source, span: Range<usize>, message: String, label: &str) -> Refused {
    let place = Place::new(source, span);
    Box::new(Diagnostic::error("simai", message).at(&place, label))
}

impl Counts {
    fn of(source: &Source, line: &str, span: &Range<usize>) -> Result<Counts, Refused> {
        let refuse = |message: String, label: &str| refuse(source, span.clone(), message, label);
        let words = line.split_whitespace().take(5);
        let counts: Vec<Option<u64>> = words.map(|word| word.parse().ok()).collect();
        let [
            Some(nodes),
            Some(per_server),
            Some(nvswitches),
            Some(switches),
            Some(links),
        ] = counts[..]
        else {
            return Err(refuse("counts that are no numbers".into(), "in this line"));
        };
        let gpus = nvswitches
            .checked_add(switches)
            .and_then(|switches| nodes.checked_sub(switches));
        let Some(gpus) = gpus.filter(|gpus| (1..=u64::from(MAX_RANKS)).contains(gpus)) else {
            let message = format!("{nodes} nodes, {nvswitches} and {switches} of them switches");
            let label = format!("expected 1 to {MAX_RANKS} GPUs beside the switches");
            return Err(refuse(message, &label));
        };
        if per_server == 0 || !gpus.is_multiple_of(per_server) {
            let message = format!("{gpus} GPUs are no servers of {per_server}");
            return Err(refuse(message, "these counts"));
        }
        Ok(Counts {
            nodes,
            gpus,
            gpus_per_server: per_server,
            nvswitches,
            switches,
            links,
        })
    }

    /// A line of a link has two nodes and three numbers of times.
    fn check_link(&self, source: &Source, line: &str, span: Range<usize>) -> Result<(), Refused> {
        let mut words = line.split_whitespace();
        for end in [words.next(), words.next()] {
            let node = end.and_then(|word| word.parse::<u64>().ok());
            if node.is_none_or(|node| node >= self.nodes) {
                let message = format!("a link to `{}`", escaped(end.unwrap_or("nothing")));
                let label = format!("expected two of {} nodes", self.nodes);
                return Err(refuse(source, span, message, &label));
            }
        }
        if words.count() != 3 {
            let label = "expected SOURCE DESTINATION BANDWIDTH LATENCY ERROR_RATE";
            return Err(refuse(source, span, "a link has five words".into(), label));
        }
        Ok(())
    }
}

pub(super) fn import(sources: &[Source], given: &Given) -> Result<Imported, Refused> {
    let [source] = sources else {
        return Err(super::second_file(sources));
    };
    let mut at = 0;
    let mut lines = source.text.split_inclusive('\n').map(|line| {
        let start = at;
        at += line.len();
        (line.trim_end(), start..start + line.trim_end().len())
    });
    let (head, head_span) = lines.next().expect("the form has a first line");
    let counts = Counts::of(source, head, &head_span)?;
    let (list, list_span) = lines.next().unwrap_or(("", 0..0));
    let (named, told) = (
        list.split_whitespace().count() as u64,
        counts.nvswitches + counts.switches,
    );
    if named != told {
        let (message, label) = (
            format!("{named} switches are listed"),
            format!("expected {told} of them"),
        );
        return Err(refuse(source, list_span, message, &label));
    }
    let mut found = 0;
    for (line, span) in lines.filter(|(line, _)| !line.trim().is_empty()) {
        counts.check_link(source, line, span)?;
        found += 1;
    }
    let Counts {
        gpus,
        gpus_per_server,
        nvswitches,
        switches,
        links,
        ..
    } = counts;
    if found != links {
        let message = format!("{found} links, the first line says {links}");
        return Err(refuse(source, head_span, message, "this line"));
    }
    let kind = escaped(head.split_whitespace().nth(5).unwrap_or_default());
    Ok(Imported {
        machine: Machine::Topology(Topology {
            name: name_of(sources, given),
            hosts: (gpus / gpus_per_server) as u32,
            gpus_per_host: gpus_per_server as u32,
            hosts_per_nvlink_domain: 1,
            graph: ChannelGraph::ascending(gpus_per_server as u32),
            alone: None,
        }),
        notes: vec![
            format!("{kind} GPUs, {nvswitches} NVSwitches, {switches} switches, {links} links"),
            "SimAI knows links and their times, not orders: rings are not in the file".to_string(),
        ],
    })
}
