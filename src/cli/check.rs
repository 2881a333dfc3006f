//! `bitproof check PATH...`

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use clap::Args;

use super::against::Pair;
use super::baseline::{BaselineFlags, Known};
use super::like::{self, LikeFlag};
use super::output::{Output, talk};
use super::progress::Bars;
use super::recording::{self, Steps, TraceFlags};
use super::{JobArgs, RunArgs, faults, folder, memory, prover, regression};
use crate::diagnostic::{Diagnostic, Severity};
use crate::engine::EngineChoice;
use crate::prove::outcome::Outcome;
use crate::prove::session::CheckError;
use crate::prove::{CheckOptions, TraceRequest};
use crate::recipe::ReshardLayout;
use crate::report::{Exit, Report, Requirement, replay_line};
use crate::scenario::{Grade, Overrides, Scenario};
use crate::trace::symptom::Symptom;

#[derive(Debug, Args)]
pub(super) struct CheckArgs {
    /// Scenario files, folders of them, bare recipes, or Megatron-LM's: a functional test's
    /// model_config.yaml, a job log, a launch script
    #[arg(required = true, value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Check this many steps; with --trace a range such as 1-2 says which are recorded (set-up goes
    /// with the first)
    #[arg(long, value_name = "N", value_parser = Steps::read)]
    steps: Option<Steps>,
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
    /// Only say what is wrong with the files, without running anything
    #[arg(long, conflicts_with_all = ["require", "accept", "no_save"])]
    lint_only: bool,
    /// List every place that a fault of `[fault]` can strike, without checking anything
    #[arg(long, conflicts_with_all = ["lint_only", "require", "accept", "native_races"])]
    list_faults: bool,
    /// Resume on this layout, too: tensor x pipeline x virtual stages, such as 1x4xNone (may be
    /// repeated; replaces the scenario's `checkpoint.reshard`)
    #[arg(long, value_name = "TPxPPxVPP")]
    reshard: Vec<ReshardLayout>,
    /// Run each fold in arrival order this often with true atomics on an adapter, too, and say
    /// whether what they give is among what the model allows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000),
          conflicts_with = "lint_only")]
    native_races: Option<u32>,
    /// Write no file under .bitproof/regressions
    #[arg(long)]
    no_save: bool,
    #[command(flatten)]
    trace: TraceFlags,
    #[command(flatten)]
    like: LikeFlag,
    #[command(flatten)]
    baseline: BaselineFlags,
    /// Check this scenario as well, and say where its bits first part from those of PATH
    #[arg(long, value_name = "OTHER",
          conflicts_with_all = ["trace", "like", "lint_only", "list_faults"])]
    against: Option<PathBuf>,
    #[command(flatten)]
    job: JobArgs,
    #[command(flatten)]
    pub(super) run: RunArgs,
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

impl CheckArgs {
    /// The steps that a recording is of, where not all.
    fn recorded(&self) -> Option<(u32, u32)> {
        self.steps.and_then(Steps::recorded)
    }

    /// Readies the process for its engine. Races want the threads that a software driver has.
    pub fn prepare_process(&self) {
        if self.native_races.is_none() {
            self.run.engine.prepare_process();
        }
    }
}

