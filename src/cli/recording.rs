//! `check --trace`: what is recorded of the reference run, and how that ended.

use std::path::PathBuf;

use clap::Args;

use super::output::{talk, warn};
use crate::diagnostic::Diagnostic;
use crate::prove::check::RecordingEnd;
use crate::prove::recording::{Hashed, RankSet, TraceRequest, iterations};
use crate::report::{Exit, counted};
use crate::trace::native::{Level, Recording, RecordingError};

/// Bytes of a mebibyte.
const MIB: u64 = 1 << 20;

#[derive(Debug, Args)]
pub(super) struct TraceFlags {
    /// Record the straight reference run into this folder, which is not there yet or empty, for
    /// `bitproof trace`
    #[arg(long, value_name = "DIR", conflicts_with_all = ["lint_only", "list_faults"])]
    trace: Option<PathBuf>,
    /// How much is recorded
    #[arg(
        long,
        value_enum,
        default_value = "op",
        value_name = "LEVEL",
        requires = "trace"
    )]
    trace_level: TraceLevel,
    /// Record these ranks, such as 0,3,8-15 [default: all]
    #[arg(long = "ranks", value_name = "RANKS", requires = "trace")]
    trace_ranks: Option<RankSet>,
    /// The most that records may take on the disk, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 16_384, requires = "trace",
          value_parser = clap::value_parser!(u64).range(1..=1 << 24))]
    trace_budget: u64,
    /// Where digests are computed; they are the same
    #[arg(
        long,
        value_enum,
        default_value = "host",
        value_name = "WHERE",
        requires = "trace"
    )]
    trace_hash: TraceHash,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum TraceHash {
    /// By the host, which reads every tensor back
    Host,
    /// By kernels of the engine, where the tensors lie
    Engine,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum TraceLevel {
    /// The numbers of a step that engineers watch
    Metrics,
    /// And collectives, messages, data, losses, gradients and the optimizer
    Semantic,
    /// And every op of forward and backward
    Op,
    /// And what each op was launched with
    Kernel,
}

/// What `--steps` says: how many are checked, or which of them are recorded.
#[derive(Clone, Copy, Debug)]
pub(super) enum Steps {
    Checked(u32),
    Recorded(u32, u32),
}

impl Steps {
    /// Reads `3`, or `1-2`.
    ///
    /// # Errors
    /// Anything else, in words.
    pub fn read(text: &str) -> Result<Steps, String> {
        match text.contains('-') {
            true => iterations(text).map(|(first, last)| Steps::Recorded(first, last)),
            false => match text.parse() {
                Ok(count) => Ok(Steps::Checked(count)),
                Err(error) => Err(format!(
                    "{error}; expected a number, or a range such as 1-2"
                )),
            },
        }
    }

    pub fn checked(self) -> Option<u32> {
        match self {
            Steps::Checked(count) => Some(count),
            Steps::Recorded(..) => None,
        }
    }

    pub fn recorded(self) -> Option<(u32, u32)> {
        match self {
            Steps::Checked(_) => None,
            Steps::Recorded(first, last) => Some((first, last)),
        }
    }
}

impl TraceFlags {
    /// What is to be recorded, if anything.
    pub fn request(&self, window: Option<(u32, u32)>) -> Option<TraceRequest> {
        Some(TraceRequest {
            folder: self.trace.clone()?,
            level: match self.trace_level {
                TraceLevel::Metrics => Level::Metrics,
                TraceLevel::Semantic => Level::Semantic,
                TraceLevel::Op => Level::Op,
                TraceLevel::Kernel => Level::Kernel,
            },
            ranks: self.trace_ranks.clone(),
            iterations: window,
            budget: self.trace_budget * MIB,
            hashed: match self.trace_hash {
                TraceHash::Host => Hashed::OnHost,
                TraceHash::Engine => Hashed::OnEngine,
            },
        })
    }

    /// What can be seen to be wrong before anything runs.
    ///
    /// # Errors
    /// More than one scenario for one folder, or a folder that holds something; steps of a
    /// recording without one.
    pub fn check(
        &self,
        scenarios: usize,
        window: Option<(u32, u32)>,
    ) -> Result<(), Box<Diagnostic>> {
        let Some(folder) = &self.trace else {
            return match window {
                None => Ok(()),
                Some((first, last)) => {
                    let message = format!("--steps {first}-{last} says which steps are recorded");
                    let finding = Diagnostic::error("usage", message);
                    let help =
                        format!("add --trace DIR, or check the first {last}: --steps {last}");
                    Err(Box::new(finding.with_help(help)))
                }
            };
        };
        if scenarios != 1 {
            let message =
                format!("--trace records one scenario, and {scenarios} are to be checked");
            let finding = Diagnostic::error("usage", message);
            let help = "check each with a folder of its own";
            return Err(Box::new(finding.with_help(help)));
        }
        let refused = Recording::refuse_full(folder);
        refused.map_err(|error| Box::new(finding_of(&error)))
    }
}

pub(super) fn finding_of(error: &RecordingError) -> Diagnostic {
    Diagnostic::error("not-recorded", error.to_string()).with_help(error.help())
}

/// Tells how the recording that was asked for ended, and how that ends the check.
pub(super) fn told(asked: &TraceRequest, ended: Option<RecordingEnd>, is_quiet: bool) -> Exit {
    let folder = asked.folder.display();
    match ended {
        Some(Ok(recorded)) => {
            if !is_quiet {
                let records = counted(recorded.records, "record");
                let bytes = counted(recorded.bytes, "byte");
                talk(&format!("trace: {records}, {bytes}, in {folder}"));
            }
            Exit::Proved
        }
        Some(Err(error)) => {
            warn(&[finding_of(&error)]);
            match error {
                RecordingError::Budget { .. } => Exit::BelowRequired,
                _ => Exit::Internal,
            }
        }
        None => {
            talk(&format!(
                "trace: {folder} ends where the run could not go on: `bitproof trace show` reads it"
            ));
            Exit::Proved
        }
    }
}
