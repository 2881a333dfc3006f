//! Regression files: a failed scenario with its token, kept and replayed first next time.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::output::talk;
use super::prover;
use crate::prove::{CheckOptions, Progress, Token};
use crate::scenario::{Data, Grade, Scenario, find_by_hash};

/// Where regression files live, beside the working directory. Meant to be committed.
pub(super) const FOLDER: &str = ".bitproof/regressions";

/// First line of a regression file, before its token.
const HEADER: &str = "# bitproof replay ";

/// Writes the scenario, whole in one file, under a name that its token decides. Written aside and
/// renamed: a reader sees all of it or nothing.
pub(super) fn save(scenario: &Scenario, token: &str) -> std::io::Result<PathBuf> {
    save_in(Path::new(FOLDER), scenario, token)
}

fn save_in(folder: &Path, scenario: &Scenario, token: &str) -> std::io::Result<PathBuf> {
    std::fs::create_dir_all(folder)?;
    let name: String = scenario.name.chars().map(plain_or_dash).take(64).collect();
    let path = folder.join(format!("{name}-{token}.toml"));
    let aside = folder.join(format!("{name}-{token}.toml.{}", std::process::id()));
    let written = std::fs::File::create(&aside).and_then(|mut file| {
        let (about, body) = (about_data(scenario), scenario.to_toml(folder));
        file.write_all(format!("{HEADER}{token}\n{about}{body}").as_bytes())?;
        file.sync_all()
    });
    let renamed = written.and_then(|()| std::fs::rename(&aside, &path));
    if renamed.is_err() {
        // The first error is the one to tell.
        let _ = std::fs::remove_file(&aside);
    }
    renamed.map(|()| path)
}

/// What a reader of the file must know who has it on another machine.
fn about_data(scenario: &Scenario) -> &'static str {
    match scenario.data {
        Data::BuiltIn => "",
        Data::File { .. } => {
            "# `data` is relative to this file where it lies in the working directory, else \
             absolute.\n"
        }
    }
}

fn plain_or_dash(c: char) -> char {
    if c.is_ascii_alphanumeric() { c } else { '-' }
}

/// Replays what this very scenario is known to fail on, and tells on standard error whether it
/// still does. The check that follows finds it anyway; this is the quick answer.
pub(super) fn replay_first(scenario: &Scenario, options: &CheckOptions, progress: &dyn Progress) {
    let Some(token) = known(Path::new(FOLDER), scenario) else {
        return;
    };
    let line = token.encode();
    match prover::replay(scenario.clone(), &token, options, progress) {
        // A resumed run that differs has no witness: the grade decides.
        Ok(outcome) if outcome.grade() > Grade::Vacuous => {
            talk(&format!(
                "known regression still differs: bitproof replay {line}"
            ));
        }
        Ok(_) => talk(&format!("known regression no longer differs: {line}")),
        Err(error) => talk(&format!("known regression was not replayed: {error}")),
    }
}

/// The token of the first regression file with the scenario's content.
fn known(folder: &Path, scenario: &Scenario) -> Option<Token> {
    let found = find_by_hash(&[folder], &scenario.content_hash(), &Default::default());
    let (path, _) = found.scenario?;
    let text = std::fs::read_to_string(path).ok()?;
    Token::decode(text.lines().next()?.strip_prefix(HEADER)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Overrides;

    fn shipped(set: &str) -> Scenario {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/any-allocation.toml");
        let overrides = Overrides {
            set: vec![set.into()],
            ..Overrides::default()
        };
        Scenario::load(&path, &overrides)
            .expect("a shipped scenario")
            .scenario
    }

    #[test]
    fn a_saved_regression_is_known_to_its_scenario_only() {
        let folder = tempfile::tempdir().unwrap();
        let token = "040G40R40M30E209000G23XC096KDR93";
        let scenario = shipped("steps=2");
        let path = save_in(folder.path(), &scenario, token).unwrap();
        assert!(path.ends_with(format!("any-allocation-{token}.toml")));
        assert_eq!(known(folder.path(), &scenario), Token::decode(token).ok());
        assert_eq!(known(folder.path(), &shipped("steps=3")), None);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
