//! `bitproof plan`: in which order every collective of a job adds, at its full size.

mod captured;
mod identify;
mod manifest;
mod pin;
mod placements;
mod probe;
mod test;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use serde_json::json;

use super::JobArgs;
use super::output::{self, ObjectFormat, warn};
use crate::diagnostic::{Diagnostic, Place, Source, nearest};
use crate::plan::Backend;
use crate::prove::job_plans::{CollectivePlans, JobPlans, differences};
use crate::prove::listed::Listed;
use crate::recipe::Recipe;
use crate::recipe::nccl::SIMULATED;
use crate::report::Exit;
use crate::report::plans::{Expression, NamedPlans, diff_to_human, diff_to_json, hex};
use crate::scenario::{Job, Overrides, placed, placed_any};

#[derive(Debug, Args)]
pub(super) struct PlanArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The collectives of a step, how each is carried out, and in how many orders it adds
    Show(ShowArgs),
    /// Which collectives and elements add in another order elsewhere, and why: exit code 1 if any
    Diff(DiffArgs),
    /// The least settings that leave one plan for every collective, found by trying all
    Pin(pin::PinArgs),
    /// Which plan a real collective had, by its inputs and results: exit code 6 if several are left
    Identify(identify::IdentifyArgs),
    /// Whether captured values come out the same on two topologies: exit code 1 if not
    Test(test::TestArgs),
    /// Writes inputs whose results tell in which order a collective adds, and a script to run it
    Probe(probe::ProbeArgs),
    /// One hash of all plans, for a pipeline to compare
    Hash(HashArgs),
}

/// A library whose orders are known.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Library {
    Nccl,
    Gloo,
    OpenMpi,
}

impl From<Library> for Backend {
    fn from(library: Library) -> Backend {
        match library {
            Library::Nccl => Backend::Nccl,
            Library::Gloo => Backend::Gloo,
            Library::OpenMpi => Backend::OpenMpi,
        }
    }
}

/// A job, and how it is read.
#[derive(Debug, Args)]
struct GivenJob {
    /// A recipe, a scenario, or a configuration of Megatron-LM
    #[arg(value_name = "RECIPE", required_unless_present = "collectives")]
    recipe: Option<PathBuf>,
    /// Collectives as a list in JSON, or a dump of PyTorch's flight recorder as JSON
    #[arg(long, value_name = "FILE", conflicts_with_all = ["recipe", "set", "world", "grow_dp",
        "phase"])]
    collectives: Option<PathBuf>,
    /// A variable of the environment of listed collectives (may be repeated)
    #[arg(long, value_name = "NAME=VALUE", requires = "collectives")]
    both_env: Vec<String>,
    /// Change a key of the recipe, such as recipe.hidden_size=64 (may be repeated)
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    job: JobArgs,
    /// The library that carries the collectives out [default: the recipe's]
    #[arg(long, value_enum, value_name = "LIBRARY")]
    backend: Option<Library>,
    /// How plans are written to standard output
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    format: ObjectFormat,
}

#[derive(Debug, Args)]
struct ShowArgs {
    #[command(flatten)]
    given: GivenJob,
    /// Where the ranks run: an allocation, or a topology that is filled host by host
    #[arg(long, value_name = "FILE")]
    topology: PathBuf,
    /// Only this collective
    #[arg(long, value_name = "NAME")]
    collective: Option<String>,
    /// How this element of the collective is added, and on which GPUs
    #[arg(long, value_name = "I", requires = "collective")]
    element: Option<u64>,
}

#[derive(Debug, Args)]
struct DiffArgs {
    #[command(flatten)]
    given: GivenJob,
    /// Where the ranks run: one file twice, or one alone with `--env` or `--all-placements`
    #[arg(long, value_name = "FILE", required = true, num_args = 1)]
    topology: Vec<PathBuf>,
    /// A variable of the environment on the second side (may be repeated)
    #[arg(long, value_name = "NAME=VALUE")]
    env: Vec<String>,
    #[command(flatten)]
    placements: placements::PlacementArgs,
}

#[derive(Debug, Args)]
struct HashArgs {
    #[command(flatten)]
    given: GivenJob,
    /// Where the ranks run: an allocation, or a topology that is filled host by host
    #[arg(long, value_name = "FILE")]
    topology: PathBuf,
}

pub(super) fn run(args: &PlanArgs) -> Exit {
    match &args.what {
        What::Show(args) => told(&args.given, show(args)),
        What::Diff(args) => told(&args.given, diff(args)),
        What::Pin(args) => told(&args.given, pin::run(args)),
        What::Hash(args) => told(&args.given, hash(args)),
        What::Identify(args) => identify::run(args),
        What::Probe(args) => probe::run(args),
        What::Test(args) => test::run(args),
    }
}

