//! What NCCL's search found, as `NCCL_GRAPH_DUMP_FILE` writes it and `NCCL_GRAPH_FILE` reads it.
//!
//! Read in NCCL 2.30.7 (`graph/search.cc`): `graphs > graph[id, pattern, crossnic, nchannels] >
//! channel > net* gpu+ net*`; id 0 is the ring, 1 the tree. The order of the GPUs of a channel is
//! the order of its ring or chain. `dev` is hexadecimal; `rank`, where it is, wins over it.

use std::collections::BTreeSet;

use super::xml::{self, Element};
use super::{Given, Imported, Machine, Refused, name_of};
use crate::diagnostic::{Diagnostic, Place, Source};
use crate::topology::{ChannelGraph, MissingOrders, Topology, TreePattern};

/// `id` of the graphs that plans are made of.
const RING: u64 = 0;
const TREE: u64 = 1;
/// `NCCL_TOPO_PATTERN_RING`.
const RING_PATTERN: u64 = 4;
/// Half of `MAXCHANNELS`: each becomes two channels.
const CHANNELS_MAX: usize = 32;

/// One graph of the file.
struct Graph {
    pattern: u64,
    crosses_nics: bool,
    /// Devices of each channel, in order.
    channels: Vec<Vec<u64>>,
}

/// The graphs of one node.
#[derive(PartialEq, Eq)]
struct Node {
    graph: ChannelGraph,
    devices: Vec<u64>,
    has_ranks: bool,
}

pub(super) fn import(sources: &[Source], given: &Given) -> Result<Imported, Refused> {
    let mut nodes = sources.iter().map(node);
    let first = nodes.next().expect("there is a source")?;
    for (other, source) in nodes.zip(&sources[1..]) {
        if other? != first {
            let message = "nodes with different graphs are not one topology";
            let place = Place::new(source, 0..source.text.len());
            let finding = Diagnostic::error("graphs-differ", message).at(
                &place,
                format!("its orders are not those of `{}`", sources[0].name),
            );
            return Err(Box::new(finding.with_help(
                "import the INFO logs of all ranks: they have what came of it",
            )));
        }
    }
    let gpus = first.devices.len() as u32;
    let mut notes = vec![
        "of the machine the file tells the GPUs of one node: how many hosts there are is not in it"
            .to_string(),
    ];
    if first.graph.missing.is_some() {
        notes.push(
            "the file has no tree graph: NCCL searches for one, and plans take ascending chains"
                .to_string(),
        );
    }
    if first.has_ranks {
        notes.push(
            "`rank` of the file wins over `dev` in NCCL 2.30: on a node of other ranks NCCL \
             refuses the file until it is taken out"
                .to_string(),
        );
    }
    if !first.devices.iter().copied().eq(0..u64::from(gpus)) {
        let list: Vec<String> = first
            .devices
            .iter()
            .map(|dev| format!("{dev:#x}"))
            .collect();
        notes.push(format!("GPUs 0, 1, ... are dev {}", list.join(", ")));
    }
    let topology = Topology {
        name: name_of(sources, given),
        hosts: given.hosts.unwrap_or(1),
        gpus_per_host: gpus,
        hosts_per_nvlink_domain: 1,
        graph: first.graph,
        alone: None,
    };
    Ok(Imported {
        machine: Machine::Topology(topology),
        notes,
    })
}

