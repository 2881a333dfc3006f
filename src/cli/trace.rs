//! `bitproof trace`: whether traces can be trusted, and where two runs parted.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};

use super::output::{self, Format, warn};
use crate::diagnostic::{Diagnostic, sarif};
use crate::report::traces::{certificate_to_human, certificate_to_json};
use crate::report::{Checked, Exit, Refusal, junit};
use crate::trace::certify::certify;
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
}

#[derive(Debug, Args)]
struct CertifyArgs {
    /// A folder of traces, or one rank's file
    #[arg(value_name = "DIR")]
    folder: PathBuf,
    /// How the certificate is written to standard output
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: Format,
}

pub(super) fn run(args: &TraceArgs) -> Exit {
    match &args.what {
        What::Certify(args) => certified(args),
    }
}

/// What one of these verbs found, before a format is chosen.
struct Finding {
    name: String,
    human: String,
    json: serde_json::Value,
    findings: Vec<Diagnostic>,
    exit: Exit,
}

impl Finding {
    /// Writes it; a report that was lost is worse than what it said.
    fn write(self, format: Format) -> Exit {
        let is_written = match format {
            Format::Human => {
                warn(&self.findings);
                output::write(&self.human)
            }
            Format::Json => output::write_json(&self.json),
            Format::Sarif => output::write_json(&sarif(&self.findings, self.exit.code())),
            Format::Github => {
                let lines = self.findings.iter().map(|found| found.to_github() + "\n");
                output::write(&lines.collect::<String>())
            }
            Format::Junit => output::write(&junit(&[Checked::Refused(Refusal {
                name: self.name,
                diagnostics: self.findings,
                exit: self.exit,
            })])),
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
        findings,
        exit,
    }
}

fn certified(args: &CertifyArgs) -> Exit {
    let name = args.folder.display().to_string();
    let folder = match opened(&args.folder) {
        Ok(folder) => folder,
        Err((damages, exit)) => return refused(name, &damages, exit).write(args.format),
    };
    let certificate = certify(&folder);
    let finding = Finding {
        human: certificate_to_human(&name, &certificate),
        json: certificate_to_json(&name, &certificate),
        findings: certificate
            .reasons
            .iter()
            .map(Damage::to_diagnostic)
            .collect(),
        exit: match certificate.is_trusted() {
            true => Exit::Proved,
            false => Exit::Vacuous,
        },
        name,
    };
    finding.write(args.format)
}
