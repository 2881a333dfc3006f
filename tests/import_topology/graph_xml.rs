//! Graph files, against what NCCL's own code makes of them.

use bitproof::diagnostic::Source;
use bitproof::plan::Communicator;
use bitproof::topology::import::{Given, Machine};
use bitproof::topology::{Allocation, Slot};
use serde_json::Value;

use super::{fixture, hosts, imported, sample, shared, written};

fn number(value: &Value) -> u32 {
    value.as_u64().expect("a number") as u32
}

fn list(value: &Value) -> Vec<u32> {
    value
        .as_array()
        .expect("a list")
        .iter()
        .map(number)
        .collect()
}

/// A graph file on so many hosts, the ranks on the devices that the case says.
fn allocation(case: &Value) -> Allocation {
    let file = case["in"]["graph_file"].as_str().expect("a graph file");
    let nodes = number(&case["out"]["nNodes"]);
    let source = Source::new("graph.xml", file);
    let (_, imported) = imported(&[source], &hosts(nodes));
    let Machine::Topology(topology) = imported.machine else {
        panic!("a graph file has no ranks")
    };
    let world = number(&case["out"]["nRanks"]);
    let mut allocation = topology.block(world).expect("it fits");
    if let Value::Array(ranks) = &case["in"]["ranks"] {
        let slot = |rank: &Value| Slot {
            host: number(&rank[0]),
            gpu: number(&rank[1]),
        };
        allocation.placement.slots = ranks.iter().map(slot).collect();
    }
    allocation
}

#[test]
fn rings_of_graph_files_are_those_that_nccl_makes_of_them() {
    let variable = "BITPROOF_GOLDEN_DIR";
    let Some(folder) = shared::shared(variable, "golden", "nccl_graphs.json") else {
        return;
    };
    let text = std::fs::read_to_string(folder.join("nccl_graphs.json")).expect("readable");
    let golden: Value = serde_json::from_str(&text).expect("JSON");
    let cases = golden["cases"].as_array().expect("a list").iter();
    let mut compared = 0;
    for case in cases.filter(|case| case["in"]["graph_file"].is_string()) {
        let (name, out) = (&case["name"], &case["out"]);
        let allocation = allocation(case);
        let members: Vec<u32> = (0..allocation.placement.world()).collect();
        let communicator = Communicator::new(&allocation, &members);
        let channels = communicator.channels(0, 64);
        let of_channel = list(&out["ringOfChannel"]);
        assert_eq!(channels.len(), of_channel.len(), "{name}");
        for (channel, ring) in channels.into_iter().zip(of_channel) {
            let expected = list(&out["rings"][ring as usize]);
            assert_eq!(**communicator.ring(channel), expected, "{name}");
            compared += 1;
        }
    }
    assert!(compared >= 16, "{compared} rings");
}

#[test]
fn a_graph_file_becomes_a_topology() {
    insta::assert_snapshot!(written(&[fixture("graph.xml")], &hosts(4)));
    let same = [fixture("graph.xml"), fixture("graph.xml")];
    assert!(matches!(
        imported(&same, &hosts(4)).1.machine,
        Machine::Topology(_)
    ));
}

#[test]
fn a_sample_is_read() {
    let Some(source) = sample("nccl-graph-azure-ncv4-4xa100.xml") else {
        return;
    };
    let (_, imported) = imported(&[source], &Given::default());
    let topology = imported.machine.topology();
    assert_eq!((topology.hosts, topology.gpus_per_host), (1, 4));
    assert_eq!(topology.graph.ring_orders, [[0, 1, 2, 3], [0, 3, 2, 1]]);
    // Four chains, of which two have a ring.
    assert_eq!(topology.graph.tree_orders, [[0, 1, 2, 3], [1, 0, 3, 2]]);
}
