//! `bitproof trace`: whether traces can be trusted, and where two runs parted.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::output::{self, Format, ObjectFormat, talk, warn};
use super::save::OutputArgs;
use crate::diagnostic::{Diagnostic, sarif};
use crate::report::Exit;
use crate::report::traces::{Compared, certificate_to_human, certificate_to_json, trace_junit};
use crate::trace::certify::certify;
use crate::trace::convert::{self, ConvertError};
use crate::trace::diff::{Verdict, compare};
use crate::trace::show::{Filter, show};
use crate::trace::{Damage, Folder};

#[derive(Debug, Args)]
pub(super) struct TraceArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Whether a folder of traces can be trusted, and what it covers: exit code 4 if not
    Certify(CertifyArgs),
    /// Where two runs part, rank by rank, and whether it is an origin: exit code 1 if they do
    Diff(DiffArgs),
    /// The records of a trace, a line each
    Show(ShowArgs),
    /// Writes a trace in another format, into a new folder
    Convert(ConvertArgs),
}

#[derive(Debug, Args)]
struct CertifyArgs {
    /// A folder of traces, or one rank's file
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Take streams of our recorder whose run was killed, up to where they end
    #[arg(long)]
    accept_cut: bool,
    /// How the certificate is written to standard output
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: Format,
}

#[derive(Debug, Args)]
struct DiffArgs {
    /// The folder of one run
    #[arg(value_name = "A")]
    a: PathBuf,
    /// The folder of its repeat
    #[arg(value_name = "B")]
    b: PathBuf,
    /// Parse every line, also those that are the same bytes on both sides
    #[arg(long)]
    parse_all: bool,
    /// Take streams of our recorder whose run was killed, and compare up to where they end
    #[arg(long)]
    accept_cut: bool,
    /// How the comparison is written to standard output
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: Format,
    /// Write it as one HTML file too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Replace FILE if it is there
    #[arg(long, requires = "html")]
    force: bool,
}

#[derive(Debug, Args)]
struct ShowArgs {
    /// A folder of traces, or one rank's file
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// Only this rank
    #[arg(long, value_name = "N")]
    rank: Option<u32>,
    /// Only this iteration
    #[arg(long, value_name = "N")]
    iteration: Option<u64>,
    /// Only records of this kind, such as collective
    #[arg(long, value_name = "KIND")]
    kind: Option<String>,
    /// At most this many records of each rank
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: u64,
    /// How records are written to standard output; json is a record a line
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: ObjectFormat,
}

