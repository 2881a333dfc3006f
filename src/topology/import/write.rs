//! An imported topology or allocation as a file of ours.

use std::fmt::Write;

use super::{Form, Imported, Machine};
use crate::diagnostic::{Source, escaped};
use crate::topology::ChannelGraph;
use crate::topology::write::{comment, graph};

impl Imported {
    /// The file, with comments that say where it comes from and what its sources do not tell.
    pub fn to_toml(&self, form: Form, sources: &[Source]) -> String {
        let first = escaped(&sources[0].name).into_owned();
        let from = match sources.len() {
            1 => first,
            count => format!("{first} and {} more", count - 1),
        };
        let from = format!("Imported from {from} ({}).", form.name());
        let comments: Vec<String> = std::iter::once(from).chain(self.notes.clone()).collect();
        let topology = match &self.machine {
            Machine::Allocation(allocation) => return allocation.to_toml(&comments),
            Machine::Topology(topology) => topology,
        };
        let mut text: String = comments.iter().map(|words| comment(words)).collect();
        let name = toml::Value::from(self.machine.name());
        let _ = writeln!(text, "name = {name}");
        let _ = writeln!(text, "hosts = {}", topology.hosts);
        let _ = writeln!(text, "gpus_per_host = {}", topology.gpus_per_host);
        if topology.hosts_per_nvlink_domain > 1 {
            let span = topology.hosts_per_nvlink_domain;
            let _ = writeln!(text, "hosts_per_nvlink_domain = {span}");
        }
        if topology.graph != ChannelGraph::ascending(topology.gpus_per_node()) {
            text += &graph("nccl", &topology.graph);
        }
        text
    }
}
