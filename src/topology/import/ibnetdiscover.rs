//! The fabric as `ibnetdiscover` prints it: which hosts hang on which switches.

use std::collections::{BTreeMap, BTreeSet};

use super::cluster::Cluster;
use super::{Given, Imported, Refused};
use crate::diagnostic::{Diagnostic, Place, Source};
use crate::topology::MAX_RANKS;

/// Whether a text has a block of a switch.
pub(super) fn is_fabric(text: &str) -> bool {
    text.lines()
        .any(|line| line.starts_with("switchguid=") || line.starts_with("Switch\t"))
}

/// A name by its words and numbers, so that node10 comes after node9.
fn natural(name: &str) -> Vec<(bool, u64, String)> {
    let mut parts: Vec<(bool, u64, String)> = Vec::new();
    let mut rest = name;
    while let Some(first) = rest.chars().next() {
        let is_digit = first.is_ascii_digit();
        let end = rest
            .find(|c: char| c.is_ascii_digit() != is_digit)
            .unwrap_or(rest.len());
        let (part, left) = rest.split_at(end);
        let number = if is_digit {
            part.parse().unwrap_or(u64::MAX)
        } else {
            0
        };
        parts.push((is_digit, number, part.to_string()));
        rest = left;
    }
    parts
}

pub(super) fn import(sources: &[Source], given: &Given) -> Result<Imported, Refused> {
    let mut hcas: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut leaves: BTreeSet<&str> = BTreeSet::new();
    let mut nameless: BTreeSet<String> = BTreeSet::new();
    for source in sources {
        let mut block = "";
        let mut at = 0;
        for line in source.text.split_inclusive('\n') {
            let span = at..at + line.trim_end().len();
            at += line.len();
            if line.starts_with("Switch") || line.starts_with("Ca") {
                block = line.split('"').nth(1).unwrap_or("");
            }
            let Some((guid, name)) = end(line) else {
                continue;
            };
            if name.contains("Aggregation Node") {
                // SHARP's own end in a switch.
                continue;
            }
            if is_factory_name(name) {
                nameless.insert(guid.to_string());
                continue;
            }
            let Some(host) = name.split_whitespace().next() else {
                let place = Place::new(source, span);
                let finding = Diagnostic::error("ibnetdiscover", "an adapter without a name");
                return Err(Box::new(finding.at(&place, "expected # \"HOST DEVICE\"")));
            };
            if block.starts_with("S-") {
                leaves.insert(block);
            }
            if !hcas.contains_key(host) && hcas.len() == MAX_RANKS as usize {
                let place = Place::new(source, span);
                let message = format!("more than {MAX_RANKS} hosts");
                return Err(Box::new(
                    Diagnostic::error("too-many-hosts", message).at(&place, "the next one"),
                ));
            }
            hcas.entry(host.to_string())
                .or_default()
                .insert(guid.to_string());
        }
    }
    let mut hosts: Vec<String> = hcas.keys().cloned().collect();
    hosts.sort_by_key(|host| natural(host));
    let counts = hcas.values().map(BTreeSet::len);
    let (least, most) = counts.fold((usize::MAX, 0), |(a, b), n| (a.min(n), b.max(n)));
    let mut notes = vec![
        format!(
            "{} leaf switches; {least} to {most} adapters on a host",
            leaves.len()
        ),
        "hosts stand in the order of their names: a job's ranks may be laid on them in another"
            .to_string(),
    ];
    if !nameless.is_empty() {
        notes.push(format!(
            "{} adapters have the name that they were made with: whose they are is not in the \
             file, and no host is counted for them",
            nameless.len()
        ));
    }
    let cluster = Cluster {
        notes,
        hosts,
        hosts_per_nvlink_domain: 1,
    };
    cluster.into_topology(sources, given)
}

/// Whether a name is an adapter's own, as it is made: no host has given it another yet
/// (`MT4129 ConnectX7   Mellanox Technologies`).
fn is_factory_name(name: &str) -> bool {
    let model = name.strip_prefix("MT");
    let is_model = model.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    is_model && name.contains("ConnectX")
}

/// The adapter at the other end of a port, or of a block's own line: GUID and name.
fn end(line: &str) -> Option<(&str, &str)> {
    let is_port = line.starts_with('[') || line.starts_with("Ca");
    let (links, comment) = line.split_once('#')?;
    let guid = links
        .split('"')
        .nth(1)
        .filter(|guid| guid.starts_with("H-"))?;
    let name = comment.split('"').nth(1)?;
    is_port.then_some((guid, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_adapter_that_no_host_has_named_is_no_host() {
        assert!(is_factory_name("MT4129 ConnectX7   Mellanox Technologies"));
        for name in ["node0001 mlx5_0", "MT-node1 ConnectX", "mt4129 HCA-1"] {
            assert!(!is_factory_name(name), "{name}");
        }
    }

    #[test]
    fn names_are_ordered_by_their_numbers() {
        let mut names = ["node10", "node9", "a2b10", "a2b9", "node9a"];
        names.sort_by_key(|name| natural(name));
        assert_eq!(names, ["a2b9", "a2b10", "node9", "node9a", "node10"]);
    }
}
