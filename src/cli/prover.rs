//! The one seam between the command line and the proofs.

use crate::engine::EngineError;
use crate::prove::faults::FaultPlace;
use crate::prove::outcome::Outcome;
use crate::prove::session::CheckError;
use crate::prove::{CheckOptions, Progress, Token, TokenError};
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

/// Every place that a fault can strike.
pub(super) fn fault_places(
    scenario: Scenario,
    options: &CheckOptions,
) -> Result<Vec<FaultPlace>, CheckError> {
    crate::prove::faults::places(scenario, options)
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
        CheckError::Token(TokenError::OtherBuild { .. }) => Some(
            "repeat the --engine and --adapter of the check, on its machine; a token of another \
             version of bitproof cannot be replayed: check again",
        ),
        CheckError::UnmetFaults(_) => {
            Some("`bitproof check FILE --list-faults` lists every place that a fault can strike")
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
        | CheckError::Token(_)
        | CheckError::UnmetFaults(_)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_another_engine_is_told_how_to_choose_it() {
        let [token, here] = ["01", "02"].map(str::to_owned);
        let other = CheckError::Token(TokenError::OtherBuild { token, here });
        let help = help_of(&other).expect("a help");
        assert!(help.contains("--engine") && help.contains("--adapter"));
        assert_eq!(exit_of(&other), Exit::Usage);
    }
}
