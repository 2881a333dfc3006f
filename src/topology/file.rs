//! Allocation and topology files.
//!
//! An allocation lists, host by host, the ranks on its GPUs:
//! ```toml
//! name = "block-2x8"
//! hosts = [[0, 1, 2, 3, 4, 5, 6, 7], [8, 9, 10, 11, 12, 13, 14, 15]]
//! ```
//! A topology gives `hosts` and `gpus_per_host` as numbers (of an allocation the latter is that of
//! its longest host, unless it is given). Both take `hosts_per_nvlink_domain` and
//! a table `[nccl]` with `ring_orders`, `tree_orders`, `tree_pattern` and `cross_nic_swap`, and one
//! `[nccl_alone]` of groups that have one whole node and no more; an allocation may also have
//! `[[communicators]]` ([`super::recorded`]).

use std::collections::BTreeMap;
use std::ops::Range;

use serde::Deserialize;
use toml::Spanned;

use super::recorded::{CommunicatorTable, MAX_CHANNELS, recorded};
use crate::topology::{
    Allocation, ChannelGraph, MAX_RANKS, MissingOrders, Placement, Slot, Topology, TreePattern,
};

/// Search channels that NCCL can have (`MAXCHANNELS`, halved: each becomes two channels).
const MAX_SEARCH_CHANNELS: usize = 32;

/// What is wrong with a topology or allocation file, and where.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind}")]
pub struct TopologyError {
    pub kind: TopologyErrorKind,
    /// Bytes of the text that the error is about.
    pub span: Option<Range<usize>>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TopologyErrorKind {
    #[error("{0}")]
    Syntax(String),
    #[error("rank {rank} is placed twice: on host {first} and on host {second}")]
    DuplicateRank { rank: u32, first: u32, second: u32 },
    #[error("rank {rank} is placed nowhere: {world} ranks are numbered 0 to {}", world - 1)]
    MissingRank { rank: u32, world: u32 },
    #[error("{found} ranks, at most {MAX_RANKS} are supported")]
    TooManyRanks { found: u64 },
    #[error("no host has a rank")]
    NoRanks,
    #[error("host {host} has no rank")]
    EmptyHost { host: u32 },
    #[error("gpus_per_host = {given}, and a host has {longest} ranks")]
    CrowdedHost { given: u32, longest: u32 },
    #[error("{key} must be at least 1")]
    Zero { key: &'static str },
    #[error("hosts_per_nvlink_domain = {given} does not divide {hosts} hosts")]
    UnevenDomains { given: u32, hosts: u32 },
    #[error("{key}: order {index} is not a permutation of GPUs 0 to {}", gpus - 1)]
    NotAPermutation {
        key: &'static str,
        index: usize,
        gpus: u32,
    },
    #[error("{found} {key}, from 1 to {MAX_SEARCH_CHANNELS} are supported")]
    ChannelCount { key: &'static str, found: usize },
    #[error("{rings} ring_orders and {trees} tree_orders: each channel needs both")]
    UnequalChannels { rings: usize, trees: usize },
    #[error("a communicator without groups")]
    NoGroups,
    #[error(
        "groups of one communicator must be alike: {ranks} different ranks from 0 to {} each",
        world - 1
    )]
    RecordedGroup { ranks: usize, world: u32 },
    #[error("a communicator of these ranks has its channels already")]
    RecordedTwice,
    #[error("ring {index} does not pass each of the {ranks} ranks of its communicator once")]
    RecordedRing { index: usize, ranks: usize },
    #[error("tree {index} is no tree: {why}")]
    RecordedTree { index: usize, why: String },
    #[error("{found} channels, from 1 to {MAX_CHANNELS} are supported")]
    RecordedCount { found: usize },
    #[error(
        "expected the places of a ring and a tree: {rings} rings and {trees} trees are listed, \
         and a channel has no tree where none is listed"
    )]
    RecordedChannel { rings: usize, trees: usize },
}

