//! Which kind of file this is, and reading it.

use std::ops::Range;
use std::path::Path;

use super::{GivenJob, GivenKind, command_line, functional_test, log};
use crate::diagnostic::{Diagnostic, Findings, Place, Source};

/// Whether a file is one that [`GivenJob::read`] reads, rather than a scenario or recipe of ours.
pub fn is_megatron(source: &Source) -> bool {
    kind_of(source).is_some()
}

/// The kind of a text: by the ending of its name where that decides, else by what stands in it.
pub fn kind_of(source: &Source) -> Option<GivenKind> {
    let name = source.name.to_ascii_lowercase();
    if name.ends_with(".toml") {
        return None;
    }
    // Any of these may hold a job's whole log, in a comment or in a here-document.
    if command_line::is_script(source) || command_line::is_list(source) {
        return Some(GivenKind::CommandLine);
    }
    if name.ends_with(".yaml") || name.ends_with(".yml") {
        return Some(GivenKind::FunctionalTest);
    }
    if log::has_block(source) {
        return Some(GivenKind::ArgumentDump);
    }
    let text = source.text.trim_start_matches('\u{feff}');
    if text.lines().any(functional_test::is_entry) {
        return Some(GivenKind::FunctionalTest);
    }
    command_line::is_command_line(source).then_some(GivenKind::CommandLine)
}

/// Endings of names that say that a file is a job's output: it may show commands that were run.
const LOGS: [&str; 3] = [".log", ".out", ".err"];

/// That a text has a block of arguments, and beside it what makes a job of another kind of file:
/// which of the two it is was never said.
fn of_two_kinds(source: &Source) -> Option<Diagnostic> {
    let name = source.name.to_ascii_lowercase();
    if LOGS.iter().any(|ending| name.ends_with(ending)) {
        return None;
    }
    let is_other = |span: &Range<usize>| {
        let line = &source.text[span.clone()];
        functional_test::is_entry(line) || command_line::is_command(line)
    };
    let other = log::beside_blocks(source).into_iter().find(is_other)?;
    let message = "this is a job's log, and a script, a list or a test as well";
    Some(
        Diagnostic::error("two-kinds", message)
            .at(&Place::new(source, other), "no line of a log's block")
            .with_note("the block may be of another job than the one that the rest describes")
            .with_help(
                "a log: give its lines from `arguments` to `end of arguments` alone, or name it \
                 `.log`",
            )
            .with_help(
                "a script, list or functional test: name it `.sh`, `.args` or `.yaml`, and put \
                 the block in a comment",
            ),
    )
}

impl GivenJob {
    /// Reads a file of any kind. `path` is where it lies: a functional test has its name from its
    /// folder. `None` if anything is wrong; `findings` then says what and where.
    pub fn read(source: &Source, path: &Path, findings: &mut Findings) -> Option<GivenJob> {
        let errors_before = findings.error_count();
        if let Some(offset) = source.text.find('\0') {
            findings.push(
                Diagnostic::error("nul-byte", "there is a NUL byte in the text").at(
                    &Place::new(source, offset..offset + 1),
                    "this is no text file",
                ),
            );
            return None;
        }
        let job = match kind_of(source) {
            Some(GivenKind::FunctionalTest) => functional_test::read(source, path, findings),
            Some(GivenKind::ArgumentDump) => match of_two_kinds(source) {
                Some(finding) => {
                    findings.push(finding);
                    None
                }
                None => log::read(source, findings),
            },
            Some(GivenKind::CommandLine) => command_line::read(source, findings),
            None => {
                let whole = Place::new(source, 0..source.text.len());
                findings.push(
                    Diagnostic::error("not-megatron", "this is no configuration of Megatron-LM")
                        .at(&whole, "")
                        .with_note(
                            "read are: a functional test's model_config.yaml, a job log with the \
                             block of arguments that Megatron prints, a launch line or script",
                        ),
                );
                None
            }
        };
        let is_sound = findings.error_count() == errors_before;
        assert!(
            job.is_some() == is_sound,
            "a job exists if and only if there is no error"
        );
        assert!(job.as_ref().is_none_or(|job| !job.phases.is_empty()));
        job
    }
}

#[cfg(test)]
mod tests;
