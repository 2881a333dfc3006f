//! A launch line or script: `torchrun ... pretrain_gpt.py --flag value ...`.
//!
//! A script is followed as a shell runs it: comments, quotes, continuations, variables, arrays,
//! functions where they are called, shells of their own, up to its `exit`. Nothing is executed and
//! no file is opened. Branches are not decided: all are followed, and the result says where that
//! mattered.

mod arguments;
mod arithmetic;
mod branch;
mod builtin;
mod case;
mod chain;
mod declare;
mod doubt;
mod expand;
mod flow;
mod frame;
mod item;
mod kind;
mod launcher;
mod lexer;
mod parse;
mod plain;
mod program;
mod ranks;
mod script;
mod shell;
mod slurm;
mod start;
mod text;
mod word;
mod wrapper;

use std::ops::Range;

use super::{GivenArgument, GivenJob, GivenKind, GivenPhase, GivenVariable, SIMULATED};
use crate::diagnostic::{Diagnostic, Findings, Place, Source, escaped};
use crate::recipe::limits::{
    ENV_COUNT_MAX, LAUNCHES_MAX, PHASES_MAX, SCRIPT_CHARS_MAX, SCRIPT_DEPTH_MAX, SCRIPT_WORDS_MAX,
};
pub(super) use kind::{is_command, is_command_line, is_list, is_script};
use program::{Launch, base_name};
use script::{Script, ScriptError};
use shell::{Exported, Remark, Taken};
use text::Text;

pub(super) fn read(source: &Source, findings: &mut Findings) -> Option<GivenJob> {
    let errors_before = findings.error_count();
    if let Some(at) = source.text.find('\r') {
        findings.push(carriage_return(&Place::new(source, at..at + 1)));
        return None;
    }
    if let Err(line) = plain::check_shell(&source.text) {
        findings.push(other_shell(&Place::new(source, line)));
        return None;
    }
    let text = Text::of_file(&source.text);
    let preset = slurm::variables(&text);
    let script = match Script::read(&text, &preset) {
        Ok(script) => script,
        Err(error) => {
            findings.push(refusal(source, &error));
            return None;
        }
    };
    let reader = Reader { source, preset };
    let job = reader.job(script, findings);
    (findings.error_count() == errors_before).then_some(job)
}

fn carriage_return(place: &Place) -> Diagnostic {
    Diagnostic::error("carriage-return", "this script has carriage returns (CRLF)")
        .at(place, "to a shell it is part of the word before it")
        .with_help("take them out: `sed -i 's/\\r$//' FILE`")
}

fn other_shell(place: &Place) -> Diagnostic {
    Diagnostic::error("other-shell", "what runs this script is not followed")
        .at(place, "expected `#!/bin/bash`, or none")
        .with_note("another shell, or an option of one, makes other commands of the same words")
        .with_help("pass the job's log")
}

/// Beginnings of the names of its others, at the root of Megatron-LM and in its `examples`.
const OTHER_PROGRAMS: [&str; 10] = [
    "pretrain_bert",
    "pretrain_t5",
    "pretrain_mamba",
    "pretrain_hybrid",
    "pretrain_ict",
    "pretrain_vision",
    "pretrain_vlm",
    "pretrain_retro",
    "pretrain_biencoder",
    "train_rl",
];

