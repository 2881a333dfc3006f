//! `bitproof replay TOKEN`

use std::path::{Path, PathBuf};

use clap::Args;

use super::output::Output;
use super::progress::Bars;
use super::{JobArgs, RunArgs, check, memory, prover, regression};
use crate::diagnostic::Diagnostic;
use crate::prove::{CheckOptions, Token};
use crate::report::{Exit, Report, Requirement};
use crate::scenario::{Overrides, Scenario, find_by_hash};

#[derive(Debug, Args)]
pub(super) struct ReplayArgs {
    /// The token that a failed check printed
    #[arg(value_name = "TOKEN")]
    token: String,
    /// The scenario that was checked; else scenarios/ and .bitproof/regressions/ are searched
    #[arg(long, value_name = "PATH")]
    scenario: Option<PathBuf>,
    /// The number of steps, where the check was given one
    #[arg(long, value_name = "N")]
    steps: Option<u32>,
    /// The seed, where the check was given one
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    job: JobArgs,
    #[command(flatten)]
    pub(super) run: RunArgs,
}

pub(super) fn run(args: &ReplayArgs) -> Exit {
    let mut output = Output::new(args.run.format, args.run.detail(), 1);
    let exit = match found(args) {
        Ok((token, scenario, options)) => reproduce(args, &token, scenario, &options, &mut output),
        Err(diagnostics) => output.refuse(args.token.clone(), diagnostics, Exit::Usage),
    };
    exit.max(output.finish())
}

/// The token, the scenario that it was made from, and what is to run it.
fn found(args: &ReplayArgs) -> Result<(Token, Scenario, CheckOptions), Vec<Diagnostic>> {
    let options = args.run.options().map_err(|finding| vec![*finding])?;
    let token = Token::decode(&args.token).map_err(|error| {
        vec![Diagnostic::error("token", error.to_string()).with_help("copy the whole line")]
    })?;
    let overrides = Overrides {
        set: args.run.set.clone(),
        data: args.run.data.clone(),
        seed: args.seed,
        steps: args.steps,
        world: args.job.world,
        grow_dp: args.job.grow_dp,
        phase: args.job.phase.clone(),
    };
    let scenario = match &args.scenario {
        Some(path) => Scenario::load(path, &overrides)?.scenario,
        None => search(&token, &overrides)?,
    };
    token
        .check_scenario(&scenario.content_hash())
        .map_err(|error| {
            vec![
                Diagnostic::error("stale-token", error.to_string()).with_help(
                    "repeat the check's --set, --steps, --seed, --data, --engine and --adapter",
                ),
            ]
        })?;
    Ok((token, scenario, options))
}

fn search(token: &Token, overrides: &Overrides) -> Result<Scenario, Vec<Diagnostic>> {
    let folders = [Path::new("scenarios"), Path::new(regression::FOLDER)];
    let found = find_by_hash(&folders, &token.scenario, overrides);
    if let Some((_, scenario)) = found.scenario {
        return Ok(scenario);
    }
    let looked = format!(
        "{} scenarios of `scenarios` and `{}` have another content",
        found.others.len(),
        regression::FOLDER
    );
    let message = "no scenario here is the one that the token was made from";
    Err(vec![
        Diagnostic::error("scenario-not-found", message)
            .with_note(looked)
            .with_help("name it with --scenario PATH, and its text with --data FILE if it had one")
            .with_help("repeat the --set, --steps and --seed that the check was given"),
    ])
}

fn reproduce(
    args: &ReplayArgs,
    token: &Token,
    scenario: Scenario,
    options: &CheckOptions,
    output: &mut Output,
) -> Exit {
    let name = args.token.clone();
    if let Some(finding) = memory::refusal(&scenario, options) {
        return output.refuse(name, vec![finding], Exit::NothingChecked);
    }
    let bars = Bars::new(args.run.quiet);
    match prover::replay(scenario, token, options, &bars) {
        Ok(outcome) => {
            let report = Report::new(outcome, &Requirement::default(), None)
                .on_engine(check::engine_flags(&options.engine));
            let exit = report.exit;
            output.report(report);
            exit
        }
        Err(error) => {
            let finding = prover::finding_of(&error, &options.engine, "not-replayed", None);
            output.refuse(name, vec![finding], prover::exit_of(&error))
        }
    }
}
