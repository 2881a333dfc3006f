//! The one seam between the command line and the proofs.

use crate::engine::EngineError;
use crate::prove::outcome::Outcome;
use crate::prove::session::CheckError;
use crate::prove::{CheckOptions, Progress, Token};
use crate::report::Exit;
use crate::scenario::Scenario;
use crate::world::WorldError;

/// Checks a scenario.
pub(super) fn check(
    scenario: Scenario,
    options: &CheckOptions,
    progress: &dyn Progress,
) -> Result<Outcome, CheckError> {
    crate::prove::check(scenario, options.clone(), progress)
}

/// Reproduces the difference that `token` names.
pub(super) fn replay(
    scenario: Scenario,
    token: &Token,
    options: &CheckOptions,
    progress: &dyn Progress,
) -> Result<Outcome, CheckError> {
    crate::prove::replay(scenario, token, options.clone(), progress)
}

/// What to do next where a check could not be carried out, if there is more to say than the error.
pub(super) fn help_of(error: &CheckError) -> Option<&'static str> {
    match error {
        CheckError::Engine(source) | CheckError::World(WorldError::Engine { source, .. }) => {
            Some(source.help())
        }
        _ => None,
    }
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
            WorldError::Engine {
                source: EngineError::Limits { .. },
                ..
            } => Exit::NothingChecked,
            _ => Exit::Internal,
        },
        CheckError::Engine(EngineError::NoAdapter { .. } | EngineError::Limits { .. }) => {
            Exit::NothingChecked
        }
        CheckError::Kernel(_) | CheckError::Engine(_) | CheckError::Internal(_) => Exit::Internal,
    }
}
