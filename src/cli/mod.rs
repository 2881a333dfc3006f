//! The command line: one file a verb. Data goes to standard output, talk to standard error.

mod against;
mod baseline;
mod check;
mod doctor;
mod engine;
mod faults;
mod folder;
mod import;
mod like;
mod memory;
mod output;
mod plan;
mod progress;
mod prover;
mod recording;
mod regression;
mod replay;
mod report;
mod save;
mod trace;

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgAction, Args, Parser, Subcommand};

use crate::diagnostic::Diagnostic;
use crate::prove::CheckOptions;
use crate::report::Exit;

/// Proves on one machine that a parallel training recipe keeps its bits, or names the first node
/// where it does not.
#[derive(Debug, Parser)]
#[command(name = "bitproof", version, after_help = EXIT_CODES)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

const EXIT_CODES: &str = "\
Exit codes: 0 proved, or as good as was asked for; 1 divergent, hazard or masked; 2 usage or input;
3 uncontrolled; 4 vacuous, or input not to be trusted; 5 nothing was checked, or no adapter;
6 below what was required; 70 internal error.";

#[derive(Debug, Subcommand)]
enum Verb {
    /// Checks scenarios: run to run, after a resume, across replicas and allocations
    Check(check::CheckArgs),
    /// Reproduces the difference that a token names
    Replay(replay::ReplayArgs),
    /// Says what is understood of another tool's file, and makes a scenario of it
    Import(import::ImportArgs),
    /// In which order the collectives of a job add, at its full size: nothing is computed
    Plan(plan::PlanArgs),
    /// Traces of real and simulated runs: whether they can be trusted, and where two runs parted
    Trace(trace::TraceArgs),
    /// Writes what a check or a comparison of traces found as one HTML file
    Report(report::ReportArgs),
    /// Shows engines, adapters, and whether their arithmetic is exact
    Doctor(doctor::DoctorArgs),
}

/// What every verb that runs something takes.
#[derive(Debug, Args)]
struct RunArgs {
    /// Train on this file instead of the scenario's data
    #[arg(long, value_name = "FILE")]
    data: Option<PathBuf>,
    /// Change a key of the scenario, such as recipe.hidden_size=64 (may be repeated)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// How results are written to standard output
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: output::Format,
    #[command(flatten)]
    engine: engine::EngineArgs,
    /// Only the verdict and the line to paste
    #[arg(short, long, conflicts_with = "verbose")]
    quiet: bool,
    /// The certificate in full
    #[arg(short, long, action = ArgAction::SetTrue)]
    verbose: bool,
}

/// What a verb that reads a job is told beyond its file.
#[derive(Debug, Args)]
struct JobArgs {
    /// Ranks of the job [default: what the file says, else 8]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    world: Option<u32>,
    /// Check with this many data-parallel ranks, each with its microbatches
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    grow_dp: Option<u32>,
    /// Which run of a Megatron file with several, by number or name [default: the first]
    #[arg(long, value_name = "N|NAME")]
    phase: Option<String>,
}

impl RunArgs {
    fn detail(&self) -> crate::report::Detail {
        match (self.quiet, self.verbose) {
            (true, _) => crate::report::Detail::Verdict,
            (false, false) => crate::report::Detail::Usual,
            (false, true) => crate::report::Detail::Full,
        }
    }

    /// How checks are carried out.
    ///
    /// # Errors
    /// Flags of two engines.
    fn options(&self) -> Result<CheckOptions, Box<Diagnostic>> {
        let engine = self.engine.choice();
        Ok(CheckOptions {
            workers: self.engine.workers(),
            engine: engine.map_err(|message| Box::new(Diagnostic::error("usage", message)))?,
            ..CheckOptions::default()
        })
    }
}

/// Runs the command line of this process.
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    // A panic is a fault of ours, and says so with its own code instead of the runtime's 101.
    let run = std::panic::AssertUnwindSafe(|| match &cli.verb {
        Verb::Check(args) => {
            args.prepare_process();
            check::run(args)
        }
        Verb::Replay(args) => {
            args.run.engine.prepare_process();
            replay::run(args)
        }
        Verb::Import(args) => import::run(args),
        Verb::Plan(args) => plan::run(args),
        Verb::Trace(args) => trace::run(args),
        Verb::Report(args) => report::run(args),
        Verb::Doctor(args) => doctor::run(args),
    });
    let exit = std::panic::catch_unwind(run).unwrap_or_else(|_| {
        output::talk("this is a fault of bitproof, not of your input: please report it");
        Exit::Internal
    });
    ExitCode::from(exit.code())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_help_names_every_exit_code() {
        let exits = [
            Exit::Proved,
            Exit::BelowRequired,
            Exit::NothingChecked,
            Exit::Vacuous,
            Exit::Divergent,
            Exit::Uncontrolled,
            Exit::Usage,
            Exit::Internal,
        ];
        for exit in exits {
            let code = exit.code().to_string();
            let words = EXIT_CODES.split(|c: char| !c.is_ascii_digit());
            assert_eq!(words.filter(|word| *word == code).count(), 1, "{exit:?}");
        }
    }
}
