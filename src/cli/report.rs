//! `bitproof report`: what was found, as a file for people who were not there.

use std::io::Read;
use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::Value;

use super::output::{talk, warn};
use super::save::OutputArgs;
use crate::diagnostic::{Diagnostic, escaped};
use crate::report::Exit;
use crate::report::html::page;

/// A report of a check has some tens of kilobytes.
const BYTES_MAX: u64 = 64 << 20;

#[derive(Debug, Args)]
pub(super) struct ReportArgs {
    /// What `check --format json` or `trace diff --format json` wrote; - is standard input
    #[arg(value_name = "RUN")]
    run: PathBuf,
    /// The file to write: one page that loads nothing and runs no script
    #[arg(long, value_name = "FILE")]
    html: PathBuf,
    /// Replace FILE if it is there
    #[arg(long)]
    force: bool,
}

pub(super) fn run(args: &ReportArgs) -> Exit {
    let file = OutputArgs {
        output: Some(args.html.clone()),
        force: args.force,
    };
    if let Err(error) = file.check(std::slice::from_ref(&args.run)) {
        file.unwritable(&error);
        return Exit::Usage;
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
