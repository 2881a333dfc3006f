//! Machines by name: their orders are those that NCCL's own search found on the same shapes, where
//! its results are at hand, and those of the files that are shipped.

use std::process::Command;

use bitproof::topology::machines::{NoPreset, PRESETS, Preset};
use bitproof::topology::{Allocation, ChannelGraph, Topology, TreePattern};
use serde_json::Value;

#[path = "support/shared.rs"]
mod shared;

fn allocation(name: &str, world: u32) -> Allocation {
    let (preset, units) = Preset::named(name).expect("a preset");
    preset.allocation(units, world).expect("it fits")
}

#[test]
fn shipped_files_have_the_orders_of_their_presets() {
    for (file, preset, world) in [
        (include_str!("../topologies/dgx-h100-1.toml"), "dgx-h100", 8),
        (
            include_str!("../topologies/dgx-h100-2.toml"),
            "dgx-h100x2",
            16,
        ),
        (
            include_str!("../topologies/dgx-a100-2.toml"),
            "dgx-a100",
            16,
        ),
    ] {
        let file = Topology::from_toml(file).expect("it is shipped");
        let made = allocation(preset, world).topology;
        assert_eq!(
            (made.hosts, &made.graph),
            (file.hosts, &file.graph),
            "{preset}"
        );
    }
}

/// GPUs of a node, by the place of the first rank.
fn orders(graph: &Value) -> Vec<Vec<u32>> {
    let gpus = |channel: &Value| {
        let ranks = channel[0].as_array().expect("ranks");
        ranks
            .iter()
            .map(|rank| rank.as_u64().expect("a rank") as u32)
            .collect()
    };
    graph["channels"]
        .as_array()
        .expect("a list")
        .iter()
        .map(gpus)
        .collect()
}

fn is_of(case: &Value, made: &ChannelGraph) -> bool {
    let graph = &case["out"]["graphs"][0];
    let pattern = match graph["tree"]["pattern"].as_u64() {
        Some(1) => TreePattern::Balanced,
        Some(3) => TreePattern::Tree,
        other => panic!("pattern {other:?}"),
    };
    (orders(&graph["ring"]), orders(&graph["tree"]))
        == (made.ring_orders.clone(), made.tree_orders.clone())
        && pattern == made.tree_pattern
        && (graph["ring"]["crossNic"].as_u64() == Some(2)) == made.cross_nic_swap
}

#[test]
fn orders_are_those_of_nccls_search() {
    let Some(folder) = shared::shared("BITPROOF_GOLDEN_DIR", "golden", "nccl_graphs.json") else {
        return;
    };
    let text = std::fs::read_to_string(folder.join("nccl_graphs.json")).expect("it is there");
    let file: Value = serde_json::from_str(&text).expect("JSON");
    let cases = file["cases"].as_array().expect("a list");
    let find = |name: &str| {
        let mut cases = cases.iter();
        cases
            .find(|case| case["name"] == name)
            .unwrap_or_else(|| panic!("no case {name}"))
    };
    for hosts in [1, 2, 3, 4, 8, 19, 38, 304] {
        for (case, preset) in [("h100", "dgx-h100"), ("a100", "dgx-a100")] {
            let case = find(&format!("{case}_n{hosts}"));
            let made = allocation(&format!("{preset}x{hosts}"), 8 * hosts);
            assert!(is_of(case, &made.topology.graph), "{preset} {hosts}");
        }
    }
    // A group on one whole node of several has what is found for one node.
    for (case, preset) in [("h100_n1", "dgx-h100x4"), ("a100_n1", "dgx-a100x4")] {
        let topology = allocation(preset, 32).topology;
        let alone = topology.alone.expect("it is known");
        assert!(is_of(find(case), &alone), "{preset}");
        assert!(!is_of(find(case), &topology.graph), "{preset}");
    }
    for (case, preset, world) in [
        ("gb200_nvl72", "gb200-nvl72x1", 72),
        ("gb200_2xnvl64", "gb200-nvl64x2", 128),
        ("gb200_38xnvl64", "gb200-nvl64x38", 2432),
    ] {
        assert!(
            is_of(find(case), &allocation(preset, world).topology.graph),
            "{preset}"
        );
    }
    // Negative control: another machine's orders are other ones.
    assert!(!is_of(
        find("h100_n2"),
        &allocation("dgx-a100x2", 16).topology.graph
    ));
}

/// The four shapes of 2,432 GPUs, by the nodes that NCCL sees.
#[test]
fn a_cluster_of_2432_has_four_shapes() {
    for (name, nodes, last) in [
        ("dgx-h100x304", 304, 8),
        ("dragonflyx608", 608, 4),
        ("gb200-nvl64x38", 38, 64),
        ("gb200-nvl72", 34, 56),
    ] {
        let made = allocation(name, 2432);
        let node_of: Vec<u32> = (0..2432).map(|rank| made.node_and_gpu(rank).0).collect();
        assert_eq!(node_of.last(), Some(&(nodes - 1)), "{name}");
        let in_last = node_of.iter().filter(|node| **node == nodes - 1).count();
        assert_eq!(in_last, last, "{name}");
        assert!(!made.assumes.is_empty());
    }
    let whole = allocation("gb200-nvl72x34", 2432);
    assert_eq!(whole.topology.hosts, 34 * 18);
    assert!(
        whole
            .assumes
            .iter()
            .any(|one| one.contains("56 GPUs are used"))
    );
}

#[test]
fn names_are_read_with_and_without_a_number() {
    let read = |text: &str| Preset::named(text).map(|(preset, units)| (preset.name, units));
    for preset in PRESETS {
        assert_eq!(read(preset.name), Ok((preset.name, None)));
        assert_eq!(
            read(&format!("{}x7", preset.name)),
            Ok((preset.name, Some(7)))
        );
        assert_eq!(preset.allocation(Some(1), preset.gpus(1) + 1), None);
        assert_eq!(preset.allocation(None, 0), None);
    }
    let near = Some("dgx-h100");
    assert_eq!(read("dgx-h10x2"), Err(NoPreset::Unknown { near }));
    for count in ["0", "99999", "99999999999999999999"] {
        let text = count.to_string();
        assert_eq!(
            read(&format!("dgx-h100x{count}")),
            Err(NoPreset::Count { text })
        );
    }
}

#[test]
fn plans_say_what_a_preset_assumes() {
    let plan = |topology: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bitproof"));
        let show = [
            "plan",
            "show",
            "scenarios/quickstart.toml",
            "--topology",
            topology,
        ];
        let output = command
            .args(show)
            .env("NO_COLOR", "1")
            .output()
            .expect("it starts");
        let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("text");
        (output.status.code(), text)
    };
    let (code, text) = plan("preset:dgx-h100x2");
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("- that the machines are hosts of 8 H100"),
        "{text}"
    );
    let (code, text) = plan("preset:tpu-v5p");
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("XLA's collectives are not modelled"),
        "{text}"
    );
    let (code, text) = plan("preset:dgx-h100x1");
    assert_eq!(code, Some(2));
    assert!(
        text.contains("the job has 16 ranks, the topology 8 GPUs"),
        "{text}"
    );
    let (code, text) = plan("preset:dgx-h1000x1");
    assert_eq!(code, Some(2));
    assert!(text.contains("did you mean `preset:dgx-h100`?"), "{text}");
    let documentation = std::fs::read_to_string("docs/topology.md").expect("part of the tree");
    for preset in PRESETS {
        assert!(
            documentation.contains(&format!("`{}`", preset.name)),
            "{}",
            preset.name
        );
    }
}
