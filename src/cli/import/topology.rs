//! `bitproof import topology FILE...`

use std::path::PathBuf;

use clap::Args;
use serde_json::{Value, json};

use super::super::output::{self, ObjectFormat, talk, warn};
use super::super::save::OutputArgs;
use crate::diagnostic::{Diagnostic, Source};
use crate::report::Exit;
use crate::scenario::unreadable;
use crate::topology::import::{
    Form, Given, IMPORT_BYTES_TOTAL_MAX, Imported, Machine, import, read,
};

#[derive(Debug, Args)]
pub(super) struct TopologyArgs {
    /// Files of one form: what it is, is found by content
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// What the topology is called [default: the first file's name]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// How many hosts there are, where the files do not say
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    hosts: Option<u32>,
    /// GPUs of each host, where the files do not say
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    gpus_per_host: Option<u32>,
    /// How what was understood is written to standard output
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: ObjectFormat,
    #[command(flatten)]
    output: OutputArgs,
}

pub(super) fn run(args: &TopologyArgs) -> Exit {
    if let Err(error) = args.output.check(&args.files) {
        args.output.unwritable(&error);
        return Exit::Usage;
    }
    let given = Given {
        name: args.name.clone(),
        hosts: args.hosts,
        gpus_per_host: args.gpus_per_host,
    };
    let read = sources(&args.files).and_then(|sources| {
        Ok((
            import(&sources, &given).map_err(|found| vec![*found])?,
            sources,
        ))
    });
    let ((form, imported), sources) = match read {
        Ok(read) => read,
        Err(found) => return refused(args, &found),
    };
    let text = imported.to_toml(form, &sources);
    let is_written = match (args.format, &args.output.output) {
        (ObjectFormat::Json, _) => output::write_json(&object(form, &imported, &sources, &text)),
        (ObjectFormat::Human, None) => output::write(&text),
        (ObjectFormat::Human, Some(path)) => {
            talk(&format!("{}: {}", path.display(), summary(form, &imported)));
            true
        }
    };
    if !is_written {
        return Exit::Internal;
    }
    match args.output.write(&text) {
        Ok(()) => Exit::Proved,
        Err(error) => {
            args.output.unwritable(&error);
            Exit::Usage
        }
    }
}

fn sources(files: &[PathBuf]) -> Result<Vec<Source>, Vec<Diagnostic>> {
    let mut sources = Vec::new();
    let mut bytes = 0;
    for path in files {
        let source = read(path).map_err(|error| vec![unreadable(&error, path)])?;
        bytes += source.text.len() as u64;
        if bytes > IMPORT_BYTES_TOTAL_MAX {
            let message = format!("the files have more than {IMPORT_BYTES_TOTAL_MAX} bytes");
            let help =
                "keep the lines with `NCCL INFO` of the step in which communicators are made";
            return Err(vec![Diagnostic::error("too-long", message).with_help(help)]);
        }
        sources.push(source);
    }
    Ok(sources)
}

fn refused(args: &TopologyArgs, found: &[Diagnostic]) -> Exit {
    match args.format {
        ObjectFormat::Human => warn(found),
        ObjectFormat::Json => {
            let findings: Vec<Value> = found.iter().map(Diagnostic::to_json).collect();
            let files: Vec<String> = args.files.iter().map(|f| f.display().to_string()).collect();
            if !output::write_json(&json!({ "files": files, "findings": findings })) {
                return Exit::Internal;
            }
        }
    }
    Exit::Usage
}

fn ranks(machine: &Machine) -> Option<u32> {
    match machine {
        Machine::Topology(_) => None,
        Machine::Allocation(allocation) => Some(allocation.placement.world()),
    }
}

fn communicators(machine: &Machine) -> usize {
    match machine {
        Machine::Topology(_) => 0,
        Machine::Allocation(allocation) => {
            let recorded = allocation.recorded.by_channels();
            recorded.iter().map(|(_, groups)| groups.len()).sum()
        }
    }
}

fn summary(form: Form, imported: &Imported) -> String {
    let topology = imported.machine.topology();
    let mut text = format!(
        "{}: {} hosts of {} GPUs",
        form.name(),
        topology.hosts,
        topology.gpus_per_host
    );
    if let Some(ranks) = ranks(&imported.machine) {
        let communicators = communicators(&imported.machine);
        text += &format!(", {ranks} ranks, {communicators} communicators recorded");
    }
    text
}

fn object(form: Form, imported: &Imported, sources: &[Source], text: &str) -> Value {
    let topology = imported.machine.topology();
    let files: Vec<&str> = sources.iter().map(|source| &*source.name).collect();
    json!({
        "files": files,
        "form": form.name(),
        "name": imported.machine.name(),
        "hosts": topology.hosts,
        "gpus_per_host": topology.gpus_per_host,
        "hosts_per_nvlink_domain": topology.hosts_per_nvlink_domain,
        "ranks": ranks(&imported.machine),
        "communicators": communicators(&imported.machine),
        "notes": imported.notes,
        "topology": text,
        "findings": [],
    })
}
