//! Slurm's `topology.yaml`: a list of topologies, each with a tree, blocks, rings, or flat.

use super::slurm_conf::{Fabric, Unit};
use super::yaml::{self, Kind, Node};
use super::{Given, Imported, Refused};
use crate::diagnostic::Source;

/// Whether a text is such a file.
pub(super) fn is_yaml(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim_start);
    lines.any(|line| line.starts_with("- topology:"))
}

pub(super) fn import(sources: &[Source], given: &Given) -> Result<Imported, Refused> {
    let [source] = sources else {
        return Err(super::second_file(sources));
    };
    let document = yaml::parse(source)?;
    let topologies = document.list(source)?;
    let topology = chosen(source, &document)?;
    let mut fabric = Fabric::default();
    let mut is_known = false;
    if let Some(tree) = topology.get("tree") {
        let switches = tree.required(source, "switches")?.list(source)?;
        fabric.switches = units(&mut fabric, source, switches, "switch")?;
        for switch in switches {
            if let Some(children) = switch.get("children") {
                let names = fabric.names(source, children.text(source)?, &children.span)?;
                let named = names.into_iter().map(|name| (name, children.span.clone()));
                fabric.named.extend(named);
            }
        }
        is_known = true;
    }
    if let Some(block) = topology.get("block") {
        fabric.blocks = units(
            &mut fabric,
            source,
            block.required(source, "blocks")?.list(source)?,
            "block",
        )?;
        is_known = true;
    }
    if let Some(ring) = topology.get("ring") {
        fabric.rings = units(
            &mut fabric,
            source,
            ring.required(source, "rings")?.list(source)?,
            "ring",
        )?;
        is_known = true;
    }
    if !is_known {
        return Err(topology.refused(
            source,
            "expected `tree`, `block` or `ring`: a flat topology and a torus name no hosts",
        ));
    }
    let mut cluster = fabric.into_cluster(source)?;
    if topologies.len() > 1 {
        let name = topology.required(source, "topology")?.text(source)?;
        cluster.notes.push(format!(
            "of {} topologies this is `{}`",
            topologies.len(),
            crate::diagnostic::escaped(name)
        ));
    }
    cluster.into_topology(sources, given)
}

/// The default of the cluster, else the first one.
fn chosen<'a>(source: &Source, document: &'a Node) -> Result<&'a Node, Refused> {
    let mut first = None;
    for topology in document.list(source)? {
        if let Some(node) = topology.get("cluster_default")
            && matches!(node.text(source)?, "true" | "yes")
        {
            return Ok(topology);
        }
        first.get_or_insert(topology);
    }
    first.ok_or_else(|| document.refused(source, "expected a topology"))
}

/// Switches, blocks or rings: a name, and perhaps `nodes`.
fn units(
    fabric: &mut Fabric,
    source: &Source,
    list: &[Node],
    key: &str,
) -> Result<Vec<Unit>, Refused> {
    let mut units = Vec::new();
    for node in list {
        if !matches!(node.kind, Kind::Map(_)) {
            return Err(node.refused(source, "expected a mapping"));
        }
        let name = node.required(source, key)?;
        let hosts = match node.get("nodes") {
            Some(nodes) => fabric.names(source, nodes.text(source)?, &nodes.span)?,
            None => Vec::new(),
        };
        units.push(Unit {
            name: name.text(source)?.to_string(),
            hosts,
            span: name.span.clone(),
        });
    }
    Ok(units)
}