impl TopologyErrorKind {
    pub(super) fn at(self, span: Range<usize>) -> TopologyError {
        TopologyError {
            kind: self,
            span: Some(span),
        }
    }
}

fn syntax(error: toml::de::Error) -> TopologyError {
    let kind = TopologyErrorKind::Syntax(error.message().to_owned());
    TopologyError {
        kind,
        span: error.span(),
    }
}

/// The ranks on each host, with their places in the file.
type Hosts = Spanned<Vec<Spanned<Vec<Spanned<u32>>>>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct AllocationFile {
    name: String,
    hosts: Hosts,
    gpus_per_host: Option<Spanned<u32>>,
    hosts_per_nvlink_domain: Option<Spanned<u32>>,
    nccl: Option<GraphTable>,
    nccl_alone: Option<GraphTable>,
    #[serde(default)]
    communicators: Vec<CommunicatorTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TopologyFile {
    name: String,
    hosts: Spanned<u32>,
    gpus_per_host: Spanned<u32>,
    hosts_per_nvlink_domain: Option<Spanned<u32>>,
    nccl: Option<GraphTable>,
    nccl_alone: Option<GraphTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct GraphTable {
    ring_orders: Option<Spanned<Vec<Spanned<Vec<u32>>>>>,
    tree_orders: Option<Spanned<Vec<Spanned<Vec<u32>>>>>,
    tree_pattern: Option<TreePattern>,
    #[serde(default)]
    cross_nic_swap: bool,
}

impl Topology {
    /// Reads a topology file.
    pub fn from_toml(text: &str) -> Result<Topology, TopologyError> {
        let file: TopologyFile = toml::from_str(text).map_err(syntax)?;
        let hosts = at_least_one("hosts", &file.hosts)?;
        let gpus_per_host = at_least_one("gpus_per_host", &file.gpus_per_host)?;
        let found = u64::from(hosts) * u64::from(gpus_per_host);
        if found > u64::from(MAX_RANKS) {
            return Err(TopologyErrorKind::TooManyRanks { found }.at(file.hosts.span()));
        }
        let span = domain_span(file.hosts_per_nvlink_domain.as_ref(), hosts)?;
        Ok(Topology {
            name: file.name,
            hosts,
            gpus_per_host,
            hosts_per_nvlink_domain: span,
            graph: graph(file.nccl, gpus_per_host * span)?,
            alone: alone(file.nccl_alone, gpus_per_host * span)?,
        })
    }
}

impl Allocation {
    /// Reads an allocation file.
    pub fn from_toml(text: &str) -> Result<Allocation, TopologyError> {
        let file: AllocationFile = toml::from_str(text).map_err(syntax)?;
        let has_domains = file
            .hosts_per_nvlink_domain
            .as_ref()
            .is_some_and(|span| *span.as_ref() > 1);
        let placement = placement(&file.hosts, has_domains)?;
        let hosts = file.hosts.as_ref().len() as u32;
        let sizes = file
            .hosts
            .as_ref()
            .iter()
            .map(|host| host.as_ref().len() as u32);
        let longest = sizes.max().expect("a placement has hosts");
        let gpus_per_host = gpus_per_host(file.gpus_per_host.as_ref(), longest)?;
        if has_domains || file.gpus_per_host.is_some() {
            check_gpus(hosts, gpus_per_host, &file.hosts)?;
        }
        let span = domain_span(file.hosts_per_nvlink_domain.as_ref(), hosts)?;
        let topology = Topology {
            name: file.name.clone(),
            hosts,
            gpus_per_host,
            hosts_per_nvlink_domain: span,
            graph: graph(file.nccl, gpus_per_host * span)?,
            alone: alone(file.nccl_alone, gpus_per_host * span)?,
        };
        let recorded = recorded(&file.communicators, placement.world())?;
        Ok(Allocation {
            name: file.name,
            topology,
            placement,
            recorded,
            assumes: Vec::new(),
        })
    }
}

/// GPUs of a host: of the longest, or more of which none has as many ranks.
fn gpus_per_host(given: Option<&Spanned<u32>>, longest: u32) -> Result<u32, TopologyError> {
    let Some(given) = given else {
        return Ok(longest);
    };
    match *given.as_ref() {
        enough if enough >= longest => Ok(enough),
        given_gpus => {
            let kind = TopologyErrorKind::CrowdedHost {
                given: given_gpus,
                longest,
            };
            Err(kind.at(given.span()))
        }
    }
}

/// No more GPUs than ranks are supported: in-node orders are as long as a node.
fn check_gpus(hosts: u32, gpus_per_host: u32, place: &Hosts) -> Result<(), TopologyError> {
    let found = u64::from(hosts) * u64::from(gpus_per_host);
    match found <= u64::from(MAX_RANKS) {
        true => Ok(()),
        false => Err(TopologyErrorKind::TooManyRanks { found }.at(place.span())),
    }
}

/// A host without ranks keeps its place in an NVLink domain; elsewhere it is a mistake.
fn placement(hosts: &Hosts, has_domains: bool) -> Result<Placement, TopologyError> {
    let mut slots: BTreeMap<u32, Slot> = BTreeMap::new();
    let found: u64 = hosts
        .as_ref()
        .iter()
        .map(|host| host.as_ref().len() as u64)
        .sum();
    if found > u64::from(MAX_RANKS) {
        return Err(TopologyErrorKind::TooManyRanks { found }.at(hosts.span()));
    }
    if found == 0 {
        return Err(TopologyErrorKind::NoRanks.at(hosts.span()));
    }
    for (host, ranks) in (0..).zip(hosts.as_ref()) {
        if ranks.as_ref().is_empty() && !has_domains {
            return Err(TopologyErrorKind::EmptyHost { host }.at(ranks.span()));
        }
        for (gpu, rank) in (0..).zip(ranks.as_ref()) {
            if let Some(before) = slots.insert(*rank.as_ref(), Slot { host, gpu }) {
                let (rank, span) = (*rank.as_ref(), rank.span());
                let twice = TopologyErrorKind::DuplicateRank {
                    rank,
                    first: before.host,
                    second: host,
                };
                return Err(twice.at(span));
            }
        }
    }
    let gap = (0..)
        .zip(slots.keys())
        .find(|(expected, rank)| expected != *rank);
    if let Some((rank, _)) = gap {
        let world = found as u32;
        return Err(TopologyErrorKind::MissingRank { rank, world }.at(hosts.span()));
    }
    Ok(Placement {
        slots: slots.into_values().collect(),
    })
}

fn at_least_one(key: &'static str, value: &Spanned<u32>) -> Result<u32, TopologyError> {
    match *value.as_ref() {
        0 => Err(TopologyErrorKind::Zero { key }.at(value.span())),
        value => Ok(value),
    }
}

fn domain_span(given: Option<&Spanned<u32>>, hosts: u32) -> Result<u32, TopologyError> {
    let Some(given) = given else { return Ok(1) };
    let span = at_least_one("hosts_per_nvlink_domain", given)?;
    if !hosts.is_multiple_of(span) {
        return Err(TopologyErrorKind::UnevenDomains { given: span, hosts }.at(given.span()));
    }
    Ok(span)
}

fn graph(table: Option<GraphTable>, gpus: u32) -> Result<ChannelGraph, TopologyError> {
    let plain = ChannelGraph::ascending(gpus);
    let Some(table) = table else { return Ok(plain) };
    let rings = table
        .ring_orders
        .as_ref()
        .map(|list| orders("ring_orders", list, gpus));
    let trees = table
        .tree_orders
        .as_ref()
        .map(|list| orders("tree_orders", list, gpus));
    let missing = match (&rings, &trees) {
        (Some(_), None) => Some(MissingOrders::Trees),
        (None, Some(_)) => Some(MissingOrders::Rings),
        _ => None,
    };
    // Where only one of the two is given, the other has as many plain orders.
    let (ring_orders, tree_orders) = match (rings.transpose()?, trees.transpose()?) {
        (None, None) => (plain.ring_orders, plain.tree_orders),
        (Some(rings), None) => {
            let trees = vec![plain.tree_orders[0].clone(); rings.len()];
            (rings, trees)
        }
        (None, Some(trees)) => (vec![plain.ring_orders[0].clone(); trees.len()], trees),
        (Some(rings), Some(trees)) => (rings, trees),
    };
    if ring_orders.len() != tree_orders.len() {
        let (rings, trees) = (ring_orders.len(), tree_orders.len());
        let span = table
            .tree_orders
            .expect("given: the default has equal length")
            .span();
        return Err(TopologyErrorKind::UnequalChannels { rings, trees }.at(span));
    }
    Ok(ChannelGraph {
        ring_orders,
        tree_orders,
        tree_pattern: table.tree_pattern.unwrap_or(plain.tree_pattern),
        cross_nic_swap: table.cross_nic_swap,
        missing,
    })
}

fn alone(table: Option<GraphTable>, gpus: u32) -> Result<Option<ChannelGraph>, TopologyError> {
    table.map(|table| graph(Some(table), gpus)).transpose()
}

fn orders(
    key: &'static str,
    list: &Spanned<Vec<Spanned<Vec<u32>>>>,
    gpus: u32,
) -> Result<Vec<Vec<u32>>, TopologyError> {
    let found = list.as_ref().len();
    if found == 0 || found > MAX_SEARCH_CHANNELS {
        return Err(TopologyErrorKind::ChannelCount { key, found }.at(list.span()));
    }
    for (index, order) in list.as_ref().iter().enumerate() {
        let mut sorted = order.as_ref().clone();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..gpus) {
            let kind = TopologyErrorKind::NotAPermutation { key, index, gpus };
            return Err(kind.at(order.span()));
        }
    }
    Ok(list
        .as_ref()
        .iter()
        .map(|order| order.as_ref().clone())
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(text: &str) -> (TopologyErrorKind, String) {
        let error = Allocation::from_toml(text).expect_err("a bad file is refused");
        let span = error.span.clone().expect("every error has a place");
        (error.kind, text[span].to_owned())
    }

    #[test]
    fn an_allocation_gives_each_rank_its_host_and_gpu() {
        let text = "name = \"two\"\nhosts = [[0, 3], [2, 1]]\n";
        let allocation = Allocation::from_toml(text).unwrap();
        let slots: Vec<_> = allocation
            .placement
            .slots
            .iter()
            .map(|slot| (slot.host, slot.gpu))
            .collect();
        assert_eq!(slots, [(0, 0), (1, 1), (1, 0), (0, 1)]);
    }

    #[test]
    fn bad_placements_are_refused_where_they_stand() {
        let (kind, at) = refused("name = \"x\"\nhosts = [[0, 1], [2, 1]]");
        assert_eq!(
            kind,
            TopologyErrorKind::DuplicateRank {
                rank: 1,
                first: 0,
                second: 1
            }
        );
        assert_eq!(at, "1");
        let (kind, at) = refused("name = \"x\"\nhosts = [[0, 1], [3]]");
        assert_eq!(kind, TopologyErrorKind::MissingRank { rank: 2, world: 3 });
        assert_eq!(at, "[[0, 1], [3]]");
        let (kind, _) = refused("name = \"x\"\nhosts = [[0], []]");
        assert_eq!(kind, TopologyErrorKind::EmptyHost { host: 1 });
        let (kind, _) = refused("name = \"x\"\nhosts = []");
        assert_eq!(kind, TopologyErrorKind::NoRanks);
        let many: Vec<String> = (0..=MAX_RANKS).map(|rank| rank.to_string()).collect();
        let (kind, _) = refused(&format!("name = \"x\"\nhosts = [[{}]]", many.join(",")));
        assert_eq!(kind, TopologyErrorKind::TooManyRanks { found: 65_537 });
        let (kind, at) = refused("name = \"x\"\nhost = [[0]]");
        assert!(matches!(kind, TopologyErrorKind::Syntax(_)), "{kind:?}");
        assert!(at.contains("host"), "{at}");
    }

    #[test]
    fn a_host_without_ranks_keeps_its_place_in_a_domain_and_nowhere_else() {
        let text = "name = \"x\"\nhosts = [[0], [], [1], [2]]\nhosts_per_nvlink_domain = 2";
        let allocation = Allocation::from_toml(text).unwrap();
        let places: Vec<_> = (0..3).map(|rank| allocation.node_and_gpu(rank)).collect();
        assert_eq!(places, [(0, 0), (1, 0), (1, 1)]);
        let (kind, at) = refused(&text.replace("= 2", "= 1"));
        assert_eq!(
            (kind, at.as_str()),
            (TopologyErrorKind::EmptyHost { host: 1 }, "[]")
        );
        let (kind, _) = refused("name = \"x\"\nhosts = [[], []]\nhosts_per_nvlink_domain = 2");
        assert_eq!(kind, TopologyErrorKind::NoRanks);
    }

    #[test]
    fn a_host_may_have_more_gpus_than_ranks() {
        let text = "name = \"x\"\nhosts = [[0, 1], [2]]\ngpus_per_host = 4\n[nccl]\n\
                    ring_orders = [[3, 1, 0, 2]]\n[nccl_alone]\nring_orders = [[0, 1, 2, 3]]";
        let allocation = Allocation::from_toml(text).unwrap();
        assert_eq!(allocation.topology.gpus_per_node(), 4);
        assert!(allocation.topology.alone.is_some());
        let (kind, at) = refused(&text.replace("= 4", "= 1"));
        let expected = TopologyErrorKind::CrowdedHost {
            given: 1,
            longest: 2,
        };
        assert_eq!((kind, at.as_str()), (expected, "1"));
        let (kind, _) = refused(&text.replace("= 4", "= 4000000000"));
        let found = 8_000_000_000;
        assert_eq!(kind, TopologyErrorKind::TooManyRanks { found });
        let (kind, at) = refused(&text.replace("[[0, 1, 2, 3]]", "[[0, 1, 2]]"));
        assert!(
            matches!(kind, TopologyErrorKind::NotAPermutation { .. }),
            "{kind:?}"
        );
        assert_eq!(at, "[0, 1, 2]");
    }

    #[test]
    fn channel_orders_must_be_permutations() {
        let text = "name = \"x\"\nhosts = [[0, 1], [2, 3]]\n[nccl]\nring_orders = [[1, 0], [0, 0]]";
        let (kind, at) = refused(text);
        let expected = TopologyErrorKind::NotAPermutation {
            key: "ring_orders",
            index: 1,
            gpus: 2,
        };
        assert_eq!((kind, at.as_str()), (expected, "[0, 0]"));
    }

    #[test]
    fn an_nvlink_domain_is_one_node() {
        let text = "name = \"x\"\nhosts = [[0, 1], [2, 3]]\nhosts_per_nvlink_domain = 2";
        let allocation = Allocation::from_toml(text).unwrap();
        assert_eq!(allocation.node_and_gpu(3), (0, 3));
        let (kind, at) = refused(&text.replace("= 2", "= 3"));
        assert_eq!(
            kind,
            TopologyErrorKind::UnevenDomains { given: 3, hosts: 2 }
        );
        assert_eq!(at, "3");
    }

    #[test]
    fn presets_are_valid_and_carry_their_names() {
        for (name, text) in crate::topology::presets::ALLOCATIONS {
            let allocation = Allocation::from_toml(text).unwrap();
            assert_eq!(
                (allocation.name.as_str(), allocation.placement.world()),
                (name, 16)
            );
        }
        for (name, text) in crate::topology::presets::TOPOLOGIES {
            let topology = Topology::from_toml(text).unwrap();
            let world = topology.hosts * 8;
            assert_eq!(topology.name, name);
            assert_eq!(topology.block(world).unwrap().placement.world(), world);
            assert_eq!(topology.block(world + 1), None);
        }
    }
}
