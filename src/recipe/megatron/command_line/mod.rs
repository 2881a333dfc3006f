//! A launch line or script: `torchrun ... pretrain_gpt.py --flag value ...`.
//!
//! A script is followed from top to bottom as a shell would read it: comments, quotes,
//! continuations, variables, arrays. Nothing is executed and no file is opened. Branches are not
//! decided: all are followed, and the result says where that mattered.

mod arguments;
mod lexer;
mod script;
mod shell;
mod slurm;
mod text;
mod word;

use std::ops::Range;

use super::{GivenArgument, GivenJob, GivenKind, GivenPhase, GivenVariable};
use crate::diagnostic::{Diagnostic, Findings, Place, Source, escaped};
use crate::recipe::limits::{
    ENV_COUNT_MAX, LAUNCHES_MAX, PHASES_MAX, SCRIPT_CHARS_MAX, SCRIPT_DEPTH_MAX, SCRIPT_WORDS_MAX,
};
use script::{Launch, Script, ScriptError};
use shell::Remark;
use text::Text;

/// Whether a text looks like a launch line or script: words that start with `--`, and a launcher,
/// or nothing but such words.
pub(super) fn is_command_line(source: &Source) -> bool {
    let name = source.name.to_ascii_lowercase();
    let endings = [".sh", ".bash", ".sbatch", ".slurm", ".args"];
    if source.text.starts_with("#!") || endings.iter().any(|ending| name.ends_with(ending)) {
        return true;
    }
    let mut code = source.text.lines().map(str::trim_start);
    let is_flag = |word: &str| {
        let name = word.strip_prefix("--").unwrap_or_default();
        name.starts_with(|c: char| c.is_ascii_alphabetic())
    };
    let starts = code
        .clone()
        .find(|line| !line.is_empty() && !line.starts_with('#'));
    if starts.is_some_and(is_flag) {
        return true;
    }
    let launchers = [
        "torchrun",
        "torch.distributed",
        "pretrain_",
        "python",
        "srun",
    ];
    let launches = |line: &str| {
        !line.starts_with('#') && launchers.iter().any(|launcher| line.contains(launcher))
    };
    code.any(launches) && source.text.split_whitespace().any(is_flag)
}

