//! Slurm's `topology.conf`: `SwitchName= Nodes= | Switches=`, `BlockName= Nodes=`, `RingName=`.
//!
//! Of a fabric NCCL knows nothing, so plans do not either: what is taken is which hosts there are,
//! and blocks as what NVLink joins (Slurm's block plugin was made for such racks).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::cluster::{Cluster, host_list};
use super::{Given, Imported, Refused};
use crate::diagnostic::{Diagnostic, Place, Source, escaped};
use crate::topology::MAX_RANKS;

/// A switch, a block or a ring, with the hosts right under it.
pub(super) struct Unit {
    pub name: String,
    pub hosts: Vec<String>,
    pub span: Range<usize>,
}

/// What a file of Slurm's says.
#[derive(Default)]
pub(super) struct Fabric {
    pub switches: Vec<Unit>,
    pub blocks: Vec<Unit>,
    pub rings: Vec<Unit>,
    /// Children that switches name, and where.
    pub named: Vec<(String, Range<usize>)>,
    /// Names so far: short lists may stand for many.
    count: usize,
}

/// Names of hosts and switches that a file may have together.
const NAMES_MAX: usize = 4 * MAX_RANKS as usize;

pub(super) fn import(sources: &[Source], given: &Given) -> Result<Imported, Refused> {
    let [source] = sources else {
        return Err(super::second_file(sources));
    };
    let mut fabric = Fabric::default();
    for (line, start) in lines(&source.text) {
        fabric.take(source, &line, start)?;
    }
    fabric.into_cluster(source)?.into_topology(sources, given)
}

/// Whether a text is such a file.
pub(super) fn is_conf(text: &str) -> bool {
    let starts = ["switchname=", "blockname=", "ringname="];
    let mut lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.starts_with('#'));
    lines.any(|line| {
        let line = line
            .get(..line.len().min(11))
            .unwrap_or("")
            .to_ascii_lowercase();
        starts.iter().any(|start| line.starts_with(start))
    })
}

/// Lines without comments, those that end in a backslash joined; each with its place. What a
/// backslash and a line end took is blanks, so that places stay.
fn lines(text: &str) -> Vec<(String, usize)> {
    let mut lines: Vec<(String, usize)> = Vec::new();
    let (mut at, mut goes_on) = (0, false);
    for line in text.split_inclusive('\n') {
        let kept = line.split('#').next().unwrap_or("");
        let blank = " ".repeat(line.len() - kept.trim_end().len());
        let mut own = format!("{}{blank}", kept.trim_end());
        let ends_open = kept.trim_end().ends_with('\\');
        if ends_open && let Some(place) = own.rfind('\\') {
            own.replace_range(place..=place, " ");
        }
        match (goes_on, lines.last_mut()) {
            (true, Some((last, _))) => last.push_str(&own),
            _ => lines.push((own, at)),
        }
        goes_on = ends_open;
        at += line.len();
    }
    lines
}

impl Fabric {
    /// The names of a list, if the file has not too many.
    pub fn names(
        &mut self,
        source: &Source,
        list: &str,
        span: &Range<usize>,
    ) -> Result<Vec<String>, Refused> {
        let names = host_list(source, list, span)?;
        self.count += names.len() + 1;
        if self.count <= NAMES_MAX {
            return Ok(names);
        }
        let place = Place::new(source, span.clone());
        let message = format!("the file names more than {NAMES_MAX} hosts and switches");
        Err(Box::new(
            Diagnostic::error("slurm", message).at(&place, "with this list"),
        ))
    }

