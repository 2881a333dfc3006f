//! Rings, trees, channels and partitions against those of NCCL 2.30.7's own host code.
//!
//! The repository holds an excerpt (`nccl_plans.json`); with `BITPROOF_GOLDEN_DIR` the full file is
//! read (`nccl_graphs.json`).

use std::collections::BTreeMap;
use std::path::PathBuf;

use bitproof::plan::partition::{self, Operation, PartitionedBy};
use bitproof::plan::{Communicator, Environment, Protocol, pat};
use bitproof::topology::{
    Allocation, ChannelGraph, Placement, Recorded, Slot, Topology, TreePattern,
};
use serde_json::Value;

#[path = "support/symbols.rs"]
mod symbols;
use symbols::Symbols;

fn golden() -> Value {
    let path = match std::env::var_os("BITPROOF_GOLDEN_DIR") {
        Some(folder) => PathBuf::from(folder).join("nccl_graphs.json"),
        None => PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/nccl_plans.json"),
    };
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).expect("golden files are JSON")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().expect("a list")
}

fn number(value: &Value) -> u64 {
    value
        .as_u64()
        .unwrap_or_else(|| panic!("a number: {value}"))
}

/// A list, or runs of [node, ranks].
fn nodes_of_ranks(value: &Value) -> Vec<u32> {
    match value {
        Value::Array(nodes) => nodes.iter().map(|node| number(node) as u32).collect(),
        runs => {
            let run = |run: &Value| vec![number(&run[0]) as u32; number(&run[1]) as usize];
            list(&runs["rle"]).iter().flat_map(run).collect()
        }
    }
}

/// The placement of a case: NCCL's nodes as hosts, GPUs numbered by host and device.
fn placement(case: &Value) -> Placement {
    let nodes = nodes_of_ranks(&case["out"]["rankToNode"]);
    let device = |rank: usize| match &case["in"]["ranks"] {
        Value::Array(ranks) => (number(&ranks[rank][0]), number(&ranks[rank][1])),
        _ => (0, rank as u64),
    };
    let mut by_device: Vec<usize> = (0..nodes.len()).collect();
    by_device.sort_by_key(|rank| (nodes[*rank], device(*rank)));
    let mut slots = vec![Slot { host: 0, gpu: 0 }; nodes.len()];
    let mut last = None;
    for rank in by_device {
        let gpu = match last {
            Some(Slot { host, gpu }) if host == nodes[rank] => gpu + 1,
            _ => 0,
        };
        slots[rank] = Slot {
            host: nodes[rank],
            gpu,
        };
        last = Some(slots[rank]);
    }
    Placement { slots }
}

fn orders(graph: &Value, placement: &Placement) -> Vec<Vec<u32>> {
    let gpus = |channel: &Value| {
        list(&channel[0])
            .iter()
            .map(|r| placement.slots[number(r) as usize].gpu)
            .collect()
    };
    list(&graph["channels"]).iter().map(gpus).collect()
}

fn allocation(case: &Value) -> Allocation {
    let placement = placement(case);
    let graph = &case["out"]["graphs"][0];
    let search = number(&case["out"]["searchChannels"]) as usize;
    let mut ring_orders = orders(&graph["ring"], &placement);
    let mut tree_orders = orders(&graph["tree"], &placement);
    ring_orders.truncate(search);
    tree_orders.truncate(search);
    let tree_pattern = match number(&graph["tree"]["pattern"]) {
        1 => TreePattern::Balanced,
        2 => TreePattern::Split,
        3 => TreePattern::Tree,
        other => panic!("tree pattern {other}"),
    };
    let cross_nic_swap = number(&graph["ring"]["crossNic"]) == 2;
    let gpus_per_host = ring_orders[0].len() as u32;
    let name = case["name"].as_str().expect("a name").to_owned();
    let topology = Topology {
        name: name.clone(),
        hosts: number(&case["out"]["nNodes"]) as u32,
        gpus_per_host,
        hosts_per_nvlink_domain: 1,
        alone: None,
        graph: ChannelGraph {
            ring_orders,
            tree_orders,
            tree_pattern,
            cross_nic_swap,
            missing: None,
        },
    };
    Allocation {
        name,
        topology,
        placement,
        recorded: Recorded::default(),
        assumes: Vec::new(),
    }
}

/// Limits on channels, and the rest, as NCCL would see them; algorithms do not matter here.
fn environment(case: &Value) -> Environment {
    let variables = case["in"]["env"].as_object().expect("a table");
    let variables = variables.iter().filter(|(name, _)| *name != "NCCL_ALGO");
    Environment::parse(variables.map(|(name, value)| (name.as_str(), value.as_str().unwrap())))
        .expect("NCCL took these variables")
}

/// Cases whose nodes all have the same graph.
fn modelled(case: &Value) -> bool {
    list(&case["out"]["graphs"]).len() == 1
}

fn tree_symbol(tree: &Value, symbols: &mut Symbols) -> u32 {
    let down = |rank: usize| list(&tree[rank])[1..].iter().filter_map(Value::as_u64);
    let ranks = list(tree).len();
    let root = (0..ranks)
        .find(|rank| tree[*rank][0].as_i64() == Some(-1))
        .expect("a root");
    // Parents before children, then summed from the back.
    let mut order = vec![root];
    let mut next = 0;
    while next < order.len() {
        order.extend(down(order[next]).map(|rank| rank as usize));
        next += 1;
    }
    let mut sums = BTreeMap::new();
    for rank in order.into_iter().rev() {
        let sum = down(rank).fold(rank as u32, |sum, below| symbols.add(sum, sums[&below]));
        sums.insert(rank as u64, sum);
    }
    sums[&(root as u64)]
}

