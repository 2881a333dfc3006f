//! Regression files: a failed scenario with its token, kept and replayed first next time.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use super::output::talk;
use super::{check, prover};
use crate::prove::{CheckOptions, Progress, Token};
use crate::report::replay_line;
use crate::scenario::{Data, Grade, Scenario, toml_files};

/// Where regression files live, beside the working directory. Meant to be committed.
pub(super) const FOLDER: &str = ".bitproof/regressions";

/// First line of a regression file, before its token: the line to paste, as a comment.
const HEADER: &str = "# bitproof replay ";
/// What comes before that line.
const COMMENT: &str = "# ";
/// Bytes of a first line that are looked at: a token stands early in it.
const LINE_MAX: u64 = 256;

/// Writes the scenario, whole in one file, under a name that its token decides. Written aside and
/// renamed: a reader sees all of it or nothing.
/// `line` replays the token.
pub(super) fn save(scenario: &Scenario, token: &str, line: &str) -> std::io::Result<PathBuf> {
    save_in(Path::new(FOLDER), scenario, token, line)
}

fn save_in(
    folder: &Path,
    scenario: &Scenario,
    token: &str,
    line: &str,
) -> std::io::Result<PathBuf> {
    assert!(format!("{COMMENT}{line}").starts_with(HEADER) && !line.contains('\n'));
    std::fs::create_dir_all(folder)?;
    let name: String = scenario.name.chars().map(plain_or_dash).take(64).collect();
    let path = folder.join(format!("{name}-{token}.toml"));
    let aside = folder.join(format!("{name}-{token}.toml.{}", std::process::id()));
    let written = std::fs::File::create(&aside).and_then(|mut file| {
        let (about, body) = (about_data(scenario), scenario.to_toml(folder));
        file.write_all(format!("{COMMENT}{line}\n{about}{body}").as_bytes())?;
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
    let tokens = known(Path::new(FOLDER), scenario);
    if tokens.is_empty() {
        return;
    }
    let flags = check::engine_flags(&options.engine);
    let line = |token: &Token| replay_line(&token.encode(), &flags);
    match prover::replay_any(scenario.clone(), &tokens, options, progress) {
        // A resumed run that differs has no witness: the grade decides.
        Ok((token, outcome)) if outcome.grade() > Grade::Vacuous => {
            talk(&format!("known regression still differs: {}", line(&token)));
        }
        Ok((token, _)) => talk(&format!(
            "known regression no longer differs: {}",
            token.encode()
        )),
        Err(error) => talk(&format!("known regression was not replayed: {error}")),
    }
}

/// Tokens of the regression files that were written for the scenario, on whatever engine and by
/// whatever build, by file name.
fn known(folder: &Path, scenario: &Scenario) -> Vec<Token> {
    let hash = scenario.content_hash();
    let files = toml_files(folder);
    let tokens = files.iter().filter_map(|path| token_of(path));
    tokens
        .filter(|token| token.check_scenario(&hash).is_ok())
        .collect()
}

/// The token in a file's first line.
fn token_of(path: &Path) -> Option<Token> {
    // What is no file may never end.
    if !std::fs::metadata(path).ok()?.is_file() {
        return None;
    }
    let mut line = Vec::new();
    let file = std::fs::File::open(path).ok()?.take(LINE_MAX);
    BufReader::new(file).read_until(b'\n', &mut line).ok()?;
    let line = String::from_utf8_lossy(&line);
    let mut words = line.strip_prefix(HEADER)?.split_whitespace();
    Token::decode(words.next()?).ok()
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

    /// A token of the scenario, made by a build with this hash.
    fn token(scenario: &Scenario, build: u8) -> Token {
        let blank = Token::decode("040G40R40M30E209000G23XC096KDR93").expect("a token");
        let hash = scenario.content_hash();
        Token {
            scenario: std::array::from_fn(|place| hash[place]),
            build: [build; 4],
            ..blank
        }
    }

    #[test]
    fn a_saved_regression_is_known_to_its_scenario_only() {
        let folder = tempfile::tempdir().unwrap();
        let scenario = shipped("steps=2");
        let token = token(&scenario, 1);
        let (text, line) = (token.encode(), replay_line(&token.encode(), ""));
        let path = save_in(folder.path(), &scenario, &text, &line).unwrap();
        assert!(path.ends_with(format!("any-allocation-{text}.toml")));
        assert_eq!(known(folder.path(), &scenario), [token]);
        assert_eq!(known(folder.path(), &shipped("steps=3")), []);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn every_engine_s_regression_of_a_scenario_is_known() {
        let folder = tempfile::tempdir().unwrap();
        let scenario = shipped("steps=2");
        let tokens = [1, 2, 3].map(|build| token(&scenario, build));
        for (token, flags) in tokens.iter().zip(["", "--engine wgpu", ""]) {
            let text = token.encode();
            let line = replay_line(&text, flags);
            let path = save_in(folder.path(), &scenario, &text, &line).unwrap();
            let saved = std::fs::read_to_string(path).unwrap();
            assert_eq!(saved.lines().next(), Some(&*format!("# {line}")));
        }
        std::fs::write(folder.path().join("a.toml"), [0xff; 999]).unwrap();
        std::fs::create_dir(folder.path().join("b.toml")).unwrap();
        let mut found = known(folder.path(), &scenario);
        found.sort_by_key(|token| token.build);
        assert_eq!(found, tokens);
    }
}