fn refusal(source: &Source, error: &ScriptError) -> Diagnostic {
    let at = |span: &Range<usize>| Place::new(source, span.clone());
    match error {
        ScriptError::Lex(error) => {
            Diagnostic::error("shell-syntax", "this is no shell script that can be read")
                .at(&at(&error.span()), error.message.clone())
        }
        ScriptError::TooLong(span) => {
            let message = "the variables of this script grow without end";
            Diagnostic::error("shell-size", message)
                .at(&at(span), "the limit is reached here")
                .with_note(format!(
                    "at most {SCRIPT_WORDS_MAX} words and {SCRIPT_CHARS_MAX} characters are made \
                     of variables"
                ))
        }
        ScriptError::TooMany(span) => {
            let message = format!("there are more than {LAUNCHES_MAX} launches");
            Diagnostic::error("too-many", message).at(&at(span), "one too many")
        }
        ScriptError::NotFollowed(span) => {
            let message = "what this does to the script is not followed";
            Diagnostic::error("not-followed", message)
                .at(&at(span), "anything behind it may hang on this")
                .with_help("pass the line that `bash -x` prints, or the job's log")
        }
        ScriptError::TooDeep(span) => {
            let message = "commands run commands without end";
            Diagnostic::error("shell-depth", message)
                .at(&at(span), "this one is not followed")
                .with_note(format!(
                    "followed are functions, `eval` and `sh -c` up to {SCRIPT_DEPTH_MAX} deep"
                ))
        }
    }
}

/// A variable from which bits may follow, and whose value is not known.
fn is_open(exported: &Exported) -> bool {
    exported.value.contains(['$', '`']) && doubt::decides_bits(&exported.name)
}

/// Places that a loop comes to again are one.
fn unlike(spans: &[Range<usize>]) -> impl Iterator<Item = &Range<usize>> {
    let is_first = |(index, span): &(usize, &Range<usize>)| !spans[..*index].contains(span);
    let firsts = spans.iter().enumerate().filter(is_first);
    firsts.map(|(_, span)| span)
}

struct Reader<'a> {
    source: &'a Source,
    /// What Slurm sets.
    preset: Vec<(Text, Text)>,
}

