//! Allocations as files, which are read back as they were.

use std::fmt::Write;

use crate::topology::{Allocation, ChannelGraph, MissingOrders, RecordedChannels, TreePattern};

/// Columns of a comment.
const COLUMNS: usize = 100;

impl Allocation {
    /// The allocation as a file ([`Allocation::from_toml`]), under `comments`. What it assumes of
    /// its machines is not in it.
    pub fn to_toml(&self, comments: &[String]) -> String {
        let mut text: String = comments.iter().map(|words| comment(words)).collect();
        let _ = writeln!(text, "name = {}", toml::Value::from(self.name.as_str()));
        text += &hosts(self);
        let topology = &self.topology;
        if topology.hosts_per_nvlink_domain > 1 {
            let span = topology.hosts_per_nvlink_domain;
            let _ = writeln!(text, "hosts_per_nvlink_domain = {span}");
        }
        text += &machine(self);
        text
    }
}

/// What stands below the ranks of an allocation.
pub(super) fn machine(allocation: &Allocation) -> String {
    let topology = &allocation.topology;
    let mut text = String::new();
    if topology.graph != ChannelGraph::ascending(topology.gpus_per_node()) {
        text += &graph("nccl", &topology.graph);
    }
    if let Some(alone) = &topology.alone {
        text += &graph("nccl_alone", alone);
    }
    for (channels, groups) in allocation.recorded.by_channels() {
        text += &communicator(channels, &groups);
    }
    text
}

/// Lines of a comment, broken between words.
pub(super) fn comment(words: &str) -> String {
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

/// The ranks on each host. Hosts without ranks are left out, where they keep no place in an NVLink
/// domain.
pub(super) fn hosts(allocation: &Allocation) -> String {
    let topology = &allocation.topology;
    let span = topology.hosts_per_nvlink_domain;
    let mut ranks: Vec<Vec<(u32, u32)>> = vec![Vec::new(); topology.hosts as usize];
    for (rank, slot) in (0..).zip(&allocation.placement.slots) {
        ranks[slot.host as usize].push((slot.gpu, rank));
    }
    let used = ranks.iter().rposition(|host| !host.is_empty());
    let used = used
        .map_or(0, |last| last + 1)
        .next_multiple_of(span as usize);
    ranks.resize(used, Vec::new());
    if span == 1 {
        ranks.retain(|host| !host.is_empty());
    }
    let longest = ranks.iter().map(Vec::len).max().unwrap_or(0) as u32;
    let mut text = String::from("hosts = [\n");
    for host in &mut ranks {
        host.sort_unstable();
        let host: Vec<u32> = host.iter().map(|(_, rank)| *rank).collect();
        let _ = writeln!(text, "    {host:?},");
    }
    text += "]\n";
    if longest < topology.gpus_per_host {
        let _ = writeln!(text, "gpus_per_host = {}", topology.gpus_per_host);
    }
    text
}

pub(super) fn graph(table: &str, graph: &ChannelGraph) -> String {
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