fn node(source: &Source) -> Result<Node, Refused> {
    let root = xml::parse(source)?;
    let mut ring = None;
    let mut tree = None;
    for element in root.all("graph") {
        let id = element.required(source, "id")?;
        let place = match id.number(source, 0, 64)? {
            RING => &mut ring,
            TREE => &mut tree,
            _ => continue,
        };
        if place.is_some() {
            return Err(id.refused(source, "this graph is there already"));
        }
        *place = Some((graph(source, element)?, element));
    }
    let Some((ring, ring_element)) = ring else {
        let place = Place::new(source, root.span.clone());
        let finding = Diagnostic::error("no-ring", "the file has no ring graph");
        return Err(Box::new(
            finding.at(&place, "expected <graph id=\"0\" pattern=\"4\" ...>"),
        ));
    };
    if ring.pattern != RING_PATTERN {
        let pattern = ring_element.required(source, "pattern")?;
        return Err(pattern.refused(source, "expected 4, a ring, in graph 0"));
    }
    let devices: BTreeSet<u64> = ring.channels[0].iter().copied().collect();
    let devices: Vec<u64> = devices.into_iter().collect();
    let tree_pattern = match tree.as_ref().map(|(tree, element)| (tree.pattern, element)) {
        None | Some((3, _)) => TreePattern::Tree,
        Some((1, _)) => TreePattern::Balanced,
        Some((2, _)) => TreePattern::Split,
        Some((_, element)) => {
            let pattern = element.required(source, "pattern")?;
            return Err(pattern.refused(source, "expected 1, 2 or 3, a tree, in graph 1"));
        }
    };
    let ring_orders = by_index(source, ring_element, &ring, &devices)?;
    let tree_orders = match &tree {
        Some((tree, element)) => by_index(source, element, tree, &devices)?,
        None => vec![(0..devices.len() as u32).collect(); ring_orders.len()],
    };
    // A channel needs both: NCCL's N is the least of the two counts.
    let channels = ring_orders.len().min(tree_orders.len());
    let cut = |mut orders: Vec<Vec<u32>>| {
        orders.truncate(channels);
        orders
    };
    Ok(Node {
        graph: ChannelGraph {
            ring_orders: cut(ring_orders),
            tree_orders: cut(tree_orders),
            tree_pattern,
            cross_nic_swap: ring.crosses_nics,
            missing: tree.is_none().then_some(MissingOrders::Trees),
        },
        has_ranks: root
            .all("graph")
            .flat_map(|graph| graph.all("channel"))
            .flat_map(|channel| channel.all("gpu"))
            .any(|gpu| gpu.get("rank").is_some()),
        devices,
    })
}

fn graph(source: &Source, element: &Element) -> Result<Graph, Refused> {
    let pattern = element.required(source, "pattern")?.number(source, 0, 64)?;
    let crosses_nics = match element.get("crossnic") {
        Some(crossnic) => crossnic.number(source, 0, 2)? == 2,
        None => false,
    };
    let mut channels = Vec::new();
    for channel in element.all("channel") {
        let mut devices = Vec::new();
        for gpu in channel.all("gpu") {
            devices.push(device(source, gpu)?);
        }
        channels.push(devices);
    }
    let count = element.required(source, "nchannels")?;
    let told = count.number(source, 1, CHANNELS_MAX as u64)?;
    if told != channels.len() as u64 {
        let expected = format!("the graph has {} channels", channels.len());
        return Err(count.refused(source, &expected));
    }
    Ok(Graph {
        pattern,
        crosses_nics,
        channels,
    })
}

/// `dev` as NCCL reads it: in base 16.
fn device(source: &Source, gpu: &Element) -> Result<u64, Refused> {
    let dev = gpu.required(source, "dev")?;
    let text = dev.value.trim();
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    match u64::from_str_radix(digits, 16) {
        Ok(number) if is_number => Ok(number),
        _ => Err(dev.refused(source, "expected a hexadecimal number")),
    }
}

/// The channels' orders as indexes into `devices`, of which each channel has all.
fn by_index(
    source: &Source,
    element: &Element,
    graph: &Graph,
    devices: &[u64],
) -> Result<Vec<Vec<u32>>, Refused> {
    let mut orders = Vec::new();
    for (channel, place) in graph.channels.iter().zip(element.all("channel")) {
        let mut sorted = channel.clone();
        sorted.sort_unstable();
        if sorted != devices || devices.is_empty() {
            let message = "a channel does not pass each GPU of the node once";
            let finding = Diagnostic::error("graph-channel", message);
            let place = Place::new(source, place.span.clone());
            let count = devices.len();
            let label = format!("expected the {count} GPUs of the first ring channel");
            return Err(Box::new(finding.at(&place, label)));
        }
        let index = |dev: &u64| devices.binary_search(dev).expect("the same devices") as u32;
        orders.push(channel.iter().map(index).collect());
    }
    Ok(orders)
}
