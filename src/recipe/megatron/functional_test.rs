//! `tests/functional_tests/test_cases/*/*/model_config.yaml` of Megatron-LM.
//!
//! What the entries mean follows from the script that runs them,
//! `tests/functional_tests/shell_test_utils/_run_training.sh`: see [`launch`](super::launch).

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::Path;

use super::launch;
use super::spelling::Spellings;
use super::yaml::{self, Document, Entry, Merges, View};
use super::{GivenJob, GivenKind, GivenPhase, GivenVariable};
use crate::diagnostic::{Diagnostic, Findings, Place, Source, escaped, nearest};
use crate::recipe::limits::{ARGUMENTS_MAX, ENV_COUNT_MAX, PHASES_MAX, VALUES_BYTES_MAX};

/// Types of Megatron-LM's functional tests (`tests/functional_tests/test_cases`).
const TEST_TYPES: [&str; 6] = [
    "regular",
    "ckpt-resume",
    "frozen-start",
    "frozen-resume",
    "release",
    "checkpoint-consistency",
];

/// Keys of a document beside the phases.
const KEYS: [&str; 11] = [
    "ENV_VARS",
    "MODEL_ENV_VARS",
    "BASE_MODEL_ARGS",
    "TEST_TYPE",
    "MODE",
    "LAUNCHER",
    "METRICS",
    "BEFORE_SCRIPT",
    "AFTER_SCRIPT",
    "TEST_EVALUATION",
    "THROUGHPUT_TEST_PARAMS",
];

/// The variable of `MODEL_ENV_VARS`.
const OF_PHASES: &str = "GPUS_PER_NODE";

/// Whether a key overrides one of a NeMo recipe.
fn is_of_hydra(key: &str) -> bool {
    !key.starts_with("--") && key.contains('.')
}

/// Whether `line` is the start of such a file's entry.
pub(super) fn is_entry(line: &str) -> bool {
    let Some((key, rest)) = line.split_once(':') else {
        return false;
    };
    let key = key.trim_end().trim_matches(['"', '\'']);
    let is_known = KEYS.contains(&key) || phase_number(key).is_some();
    is_known && (rest.is_empty() || rest.starts_with([' ', '\t', '\r']))
}

pub(super) fn read(source: &Source, path: &Path, findings: &mut Findings) -> Option<GivenJob> {
    let errors_before = findings.error_count();
    let document = yaml::compose(source, findings)?;
    let mut reader = Reader {
        document: &document,
        merges: Merges::default(),
        value_bytes: 0,
        before: None,
        findings,
    };
    let job = reader.job(path);
    (findings.error_count() == errors_before).then_some(job)
}

/// `MODEL_ARGS` is 0, `MODEL_ARGS_<n>` is n.
fn phase_number(key: &str) -> Option<u32> {
    match key.strip_prefix("MODEL_ARGS")? {
        "" => Some(0),
        number => {
            let digits = number.strip_prefix('_')?;
            let is_number = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
            digits.parse().ok().filter(|_| is_number)
        }
    }
}

struct Reader<'a> {
    document: &'a Document,
    merges: Merges,
    /// Bytes of names and values so far.
    value_bytes: usize,
    /// Commands that run before the job, in its shell.
    before: Option<Place>,
    findings: &'a mut Findings,
}

impl<'a> Reader<'a> {
    fn job(&mut self, path: &Path) -> GivenJob {
        let root = self.document.root();
        let mut job = GivenJob {
            kind: GivenKind::FunctionalTest,
            phases: Vec::new(),
            env: Vec::new(),
            test_type: None,
            mode: None,
            launcher: None,
            case: folder_name(path.parent()),
            model: folder_name(path.parent().and_then(Path::parent)),
        };
        let View::Mapping = self.document.view(&root) else {
            let message = "this is no mapping of keys to values";
            self.complain("wrong-type", message, &(0..0), "expected `MODEL_ARGS:`");
            return job;
        };
        let document = self.document;
        let mut phases = BTreeMap::new();
        let mut variables = None;
        for entry in document.entries(&root, &mut self.merges, self.findings) {
            match entry.key.text.as_str() {
                "ENV_VARS" => job.env = self.variables(&entry),
                "MODEL_ENV_VARS" => variables = Some(entry),
                "TEST_TYPE" => job.test_type = self.test_type(&entry),
                "MODE" => job.mode = self.word(&entry),
                "LAUNCHER" => job.launcher = self.word(&entry),
                key => match phase_number(key) {
                    Some(number) if phases.len() < PHASES_MAX => {
                        let phase = self.phase(&entry);
                        phases.insert(number, phase);
                    }
                    Some(_) => {
                        let message = format!("there are more than {PHASES_MAX} phases");
                        self.complain("too-many", message, entry.key_span, "one too many");
                    }
                    None => self.other(&entry),
                },
            }
        }
        self.require_first(&phases);
        job.phases = phases.into_values().collect();
        for phase in &mut job.phases {
            phase.reads = self.before.clone();
        }
        if let Some(entry) = variables {
            let env = std::mem::take(&mut job.env);
            self.phase_variables(&entry, &env, &mut job.phases);
            job.env = env;
        }
        job
    }

