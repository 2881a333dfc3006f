//! `bitproof import recipe FILE` and `bitproof import topology FILE...`

mod topology;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::JobArgs;
use super::output::{self, ObjectFormat, warn};
use super::save::OutputArgs;
use crate::diagnostic::{Diagnostic, Findings, Source, escaped};
use crate::recipe::megatron::{GivenKind, JudgedArgument, Understood, open, tally};
use crate::report::Exit;
use crate::scenario::{Import, Overrides, import};

#[derive(Debug, Args)]
pub(super) struct ImportArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// A Megatron-LM configuration: a functional test's model_config.yaml, a job log with its block
    /// of arguments, a launch line or script
    Recipe(RecipeArgs),
    /// What other tools know of machines: NCCL, RCCL, nvidia-smi, Slurm, ibnetdiscover, simulators
    Topology(topology::TopologyArgs),
}

#[derive(Debug, Args)]
struct RecipeArgs {
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// How what was understood is written to standard output
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: ObjectFormat,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    job: JobArgs,
}

pub(super) fn run(args: &ImportArgs) -> Exit {
    match &args.what {
        What::Recipe(args) => recipe(args),
        What::Topology(args) => topology::run(args),
    }
}

fn recipe(args: &RecipeArgs) -> Exit {
    if let Err(error) = args.output.check(std::slice::from_ref(&args.file)) {
        args.output.unwritable(&error);
        return Exit::Usage;
    }
    let source = match open(&args.file) {
        Ok(source) => source,
        Err(error) => {
            let finding = crate::scenario::unreadable(&error, &args.file);
            return refused(args, vec![finding]);
        }
    };
    let overrides = Overrides {
        world: args.job.world,
        grow_dp: args.job.grow_dp,
        phase: args.job.phase.clone(),
        ..Overrides::default()
    };
    let mut findings = Findings::default();
    let Some(import) = import(&source, &args.file, &overrides, &mut findings) else {
        return refused(args, findings.into_vec());
    };
    let is_sound = !findings.has_errors();
    let found = findings.into_vec();
    let is_written = match args.format {
        ObjectFormat::Human => {
            warn(&found);
            output::write(&human(&source, &import, is_sound))
        }
        ObjectFormat::Json => output::write_json(&object(&source, &import, &found)),
    };
    if !is_written {
        return Exit::Internal;
    }
    let Some(text) = import.scenario.as_ref().filter(|_| is_sound) else {
        return if is_sound { Exit::Proved } else { Exit::Usage };
    };
    match args.output.write(text) {
        Ok(()) => Exit::Proved,
        Err(error) => {
            args.output.unwritable(&error);
            Exit::Usage
        }
    }
}

/// A file of which nothing was understood.
fn refused(args: &RecipeArgs, found: Vec<Diagnostic>) -> Exit {
    match args.format {
        ObjectFormat::Human => warn(&found),
        ObjectFormat::Json => {
            let findings: Vec<Value> = found.iter().map(Diagnostic::to_json).collect();
            let file = args.file.display().to_string();
            if !output::write_json(&json!({ "file": file, "findings": findings })) {
                return Exit::Internal;
            }
        }
    }
    Exit::Usage
}

fn form(kind: GivenKind) -> &'static str {
    match kind {
        GivenKind::FunctionalTest => "functional test",
        GivenKind::ArgumentDump => "job log",
        GivenKind::CommandLine => "launch line",
    }
}

/// What was understood, with the fields of a case of Megatron's functional tests at the top.
fn object(source: &Source, import: &Import, found: &[Diagnostic]) -> Value {
    let mut object = serde_json::to_value(&import.understood).expect("plain data has a JSON form");
    let phases: Vec<&str> = import
        .given
        .phases
        .iter()
        .map(|phase| &*phase.name)
        .collect();
    object["file"] = json!(&*source.name);
    object["form"] = json!(form(import.given.kind));
    object["phase_names"] = json!(phases);
    object["scenario"] = json!(import.scenario);
    object["findings"] = found.iter().map(Diagnostic::to_json).collect();
    object
}

fn human(source: &Source, import: &Import, is_sound: bool) -> String {
    let understood = &import.understood;
    let phases = &import.given.phases;
    let mut text = format!(
        "{}: {}, phase `{}` ({} of {})\n",
        escaped(&source.name),
        form(import.given.kind),
        escaped(&phases[understood.phase].name),
        understood.phase + 1,
        phases.len()
    );
    let world = &understood.world;
    text += &format!("world: {} ({})\n", world.size, escaped(&world.reason));
    text += &layout(understood);
    let all = understood.arguments.iter().chain(&understood.variables);
    text += &format!("arguments and variables: {}\n", tally(all));
    table(&mut text, "arguments", &understood.arguments);
    table(&mut text, "variables", &understood.variables);
    if !understood.derived.is_empty() {
        text += "\nfollows:\n";
        for derived in &understood.derived {
            let (value, reason) = (escaped(&derived.value), escaped(&derived.reason));
            text += &format!("  {} = {value}: {reason}\n", derived.key);
        }
    }
    text += "\n";
    let is_checkable = is_sound && import.scenario.is_some();
    text += &match (understood.needs.is_empty(), is_checkable) {
        (false, _) => format!("not simulated: {}\n", understood.needs.join(", ")),
        (true, true) if import.is_taken_as_it_is() => {
            "understood: `bitproof check` takes this file as it is\n".to_string()
        }
        (true, true) => format!(
            "understood, as far as the script was followed: read the arguments above, then \
             `bitproof import recipe {} -o recipe.toml` and `bitproof check recipe.toml`\n",
            escaped(&source.name)
        ),
        (true, false) => "not checked: see the errors\n".to_string(),
    };
    text
}

fn layout(understood: &Understood) -> String {
    let fields = &understood.fields;
    let vpp = fields.vpp.map_or("none".to_string(), |vpp| vpp.to_string());
    format!(
        "layout: TP {} PP {} VPP {vpp} CP {} EP {} ETP {}\n",
        fields.tp, fields.pp, fields.cp, fields.ep, fields.etp
    )
}

/// Longest flag and value that widen their columns.
const COLUMN_CHARS_MAX: usize = 40;

fn table(text: &mut String, title: &str, arguments: &[JudgedArgument]) {
    if arguments.is_empty() {
        return;
    }
    let rows: Vec<[String; 3]> = arguments
        .iter()
        .map(|argument| {
            let value = argument.value.as_deref().unwrap_or_default();
            [&argument.flag, value, argument.verdict.words()].map(|text| escaped(text).into_owned())
        })
        .collect();
    let width = |column: usize| {
        let lengths = rows.iter().map(|row| row[column].chars().count());
        lengths
            .filter(|length| *length <= COLUMN_CHARS_MAX)
            .max()
            .unwrap_or(0)
    };
    let (flags, values, verdicts) = (width(0), width(1), width(2));
    *text += &format!("\n{title}:\n");
    for ([flag, value, verdict], argument) in rows.iter().zip(arguments) {
        let reason = escaped(&argument.reason);
        *text += &format!("  {flag:flags$}  {value:values$}  {verdict:verdicts$}  {reason}\n");
    }
}