pub(super) fn run(args: &CheckArgs) -> Exit {
    let paths = folder::scenarios(&args.paths);
    // With `--against` there are two, and what they show beside each other.
    let count = paths.as_ref().map_or(1, Vec::len) + 2 * usize::from(args.against.is_some());
    let mut output = Output::new(args.run.format, args.run.detail(), count);
    let named: Vec<String> = args
        .paths
        .iter()
        .map(|path| path.display().to_string())
        .collect();
    let options = args
        .run
        .options()
        .map_err(|finding| ("bitproof".to_owned(), finding));
    let paths = paths.map_err(|finding| (named.join(" "), finding));
    let given = options.and_then(|options| {
        let paths = paths?;
        let checked = args.trace.check(paths.len(), args.recorded());
        checked.map_err(|finding| ("bitproof".to_owned(), finding))?;
        let known = args.baseline.open();
        let known = known.map_err(|finding| ("bitproof".to_owned(), finding))?;
        let pair = pair(args, &paths);
        let pair = pair.map_err(|finding| ("bitproof".to_owned(), finding))?;
        Ok((options, paths, known, pair))
    });
    let (options, paths, mut known, pair) = match given {
        Ok(given) => given,
        Err((name, finding)) => {
            let exit = output.refuse(name, vec![*finding], Exit::Usage);
            return exit.max(output.finish());
        }
    };
    let options = CheckOptions {
        native_races: args.native_races,
        ..options
    };
    let symptom = args.like.like.as_deref().map(like::symptom_of).transpose();
    let symptom = match symptom {
        Ok(symptom) => symptom,
        Err((findings, exit)) => {
            let exit = output.refuse(named.join(" "), findings, exit);
            return exit.max(output.finish());
        }
    };
    let asked = Asked {
        args,
        options,
        symptom,
    };
    let mut worst = Exit::Proved;
    match pair {
        None => {
            for path in &paths {
                let trace = args.trace.request(args.recorded());
                worst = worst.max(one(&asked, path, trace, (&mut output, &mut known)));
            }
        }
        Some(pair) => {
            let known = RefCell::new(&mut known);
            worst = pair.check(&asked, &mut output, |asked, path, trace, output| {
                one(asked, path, trace, (output, &mut known.borrow_mut()))
            });
        }
    }
    worst = worst.max(known.finish(worst));
    worst.max(output.finish())
}

/// The two scenarios of `--against`.
fn pair(args: &CheckArgs, paths: &[PathBuf]) -> Result<Option<Pair>, Box<Diagnostic>> {
    let Some(other) = &args.against else {
        return Ok(None);
    };
    let [path] = paths else {
        let message = format!(
            "--against compares one scenario, and {} are named",
            paths.len()
        );
        let finding = Diagnostic::error("usage", message);
        return Err(Box::new(finding.with_help("check A --against B")));
    };
    Pair::of(path, other, &overrides(args)).map(Some)
}

/// What the flags change in every scenario.
fn overrides(args: &CheckArgs) -> Overrides {
    Overrides {
        set: args.run.set.iter().cloned().chain(reshard(args)).collect(),
        data: args.run.data.clone(),
        seed: args.seed,
        steps: args.steps.and_then(Steps::checked),
        world: args.job.world,
        grow_dp: args.job.grow_dp,
        phase: args.job.phase.clone(),
    }
}

/// What is asked of every scenario.
pub(super) struct Asked<'a> {
    args: &'a CheckArgs,
    options: CheckOptions,
    /// Of a real trace, if one was given.
    symptom: Option<Symptom>,
}

fn one(
    asked: &Asked<'_>,
    path: &Path,
    trace: Option<TraceRequest>,
    (output, known): (&mut Output, &mut Known),
) -> Exit {
    let (args, options) = (asked.args, &asked.options);
    let overrides = overrides(args);
    let name = path.display().to_string();
    if args.lint_only {
        return lint(name, Scenario::lint(path, &overrides), output);
    }
    let loaded = match Scenario::load(path, &overrides) {
        Ok(loaded) => loaded,
        Err(diagnostics) => return output.refuse(name, diagnostics, Exit::Usage),
    };
    output.remark(&loaded.warnings);
    if args.list_faults {
        return list_faults(name, loaded.scenario, options, output);
    }
    let mut scenario = loaded.scenario;
    scenario.accept_input |= args.accept.is_some();
    if scenario.compares_nothing() {
        let finding = nothing_checked(&scenario);
        return output.refuse(name, vec![finding], Exit::NothingChecked);
    }
    if let Some(finding) = memory::refusal(&scenario, options) {
        return output.refuse(name, vec![finding], Exit::NothingChecked);
    }
    let bars = Bars::new(args.run.quiet);
    regression::replay_first(&scenario, options, &bars);
    let checked = prover::check(scenario.clone(), options, trace.as_ref(), &bars);
    let checked = checked.and_then(|(outcome, recorded)| {
        let outcome = with_likeness(asked, &scenario, outcome)?;
        Ok((outcome, recorded))
    });
    match checked {
        Ok((outcome, recorded)) => {
            let report = judged(asked, path, &scenario, outcome);
            let report = match known.judge(report) {
                Ok(report) => report,
                Err(finding) => return output.refuse(name, vec![*finding], Exit::Usage),
            };
            let exit = report.exit;
            output.report(report);
            let told = trace.map(|trace| {
                recording::told(&trace, recorded, args.run.quiet || args.against.is_some())
            });
            exit.max(told.unwrap_or(Exit::Proved))
        }
        Err(error) => not_checked(name, &scenario, (&error, &options.engine), output),
    }
}

