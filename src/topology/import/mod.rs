//! Topologies and allocations from the files of other tools.
//!
//! The form is found by content. What a file does not tell is not guessed: it is asked for, or said
//! in the comments of what is written.

mod astra_sim;
mod cluster;
mod form;
mod graph_xml;
mod host_file;
mod ibnetdiscover;
mod info_log;
mod machine_xml;
mod nvidia_smi;
mod simai;
mod slurm_conf;
mod slurm_yaml;
mod write;
mod xml;
mod yaml;

use std::path::Path;

pub use form::Form;

use crate::diagnostic::{Diagnostic, Place, Source, SourceError};
use crate::topology::{Allocation, MAX_RANKS, Topology};

/// Longest file that is imported: logs are long.
pub const IMPORT_BYTES_MAX: u64 = 256 << 20;
/// Bytes of all files of one import.
pub const IMPORT_BYTES_TOTAL_MAX: u64 = 1 << 30;

/// The error is boxed, as it is large and rare.
type Refused = Box<Diagnostic>;

/// What the user says that files do not.
#[derive(Clone, Debug, Default)]
pub struct Given {
    pub name: Option<String>,
    pub hosts: Option<u32>,
    pub gpus_per_host: Option<u32>,
}

/// What files tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    pub machine: Machine,
    /// What else they say, and what they do not.
    pub notes: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Machine {
    /// Machines without ranks.
    Topology(Topology),
    /// The ranks of a job on machines.
    Allocation(Allocation),
}

impl Machine {
    pub fn name(&self) -> &str {
        match self {
            Machine::Topology(topology) => &topology.name,
            Machine::Allocation(allocation) => &allocation.name,
        }
    }

    pub fn topology(&self) -> &Topology {
        match self {
            Machine::Topology(topology) => topology,
            Machine::Allocation(allocation) => &allocation.topology,
        }
    }
}

/// Reads a file to import. What of a log is no UTF-8 is replaced: other programs write there, too.
///
/// # Errors
/// What the system says, and a file that is too long.
pub fn read(path: &Path) -> Result<Source, SourceError> {
    Source::read_lossy(path, IMPORT_BYTES_MAX)
}

/// What files of one form tell, and which form that is.
///
/// # Errors
/// Files of no known form or of several, and what is wrong in one, with its place.
pub fn import(sources: &[Source], given: &Given) -> Result<(Form, Imported), Box<Diagnostic>> {
    let form = form::of_all(sources)?;
    let imported = match form {
        Form::GraphXml => graph_xml::import(sources, given),
        Form::MachineXml => machine_xml::import(sources, given),
        Form::InfoLog => info_log::import(sources, given),
        Form::NvidiaSmi => nvidia_smi::import(sources, given),
        Form::SlurmConf => slurm_conf::import(sources, given),
        Form::SlurmYaml => slurm_yaml::import(sources, given),
        Form::AstraSim => astra_sim::import(sources, given),
        Form::SimAi => simai::import(sources, given),
        Form::IbNetDiscover => ibnetdiscover::import(sources, given),
        Form::RankFile => host_file::import_ranks(sources, given),
        Form::HostFile => host_file::import_hosts(sources, given),
    }?;
    if let Machine::Topology(topology) = &imported.machine {
        let found = u64::from(topology.hosts) * u64::from(topology.gpus_per_host);
        if found > u64::from(MAX_RANKS) {
            let place = Place::new(&sources[0], 0..sources[0].text.len());
            let message = format!("{found} GPUs, at most {MAX_RANKS} are supported");
            return Err(Box::new(
                Diagnostic::error("too-many-gpus", message).at(&place, "of this file"),
            ));
        }
    }
    Ok((form, imported))
}

/// Of a form of which one file says all.
fn second_file(sources: &[Source]) -> Refused {
    let second = sources.get(1).unwrap_or(&sources[0]);
    let place = Place::new(second, 0..second.text.lines().next().map_or(0, str::len));
    let finding = Diagnostic::error("one-file", "one file of this form says all");
    Box::new(finding.at(&place, "the second one"))
}

/// The name of what is made: the given one, or the first file's.
fn name_of(sources: &[Source], given: &Given) -> String {
    let stem = || Path::new(&*sources[0].name).file_stem();
    let of_file = || stem().map(|stem| stem.to_string_lossy().into_owned());
    let name = given.name.clone().or_else(of_file);
    name.unwrap_or_else(|| "imported".to_string())
}