fn told(given: &GivenJob, done: Result<Exit, Vec<Diagnostic>>) -> Exit {
    done.unwrap_or_else(|found| refused(given.format, &given.name(), &found))
}

/// Says what is wrong with the input.
fn refused(format: ObjectFormat, file: &str, found: &[Diagnostic]) -> Exit {
    match format {
        ObjectFormat::Human => warn(found),
        ObjectFormat::Json => {
            let findings: Vec<_> = found.iter().map(Diagnostic::to_json).collect();
            if !output::write_json(&json!({ "file": file, "findings": findings })) {
                return Exit::Internal;
            }
        }
    }
    Exit::Usage
}

/// What plans are asked for: a job, or collectives that were listed.
enum Subject {
    Job(Box<Recipe>),
    List(Listed),
}

impl Subject {
    /// With other variables in its environment.
    fn changed(&self, env: &[String]) -> Result<Subject, Vec<Diagnostic>> {
        let variables = variables(env)?;
        Ok(match self {
            Subject::Job(recipe) => {
                let mut recipe = recipe.clone();
                recipe.env.extend(variables);
                Subject::Job(recipe)
            }
            Subject::List(list) => {
                let mut list = list.clone();
                list.facts.env.extend(variables);
                Subject::List(list)
            }
        })
    }

    fn plans(&self, given: &GivenJob, topology: &Path) -> Result<JobPlans, Vec<Diagnostic>> {
        let library = given.backend.map(Backend::from);
        let allocation = match self {
            Subject::Job(recipe) => placed(topology, recipe)?,
            Subject::List(list) => placed_any(topology, list.world)?,
        };
        let name = allocation.name.clone();
        let found = match (self, library) {
            (Subject::Job(recipe), Some(library)) => JobPlans::by(library, recipe, allocation),
            (Subject::Job(recipe), None) => JobPlans::of(recipe, allocation),
            (Subject::List(list), library) => JobPlans::of_list(
                library.unwrap_or(Backend::Nccl),
                &list.facts,
                list.communicators.clone(),
                list.collectives.clone(),
                allocation,
            ),
        };
        found.map_err(|error| no_plan(given, &format!("{error} (on {name})")))
    }
}

impl GivenJob {
    /// What plans are asked for; its warnings are told.
    fn subject(&self) -> Result<Subject, Vec<Diagnostic>> {
        let Some(path) = &self.collectives else {
            return Ok(Subject::Job(Box::new(self.recipe()?)));
        };
        let mut list = Listed::read(path).map_err(|finding| vec![*finding])?;
        list.facts.env.extend(variables(&self.both_env)?);
        Ok(Subject::List(list))
    }

    /// The job; its warnings are told.
    fn recipe(&self) -> Result<Recipe, Vec<Diagnostic>> {
        let Some(path) = &self.recipe else {
            let message = "what pins plans is asked of a recipe, not of a list of collectives";
            return Err(vec![Diagnostic::error("usage", message)]);
        };
        let overrides = Overrides {
            set: self.set.clone(),
            world: self.job.world,
            grow_dp: self.job.grow_dp,
            phase: self.job.phase.clone(),
            ..Overrides::default()
        };
        let job = Job::load(path, &overrides)?;
        warn(&job.warnings);
        Ok(job.recipe)
    }

    fn name(&self) -> String {
        let path = self.recipe.as_ref().or(self.collectives.as_ref());
        path.map_or(String::new(), |path| path.display().to_string())
    }

    fn is_json(&self) -> bool {
        self.format == ObjectFormat::Json
    }
}

fn no_plan(given: &GivenJob, message: &str) -> Vec<Diagnostic> {
    let file = Source::new(given.name(), "");
    let finding = Diagnostic::error("no-plan", message);
    vec![finding.at(&Place::new(&file, 0..0), "of this job")]
}

fn written(is_written: bool, exit: Exit) -> Result<Exit, Vec<Diagnostic>> {
    Ok(if is_written { exit } else { Exit::Internal })
}

fn show(args: &ShowArgs) -> Result<Exit, Vec<Diagnostic>> {
    let given = &args.given;
    let plans = given.subject()?.plans(given, &args.topology)?;
    let name = given.name();
    let named = NamedPlans {
        recipe: &name,
        plans: &plans,
        changes: &[],
    };
    let only = args.collective.as_deref();
    if let Some(only) = only.filter(|only| plans.find(only).is_none()) {
        return Err(vec![no_such_collective(only, &plans)]);
    }
    let asked = only.and_then(|only| plans.find(only)).zip(args.element);
    let expressions = match asked {
        Some((one, element)) => Some(expressions(&named, one, element)?),
        None => None,
    };
    if given.is_json() {
        let mut object = named.to_json(only);
        if let Some(expressions) = expressions {
            object["element"] = json!({ "element": args.element, "expressions": expressions });
        }
        return written(output::write_json(&object), Exit::Proved);
    }
    let mut text = named.to_human(only);
    for expression in expressions.iter().flatten() {
        text.push('\n');
        text.push_str(&expression.to_human());
    }
    written(output::write(&text), Exit::Proved)
}

