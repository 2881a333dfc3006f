//! `check --baseline` and `--write-baseline`: known findings.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::Args;

use super::output::{talk, warn};
use super::save;
use crate::diagnostic::Diagnostic;
use crate::report::baseline::Baseline;
use crate::report::{Exit, Report, counted};

#[derive(Debug, Args)]
pub(super) struct BaselineFlags {
    /// Fail only on findings that are not in this file
    #[arg(long, value_name = "FILE", conflicts_with_all = ["lint_only", "list_faults"])]
    pub baseline: Option<PathBuf>,
    /// Write what is found into this file, in the place of a baseline that is there, and pass
    #[arg(long, value_name = "FILE",
          conflicts_with_all = ["baseline", "lint_only", "list_faults"])]
    pub write_baseline: Option<PathBuf>,
}

/// What is done with findings.
enum Use {
    Nothing,
    Known(Baseline),
    Write(PathBuf, Baseline),
}

/// Findings of all scenarios against those that are known.
pub(super) struct Known {
    with: Use,
    /// Names of the scenarios that were checked.
    checked: BTreeSet<String>,
}

impl BaselineFlags {
    /// Reads what is known, or sees that it can be written.
    ///
    /// # Errors
    /// A file that is no baseline, or a folder that is not there.
    pub fn open(&self) -> Result<Known, Box<Diagnostic>> {
        let with = match (&self.baseline, &self.write_baseline) {
            (Some(path), _) => Use::Known(Baseline::read(path)?),
            (None, Some(path)) => {
                may_write(path)?;
                Use::Write(path.clone(), Baseline::default())
            }
            (None, None) => Use::Nothing,
        };
        Ok(Known {
            with,
            checked: BTreeSet::new(),
        })
    }
}

fn may_write(path: &Path) -> Result<(), Box<Diagnostic>> {
    let refuse = |message: String| {
        let finding = Diagnostic::error("baseline", message);
        Box::new(finding.with_help("name a file that is not there yet, or a baseline"))
    };
    let shown = path.display();
    if std::fs::symlink_metadata(path).is_ok() {
        return match Baseline::read(path) {
            Ok(_) => Ok(()),
            Err(_) => Err(refuse(format!("`{shown}` is there, and no baseline"))),
        };
    }
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    match folder.is_none_or(Path::is_dir) {
        true => Ok(()),
        false => Err(refuse(format!("`{shown}` is in no folder that is there"))),
    }
}

impl Known {
    /// The report, which passes where all that it found is known, or is to be.
    ///
    /// # Errors
    /// A second scenario of one name.
    pub fn judge(&mut self, report: Report) -> Result<Report, Box<Diagnostic>> {
        let name = report.outcome.scenario.name.clone();
        let is_first = self.checked.insert(name.clone());
        if matches!(self.with, Use::Nothing) {
            return Ok(report);
        }
        if !is_first {
            let message = format!("two scenarios are called `{name}`");
            let help = "a baseline knows scenarios by name: rename one, or check them apart";
            return Err(Box::new(
                Diagnostic::error("baseline", message).with_help(help),
            ));
        }
        match &mut self.with {
            Use::Nothing => Ok(report),
            Use::Known(baseline) => Ok(report.against(baseline)),
            Use::Write(_, baseline) => {
                baseline.add(&name, report.named().findings);
                Ok(report.against(baseline))
            }
        }
    }

    /// Tells what is no longer there, or writes what was found; `worst` is how the checks ended.
    pub fn finish(self, worst: Exit) -> Exit {
        match self.with {
            Use::Nothing => Exit::Proved,
            Use::Known(baseline) => {
                for name in baseline.not_among(&self.checked) {
                    talk(&format!("baseline: `{name}` was not checked"));
                }
                Exit::Proved
            }
            Use::Write(path, baseline) if worst == Exit::Proved => write(&path, &baseline),
            Use::Write(path, _) => {
                let shown = path.display();
                talk(&format!(
                    "no baseline was written to `{shown}`: a check found what no baseline lets pass"
                ));
                Exit::Proved
            }
        }
    }
}

fn write(path: &Path, baseline: &Baseline) -> Exit {
    let shown = path.display();
    match save::replace(path, &baseline.to_json()) {
        Ok(()) => {
            let count = counted(baseline.len() as u64, "known finding");
            talk(&format!("baseline: {count} in {shown}"));
            Exit::Proved
        }
        Err(error) => {
            let message = format!("cannot write `{shown}`: {error}");
            warn(&[Diagnostic::error("baseline", message)]);
            Exit::Usage
        }
    }
}
