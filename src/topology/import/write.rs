//! An imported topology or allocation as a file of ours.

use std::fmt::Write;

use super::{Form, Imported, Machine};
use crate::diagnostic::{Source, escaped};
use crate::topology::{Allocation, ChannelGraph, MissingOrders, RecordedChannels, TreePattern};

/// Columns of a comment.
const COLUMNS: usize = 100;

impl Imported {
    /// The file, with comments that say where it comes from and what its sources do not tell.
    pub fn to_toml(&self, form: Form, sources: &[Source]) -> String {
        let first = escaped(&sources[0].name).into_owned();
        let from = match sources.len() {
            1 => first,
            count => format!("{first} and {} more", count - 1),
        };
        let mut text = comment(&format!("Imported from {from} ({}).", form.name()));
        for note in &self.notes {
            text += &comment(note);
        }
        let topology = self.machine.topology();
        let name = toml::Value::from(self.machine.name());
        let _ = writeln!(text, "name = {name}");
        match &self.machine {
            Machine::Topology(topology) => {
                let _ = writeln!(text, "hosts = {}", topology.hosts);
                let _ = writeln!(text, "gpus_per_host = {}", topology.gpus_per_host);
            }
            Machine::Allocation(allocation) => text += &hosts(allocation),
        }
        if topology.hosts_per_nvlink_domain > 1 {
            let span = topology.hosts_per_nvlink_domain;
            let _ = writeln!(text, "hosts_per_nvlink_domain = {span}");
        }
        if topology.graph != ChannelGraph::ascending(topology.gpus_per_node()) {
            text += &graph("nccl", &topology.graph);
        }
        if let Some(alone) = &topology.alone {
            text += &graph("nccl_alone", alone);
        }
        if let Machine::Allocation(allocation) = &self.machine {
            for (channels, groups) in allocation.recorded.by_channels() {
                text += &communicator(channels, &groups);
            }
        }
        text
    }
}

/// Lines of a comment, broken between words.
fn comment(words: &str) -> String {
    let mut text = String::new();
    let mut line = String::from("#");
    for word in words.split_whitespace() {
        if line.chars().count() + 1 + word.chars().count() > COLUMNS && line != "#" {
            text += &line;
            text.push('\n');
            line = String::from("#");
        }
        line.push(' ');
        line += word;
    }
    text += &line;
    text.push('\n');
    text
}

fn hosts(allocation: &Allocation) -> String {
    let mut ranks: Vec<Vec<(u32, u32)>> = vec![Vec::new(); allocation.topology.hosts as usize];
    for (rank, slot) in (0..).zip(&allocation.placement.slots) {
        ranks[slot.host as usize].push((slot.gpu, rank));
    }
    let mut text = String::from("hosts = [\n");
    for host in &mut ranks {
        host.sort_unstable();
        let host: Vec<u32> = host.iter().map(|(_, rank)| *rank).collect();
        let _ = writeln!(text, "    {host:?},");
    }
    text += "]\n";
    text
}

fn graph(table: &str, graph: &ChannelGraph) -> String {
    let ChannelGraph {
        ring_orders,
        tree_orders,
        tree_pattern,
        cross_nic_swap,
        missing,
    } = graph;
    let pattern = match tree_pattern {
        TreePattern::Balanced => "balanced",
        TreePattern::Split => "split",
        TreePattern::Tree => "tree",
    };
    let mut text = format!("\n[{table}]\ntree_pattern = \"{pattern}\"\n");
    if *cross_nic_swap {
        text += "cross_nic_swap = true\n";
    }
    for (key, orders, absent) in [
        ("ring_orders", ring_orders, MissingOrders::Rings),
        ("tree_orders", tree_orders, MissingOrders::Trees),
    ] {
        if *missing == Some(absent) {
            continue;
        }
        let _ = writeln!(text, "{key} = [");
        for order in orders {
            let _ = writeln!(text, "    {order:?},");
        }
        text += "]\n";
    }
    text
}

fn communicator(channels: &RecordedChannels, groups: &[&[u32]]) -> String {
    let mut text = String::from("\n[[communicators]]\ngroups = [\n");
    for group in groups {
        let _ = writeln!(text, "    {group:?},");
    }
    text += "]\nrings = [\n";
    for ring in &channels.rings {
        let _ = writeln!(text, "    {ring:?},");
    }
    text += "]\n";
    if !channels.trees.is_empty() {
        text += "trees = [\n";
        for tree in &channels.trees {
            let _ = writeln!(text, "    {tree:?},");
        }
        text += "]\n";
    }
    let of_channel: Vec<String> = channels
        .channels
        .iter()
        .map(|channel| match channel.tree {
            Some(tree) => format!("[{}, {tree}]", channel.ring),
            None => format!("[{}]", channel.ring),
        })
        .collect();
    let _ = writeln!(text, "channels = [{}]", of_channel.join(", "));
    text
}