/// Says which sums explain the trace that was given.
fn with_likeness(
    asked: &Asked<'_>,
    scenario: &Scenario,
    mut outcome: Outcome,
) -> Result<Outcome, CheckError> {
    if let (Some(symptom), Some(folder)) = (&asked.symptom, &asked.args.like.like) {
        let folder = folder.display().to_string();
        let found = prover::explain(scenario, &asked.options, &folder, symptom)?;
        outcome.like = Some(found);
    }
    Ok(outcome)
}

fn not_checked(
    name: String,
    of: &Scenario,
    (error, engine): (&CheckError, &EngineChoice),
    output: &mut Output,
) -> Exit {
    let finding = prover::finding_of(error, engine, "not-checked", Some(&of.name));
    output.refuse(name, vec![finding], prover::exit_of(error))
}

fn list_faults(
    name: String,
    scenario: Scenario,
    options: &CheckOptions,
    output: &mut Output,
) -> Exit {
    if let Some(finding) = memory::refusal(&scenario, options) {
        return output.refuse(name, vec![finding], Exit::NothingChecked);
    }
    match prover::fault_places(scenario.clone(), options) {
        Ok(places) => {
            let human = faults::to_human(&scenario.name, &places);
            output.listing(&human, &faults::to_json(&name, &places));
            Exit::Proved
        }
        Err(error) => not_checked(name, &scenario, (&error, &options.engine), output),
    }
}

/// How a file is judged that is not run: its findings are the data.
fn lint(name: String, findings: Vec<Diagnostic>, output: &mut Output) -> Exit {
    let is_error = |finding: &Diagnostic| finding.severity == Severity::Error;
    let exit = match findings.iter().any(is_error) {
        true => Exit::Usage,
        false => Exit::Proved,
    };
    output.lint(name, findings, exit)
}

/// `--reshard` as an assignment.
fn reshard(args: &CheckArgs) -> Option<String> {
    let layouts: Vec<String> = args.reshard.iter().map(|to| format!("\"{to}\"")).collect();
    (!layouts.is_empty()).then(|| format!("checkpoint.reshard=[{}]", layouts.join(", ")))
}

fn nothing_checked(scenario: &Scenario) -> Diagnostic {
    let message = format!("{}: nothing checked", scenario.name);
    Diagnostic::error("nothing-checked", message)
        .with_note("no oracle compares anything: `oracles` is empty, or RES has no restart")
        .with_help("leave `oracles` out to have all of them, or name R2R, RES or XR")
}

/// The report of a check, with the regression file that it leaves.
fn judged(asked: &Asked<'_>, path: &Path, scenario: &Scenario, mut outcome: Outcome) -> Report {
    let (args, options) = (asked.args, &asked.options);
    if let (Some(token), false) = (&outcome.replay, args.no_save) {
        let line = replay_line(token, &engine_flags(&options.engine));
        match regression::save(scenario, token, &line) {
            Ok(path) => outcome.regression = Some(path.display().to_string()),
            Err(error) => talk(&format!("no regression file was written: {error}")),
        }
    }
    let requirement = Requirement {
        require: args.require,
        accept_input: args.accept.is_some() || scenario.accept_input,
    };
    let report = Report::new(outcome, &requirement, scenario.expect.clone());
    report
        .repeated_by(command(args, path, &options.engine))
        .on_engine(engine_flags(&options.engine))
        .located(path)
}

