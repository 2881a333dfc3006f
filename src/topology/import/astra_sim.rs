//! ASTRA-sim's analytical network files: `topology`, `npus_count`, `bandwidth`, `latency`, one
//! entry a dimension, the first one fastest.

use super::yaml::{self, Node};
use super::{Given, Imported, Machine, Refused, name_of};
use crate::diagnostic::Source;
use crate::topology::{ChannelGraph, MAX_RANKS, Topology};

/// Dimensions that ASTRA-sim's own files have at most, several times.
const DIMENSIONS_MAX: usize = 16;

/// Whether a text is such a file.
pub(super) fn is_network(text: &str) -> bool {
    text.lines().any(|line| line.starts_with("npus_count:"))
}

pub(super) fn import(sources: &[Source], given: &Given) -> Result<Imported, Refused> {
    let [source] = sources else {
        return Err(super::second_file(sources));
    };
    let document = yaml::parse(source)?;
    let kinds = document.required(source, "topology")?;
    let counts = document.required(source, "npus_count")?;
    let dimensions = counts.list(source)?;
    if dimensions.is_empty() || dimensions.len() > DIMENSIONS_MAX {
        return Err(counts.refused(source, "expected 1 to 16 dimensions"));
    }
    let names = shapes(source, kinds)?;
    if names.len() != dimensions.len() {
        let expected = format!("expected {} dimensions, as in npus_count", dimensions.len());
        return Err(kinds.refused(source, &expected));
    }
    for key in ["bandwidth", "latency"] {
        numbers(source, &document, key, dimensions.len())?;
    }
    let (sizes, all) = sizes(source, dimensions)?;
    let gpus_per_host = given.gpus_per_host.unwrap_or(sizes[0]);
    if !all.is_multiple_of(u64::from(gpus_per_host)) {
        let expected = format!("{all} NPUs are no hosts of {gpus_per_host}");
        return Err(counts.refused(source, &expected));
    }
    let shape: Vec<String> = names
        .iter()
        .zip(&sizes)
        .map(|(name, size)| format!("{name} of {size}"))
        .collect();
    let mut notes = vec![
        format!("dimensions: {}", shape.join(", ")),
        "ASTRA-sim knows links and their times, not orders: rings are not in the file".to_string(),
    ];
    if given.gpus_per_host.is_none() {
        notes.push(
            "the first dimension is taken for a host: `--gpus-per-host N` says otherwise".into(),
        );
    }
    Ok(Imported {
        machine: Machine::Topology(Topology {
            name: name_of(sources, given),
            hosts: (all / u64::from(gpus_per_host)) as u32,
            gpus_per_host,
            hosts_per_nvlink_domain: 1,
            graph: ChannelGraph::ascending(gpus_per_host),
            alone: None,
        }),
        notes,
    })
}

/// The kind of each dimension.
fn shapes<'a>(source: &Source, kinds: &'a Node) -> Result<Vec<&'a str>, Refused> {
    let mut names = Vec::new();
    for kind in kinds.list(source)? {
        names.push(match kind.text(source)? {
            known @ ("Ring" | "Switch" | "FullyConnected") => known,
            _ => return Err(kind.refused(source, "expected Ring, Switch or FullyConnected")),
        });
    }
    Ok(names)
}

/// NPUs of each dimension, and of all together.
fn sizes(source: &Source, dimensions: &[Node]) -> Result<(Vec<u32>, u64), Refused> {
    let mut sizes = Vec::new();
    let mut all = 1;
    for count in dimensions {
        let size = count
            .text(source)?
            .parse::<u32>()
            .ok()
            .filter(|size| *size > 0);
        let size = size.ok_or_else(|| count.refused(source, "expected a number of NPUs"))?;
        all *= u64::from(size);
        if all > u64::from(MAX_RANKS) {
            let expected = format!("at most {MAX_RANKS} NPUs are supported");
            return Err(count.refused(source, &expected));
        }
        sizes.push(size);
    }
    Ok((sizes, all))
}

/// Some public files hold `tbd`: those are not whole.
fn numbers(source: &Source, document: &Node, key: &str, count: usize) -> Result<(), Refused> {
    let Some(node) = document.get(key) else {
        return Ok(());
    };
    let items = node.list(source)?;
    if items.len() != count {
        let expected = format!("expected {count} entries, as in npus_count");
        return Err(node.refused(source, &expected));
    }
    for item in items {
        let number = item.text(source)?.parse::<f64>();
        if !number.is_ok_and(|number| number.is_finite() && number >= 0.0) {
            return Err(item.refused(source, "expected a number"));
        }
    }
    Ok(())
}