    fn require_first(&mut self, phases: &BTreeMap<u32, GivenPhase>) {
        if !phases.contains_key(&0) {
            let message = "`MODEL_ARGS` is missing";
            self.findings.push(
                Diagnostic::error("missing-key", message)
                    .at(&self.document.place_of(&self.document.root()), "")
                    .with_help("expected a key `MODEL_ARGS` with a mapping of flags to values"),
            );
        }
    }

    fn phase(&mut self, entry: &Entry<'_>) -> GivenPhase {
        let mut phase = GivenPhase {
            name: entry.key.text.clone(),
            place: self.document.place(entry.key_span),
            arguments: Vec::new(),
            variables: Vec::new(),
            reads: None,
            followed: None,
            assumed: Vec::new(),
            is_alone: false,
            is_list: false,
        };
        let mut spellings = Spellings::default();
        let arguments = self.mapping(entry, "a mapping of flags to values");
        let is_hydra = arguments.iter().any(|one| is_of_hydra(&one.key.text));
        for argument in arguments {
            if !self.counts(&argument) {
                break;
            }
            if phase.arguments.len() == ARGUMENTS_MAX {
                let message = format!("`{}` has more than {ARGUMENTS_MAX} entries", phase.name);
                self.complain(
                    "too-many",
                    message,
                    argument.key_span,
                    "this one is too many",
                );
                break;
            }
            let place = self.document.place(argument.key_span);
            if let Some(repeated) = spellings.put(&argument.key.text, &place) {
                let finding = repeated.finding(&argument.key.text, &place);
                self.findings
                    .push(finding.with_help("leave one of the two out"));
                continue;
            }
            if !is_hydra && !argument.key.text.starts_with("--") {
                self.bare_word(&argument);
                continue;
            }
            phase.arguments.extend(self.argument(&argument));
        }
        phase
    }

    /// Counts an entry before it is copied; whether there is room for it.
    fn counts(&mut self, entry: &Entry<'_>) -> bool {
        let had_room = self.value_bytes <= VALUES_BYTES_MAX;
        self.value_bytes += entry.key.text.len() + self.document.text_bytes(entry.value);
        let has_room = self.value_bytes <= VALUES_BYTES_MAX;
        if had_room && !has_room {
            let message = format!("all values together are longer than {VALUES_BYTES_MAX} bytes");
            self.complain(
                "too-long",
                message,
                entry.key_span,
                "the limit is reached here",
            );
        }
        has_room
    }

    /// A key is passed on as it is written: without dashes it is no flag to argparse.
    fn bare_word(&mut self, entry: &Entry<'_>) {
        let shown = escaped(&entry.key.text);
        let flag = entry.key.text.trim_start_matches('-').replace('_', "-");
        let message = format!("`{shown}` is no flag: Megatron's parser refuses it");
        self.findings.push(
            Diagnostic::error("bad-flag", message)
                .at(
                    &self.document.place(entry.key_span),
                    "expected `--` before it",
                )
                .with_help(format!("write `--{}`", escaped(&flag))),
        );
    }