/// The command line that repeats the check of one path, to be pasted into a shell.
fn command(args: &CheckArgs, path: &Path, engine: &EngineChoice) -> String {
    let mut words = vec![
        "bitproof".to_string(),
        "check".into(),
        path.display().to_string(),
    ];
    let mut flag = |name: &str, value: String| words.extend([name.to_string(), value]);
    args.run
        .set
        .iter()
        .for_each(|set| flag("--set", set.clone()));
    args.run
        .data
        .iter()
        .for_each(|data| flag("--data", data.display().to_string()));
    args.reshard
        .iter()
        .for_each(|layout| flag("--reshard", layout.to_string()));
    args.steps
        .and_then(Steps::checked)
        .iter()
        .for_each(|steps| flag("--steps", steps.to_string()));
    args.seed
        .iter()
        .for_each(|seed| flag("--seed", seed.to_string()));
    args.like
        .like
        .iter()
        .for_each(|folder| flag("--like", folder.display().to_string()));
    args.baseline
        .baseline
        .iter()
        .for_each(|file| flag("--baseline", file.display().to_string()));
    args.native_races
        .iter()
        .for_each(|repeats| flag("--native-races", repeats.to_string()));
    engine_words(engine)
        .into_iter()
        .for_each(|(name, value)| flag(name, value));
    let job = &args.job;
    job.world
        .iter()
        .for_each(|world| flag("--world", world.to_string()));
    job.grow_dp
        .iter()
        .for_each(|ranks| flag("--grow-dp", ranks.to_string()));
    job.phase
        .iter()
        .for_each(|phase| flag("--phase", phase.clone()));
    let quoted: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    quoted.join(" ")
}

/// The flags that choose an engine again, as a shell takes them; none for the default one.
pub(super) fn engine_flags(engine: &EngineChoice) -> String {
    let words = engine_words(engine).into_iter();
    let flags: Vec<String> = words
        .map(|(name, value)| format!("{name} {}", quoted(&value)))
        .collect();
    flags.join(" ")
}

/// The engine that ran, never `auto`: what that means may be another one tomorrow.
fn engine_words(engine: &EngineChoice) -> Vec<(&'static str, String)> {
    let EngineChoice::Wgpu { adapter } = engine else {
        return Vec::new();
    };
    let adapter = adapter.clone().map(|name| ("--adapter", name));
    let engine = ("--engine", "wgpu".to_owned());
    [engine].into_iter().chain(adapter).collect()
}

/// A word as a POSIX shell takes it literally. Control characters are written in octal, in the
/// quotes that POSIX.1-2024 (2.2.4) took from the Korn shell.
fn quoted(word: &str) -> String {
    if word.chars().any(char::is_control) {
        let octal = |byte: u8| match byte {
            b'\'' | b'\\' => format!("\\{}", char::from(byte)),
            b' '..=b'~' => char::from(byte).to_string(),
            _ => format!("\\{byte:03o}"),
        };
        return format!("$'{}'", word.bytes().map(octal).collect::<String>());
    }
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=,:@%+".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_string();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_a_shell() {
        assert_eq!(quoted("recipe.lr=1e-3"), "recipe.lr=1e-3");
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's"), "'it'\\''s'");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("\u{1b}\u{9b}'x"), "$'\\033\\302\\233\\'x'");
    }

    #[test]
    fn an_engine_is_chosen_again_by_the_same_flags() {
        assert_eq!(engine_flags(&EngineChoice::Cpu), "");
        let wgpu = |adapter: Option<&str>| EngineChoice::Wgpu {
            adapter: adapter.map(str::to_owned),
        };
        assert_eq!(engine_flags(&wgpu(None)), "--engine wgpu");
        let named = engine_flags(&wgpu(Some("A 1 (Vulkan)")));
        assert_eq!(named, "--engine wgpu --adapter 'A 1 (Vulkan)'");
    }

    #[test]
    fn only_proofs_can_be_required() {
        assert_eq!(passing_grade("bounded"), Ok(Grade::Bounded));
        assert!(passing_grade("masked").is_err() && passing_grade("fine").is_err());
    }
}