#[test]
fn golden_nccl_rings_and_trees_are_rebuilt_from_in_node_orders() {
    let file = golden();
    let mut compared = 0;
    for case in list(&file["cases"]).iter().filter(|case| modelled(case)) {
        let (name, out) = (&case["name"], &case["out"]);
        let allocation = allocation(case);
        let members: Vec<u32> = (0..allocation.placement.world()).collect();
        let communicator = Communicator::new(&allocation, &members);
        let environment = environment(case);
        let channels = communicator.channels(environment.min_channels, environment.max_channels);
        assert_eq!(
            channels.len() as u64,
            number(&out["nChannels"]),
            "{name}: channels"
        );
        let mut symbols = Symbols::default();
        for (index, channel) in channels.into_iter().enumerate() {
            // Large cases give most rings and trees as hashes; the others are written out.
            let ring = &out["rings"][number(&out["ringOfChannel"][index]) as usize];
            if let Value::Array(ring) = ring {
                let ring: Vec<u32> = ring.iter().map(|rank| number(rank) as u32).collect();
                assert_eq!(
                    **communicator.ring(channel),
                    ring,
                    "{name}: ring of {index}"
                );
                compared += 1;
            }
            let found = communicator.tree(channel).expect("built trees are known");
            assert_eq!(found.check(members.len() as u32), Ok(()));
            let tree = &out["trees"][number(&out["treeOfChannel"][index]) as usize];
            if tree.is_array() {
                let found = found.fold(|addend| addend, |a, b| symbols.add(a, b));
                let expected = tree_symbol(tree, &mut symbols);
                assert_eq!(found, expected, "{name}: tree of channel {index}");
                compared += 1;
            }
        }
    }
    assert!(compared >= 350, "{compared} rings and trees");
}

fn operation(text: &str, ranks: u64) -> Operation {
    let mut parts = text.split(':');
    let (function, count, dtype) = (
        parts.next().unwrap(),
        parts.next().unwrap(),
        parts.next().unwrap(),
    );
    let count: u64 = count.parse().expect("a count");
    let element_bytes = match dtype {
        "f64" => 8,
        "f32" => 4,
        "bf16" | "f16" => 2,
        "f8e4m3" => 1,
        other => panic!("type {other}"),
    };
    match function {
        "AllReduce" => Operation {
            count,
            element_bytes,
            blocks: 1,
            traffic: 2,
        },
        "ReduceScatter" => Operation {
            count,
            element_bytes,
            blocks: ranks,
            traffic: ranks,
        },
        // Reported in bytes.
        "AllGather" => Operation {
            count: count * element_bytes,
            element_bytes: 1,
            blocks: ranks,
            traffic: ranks,
        },
        other => panic!("function {other}"),
    }
}

#[test]
fn golden_nccl_partitions_of_single_operations() {
    let file = golden();
    let mut checked = 0;
    for case in list(&file["cases"]) {
        let ranks = number(&case["out"]["nRanks"]);
        let channels = number(&case["out"]["nChannels"]);
        let buffer = number(&case["out"]["buffSizes"][2]);
        for choice in list(&case["out"]["choices"]) {
            let choice = list(choice);
            let row = &choice[1];
            let by = match row[1].as_str() {
                Some("Ring") => PartitionedBy::Ring,
                Some("Tree") => PartitionedBy::Tree,
                Some("PAT") => PartitionedBy::Pat,
                _ => continue,
            };
            if list(&choice[0]).len() > 1 {
                continue;
            }
            let text = choice[0][0].as_str().expect("an operation");
            let named = |protocol: &Protocol| Some(protocol.name()) == row[2].as_str();
            let protocol = Protocol::ALL.into_iter().find(named).expect("a protocol");
            let operation = operation(text, ranks);
            let limit = partition::channel_limit(&operation, by, protocol, ranks, channels);
            let place = format!("{} {text} {row}", case["name"]);
            assert_eq!(limit, number(&row[3]), "{place}: channel limit");
            let ranges = partition::channel_ranges(&operation, protocol, limit, channels);
            assert_eq!(
                ranges.len() as u64 - 1,
                number(&row[6]) - number(&row[5]),
                "{place}"
            );
            let sizes: Vec<u64> = ranges.iter().map(|range| range.end - range.start).collect();
            assert_eq!(sizes[0], number(&row[7]), "{place}: first channel");
            if let [_, middles @ .., last] = &sizes[..] {
                assert!(
                    middles.iter().all(|middle| *middle == number(&row[8])),
                    "{place}"
                );
                assert_eq!(*last, number(&row[9]), "{place}: last channel");
            }
            if by == PartitionedBy::Pat && operation.element_bytes > 1 {
                for (channel, elements) in [(7, 10), (8, 11), (9, 12)] {
                    let bytes = number(&row[channel]) * operation.element_bytes;
                    let chunk = pat::chunk_bytes(buffer, ranks, bytes);
                    assert_eq!(chunk, number(&row[elements]), "{place}: chunk");
                }
            }
            if by == PartitionedBy::Ring {
                assert_eq!(
                    protocol.ring_chunk_bytes(buffer),
                    number(&row[10]),
                    "{place}: chunk"
                );
            }
            checked += 1;
        }
    }
    assert!(checked >= 200, "{checked} operations");
}