    fn take(&mut self, source: &Source, line: &str, start: usize) -> Result<(), Refused> {
        let mut values: BTreeMap<String, (&str, Range<usize>)> = BTreeMap::new();
        for word in line.split_whitespace() {
            let offset = start + (word.as_ptr() as usize - line.as_ptr() as usize);
            let span = offset..offset + word.len();
            let refuse = |message: String, label: &str| -> Refused {
                let place = Place::new(source, span.clone());
                Box::new(Diagnostic::error("slurm", message).at(&place, label))
            };
            let Some((key, value)) = word.split_once('=') else {
                let message = format!("`{}` sets nothing", escaped(word));
                return Err(refuse(message, "expected KEY=VALUE"));
            };
            let value_span = span.start + key.len() + 1..span.end;
            let key = key.to_ascii_lowercase();
            const KNOWN: [&str; 7] = [
                "switchname",
                "blockname",
                "ringname",
                "nodes",
                "switches",
                "linkspeed",
                "blocksizes",
            ];
            if !KNOWN.contains(&&*key) {
                let message = format!("`{}` is no key of topology.conf", escaped(&key));
                return Err(refuse(message, "not known"));
            }
            if values.insert(key, (value, value_span)).is_some() {
                return Err(refuse("a key is there twice".into(), "the second one"));
            }
        }
        let hosts = match values.get("nodes") {
            Some((list, span)) => self.names(source, list, span)?,
            None => Vec::new(),
        };
        if let Some((list, span)) = values.get("switches") {
            let names = self.names(source, list, span)?;
            self.named
                .extend(names.into_iter().map(|name| (name, span.clone())));
        }
        // A unit without hosts counts, too.
        self.names(source, "", &(start..start))?;
        let lists = [
            ("switchname", &mut self.switches),
            ("blockname", &mut self.blocks),
            ("ringname", &mut self.rings),
        ];
        for (key, list) in lists {
            if let Some((name, span)) = values.get(key) {
                list.push(Unit {
                    name: (*name).to_string(),
                    hosts: hosts.clone(),
                    span: span.clone(),
                });
            }
        }
        Ok(())
    }

    /// All hosts once, in the order of the file; blocks of one size as NVLink domains.
    pub fn into_cluster(self, source: &Source) -> Result<Cluster, Refused> {
        let refuse = |span: &Range<usize>, message: String, label: &str| -> Refused {
            let place = Place::new(source, span.clone());
            Box::new(Diagnostic::error("slurm", message).at(&place, label))
        };
        let mut under: BTreeMap<&str, &str> = BTreeMap::new();
        let mut names: BTreeMap<&str, ()> = BTreeMap::new();
        let mut hosts = Vec::new();
        // A cluster has one plugin: where there are blocks, switches say nothing more of hosts.
        let units = match (&self.blocks[..], &self.rings[..]) {
            ([], []) => &self.switches,
            ([], rings) => rings,
            (blocks, _) => blocks,
        };
        for unit in units {
            if names.insert(&unit.name, ()).is_some() {
                let message = format!("`{}` is there twice", escaped(&unit.name));
                return Err(refuse(&unit.span, message, "the second one"));
            }
            for host in &unit.hosts {
                if let Some(first) = under.insert(host, &unit.name) {
                    let (host, first) = (escaped(host), escaped(first));
                    let message = format!("host `{host}` is under `{first}` already");
                    return Err(refuse(&unit.span, message, "and under this one"));
                }
                hosts.push(host.clone());
            }
        }
        let known: BTreeSet<&str> = self.switches.iter().map(|one| &*one.name).collect();
        if let Some((name, span)) = self.named.iter().find(|(name, _)| !known.contains(&**name)) {
            let message = format!("no switch is called `{}`", escaped(name));
            return Err(refuse(span, message, "named here"));
        }
        let mut notes = vec![
            "hosts stand in the order of the file: a job's ranks may be laid on them in another"
                .to_string(),
        ];
        let leaves = units.iter().filter(|unit| !unit.hosts.is_empty());
        let listed: Vec<String> = leaves
            .take(64)
            .map(|unit| format!("{} {}", escaped(&unit.name), unit.hosts.len()))
            .collect();
        notes.push(format!("hosts of each: {}", listed.join(", ")));
        let mut domain = 1;
        if let [first, rest @ ..] = &self.blocks[..] {
            domain = first.hosts.len().max(1);
            if let Some(other) = rest.iter().find(|block| block.hosts.len() != domain) {
                let message = format!(
                    "blocks of {domain} and of {} hosts: `hosts_per_nvlink_domain` is one number",
                    other.hosts.len()
                );
                return Err(refuse(
                    &other.span,
                    message,
                    "another size than the first block",
                ));
            }
            notes.push(format!(
                "blocks of {domain} hosts are taken for what NVLink joins: without it \
                 hosts_per_nvlink_domain is 1"
            ));
        }
        Ok(Cluster {
            hosts,
            hosts_per_nvlink_domain: domain as u32,
            notes,
        })
    }
}