impl Reader<'_> {
    fn job(&self, mut script: Script, findings: &mut Findings) -> GivenJob {
        self.warn_of_script(&script, findings);
        if script.launches.is_empty() && !script.bare.is_empty() {
            // A list of arguments, unless a shell is to run it.
            if self.source.text.trim_start().starts_with("#!") {
                findings.push(self.stray(&script.bare[0]));
            }
            let environment = script.environment();
            script.launches.push(Launch {
                program: None,
                before: Vec::new(),
                arguments: std::mem::take(&mut script.bare),
                environment,
                reads: script.shell.lost.clone(),
                remarks: std::mem::take(&mut script.bare_remarks),
                condition: None,
            });
        }
        let mut programs = script.launches.iter().filter_map(|l| l.program.as_ref());
        if let (Some(flag), Some(_)) = (script.bare.first(), programs.next()) {
            findings.push(self.stray(flag));
        }
        let launches = self.training(&script, findings);
        self.warn_of_several(&launches, findings);
        let mut phases: Vec<GivenPhase> = Vec::new();
        for launch in &launches {
            let is_only = launches.len() == 1;
            phases.push(self.phase(launch, phases.len(), is_only, findings));
        }
        // Of several launches, each has its own.
        let env = match launches[..] {
            [launch] => self.environment(launch, findings),
            _ => Vec::new(),
        };
        GivenJob {
            kind: GivenKind::CommandLine,
            phases,
            env,
            test_type: None,
            mode: None,
            launcher: None,
            case: None,
            model: None,
        }
    }

    fn stray(&self, flag: &Text) -> Diagnostic {
        Diagnostic::error("stray-flags", "these flags belong to no command")
            .at(&self.place(&flag.span()), "a shell runs this as a command")
            .with_help("is the line before it continued, and no comment between?")
    }

    fn warn_of_script(&self, script: &Script, findings: &mut Findings) {
        if let Some((_, at)) = script.broken_continuations.first() {
            let place = self.place(&(*at as usize..*at as usize + 1));
            findings.push(
                Diagnostic::error("broken-continuation", "this line is not continued")
                    .at(&place, "blanks follow the backslash")
                    .with_help("end the line with the backslash"),
            );
        }
        for span in unlike(&script.unread) {
            findings.push(
                Diagnostic::warning("not-read", "what this launches is not known here").at(
                    &self.place(span),
                    "no word ends in `.py`, and none follows `-m`",
                ),
            );
        }
        for span in unlike(&script.without_arguments) {
            let message = "what this loop makes of the script's arguments is not read";
            findings.push(Diagnostic::warning("not-read", message).at(
                &self.place(span),
                "skipped, as where there are no arguments",
            ));
        }
        for span in unlike(&script.sourced) {
            let message = "commands that the script runs here are not read";
            findings.push(
                Diagnostic::warning("not-read", message)
                    .at(
                        &self.place(span),
                        "it may set any variable: none is known behind it",
                    )
                    .with_help("set what the job needs behind it, as text"),
            );
        }
        for span in unlike(&script.ran) {
            findings.push(
                Diagnostic::warning("not-read", "a script that this one runs is not read here")
                    .at(&self.place(span), "what it does is not known"),
            );
        }
    }

    /// The launches that train: those of `pretrain_*.py` where there are any.
    fn training<'b>(&self, script: &'b Script, findings: &mut Findings) -> Vec<&'b Launch> {
        let all = &script.launches;
        let name = |launch: &Launch| launch.program.as_ref().map(base_name).unwrap_or_default();
        let pretrains = |launch: &&Launch| name(launch).starts_with("pretrain");
        let has_flag = |launch: &&Launch| launch.arguments.iter().any(|a| a.starts_with("--"));
        let is_simulated = |launch: &&Launch| name(launch) == SIMULATED;
        let mut launches: Vec<&Launch> = all.iter().filter(is_simulated).collect();
        if launches.is_empty() {
            launches = all.iter().filter(pretrains).collect();
        }
        if launches.is_empty() {
            launches = all.iter().filter(has_flag).collect();
        }
        let is_kept = |launch: &Launch| launches.iter().any(|kept| std::ptr::eq(*kept, launch));
        for other in all.iter().filter(|launch| !is_kept(launch)) {
            let span = other.program.as_ref().map_or(0..0, Text::span);
            let message = format!("`{}` is not read", escaped(&name(other)));
            let label = "this launch is not taken for training";
            findings.push(Diagnostic::warning("not-read", message).at(&self.place(&span), label));
        }
        if launches.is_empty() {
            findings.push(self.no_launch(script));
        }
        if launches.len() > PHASES_MAX {
            let message = format!("there are more than {PHASES_MAX} launches");
            let span = launches[PHASES_MAX]
                .program
                .as_ref()
                .map_or(0..0, Text::span);
            let finding = Diagnostic::error("too-many", message);
            findings.push(finding.at(&self.place(&span), "one too many"));
            launches.truncate(PHASES_MAX);
        }
        let mut told = std::collections::BTreeSet::new();
        for program in launches.iter().filter_map(|l| l.program.as_ref()) {
            if told.insert(program.string())
                && let Some(finding) = self.of_program(program)
            {
                findings.push(finding);
            }
        }
        launches
    }

    /// Another program than the one that is simulated trains another model, or may.
    fn of_program(&self, program: &Text) -> Option<Diagnostic> {
        let name = base_name(program);
        let stem = name.strip_suffix(".py").unwrap_or(&name);
        let path = program.string();
        let is_other = OTHER_PROGRAMS.iter().any(|other| stem.starts_with(other))
            || path.starts_with("tools/")
            || path.contains("/tools/");
        let place = self.place(&program.span());
        let note = format!("what is simulated is Megatron-LM's `{SIMULATED}`");
        let shown = escaped(&path);
        if name == SIMULATED {
            return None;
        }
        Some(if is_other {
            let message = format!("`{shown}` does not train what is simulated");
            let finding = Diagnostic::error("other-program", message);
            finding.at(&place, "another program").with_note(note)
        } else {
            let message = format!("`{shown}` is not known: taken as `{SIMULATED}`");
            let finding = Diagnostic::warning("other-program", message);
            finding.at(&place, "not read").with_note(note)
        })
    }

    fn no_launch(&self, script: &Script) -> Diagnostic {
        let whole = 0..self.source.text.len();
        let mut finding = Diagnostic::error("no-arguments", "no launch with arguments was found")
            .at(&self.place(&whole), "")
            .with_help("expected `torchrun ... pretrain_gpt.py --num-layers 12 ...`");
        let uncalled: Vec<_> = script.uncalled().take(5).collect();
        if let Some((_, at)) = uncalled.first() {
            let names: Vec<_> = uncalled.iter().map(|(name, _)| escaped(name)).collect();
            finding = finding
                .with_context(Some(&self.place(at)), "this function is never called")
                .with_note(format!("never called: {}", names.join(", ")));
        }
        finding
    }

    /// Only one launch is checked: the others are named.
    fn warn_of_several(&self, launches: &[&Launch], findings: &mut Findings) {
        const NAMED_MAX: usize = 8;
        let at = |launch: &Launch| self.place(&launch.at());
        let [first, others @ ..] = launches else {
            return;
        };
        let Some(second) = others.first() else {
            return;
        };
        let named: Vec<String> = others
            .iter()
            .take(NAMED_MAX)
            .map(|launch| {
                let start = at(launch).span.start;
                let (line, column) = self.source.line_column(start);
                format!("{}:{line}:{column}", escaped(&self.source.name))
            })
            .collect();
        let more = if others.len() > NAMED_MAX {
            ", ..."
        } else {
            ""
        };
        let message = format!("this script launches {} trainings", launches.len());
        findings.push(
            Diagnostic::warning("several-launches", message)
                .at(&at(second), "not checked, unless `--phase` names it")
                .with_context(Some(&at(first)), "this one is checked")
                .with_note(format!("the others: {}{more}", named.join(", ")))
                .with_help(format!(
                    "`--phase 2` takes the second, up to {}",
                    launches.len()
                )),
        );
    }

    fn phase(
        &self,
        launch: &Launch,
        index: usize,
        is_only: bool,
        findings: &mut Findings,
    ) -> GivenPhase {
        self.tell(&launch.remarks, findings);
        if let Some(condition) = &launch.condition {
            findings.push(
                Diagnostic::warning("undecided-branch", "whether this launch runs is not known")
                    .at(&self.place(&launch.at()), "taken as run")
                    .with_context(Some(&self.place(condition)), "this decides")
                    .with_help("a log of the job says what it ran with"),
            );
        }
        let name = match &launch.program {
            Some(program) => base_name(program),
            None => "arguments".to_string(),
        };
        GivenPhase {
            name: match index {
                0 => name,
                _ => format!("{name} ({})", index + 1),
            },
            place: self.place(&launch.at()),
            arguments: self.arguments(launch, findings),
            reads: launch.reads.as_ref().map(|span| self.place(span)),
            followed: self.beyond(launch),
            assumed: self.assumed(launch),
            is_alone: launcher::is_alone(&launch.before),
            is_list: launch.program.is_none() && launch.environment.is_empty(),
            variables: {
                let mut own = match is_only {
                    // The file's, as for any other kind of text.
                    true => Vec::new(),
                    false => self.environment(launch, findings),
                };
                own.extend(self.ranks(launch, findings));
                own
            },
        }
    }

    /// Variables from which bits follow, and words of the launch, that are what the script says
    /// only where nobody set another name.
    fn assumed(&self, launch: &Launch) -> Vec<(String, Place)> {
        let decides = |exported: &&Exported| doubt::decides_bits(&exported.name);
        let deciding = launch.environment.iter().filter(decides);
        let assumed = deciding.filter_map(|exported| {
            let at = exported.assumed.as_ref()?;
            Some((exported.name.clone(), self.place(at)))
        });
        let mut words: Vec<Range<usize>> =
            launch.remarks.iter().filter_map(Remark::assumed).collect();
        words.sort_by_key(|at| (at.start, at.end));
        words.dedup();
        let of_line = words
            .iter()
            .map(|at| ("the launch".to_string(), self.place(at)));
        assumed.chain(of_line).take(ENV_COUNT_MAX).collect()
    }

    /// Where the script is more than assignments and this launch.
    fn beyond(&self, launch: &Launch) -> Option<Place> {
        let of_shell = kind::is_of_another_shell(self.source).then(|| launch.at());
        let of_text = plain::first_beyond(&self.source.text);
        let of_launch = || {
            let program = launch.program.as_ref()?;
            let is_plain = launcher::is_plain(&launch.before, program);
            (!is_plain).then(|| launch.at())
        };
        let first = of_text.or(of_shell).or_else(of_launch);
        first.map(|span| self.place(&span))
    }

    fn arguments(&self, launch: &Launch, findings: &mut Findings) -> Vec<GivenArgument> {
        arguments::arguments(self.source, &launch.arguments, findings)
    }

    fn environment(&self, launch: &Launch, findings: &mut Findings) -> Vec<GivenVariable> {
        if let Some(Exported { at: span, .. }) = launch.environment.get(ENV_COUNT_MAX) {
            let message = format!("there are more than {ENV_COUNT_MAX} variables");
            let finding = Diagnostic::error("too-many", message);
            findings.push(finding.at(&self.place(span), "one too many"));
        }
        let open = launch
            .environment
            .iter()
            .filter(|exported| is_open(exported));
        for exported in open.take(ENV_COUNT_MAX) {
            let message = format!("the value of `{}` is not known here", exported.name);
            findings.push(
                Diagnostic::error("unset-variable", message)
                    .at(&self.place(&exported.at), "bits may follow from it")
                    .with_help("set it in the script, on every way to the launch"),
            );
        }
        let given = |exported: &Exported| GivenVariable {
            name: exported.name.clone(),
            value: exported.value.clone(),
            place: self.place(&exported.at),
        };
        launch
            .environment
            .iter()
            .take(ENV_COUNT_MAX)
            .map(given)
            .collect()
    }

    fn tell(&self, remarks: &[Remark], findings: &mut Findings) {
        let mut told: Vec<&Remark> = Vec::new();
        for remark in remarks.iter().filter(|remark| remark.is_doubt()) {
            let is_told = told.iter().any(|other| match (other, remark) {
                (Remark::Conditional { name, .. }, Remark::Conditional { name: again, .. }) => {
                    name == again
                }
                (a, b) => *a == b,
            });
            if is_told {
                continue;
            }
            told.push(remark);
            findings.push(match remark {
                Remark::Assumed(_) => unreachable!("it is no doubt"),
                Remark::Absent(span) => {
                    Diagnostic::warning("unset-variable", "these words are not known here")
                        .at(&self.place(span), "taken to be none")
                        .with_note("what is checked is the script as it runs without arguments")
                }
                Remark::Conditional {
                    name,
                    used,
                    assigned,
                    taken,
                } => {
                    let name = escaped(name);
                    let (code, message, label) = match taken {
                        Taken::Branch => (
                            "undecided-branch",
                            format!("`{name}` depends on a branch of the script"),
                            "not known here",
                        ),
                        Taken::Other => (
                            "unset-variable",
                            format!("`{name}` is set in a way that is not followed"),
                            "not known here",
                        ),
                        Taken::Read => (
                            "unset-variable",
                            format!("`{name}` may be set by commands that are not read here"),
                            "not known here: pass it resolved",
                        ),
                        Taken::FirstRound => (
                            "undecided-branch",
                            format!("`{name}` has several values in a loop"),
                            "the first one is taken",
                        ),
                    };
                    Diagnostic::warning(code, message)
                        .at(&self.place(used), label)
                        .with_context(Some(&self.place(assigned)), set_here(*taken))
                }
            });
        }
    }

    fn place(&self, span: &Range<usize>) -> Place {
        Place::new(self.source, span.clone())
    }
}

fn set_here(taken: Taken) -> &'static str {
    match taken {
        Taken::Read => "this may set it",
        Taken::Branch | Taken::Other | Taken::FirstRound => "set here",
    }
}

#[cfg(test)]
mod tests;
