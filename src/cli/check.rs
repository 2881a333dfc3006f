//! `bitproof check PATH...`

use std::path::{Path, PathBuf};

use clap::Args;

use super::output::{Output, talk, warn};
use super::progress::Bars;
use super::{RunArgs, prover, regression};
use crate::diagnostic::Diagnostic;
use crate::prove::outcome::Outcome;
use crate::report::{Exit, Report, Requirement};
use crate::scenario::{Grade, Overrides, Scenario};

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Scenario files, or bare recipes
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Check this many steps
    #[arg(long, value_name = "N")]
    steps: Option<u32>,
    /// Seed of the orders that are sampled where not all can be tried (the recipe's own seed is
    /// changed with --set recipe.seed=N)
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// The weakest grade that passes: proved, proved-on-this-input or bounded
    #[arg(long, value_name = "GRADE", value_parser = passing_grade)]
    require: Option<Grade>,
    /// Count "proved on this input" as a pass
    #[arg(long, value_enum, value_name = "WHAT")]
    accept: Option<Accept>,
    /// Write no file under .bitproof/regressions
    #[arg(long)]
    no_save: bool,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Accept {
    /// Proofs that hold for the inputs of this run only
    Input,
}

fn passing_grade(text: &str) -> Result<Grade, String> {
    match Grade::from_slug(text) {
        Some(grade) if grade <= Grade::Bounded => Ok(grade),
        Some(grade) => Err(format!("{grade} is a failure, not a weaker proof")),
        None => Err("expected proved, proved-on-this-input or bounded".into()),
    }
}

pub(super) fn run(args: &CheckArgs) -> Exit {
    let mut output = Output::new(args.run.format, args.run.detail(), args.paths.len());
    let mut worst = Exit::Proved;
    for path in &args.paths {
        worst = worst.max(one(args, path, &mut output));
    }
    output.finish();
    worst
}

fn one(args: &CheckArgs, path: &Path, output: &mut Output) -> Exit {
    let overrides = Overrides {
        set: args.run.set.clone(),
        data: args.run.data.clone(),
        seed: args.seed,
        steps: args.steps,
    };
    let loaded = match Scenario::load(path, &overrides) {
        Ok(loaded) => loaded,
        Err(diagnostics) => {
            output.refuse(&diagnostics, Exit::Usage);
            return Exit::Usage;
        }
    };
    if !args.run.quiet {
        warn(&loaded.warnings);
    }
    let scenario = loaded.scenario;
    let bars = Bars::new(args.run.quiet);
    regression::replay_first(&scenario, args.run.settings(), &bars);
    match prover::check(scenario.clone(), args.run.settings(), &bars) {
        Ok(outcome) => finish(args, &scenario, outcome, output),
        Err(error) => {
            let exit = prover::exit_of(&error);
            let message = format!("{}: {error}", scenario.name);
            output.refuse(&[Diagnostic::error("not-checked", message)], exit);
            exit
        }
    }
}

fn finish(
    args: &CheckArgs,
    scenario: &Scenario,
    mut outcome: Outcome,
    output: &mut Output,
) -> Exit {
    if let (Some(token), false) = (&outcome.replay, args.no_save) {
        match regression::save(scenario, token) {
            Ok(path) => outcome.regression = Some(path.display().to_string()),
            Err(error) => talk(&format!("no regression file was written: {error}")),
        }
    }
    let requirement = Requirement {
        require: args.require,
        accept_input: args.accept.is_some() || scenario.accept_input,
    };
    let report = Report::new(outcome, &requirement, scenario.expect.clone());
    let exit = report.exit;
    output.report(report);
    exit
}