pub(super) fn read(source: &Source, findings: &mut Findings) -> Option<GivenJob> {
    let errors_before = findings.error_count();
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
        ScriptError::TooDeep(span) => {
            let message = format!("`sh -c` is nested deeper than {SCRIPT_DEPTH_MAX}");
            Diagnostic::error("shell-depth", message).at(&at(span), "this script is not read")
        }
    }
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
            script.launches.push(Launch {
                program: None,
                before: Vec::new(),
                arguments: std::mem::take(&mut script.bare),
                environment: script.environment(),
                remarks: std::mem::take(&mut script.bare_remarks),
            });
        }
        let launches = self.training(&script.launches, findings);
        let mut phases: Vec<GivenPhase> = Vec::new();
        for launch in &launches {
            phases.push(self.phase(launch, phases.len(), findings));
        }
        let env = match launches.first() {
            Some(launch) => self.environment(launch, findings),
            None => Vec::new(),
        };
        GivenJob {
            kind: GivenKind::CommandLine,
            phases,
            env,
            test_type: None,
            mode: None,
            launcher: None,
            case: None,
        }
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
        if let Some((_, at)) = script.conditions.first() {
            let place = self.place(&(*at as usize..*at as usize + 1));
            let message = "parts of this script run under conditions, or in a shell of their own";
            findings.push(
                Diagnostic::warning("undecided-branch", message)
                    .at(
                        &place,
                        "every command is taken as run, in the order of the text",
                    )
                    .with_help("a log of the job says what it ran with"),
            );
        }
        for span in &script.unread {
            findings.push(
                Diagnostic::warning("not-read", "what this launches is not known here").at(
                    &self.place(span),
                    "no word ends in `.py`, and none follows `-m`",
                ),
            );
        }
        for span in &script.sourced {
            findings.push(
                Diagnostic::warning("not-read", "a file that the script reads is not read here")
                    .at(&self.place(span), "what it sets is not known"),
            );
        }
    }

    /// The launches that train: those of `pretrain_*.py` where there are any.
    fn training<'b>(&self, all: &'b [Launch], findings: &mut Findings) -> Vec<&'b Launch> {
        let name = |launch: &Launch| launch.program.as_ref().map(base_name).unwrap_or_default();
        let pretrains = |launch: &&Launch| name(launch).starts_with("pretrain");
        let has_flag = |launch: &&Launch| launch.arguments.iter().any(|a| a.starts_with("--"));
        let mut launches: Vec<&Launch> = all.iter().filter(pretrains).collect();
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
            let whole = 0..self.source.text.len();
            findings.push(
                Diagnostic::error("no-arguments", "no launch with arguments was found")
                    .at(&self.place(&whole), "")
                    .with_help("expected `torchrun ... pretrain_gpt.py --num-layers 12 ...`"),
            );
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
        launches
    }

    fn phase(&self, launch: &Launch, index: usize, findings: &mut Findings) -> GivenPhase {
        self.tell(&launch.remarks, findings);
        let name = match &launch.program {
            Some(program) => base_name(program),
            None => "arguments".to_string(),
        };
        let first = launch.program.as_ref().or(launch.arguments.first());
        GivenPhase {
            name: match index {
                0 => name,
                _ => format!("{name} ({})", index + 1),
            },
            place: self.place(&first.map_or(0..0, Text::span)),
            arguments: self.arguments(launch, findings),
            variables: {
                let mut own = match index {
                    // The file's, as for any other kind of text.
                    0 => Vec::new(),
                    _ => self.environment(launch, findings),
                };
                own.extend(self.world(launch));
                own
            },
        }
    }

    fn arguments(&self, launch: &Launch, findings: &mut Findings) -> Vec<GivenArgument> {
        arguments::arguments(self.source, &launch.arguments, findings)
    }

    /// `GPUS_PER_NODE` and `NNODES`, from `torchrun`, else from Slurm.
    fn world(&self, launch: &Launch) -> Vec<GivenVariable> {
        let options = slurm::options(&launch.before);
        let option = |names: &[&str]| {
            let is_named = |(name, _): &&(String, Text)| names.contains(&name.as_str());
            options
                .iter()
                .rev()
                .find(is_named)
                .map(|(_, value)| value.clone())
        };
        let preset = |variable: &str| {
            let is_it = |(name, _): &&(Text, Text)| name.string() == variable;
            self.preset
                .iter()
                .find(is_it)
                .map(|(_, value)| value.clone())
        };
        let per_node = option(&["--nproc_per_node", "--nproc-per-node"]);
        let torchrun = per_node.is_some() || option(&["--nnodes"]).is_some();
        let (per_node, nodes) = match torchrun {
            true => (per_node, option(&["--nnodes"])),
            false => (
                option(&["--ntasks-per-node"]).or_else(|| preset("SLURM_NTASKS_PER_NODE")),
                option(&["--nodes", "-N"]).or_else(|| preset("SLURM_NNODES")),
            ),
        };
        let named = [("GPUS_PER_NODE", per_node), ("NNODES", nodes)];
        let is_number =
            |value: &Text| !value.is_empty() && value.0.iter().all(|(c, _)| c.is_ascii_digit());
        let known = named.into_iter().filter_map(|(name, value)| {
            let value = value.filter(is_number)?;
            Some(GivenVariable {
                name: name.to_string(),
                value: value.string(),
                place: self.place(&value.span()),
            })
        });
        known.collect()
    }

    fn environment(&self, launch: &Launch, findings: &mut Findings) -> Vec<GivenVariable> {
        if let Some((_, _, span)) = launch.environment.get(ENV_COUNT_MAX) {
            let message = format!("there are more than {ENV_COUNT_MAX} variables");
            let finding = Diagnostic::error("too-many", message);
            findings.push(finding.at(&self.place(span), "one too many"));
        }
        let given = |(name, value, span): &(String, String, Range<usize>)| GivenVariable {
            name: name.clone(),
            value: value.clone(),
            place: self.place(span),
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
        for remark in remarks {
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
                Remark::Absent(span) => {
                    Diagnostic::warning("unset-variable", "these words are not known here")
                        .at(&self.place(span), "taken to be none")
                }
                Remark::Conditional {
                    name,
                    used,
                    assigned,
                } => {
                    let message = format!("`{name}` depends on a branch of the script");
                    Diagnostic::warning("undecided-branch", message)
                        .at(
                            &self.place(used),
                            "the last assignment in the text is taken",
                        )
                        .with_context(Some(&self.place(assigned)), "assigned here")
                }
            });
        }
    }

    fn place(&self, span: &Range<usize>) -> Place {
        Place::new(self.source, span.clone())
    }
}

fn base_name(program: &Text) -> String {
    let program = program.string();
    program.rsplit('/').next().unwrap_or_default().to_string()
}

#[cfg(test)]
mod tests;
