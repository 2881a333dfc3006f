//! The one seam between the command line and the proofs.

use crate::prove::outcome::Outcome;
use crate::prove::session::CheckError;
use crate::prove::{CheckOptions, Progress, Token};
use crate::report::Exit;
use crate::scenario::Scenario;
use crate::world::WorldError;

/// What the command line decides about a run, and results do not depend on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub workers: usize,
}

impl From<Settings> for CheckOptions {
    fn from(settings: Settings) -> CheckOptions {
        CheckOptions {
            workers: settings.workers,
        }
    }
}

/// Checks a scenario.
pub(super) fn check(
    scenario: Scenario,
    settings: Settings,
    progress: &dyn Progress,
) -> Result<Outcome, CheckError> {
    crate::prove::check(scenario, settings.into(), progress)
}

/// Reproduces the difference that `token` names.
pub(super) fn replay(
    scenario: Scenario,
    token: &Token,
    settings: Settings,
    progress: &dyn Progress,
) -> Result<Outcome, CheckError> {
    crate::prove::replay(scenario, token, settings.into(), progress)
}

/// How `bitproof` ends when a check could not be carried out.
pub(super) fn exit_of(error: &CheckError) -> Exit {
    match error {
        CheckError::Environment(_)
        | CheckError::Options(_)
        | CheckError::Corpus(_)
        | CheckError::Checkpoint(_)
        | CheckError::Input(_) => Exit::Usage,
        CheckError::World(error) => match error {
            WorldError::CollectiveMismatch { .. } | WorldError::Deadlock { .. } => Exit::Divergent,
            WorldError::NoPlan { .. } => Exit::Usage,
            _ => Exit::Internal,
        },
        CheckError::Kernel(_) | CheckError::Engine(_) | CheckError::Internal(_) => Exit::Internal,
    }
}
