//! `bitproof report`: what was found, as a file for people who were not there.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::{ArgGroup, Args};
use serde_json::Value;

use super::output::{talk, warn};
use super::save::OutputArgs;
use crate::diagnostic::{Diagnostic, Severity, escaped};
use crate::prove::recording::{RankSet, iterations};
use crate::report::Exit;
use crate::report::html::page;
use crate::trace::timeline::{self, Drawn, Extent, TimelineError};
use crate::trace::{Damage, Folder};

/// A report of a check has some tens of kilobytes.
const BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("kind").required(true).args(["html", "perfetto"]))]
pub(super) struct ReportArgs {
    /// What `check --format json` or `trace diff --format json` wrote (- is standard input); with
    /// --perfetto, the folder that `check --trace` or a recorder wrote
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// The file to write: one page that loads nothing and runs no script
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// The file to write: a timeline of a trace, as Trace Event JSON (ui.perfetto.dev)
    #[arg(long, value_name = "FILE")]
    perfetto: Option<PathBuf>,
    /// Draw these ranks only, such as 0,3,8-15
    #[arg(long, value_name = "RANKS", requires = "perfetto")]
    ranks: Option<RankSet>,
    /// Draw these iterations only, such as 1-2; set-up goes with the first
    #[arg(long, value_name = "STEPS", requires = "perfetto", value_parser = iterations)]
    steps: Option<(u32, u32)>,
    /// Replace FILE if it is there
    #[arg(long)]
    force: bool,
}

pub(super) fn run(args: &ReportArgs) -> Exit {
    let file = OutputArgs {
        output: args.html.clone().or_else(|| args.perfetto.clone()),
        force: args.force,
    };
    if let Err(error) = file.check(std::slice::from_ref(&args.run)) {
        file.unwritable(&error);
        return Exit::Usage;
    }
    if args.perfetto.is_some() {
        return drawn(args, &file);
    }
    let shown = escaped(&args.run.display().to_string()).into_owned();
    let reports = match read(&args.run) {
        Ok(reports) => reports,
        Err(why) => return refuse(&shown, &why),
    };
    if let Err(found) = page(&reports, None) {
        return refuse(&shown, &format!("object {}: {}", found.number, found.why));
    }
    match write(&file, &reports, None) {
        true => Exit::Proved,
        false => Exit::Usage,
    }
}

fn refuse(name: &str, why: &str) -> Exit {
    let help = "write one with `bitproof check SCENARIO --format json > RUN.json`";
    warn(&[Diagnostic::error("no-report", format!("{name}: {why}")).with_help(help)]);
    Exit::Usage
}

/// Draws a folder of traces.
fn drawn(args: &ReportArgs, file: &OutputArgs) -> Exit {
    let is_report = args.run == Path::new("-")
        || (args.run.is_file() && args.run.extension().is_some_and(|ending| ending == "json"));
    if is_report {
        return no_events(args, Exit::Usage);
    }
    let folder = match Folder::open(&args.run) {
        Ok(folder) => folder,
        Err(damages) => {
            let is_there = args.run.exists();
            let findings: Vec<_> = damages.iter().map(Damage::to_diagnostic).collect();
            warn(&findings);
            return if is_there { Exit::Vacuous } else { Exit::Usage };
        }
    };
    let takes = |rank: u32| args.ranks.as_ref().is_none_or(|ranks| ranks.has(rank));
    if !folder.ops.keys().any(|rank| takes(*rank)) {
        return no_events(args, Exit::NothingChecked);
    }
    let extent = Extent {
        iterations: args.steps.map(|(first, last)| (first.into(), last.into())),
    };
    match file.write_with(|out| some(timeline::draw(&folder, takes, &extent, out)?)) {
        Ok(drawn) => told(&drawn, file),
        Err(error) => not_drawn(&error, file),
    }
}

fn no_events(args: &ReportArgs, exit: Exit) -> Exit {
    let help = "name the folder of `check SCENARIO --trace DIR`, recorded at level semantic, op or \
                kernel; a report in JSON holds no events";
    let message = format!("{}: no op stream is there to draw", args.run.display());
    warn(&[Diagnostic::error("no-events", escaped(&message)).with_help(help)]);
    exit
}

/// A drawing without an event is none.
fn some(drawn: Drawn) -> Result<Drawn, TimelineError> {
    match drawn.events {
        0 => Err(TimelineError::NoEvents),
        _ => Ok(drawn),
    }
}

fn told(drawn: &Drawn, file: &OutputArgs) -> Exit {
    // What is not whole is drawn as far as it came.
    let remarks = drawn.remarks.iter().map(|remark| Diagnostic {
        severity: Severity::Warning,
        ..remark.to_diagnostic()
    });
    warn(&remarks.collect::<Vec<_>>());
    if drawn.lacking > 0 {
        talk(&format!(
            "{} calls lack a member that is drawn: it has no such record, or in another order",
            drawn.lacking
        ));
    }
    let path = file.output.as_deref().unwrap_or(Path::new("")).display();
    let Drawn {
        ranks,
        events,
        flows,
        ..
    } = drawn;
    talk(&format!(
        "wrote {path}: {events} events of {ranks} ranks, {flows} calls joined; open it at \
         ui.perfetto.dev. Its axis is an order, not time"
    ));
    Exit::Proved
}

fn not_drawn(error: &TimelineError, file: &OutputArgs) -> Exit {
    match error {
        TimelineError::Damaged(damage) => {
            warn(&[damage.to_diagnostic()]);
            Exit::Vacuous
        }
        TimelineError::Unwritable(error) => {
            file.unwritable(error);
            Exit::Usage
        }
        TimelineError::NoEvents => {
            talk(&error.to_string());
            Exit::NothingChecked
        }
        error => {
            warn(&[Diagnostic::error("not-drawn", error.to_string())]);
            Exit::Usage
        }
    }
}

/// Writes the page, and says where it is; whether that went well.
pub(super) fn write(file: &OutputArgs, reports: &[Value], names: Option<&str>) -> bool {
    let text = match page(reports, names) {
        Ok(text) => text,
        Err(found) => {
            talk(&format!("no page is written: {}", found.why));
            return false;
        }
    };
    match file.write(&text) {
        Ok(()) => {
            let path = file.output.as_deref().unwrap_or(Path::new("")).display();
            talk(&format!("wrote {path}"));
            true
        }
        Err(error) => {
            file.unwritable(&error);
            false
        }
    }
}

/// The objects of a file: one, or as `check` writes several scenarios a line each.
fn read(path: &Path) -> Result<Vec<Value>, String> {
    let mut bytes = Vec::new();
    let said = |error: std::io::Error| format!("cannot be read: {error}");
    if path == Path::new("-") {
        let input = std::io::stdin().take(BYTES_MAX + 1);
        { input }.read_to_end(&mut bytes).map_err(said)?;
    } else {
        let input = std::fs::File::open(path).map_err(said)?.take(BYTES_MAX + 1);
        { input }.read_to_end(&mut bytes).map_err(said)?;
    }
    if bytes.len() as u64 > BYTES_MAX {
        return Err(format!("has more than {} MiB", BYTES_MAX >> 20));
    }
    let found = serde_json::Deserializer::from_slice(&bytes).into_iter::<Value>();
    let found: Vec<Value> = found.collect::<Result<_, _>>().map_err(|error| {
        let (line, column) = (error.line(), error.column());
        format!("line {line}, column {column}: no JSON object: {error}")
    })?;
    match found.is_empty() {
        true => Err("holds no report".to_string()),
        false => Ok(found),
    }
}
