//! Which tool wrote a file, by its content.

use super::{
    Refused, astra_sim, host_file, ibnetdiscover, nvidia_smi, simai, slurm_conf, slurm_yaml,
};
use crate::diagnostic::{Diagnostic, Place, Source};

/// A form of files that are imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// `graphs`.
    GraphXml,
    /// `system`, of NCCL or RCCL.
    MachineXml,
    InfoLog,
    NvidiaSmi,
    SlurmConf,
    SlurmYaml,
    AstraSim,
    SimAi,
    IbNetDiscover,
    RankFile,
    HostFile,
}

impl Form {
    /// All forms, in the order in which they are looked for: those that say least of themselves
    /// come last.
    pub const ALL: [Form; 11] = [
        Form::GraphXml,
        Form::MachineXml,
        Form::InfoLog,
        Form::NvidiaSmi,
        Form::IbNetDiscover,
        Form::SlurmConf,
        Form::SlurmYaml,
        Form::AstraSim,
        Form::SimAi,
        Form::RankFile,
        Form::HostFile,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Form::GraphXml => "NCCL graph XML",
            Form::MachineXml => "NCCL or RCCL topology XML",
            Form::InfoLog => "NCCL INFO log",
            Form::NvidiaSmi => "nvidia-smi topo -m",
            Form::SlurmConf => "Slurm topology.conf",
            Form::SlurmYaml => "Slurm topology.yaml",
            Form::AstraSim => "ASTRA-sim network YAML",
            Form::SimAi => "SimAI topology",
            Form::IbNetDiscover => "ibnetdiscover",
            Form::RankFile => "rank file",
            Form::HostFile => "host file",
        }
    }

    fn is_of(self, text: &str) -> bool {
        match self {
            Form::GraphXml => first_tag(text) == Some("graphs"),
            Form::MachineXml => first_tag(text) == Some("system"),
            Form::InfoLog => text.contains(" NCCL INFO "),
            Form::NvidiaSmi => nvidia_smi::is_matrix(text),
            Form::SlurmConf => slurm_conf::is_conf(text),
            Form::SlurmYaml => slurm_yaml::is_yaml(text),
            Form::AstraSim => astra_sim::is_network(text),
            Form::SimAi => simai::is_topology(text),
            Form::IbNetDiscover => ibnetdiscover::is_fabric(text),
            Form::RankFile => host_file::is_rank_file(text),
            Form::HostFile => host_file::is_host_file(text),
        }
    }
}

/// The name of the first element, or of the document type before it, where the text is XML.
fn first_tag(text: &str) -> Option<&str> {
    let mut rest = text.trim_start_matches('\u{feff}').trim_start();
    while let Some((_, end)) = [("<?", "?>"), ("<!--", "-->")]
        .into_iter()
        .find(|(start, _)| rest.starts_with(start))
    {
        rest = rest.split_once(end)?.1.trim_start();
    }
    let tag = rest.strip_prefix("<!DOCTYPE").map(str::trim_start);
    let name = tag.or_else(|| rest.strip_prefix('<'))?;
    let is_end = |c: char| c.is_whitespace() || matches!(c, '>' | '/' | '[');
    Some(&name[..name.find(is_end)?])
}

/// The one form of all files.
pub(super) fn of_all(sources: &[Source]) -> Result<Form, Refused> {
    let of = |source: &Source| Form::ALL.into_iter().find(|form| form.is_of(&source.text));
    let mut found: Option<(Form, &Source)> = None;
    for source in sources {
        let place = Place::new(source, 0..source.text.lines().next().map_or(0, str::len));
        let Some(form) = of(source) else {
            let names: Vec<&str> = Form::ALL.iter().map(|form| form.name()).collect();
            let finding = Diagnostic::error("unknown-form", "this is no file that is imported");
            let finding = finding.at(&place, "begins like this");
            return Err(Box::new(
                finding.with_note(format!("known are: {}", names.join(", "))),
            ));
        };
        match found {
            Some((first, other)) if first != form => {
                let message = format!(
                    "files of two forms: {} (`{}`) and {}",
                    first.name(),
                    other.name,
                    form.name()
                );
                let finding = Diagnostic::error("two-forms", message);
                return Err(Box::new(finding.at(&place, "the second one")));
            }
            _ => found = Some((form, source)),
        }
    }
    match found {
        Some((form, _)) => Ok(form),
        None => Err(Box::new(Diagnostic::error("usage", "no file is given"))),
    }
}