/// How an element that the collective has is added.
fn expressions(
    named: &NamedPlans<'_>,
    one: &CollectivePlans,
    element: u64,
) -> Result<Vec<Expression>, Vec<Diagnostic>> {
    let most = one.collective.elements;
    if element < most {
        return Ok(named.expressions(one, element));
    }
    let text = element.to_string();
    let asked = Source::new("--element", text.as_str());
    let name = &one.collective.name;
    let message = format!("`{name}` has no element {text}: expected 0 to {}", most - 1);
    let place = Place::new(&asked, 0..text.len());
    Err(vec![
        Diagnostic::error("out-of-range", message).at(&place, "asked for here"),
    ])
}

fn no_such_collective(name: &str, plans: &JobPlans) -> Diagnostic {
    let asked = Source::new("--collective", name);
    let names = plans.collectives.iter().map(|one| &*one.collective.name);
    let help = match nearest(name, names) {
        Some(near) => format!("did you mean `{near}`?"),
        None => "without `--collective` all are listed".to_string(),
    };
    let place = Place::new(&asked, 0..name.len());
    let message = format!("the job has no collective `{name}`");
    Diagnostic::error("no-such-collective", message)
        .at(&place, "not one of this job's")
        .with_help(help)
}

fn diff(args: &DiffArgs) -> Result<Exit, Vec<Diagnostic>> {
    let given = &args.given;
    if args.placements.all_placements {
        return match &args.topology[..] {
            [one] => placements::run(given, &args.placements, one),
            _ => {
                let message = "`--all-placements` looks at the machines of one `--topology`";
                Err(vec![Diagnostic::error("usage", message)])
            }
        };
    }
    let (first, second) = match &args.topology[..] {
        [one] if !args.env.is_empty() => (one, one),
        [first, second] => (first, second),
        _ => {
            let message = "two sides are compared: give `--topology` twice, or once with `--env`";
            return Err(vec![Diagnostic::error("usage", message)]);
        }
    };
    let subject = given.subject()?;
    let other = subject.changed(&args.env)?;
    let (a, b) = (subject.plans(given, first)?, other.plans(given, second)?);
    let name = given.name();
    let side = |plans, changes| NamedPlans {
        recipe: &name,
        plans,
        changes,
    };
    let (x, y) = (side(&a, &[]), side(&b, &args.env[..]));
    let found = differences(&a, &b);
    let unplaced =
        |error: crate::plan::PlanError| vec![Diagnostic::error("no-plan", error.to_string())];
    let exit = match found[..] {
        [] => Exit::Proved,
        _ => Exit::Divergent,
    };
    let is_written = match given.is_json() {
        true => output::write_json(&diff_to_json([&x, &y], &found).map_err(unplaced)?),
        false => output::write(&diff_to_human([&x, &y], &found).map_err(unplaced)?),
    };
    written(is_written, exit)
}

/// Variables that plans follow, of `NAME=VALUE`.
fn variables(env: &[String]) -> Result<Vec<(String, String)>, Vec<Diagnostic>> {
    let pair = |text: &String| {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        match text.contains('=') && SIMULATED.contains(&name) {
            true => Ok((name.to_string(), value.to_string())),
            false => Err(vec![no_such_variable(text, name)]),
        }
    };
    env.iter().map(pair).collect()
}

/// A variable of which no plan is made must not look as if it changed none.
fn no_such_variable(text: &str, name: &str) -> Diagnostic {
    let asked = Source::new("--env", text);
    let place = Place::new(&asked, 0..text.len());
    let message = match text.contains('=') {
        true => format!("what `{name}` does to plans is not known"),
        false => format!("`{text}` sets no variable: expected NAME=VALUE"),
    };
    let help = match nearest(name, SIMULATED) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("known are {}", SIMULATED.join(", ")),
    };
    Diagnostic::error("env-name", message)
        .at(&place, "given here")
        .with_help(help)
}

fn hash(args: &HashArgs) -> Result<Exit, Vec<Diagnostic>> {
    let given = &args.given;
    let plans = given.subject()?.plans(given, &args.topology)?;
    let hash = hex(&plans.hash());
    let is_written = match given.is_json() {
        true => output::write_json(&json!({
            "recipe": given.name(),
            "topology": plans.allocation().name,
            "basis": plans.basis(),
            "assumed": plans.assumed,
            "hash": hash,
        })),
        false => output::write(&format!("{hash}\n")),
    };
    written(is_written, Exit::Proved)
}
