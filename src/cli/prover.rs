//! The one seam between the command line and the proofs.

use std::path::Path;

use crate::diagnostic::Diagnostic;
use crate::engine::{EngineChoice, EngineError, MORE_THREADS};
use crate::prove::check::RecordingEnd;
use crate::prove::faults::FaultPlace;
use crate::prove::likeness::Likeness;
use crate::prove::outcome::Outcome;
use crate::prove::session::CheckError;
use crate::prove::{CheckOptions, Progress, Token, TokenError, TraceRequest};
use crate::report::Exit;
use crate::report::doctor::{DRIVER_VARIABLES, Variable, unset_command};
use crate::scenario::Scenario;
use crate::trace::symptom::Symptom;
use crate::world::WorldError;

/// Checks a scenario, and records its reference run where that is asked for.
pub(super) fn check(
    scenario: Scenario,
    options: &CheckOptions,
    asked: Option<&TraceRequest>,
    progress: &dyn Progress,
) -> Result<(Outcome, Option<RecordingEnd>), CheckError> {
    crate::prove::check_recorded(scenario, options.clone(), asked, progress)
}

/// Which sums of the scenario explain a real trace's symptom.
pub(super) fn explain(
    scenario: &Scenario,
    options: &CheckOptions,
    folder: &str,
    symptom: &Symptom,
) -> Result<Likeness, CheckError> {
    crate::prove::likeness::explain(scenario, options, folder, symptom)
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

/// Reproduces the first difference of `tokens` that this engine can, and says which.
pub(super) fn replay_any(
    scenario: Scenario,
    tokens: &[Token],
    options: &CheckOptions,
    progress: &dyn Progress,
) -> Result<(Token, Outcome), CheckError> {
    crate::prove::replay_any(scenario, tokens, options.clone(), progress)
}

/// What is shown where a check of `name` could not be carried out.
pub(super) fn finding_of(
    error: &CheckError,
    engine: &EngineChoice,
    code: &'static str,
    name: Option<&str>,
) -> Diagnostic {
    if let CheckError::TooLarge(finding) = error {
        return finding.as_ref().clone();
    }
    let message = match name {
        Some(name) => format!("{name}: {error}"),
        None => error.to_string(),
    };
    let mut finding = Diagnostic::error(code, message);
    if let CheckError::Engine(EngineError::NoAdapter { .. }) = error
        && let Some(unset) = unset_command(&driver_variables())
    {
        finding = finding.with_help(format!(
            "`{unset}` first: it decides which drivers are seen"
        ));
    }
    match help_of(error, engine) {
        Some(help) => finding.with_help(help),
        None => finding,
    }
}

/// The variables that are set and decide which drivers are seen.
pub(super) fn driver_variables() -> Vec<Variable> {
    let set = DRIVER_VARIABLES.iter().filter_map(|name| {
        let value = std::env::var_os(name)?.to_string_lossy().into_owned();
        Some(Variable::new(name, value, |file| Path::new(file).exists()))
    });
    set.collect()
}

/// What to do next where a check could not be carried out, if there is more to say than the error.
fn help_of(error: &CheckError, engine: &EngineChoice) -> Option<&'static str> {
    match error {
        CheckError::Engine(source) | CheckError::World(WorldError::Engine { source, .. }) => {
            Some(source.help(engine))
        }
        CheckError::World(WorldError::Thread { .. }) => Some(MORE_THREADS),
        CheckError::Token(TokenError::OtherBuild { .. }) => Some(
            "repeat the --engine and --adapter of the check, on its machine; a token of another \
             version of bitproof cannot be replayed: check again",
        ),
        CheckError::Recording(error) => Some(error.help()),
        CheckError::UnmetFaults(_) => {
            Some("`bitproof check FILE --list-faults` lists every place that a fault can strike")
        }
        _ => None,
    }
}