    fn argument(&mut self, entry: &Entry<'_>) -> Option<super::GivenArgument> {
        let flag = &entry.key.text;
        let is_word = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '\'' | '`' | '=');
        if flag.is_empty() || !flag.chars().all(is_word) {
            let message = format!("`{}` is no name of an argument", escaped(flag));
            let label = "expected a flag such as `--num-layers`";
            self.complain("bad-flag", message, entry.key_span, label);
            return None;
        }
        let value = launch::value(self.document, entry, self.findings)?;
        Some(super::GivenArgument {
            flag: flag.clone(),
            value,
            flag_place: self.document.place(entry.key_span),
            value_place: self.document.place_of(entry.value),
        })
    }

    fn variables(&mut self, entry: &Entry<'_>) -> Vec<GivenVariable> {
        let mut variables = Vec::new();
        for variable in self.mapping(entry, "a mapping of variables to values") {
            if !self.counts(&variable) {
                break;
            }
            if variables.len() == ENV_COUNT_MAX {
                let message = format!("`{}` has more than {ENV_COUNT_MAX} entries", entry.key.text);
                self.complain(
                    "too-many",
                    message,
                    variable.key_span,
                    "this one is too many",
                );
                break;
            }
            let name = &variable.key.text;
            if !launch::is_variable_name(name) {
                let message = format!("`{}` is no name of a variable", escaped(name));
                let label = "expected letters, digits and underscores";
                self.complain("bad-variable", message, variable.key_span, label);
                continue;
            }
            if let Some(value) = self.text(&variable, "one value") {
                if value.contains(['\n', '\r']) {
                    self.several_lines(&variable);
                    continue;
                }
                variables.push(GivenVariable {
                    name: name.clone(),
                    value,
                    place: self.document.place(variable.key_span),
                });
            }
        }
        variables
    }

    /// The script exports a variable for each line of what `yq` prints.
    fn several_lines(&mut self, variable: &Entry<'_>) {
        let name = escaped(&variable.key.text);
        let message = format!("the value of `{name}` has several lines");
        self.findings.push(
            Diagnostic::error("wrong-type", message)
                .at(&self.document.place_of(variable.value), "expected one line")
                .with_note(
                    "the script that runs functional tests takes each line for a variable of its \
                     own (_run_training.sh)",
                ),
        );
    }

    /// `MODEL_ENV_VARS`: variables by the name of a phase.
    fn phase_variables(
        &mut self,
        entry: &Entry<'_>,
        env: &[GivenVariable],
        phases: &mut [GivenPhase],
    ) {
        for of_phase in self.mapping(entry, "a mapping of phases to variables") {
            let name = of_phase.key.text.as_str();
            let variables = self.variables(&of_phase);
            for variable in &variables {
                self.check_of_phase(variable, env);
            }
            match phases.iter_mut().find(|phase| phase.name == name) {
                Some(phase) => phase.variables = variables,
                None => {
                    let message = format!("there is no phase `{}`", escaped(name));
                    let place = self.document.place(of_phase.key_span);
                    self.findings.push(
                        Diagnostic::warning("no-such-phase", message)
                            .at(&place, "its variables are not used"),
                    );
                }
            }
        }
    }

    /// Megatron's tests take the number of processes alone from there (a remark in the file that
    /// has the key says so), and `_run_training.sh` exports `ENV_VARS` last.
    fn check_of_phase(&mut self, variable: &GivenVariable, env: &[GivenVariable]) {
        let name = escaped(&variable.name);
        let finding = if variable.name != OF_PHASES {
            let message = format!("`{name}` is not read from MODEL_ENV_VARS");
            Diagnostic::error("bad-variable", message)
                .at(&variable.place, format!("only {OF_PHASES} is"))
                .with_help("set it under ENV_VARS")
        } else if let Some(other) = env.iter().find(|other| {
            let is_same = other.value.trim() == variable.value.trim();
            other.name == variable.name && !is_same
        }) {
            let message = format!("`{name}` is set in ENV_VARS and in MODEL_ENV_VARS");
            Diagnostic::error("contradiction", message)
                .at(&variable.place, "another value here")
                .with_context(Some(&other.place), "this one is exported last")
                .with_help("keep one of them")
        } else {
            return;
        };
        self.findings.push(finding);
    }

    /// Keys that name no argument.
    fn other(&mut self, entry: &Entry<'_>) {
        let key = entry.key.text.as_str();
        let view = self.document.view(entry.value);
        match (key, &view) {
            ("BASE_MODEL_ARGS" | "THROUGHPUT_TEST_PARAMS", View::Mapping)
            | ("METRICS", View::Sequence(_))
            | ("TEST_EVALUATION", View::Scalar(_)) => {}
            ("BEFORE_SCRIPT" | "AFTER_SCRIPT", View::Scalar(_)) => {
                let place = self.document.place(entry.key_span);
                if key == "BEFORE_SCRIPT" {
                    self.before = Some(place.clone());
                }
                self.findings.push(
                    Diagnostic::warning("script-not-run", format!("`{key}` is not run"))
                        .at(&place, "shell commands around the job")
                        .with_note("a variable that it sets is not known here"),
                );
            }
            _ if KEYS.contains(&key) => {
                let message = format!("`{key}` is {}", view.kind());
                let label = match key {
                    "METRICS" => "expected a list of names",
                    "BASE_MODEL_ARGS" | "THROUGHPUT_TEST_PARAMS" => "expected a mapping",
                    _ => "expected one value",
                };
                let span = self.document.place_of(entry.value).span;
                self.complain("wrong-type", message, &span, label);
            }
            // It holds what other entries merge.
            _ if self.document.is_referred_to(entry.value) => {}
            _ => self.unknown(entry),
        }
    }

    fn unknown(&mut self, entry: &Entry<'_>) {
        let key = entry.key.text.as_str();
        let place = self.document.place(entry.key_span);
        let mut finding =
            Diagnostic::error("unknown-key", format!("unknown key `{}`", escaped(key)))
                .at(&place, "no such entry in a functional test's file");
        finding = match nearest(key, KEYS.into_iter().chain(["MODEL_ARGS"])) {
            Some(known) => finding.with_help(format!("did you mean `{known}`?")),
            None => finding.with_note(format!(
                "known keys: MODEL_ARGS, MODEL_ARGS_<n>, {}, and any that holds an anchor",
                KEYS.join(", ")
            )),
        };
        self.findings.push(finding);
    }

    fn mapping<'b>(&mut self, entry: &Entry<'b>, expected: &str) -> Vec<Entry<'b>>
    where
        'a: 'b,
    {
        let document = self.document;
        match document.view(entry.value) {
            View::Mapping => document.entries(entry.value, &mut self.merges, self.findings),
            // All entries may be commented out.
            View::Scalar(scalar) if scalar.is_null() => Vec::new(),
            view => {
                let message = format!("`{}` is {}", escaped(&entry.key.text), view.kind());
                let span = document.place_of(entry.value).span;
                self.complain(
                    "wrong-type",
                    message,
                    &span,
                    &format!("expected {expected}"),
                );
                Vec::new()
            }
        }
    }

    /// The text of a single value; an empty one is an empty text.
    fn text(&mut self, entry: &Entry<'_>, expected: &str) -> Option<String> {
        match self.document.view(entry.value) {
            View::Scalar(scalar) if scalar.is_null() => Some(String::new()),
            View::Scalar(scalar) => Some(scalar.text.clone()),
            view => {
                let message = format!("`{}` is {}", escaped(&entry.key.text), view.kind());
                let span = self.document.place_of(entry.value).span;
                self.complain(
                    "wrong-type",
                    message,
                    &span,
                    &format!("expected {expected}"),
                );
                None
            }
        }
    }

    /// A word that is none of Megatron's decides nothing here: the job is read as one that is not
    /// resumed.
    fn test_type(&mut self, entry: &Entry<'_>) -> Option<String> {
        let word = self.word(entry)?;
        if !TEST_TYPES.contains(&word.as_str()) {
            let message = format!("`{}` is no type of test", escaped(&word));
            let finding = Diagnostic::warning("unknown-test-type", message).at(
                &self.document.place_of(entry.value),
                "the job is read as one that is not resumed",
            );
            self.findings.push(match nearest(&word, TEST_TYPES) {
                Some(known) => finding.with_help(format!("did you mean `{known}`?")),
                None => finding.with_note(format!("types: {}", TEST_TYPES.join(", "))),
            });
        }
        Some(word)
    }

    fn word(&mut self, entry: &Entry<'_>) -> Option<String> {
        self.text(entry, "one word").filter(|word| !word.is_empty())
    }

    fn complain(
        &mut self,
        code: &'static str,
        message: impl Into<String>,
        span: &Range<usize>,
        label: &str,
    ) {
        let place = self.document.place(span);
        self.findings
            .push(Diagnostic::error(code, message).at(&place, label));
    }
}

fn folder_name(folder: Option<&Path>) -> Option<String> {
    let name = folder?.file_name()?;
    Some(name.to_string_lossy().into_owned())
}
