//! `bitproof plan diff --all-placements`: which placements change plans, by class.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{GivenJob, Subject, no_plan, written};
use crate::cli::output;
use crate::cli::save::OutputArgs;
use crate::diagnostic::{Diagnostic, Place, Source};
use crate::plan::Backend;
use crate::prove::placements::{Class, Job, Survey, Witness, survey};
use crate::report::Exit;
use crate::report::placements::NamedSurvey;
use crate::scenario::{placed, placed_any};
use crate::topology::Allocation;

#[derive(Debug, Args)]
pub(super) struct PlacementArgs {
    /// What other placements on the machines of one topology change, by class
    #[arg(long, conflicts_with = "env")]
    pub all_placements: bool,
    /// Placements of each class that are tried at most
    #[arg(
        long,
        value_name = "N",
        requires = "all_placements",
        default_value_t = 200
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=100_000))]
    placements: u32,
    /// Write the smallest difference here, as a.toml and b.toml
    #[arg(long, value_name = "DIR", requires = "all_placements")]
    out: Option<PathBuf>,
    /// Replace the two files if they are there
    #[arg(long, requires = "out")]
    force: bool,
}

impl PlacementArgs {
    /// The files of a pair, in a folder that is there.
    fn files(&self) -> Option<[OutputArgs; 2]> {
        let folder = self.out.as_ref()?;
        Some(["a.toml", "b.toml"].map(|name| OutputArgs {
            output: Some(folder.join(name)),
            force: self.force,
        }))
    }
}

pub(super) fn run(
    given: &GivenJob,
    args: &PlacementArgs,
    topology: &Path,
) -> Result<Exit, Vec<Diagnostic>> {
    let files = args.files();
    for file in files.iter().flatten() {
        file.check(&[]).map_err(|error| unwritable(file, &error))?;
    }
    let subject = given.subject()?;
    let backend = given.backend.map(Backend::from);
    let refuse = |error: &dyn std::fmt::Display| no_plan(given, &error.to_string());
    let (job, base) = match &subject {
        Subject::Job(recipe) => (
            Job::of(recipe, backend).map_err(|error| refuse(&error))?,
            placed(topology, recipe)?,
        ),
        Subject::List(list) => (
            Job::of_list(list, backend),
            placed_any(topology, list.world)?,
        ),
    };
    if !base.recorded.is_empty() {
        return Err(vec![of_one_placement(topology)]);
    }
    let found = survey(&job, &base, args.placements as usize).map_err(|error| refuse(&error))?;
    let files = match (&found.smallest, &files) {
        (Some(witness), Some(files)) => Some(write_pair(&job, &base, witness, files)?),
        _ => None,
    };
    let name = given.name();
    let named = NamedSurvey {
        recipe: &name,
        survey: &found,
        files,
    };
    let is_written = match given.is_json() {
        true => output::write_json(&named.to_json()),
        false => output::write(&named.to_human()),
    };
    written(is_written, exit(&found))
}

/// As of a check: 1 where a placement changes a plan, 6 where it is only not known that none does.
fn exit(found: &Survey) -> Exit {
    if found.smallest.is_some() {
        Exit::Divergent
    } else if found.classes.iter().all(|class| class.is_derived()) {
        Exit::Proved
    } else {
        Exit::BelowRequired
    }
}

fn of_one_placement(topology: &Path) -> Diagnostic {
    let file = Source::new(topology.display().to_string(), "");
    let message = "its communicators were recorded, which tells of one placement alone";
    Diagnostic::error("recorded", message)
        .at(&Place::new(&file, 0..0), "of this topology")
        .with_help("leave its `[[communicators]]` out, or compare two records: `plan diff`")
}

fn unwritable(file: &OutputArgs, error: &std::io::Error) -> Vec<Diagnostic> {
    let path = file.output.as_deref().unwrap_or(Path::new("")).display();
    let message = format!("cannot write `{path}`: {error}");
    vec![Diagnostic::error("unwritable", message)]
}

/// The two placements as files, read back and compared before they are written.
fn write_pair(
    job: &Job,
    base: &Allocation,
    witness: &Witness,
    files: &[OutputArgs; 2],
) -> Result<[String; 2], Vec<Diagnostic>> {
    let own = format!("{}: as it was given", base.name);
    let said = format!("{}: {}", base.name, witness.class.about());
    let mut other = witness.allocation.clone();
    other.name = format!("{}, {}", base.name, witness.class.name());
    let mut notes = vec![said];
    if witness.class == Class::LostNic {
        notes.extend(
            witness
                .class
                .rests_on(base)
                .map(|why| format!("Taken for granted: {why}")),
        );
    }
    let texts = [base.to_toml(&[own]), other.to_toml(&notes)];
    let hash = |text: &String| {
        let allocation = Allocation::from_toml(text).map_err(|error| error.to_string())?;
        let plans = job.on(allocation).map_err(|error| error.to_string())?;
        Ok::<_, String>(plans.hash())
    };
    let broken = |why: String| {
        let message = format!("the pair cannot be told by two files: {why}");
        vec![Diagnostic::error("no-pair", message)]
    };
    let hashes = [hash(&texts[0]), hash(&texts[1])].map(|one| one.map_err(broken));
    let [a, b] = hashes;
    if a? == b? {
        return Err(broken("read back, both have the same plans".into()));
    }
    for (file, text) in files.iter().zip(&texts) {
        let folder = file.output.as_deref().and_then(Path::parent);
        let made = folder.map_or(Ok(()), std::fs::create_dir_all);
        let done = made.and_then(|()| file.write(text));
        done.map_err(|error| unwritable(file, &error))?;
    }
    Ok([0, 1].map(|side: usize| {
        let path = files[side].output.as_deref().unwrap_or(Path::new(""));
        path.display().to_string()
    }))
}