#[derive(Debug, Args)]
struct ConvertArgs {
    /// A folder of traces, or one rank's file
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// The format to write
    #[arg(long, value_enum, value_name = "FORMAT")]
    to: Target,
    /// The folder to make; it must not be there
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Target {
    /// The boundary stream of Megatron-LM pull request 6610, schema version 1
    MegatronV1,
    /// The op stream, whose records are those of pull request 7262
    Ops,
}

pub(super) fn run(args: &TraceArgs) -> Exit {
    match &args.what {
        What::Certify(args) => certified(args),
        What::Diff(args) => compared(args),
        What::Show(args) => shown(args),
        What::Convert(args) => converted(args),
    }
}

/// What one of these verbs found, before a format is chosen.
struct Finding {
    name: String,
    human: String,
    json: serde_json::Value,
    findings: Vec<Diagnostic>,
    /// What people are told on standard error beside it.
    told: Vec<Diagnostic>,
    /// What was looked at, each with what was found there; nothing where that is one whole.
    cases: Option<Vec<(String, Vec<Diagnostic>)>>,
    exit: Exit,
}

impl Finding {
    /// Writes it; a report that was lost is worse than what it said.
    fn write(self, format: Format) -> Exit {
        let is_written = match format {
            Format::Human => {
                warn(&self.told);
                output::write(&self.human)
            }
            Format::Json => output::write_json(&self.json),
            Format::Sarif => output::write_json(&sarif(&self.findings, self.exit.code())),
            Format::Github => {
                let lines = self.findings.iter().map(|found| found.to_github() + "\n");
                output::write(&lines.collect::<String>())
            }
            Format::Junit => {
                let cases = [(self.name.clone(), self.findings.clone())];
                let cases = self.cases.as_deref().unwrap_or(&cases);
                output::write(&trace_junit(&self.name, cases, self.exit))
            }
        };
        match is_written {
            true => self.exit,
            false => Exit::Internal,
        }
    }
}

/// Opens a folder. A path that is not there is a slip of the command line; whatever lies there and
/// is no trace cannot be trusted.
fn opened(path: &Path) -> Result<Folder, (Vec<Damage>, Exit)> {
    Folder::open(path).map_err(|damages| {
        let exit = match path.exists() {
            true => Exit::Vacuous,
            false => Exit::Usage,
        };
        (damages, exit)
    })
}

fn refused(name: String, damages: &[Damage], exit: Exit) -> Finding {
    let findings: Vec<Diagnostic> = damages.iter().map(Damage::to_diagnostic).collect();
    let reasons: Vec<_> = findings.iter().map(Diagnostic::to_json).collect();
    Finding {
        human: String::new(),
        json: serde_json::json!({ "folder": name, "trusted": false, "reasons": reasons }),
        name,
        told: findings.clone(),
        findings,
        cases: None,
        exit,
    }
}

fn certified(args: &CertifyArgs) -> Exit {
    let name = args.folder.display().to_string();
    let folder = match opened(&args.folder) {
        Ok(folder) => Folder {
            accepts_cut: args.accept_cut,
            ..folder
        },
        Err((damages, exit)) => return refused(name, &damages, exit).write(args.format),
    };
    let certificate = certify(&folder);
    let reasons = certificate.reasons.iter().map(Damage::to_diagnostic);
    let findings: Vec<Diagnostic> = reasons.collect();
    let finding = Finding {
        human: certificate_to_human(&name, &certificate),
        json: certificate_to_json(&name, &certificate),
        name,
        told: findings.clone(),
        findings,
        cases: None,
        exit: match certificate.is_trusted() {
            true => Exit::Proved,
            false => Exit::Vacuous,
        },
    };
    finding.write(args.format)
}

fn compared(args: &DiffArgs) -> Exit {
    let page = OutputArgs {
        output: args.html.clone(),
        force: args.force,
    };
    if let Err(error) = page.check(&[args.a.clone(), args.b.clone()]) {
        page.unwritable(&error);
        return Exit::Usage;
    }
    let finding = comparison(args);
    let is_written = args.html.is_none() || {
        let names = [&args.a, &args.b].map(|path| path.display().to_string());
        let reports = std::slice::from_ref(&finding.json);
        super::report::write(&page, reports, Some(&names.join(" against ")))
    };
    let exit = finding.write(args.format);
    match is_written {
        true => exit,
        false => Exit::Internal,
    }
}

fn comparison(args: &DiffArgs) -> Finding {
    let names = [&args.a, &args.b].map(|path| path.display().to_string());
    let (a, b) = (opened(&args.a), opened(&args.b));
    let (mut a, mut b) = match (a, b) {
        (Ok(a), Ok(b)) => (a, b),
        (a, b) => {
            let failed = [a.err(), b.err()].into_iter().flatten();
            let (mut damages, mut exit) = (Vec::new(), Exit::Proved);
            for (found, code) in failed {
                damages.extend(found);
                exit = exit.max(code);
            }
            let mut finding = refused(names.join(" "), &damages, exit);
            finding.json["folders"] = serde_json::json!({ "a": names[0], "b": names[1] });
            return finding;
        }
    };
    (a.accepts_cut, b.accepts_cut) = (args.accept_cut, args.accept_cut);
    let comparison = compare(&a, &b, args.parse_all);
    let report = Compared {
        names: [&names[0], &names[1]],
        comparison: &comparison,
    };
    Finding {
        name: names.join(" "),
        human: report.to_human(),
        json: report.to_json(),
        findings: report.findings(),
        told: comparison
            .reasons
            .iter()
            .map(Damage::to_diagnostic)
            .collect(),
        cases: Some(report.cases()),
        exit: match comparison.verdict {
            Verdict::Same | Verdict::OnlyArtefacts => Exit::Proved,
            Verdict::Different => Exit::Divergent,
            Verdict::Untrusted => Exit::Vacuous,
            Verdict::NothingCompared => Exit::NothingChecked,
        },
    }
}

/// Tells what is wrong on standard error.
fn told(damages: &[Damage], exit: Exit) -> Exit {
    let findings: Vec<Diagnostic> = damages.iter().map(Damage::to_diagnostic).collect();
    warn(&findings);
    exit
}

fn shown(args: &ShowArgs) -> Exit {
    let folder = match opened(&args.folder) {
        Ok(folder) => folder,
        Err((damages, exit)) => return told(&damages, exit),
    };
    let filter = Filter {
        rank: args.rank,
        iteration: args.iteration,
        kind: args.kind.clone(),
        limit: args.limit,
        is_json: args.format == ObjectFormat::Json,
    };
    let (mut is_written, mut count) = (true, 0u64);
    let done = show(&folder, &filter, |line| {
        count += 1;
        is_written = output::write(&format!("{line}\n"));
        is_written
    });
    match (done, is_written) {
        (Err(damage), _) => told(&[damage], Exit::Vacuous),
        (Ok(()), false) => Exit::Internal,
        (Ok(()), true) if count == 0 => {
            talk("no record is like that");
            Exit::NothingChecked
        }
        (Ok(()), true) => Exit::Proved,
    }
}

fn converted(args: &ConvertArgs) -> Exit {
    let folder = match opened(&args.folder) {
        Ok(folder) => folder,
        Err((damages, exit)) => return told(&damages, exit),
    };
    let to = match args.to {
        Target::MegatronV1 => convert::Format::MegatronV1,
        Target::Ops => convert::Format::Ops,
    };
    if convert::leaves_boundary(&folder, to) {
        talk("the boundary streams beside the op streams are left out: convert them by themselves");
    }
    match convert::convert(&folder, to, &args.output) {
        Ok(0) => {
            talk("the folder has no record to convert");
            Exit::NothingChecked
        }
        Ok(count) => {
            talk(&format!("{count} records in {}", args.output.display()));
            Exit::Proved
        }
        Err(ConvertError::Damaged(damage)) => told(&[*damage], Exit::Vacuous),
        Err(error) => {
            warn(&[Diagnostic::error("not-converted", error.to_string())
                .with_help("name a folder that is not there yet with --output")]);
            Exit::Usage
        }
    }
}