/// What the machine, or its adapter, has too little of.
fn is_shortage(error: &EngineError) -> bool {
    matches!(
        error,
        EngineError::Limits { .. }
            | EngineError::CutShort { .. }
            | EngineError::OutOfMemory { .. }
            | EngineError::CodeMemory { .. }
            | EngineError::DriverMemory { .. }
            | EngineError::Threads { .. }
    )
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
        | CheckError::Recording(_)
        | CheckError::Input(_) => Exit::Usage,
        CheckError::World(error) => match error {
            WorldError::CollectiveMismatch { .. } | WorldError::Deadlock { .. } => Exit::Divergent,
            WorldError::NoPlan { .. } => Exit::Usage,
            WorldError::Engine { source, .. } if is_shortage(source) => Exit::NothingChecked,
            WorldError::Thread { .. } => Exit::NothingChecked,
            _ => Exit::Internal,
        },
        CheckError::Stopped(_) => Exit::Divergent,
        CheckError::Engine(EngineError::NoAdapter { .. }) | CheckError::TooLarge(_) => {
            Exit::NothingChecked
        }
        CheckError::Engine(error) if is_shortage(error) => Exit::NothingChecked,
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
        let help = help_of(&other, &EngineChoice::Cpu).expect("a help");
        assert!(help.contains("--engine") && help.contains("--adapter"));
        assert_eq!(exit_of(&other), Exit::Usage);
    }
    #[test]
    fn too_little_memory_is_nothing_checked_with_its_own_help() {
        let finding = Diagnostic::error("too-large-for-adapter", "no").with_help("another way");
        let large = CheckError::TooLarge(Box::new(finding));
        let wgpu = EngineChoice::Wgpu { adapter: None };
        let shown = finding_of(&large, &wgpu, "not-checked", Some("a"));
        assert_eq!((shown.code, shown.help.len()), ("too-large-for-adapter", 1));
        assert_eq!(exit_of(&large), Exit::NothingChecked);
        let (words, reason) = (1, String::new());
        let out = CheckError::Engine(EngineError::OutOfMemory { words, reason });
        let shown = finding_of(&out, &wgpu, "not-checked", Some("a"));
        assert!(shown.message.starts_with("a: ") && shown.help[0].contains("--engine cpu"));
        assert_eq!(exit_of(&out), Exit::NothingChecked);
    }

    /// An adapter's limits, and what its driver does not get, are no faults of bitproof.
    #[test]
    fn what_an_adapter_cannot_do_is_nothing_checked() {
        let kernel = || "fold".to_owned();
        let reason = String::new;
        let errors = || {
            [
                EngineError::CutShort {
                    kernel: kernel(),
                    at: crate::engine::Ran { run: 0, launch: 0 },
                },
                EngineError::Limits {
                    kernel: kernel(),
                    reason: reason(),
                },
                EngineError::DriverMemory { reason: reason() },
                EngineError::Threads { reason: reason() },
            ]
        };
        for source in errors() {
            assert_eq!(exit_of(&CheckError::Engine(source)), Exit::NothingChecked);
        }
        let failed = EngineError::Device { reason: reason() };
        assert_eq!(exit_of(&CheckError::Engine(failed)), Exit::Internal);
    }

    /// The cpu engine has no driver, and no other engine to go to.
    #[test]
    fn help_fits_the_engine() {
        let kernel = || "fold".to_owned();
        let reason = || "why".to_owned();
        let all = [
            EngineError::Compile {
                kernel: kernel(),
                reason: reason(),
            },
            EngineError::CodeMemory {
                kernel: kernel(),
                reason: reason(),
            },
            EngineError::OutOfMemory {
                words: 1,
                reason: reason(),
            },
            EngineError::Machine { reason: reason() },
            EngineError::Threads { reason: reason() },
            EngineError::Unsupported {
                kernel: kernel(),
                reason: reason(),
            },
        ];
        for error in all {
            let help = error.help(&EngineChoice::Cpu);
            assert!(
                !help.contains("driver") && !help.contains("--engine cpu"),
                "{error}: {help}"
            );
        }
        let reason = reason();
        let unsupported = CheckError::Engine(EngineError::Unsupported {
            kernel: kernel(),
            reason,
        });
        let wgpu = EngineChoice::Wgpu { adapter: None };
        assert!(help_of(&unsupported, &wgpu).is_some_and(|help| help.contains("driver")));
        let reason = "no more".to_owned();
        let rank = CheckError::World(WorldError::Thread { rank: 3, reason });
        assert!(help_of(&rank, &wgpu).is_some_and(|help| help.contains("ulimit -u")));
        assert_eq!(exit_of(&rank), Exit::NothingChecked);
    }
}
