//! The machine as NCCL or RCCL found it: `NCCL_TOPO_DUMP_FILE`, or a file that `NCCL_TOPO_FILE`
//! names.
//!
//! `system > cpu[host_hash] > pci* > gpu[dev, rank] > nvlink | xgmi`, `nic > net`. Files of virtual
//! machines have bare `pci` leaves: those of a display or accelerator class are GPUs. NCCL's search
//! for rings is not run.

use std::collections::{BTreeMap, BTreeSet};

use super::xml::{self, Element};
use super::{Given, Imported, Machine, Refused, name_of};
use crate::diagnostic::{Diagnostic, Place, Source, escaped};
use crate::topology::{ChannelGraph, MAX_RANKS, Topology};

/// One GPU of the file.
struct Gpu {
    host: String,
    bus: String,
    dev: Option<u64>,
    /// Links to other GPUs or to switches.
    links: u64,
}

#[derive(Default)]
struct Found {
    gpus: Vec<Gpu>,
    /// Host and bus of each.
    seen: BTreeSet<(String, String)>,
    nics: usize,
    has_xgmi: bool,
    has_ranks: bool,
}

pub(super) fn import(sources: &[Source], given: &Given) -> Result<Imported, Refused> {
    let [source] = sources else {
        return Err(super::second_file(sources));
    };
    let root = xml::parse(source)?;
    let mut found = Found::default();
    for cpu in root.all("cpu") {
        let hash = cpu.get("host_hash").map_or("", |hash| &hash.value);
        for child in &cpu.children {
            found.walk(source, child, hash)?;
        }
    }
    if found.gpus.is_empty() {
        let place = Place::new(source, root.span.clone());
        let finding = Diagnostic::error("no-gpus", "the file has no GPU");
        return Err(Box::new(finding.at(&place, "in this system")));
    }
    let (hosts, gpus_per_host) = found.hosts(source, &root)?;
    let notes = found.notes(hosts);
    let domains = match given.hosts {
        Some(wanted) if hosts > 1 && !wanted.is_multiple_of(hosts) => {
            let place = Place::new(source, root.span.clone());
            let message = format!("{wanted} hosts are no multiple of the {hosts} of the file");
            let finding = Diagnostic::error("hosts", message);
            return Err(Box::new(finding.at(&place, "hosts that NVLink joins")));
        }
        Some(wanted) => wanted,
        None => hosts,
    };
    let topology = Topology {
        name: name_of(sources, given),
        hosts: domains,
        gpus_per_host,
        hosts_per_nvlink_domain: hosts,
        graph: ChannelGraph::ascending((gpus_per_host * hosts).min(MAX_RANKS)),
        alone: None,
    };
    Ok(Imported {
        machine: Machine::Topology(topology),
        notes,
    })
}

impl Found {
    fn walk(&mut self, source: &Source, element: &Element, host: &str) -> Result<(), Refused> {
        match &*element.name {
            "pci" => {}
            "nic" => {
                self.nics += element.all("net").count();
                return Ok(());
            }
            _ => return Ok(()),
        }
        let class = element.get("class").map_or("", |class| &class.value);
        let class = class.trim_start_matches("0x");
        let gpu = element.all("gpu").next();
        let is_leaf = element.children.is_empty();
        // PCI classes: display controllers, processing accelerators.
        let has_gpu_class = ["0300", "0302", "1200"]
            .iter()
            .any(|own| class.starts_with(own));
        if gpu.is_some() || (is_leaf && has_gpu_class) {
            self.gpu(source, element, gpu, host)?;
        } else if is_leaf && (class.starts_with("0200") || class.starts_with("0207")) {
            self.nics += 1;
        }
        for child in &element.children {
            self.walk(source, child, host)?;
        }
        Ok(())
    }

    fn gpu(
        &mut self,
        source: &Source,
        pci: &Element,
        gpu: Option<&Element>,
        host: &str,
    ) -> Result<(), Refused> {
        let bus = pci.required(source, "busid")?;
        if !self.seen.insert((host.to_string(), bus.value.clone())) {
            return Err(bus.refused(source, "another GPU is there already"));
        }
        if self.gpus.len() == MAX_RANKS as usize {
            return Err(bus.refused(source, &format!("at most {MAX_RANKS} GPUs are supported")));
        }
        let mut links = 0;
        let mut dev = None;
        if let Some(gpu) = gpu {
            for link in gpu.all("nvlink").chain(gpu.all("xgmi")) {
                links += link.required(source, "count")?.number(source, 0, 1024)?;
                self.has_xgmi |= link.name == "xgmi";
            }
            if let Some(given) = gpu.get("dev") {
                dev = Some(given.number(source, 0, u64::from(u32::MAX))?);
            }
            self.has_ranks |= gpu.get("rank").is_some();
        }
        self.gpus.push(Gpu {
            host: host.to_string(),
            bus: bus.value.clone(),
            dev,
            links,
        });
        Ok(())
    }

    /// Hosts, and GPUs of each.
    fn hosts(&self, source: &Source, root: &Element) -> Result<(u32, u32), Refused> {
        let mut counts: BTreeMap<&str, u32> = BTreeMap::new();
        for gpu in &self.gpus {
            *counts.entry(&gpu.host).or_default() += 1;
        }
        let mut sizes = counts.values();
        let first = *sizes.next().expect("there is a GPU");
        if sizes.any(|size| *size != first) {
            let sizes: Vec<String> = counts.values().map(u32::to_string).collect();
            let message = format!("hosts of different sizes: {} GPUs", sizes.join(", "));
            let place = Place::new(source, root.span.clone());
            let finding = Diagnostic::error("unequal-hosts", message);
            return Err(Box::new(
                finding
                    .at(&place, "a topology has equal hosts")
                    .with_help("write an allocation, or import the INFO logs of all ranks"),
            ));
        }
        Ok((counts.len() as u32, first))
    }

    fn notes(&self, hosts: u32) -> Vec<String> {
        let mut gpus: Vec<&Gpu> = self.gpus.iter().collect();
        gpus.sort_by(|a, b| (&a.host, a.dev, &a.bus).cmp(&(&b.host, b.dev, &b.bus)));
        let buses: Vec<String> = gpus
            .iter()
            .map(|gpu| escaped(&gpu.bus).into_owned())
            .collect();
        let mut notes = vec![
            "the file tells the machine, not what NCCL's search finds on it: give `[nccl]` by a \
             graph file (NCCL_GRAPH_DUMP_FILE) or an INFO log, or plans assume ascending rings"
                .to_string(),
            format!("GPUs 0, 1, ...: {}; {} NICs", buses.join(" "), self.nics),
        ];
        let links = if self.has_xgmi { "XGMI" } else { "NVLink" };
        let (least, most) = gpus.iter().fold((u64::MAX, 0), |(least, most), gpu| {
            (least.min(gpu.links), most.max(gpu.links))
        });
        notes.push(match (least, most) {
            (0, 0) => "the file says nothing of NVLink or XGMI".to_string(),
            (least, most) if least == most => format!("{most} {links} links on each GPU"),
            (least, most) => format!("{least} to {most} {links} links on a GPU"),
        });
        if hosts > 1 {
            notes.push(format!(
                "{hosts} hosts that NVLink joins, told apart by host_hash"
            ));
        } else {
            notes.push("how many such hosts there are is not in the file".to_string());
        }
        if self.has_ranks {
            notes.push("`rank` is that of the run that wrote the file: not used".to_string());
        }
        notes
    }
}
