//! `bitproof plan pin`: the least settings that leave one plan for every collective.

use std::path::PathBuf;

use clap::Args;

use super::{GivenJob, no_plan, written};
use crate::cli::output;
use crate::diagnostic::Diagnostic;
use crate::prove::pin::{Judged, Pins, pins};
use crate::report::Exit;
use crate::report::pins::NamedPins;
use crate::scenario::placed;
use crate::topology::Allocation;

/// A list has no recipe whose keys could be set: its option is refused, and not offered.
#[derive(Debug, Args)]
#[command(
    mut_arg("collectives", |list| list.hide(true)),
    mut_arg("both_env", |variable| variable.hide(true))
)]
pub(super) struct PinArgs {
    #[command(flatten)]
    pub given: GivenJob,
    /// Where the ranks may run (may be repeated)
    #[arg(long, value_name = "FILE", required = true, num_args = 1)]
    topology: Vec<PathBuf>,
    /// Any rank may be on any GPU of the job, not only as the file has them; spare GPUs stay spare
    #[arg(long)]
    any_placement: bool,
}

pub(super) fn run(args: &PinArgs) -> Result<Exit, Vec<Diagnostic>> {
    let given = &args.given;
    let recipe = given.recipe()?;
    let allocations = args.topology.iter().map(|path| placed(path, &recipe));
    let allocations: Vec<Allocation> = allocations.collect::<Result<_, _>>()?;
    let backend = given.backend.map(Into::into);
    let found = pins(&recipe, backend, &allocations, args.any_placement);
    let found = found.map_err(|error| no_plan(given, &error.to_string()))?;
    let name = given.name();
    let named = NamedPins {
        recipe: &name,
        allocations: &allocations,
        any_placement: args.any_placement,
        pins: &found,
    };
    let is_written = match given.is_json() {
        true => output::write_json(&named.to_json()),
        false => output::write(&named.to_human()),
    };
    written(is_written, exit(&found))
}

/// As of a check: 1 where two plans are shown to be left, 6 where it is only not known that one is.
fn exit(pins: &Pins) -> Exit {
    let is_open = |judged: &Judged| matches!(judged, Judged::Open { .. });
    match &pins.left {
        None => Exit::Proved,
        Some((_, left)) if left.iter().any(|one| is_open(&one.judged)) => Exit::Divergent,
        Some(_) => Exit::BelowRequired,
    }
}
