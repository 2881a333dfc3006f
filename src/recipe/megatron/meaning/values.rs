//! The arguments of one phase by the attributes that they set, read as Megatron's parser reads
//! them.

use std::collections::{BTreeMap, BTreeSet};

use super::super::catalogue::{Argument, Catalogue, Effect, Kind, Spelling};
use super::super::{GivenArgument, GivenPhase, GivenValue};
use super::counts;
use super::parse::{Parsed, parse};
use crate::diagnostic::{Diagnostic, Findings, Place, Severity, escaped, nearest};

/// A value of an argument.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    /// Python's `None`.
    Nothing,
    Flag(bool),
    Int(i64),
    Float(f64),
    Text(String),
    List(Vec<String>),
    /// It holds `${VARIABLES}`, whose values nobody here knows.
    Variable(String),
}

/// An argument that was given.
#[derive(Clone, Debug)]
pub(crate) struct Setting<'a> {
    pub argument: &'static Argument,
    pub value: Value,
    pub given: &'a GivenArgument,
}

/// What became of one given argument, in the order of the file.
#[derive(Clone, Debug)]
pub(crate) enum Reading {
    /// It sets this attribute; a later one may set it again.
    Sets(String),
    /// A dotted key that says how many ranks there are.
    Ranks,
    /// No argument, or not a value of it: a finding says so.
    Refused(String),
    /// An attribute of a dump that is not known, at `None` or `False`: nothing asks for it.
    Absent,
}

/// The arguments of one phase.
pub(crate) struct Values<'a> {
    pub catalogue: &'a Catalogue,
    settings: BTreeMap<String, Setting<'a>>,
    /// One for each given argument.
    pub readings: Vec<Reading>,
    place: Place,
}

impl<'a> Values<'a> {
    pub fn read(
        phase: &'a GivenPhase,
        catalogue: &'a Catalogue,
        findings: &mut Findings,
    ) -> Values<'a> {
        let mut values = Values {
            catalogue,
            settings: BTreeMap::new(),
            readings: Vec::with_capacity(phase.arguments.len()),
            place: phase.place.clone(),
        };
        for given in &phase.arguments {
            let reading = values.take(given, findings);
            values.readings.push(reading);
        }
        values.tell_unset(phase, findings);
        values
    }

    /// Tells of used values that are not known here: of the last occurrence of an argument, which
    /// counts.
    fn tell_unset(&self, phase: &GivenPhase, findings: &mut Findings) {
        for (given, reading) in phase.arguments.iter().zip(&self.readings) {
            let Reading::Sets(dest) = reading else {
                continue;
            };
            let setting = &self.settings[dest];
            if let (Value::Variable(text), Effect::Used(_)) =
                (&setting.value, setting.argument.effect)
                && std::ptr::eq(setting.given, given)
            {
                findings.push(unset(setting.argument, text, given));
            }
        }
    }

    fn take(&mut self, given: &'a GivenArgument, findings: &mut Findings) -> Reading {
        use super::super::catalogue::hydra::{DEVICES, NODES};
        if [DEVICES, NODES].contains(&given.flag.as_str()) {
            return Reading::Ranks;
        }
        let Some((argument, spelling)) = self.catalogue.find(&given.flag) else {
            let mut finding = unknown(self.catalogue, given);
            let asks = !matches!(given.value, GivenValue::Nothing | GivenValue::Off);
            if !asks && !given.flag.starts_with("--") && !given.flag.contains('.') {
                finding.severity = Severity::Warning;
                findings.push(finding);
                return Reading::Absent;
            }
            let reason = finding.message.clone();
            findings.push(finding);
            return Reading::Refused(reason);
        };
        match parse(argument, spelling, &given.value) {
            Parsed::Value(value) => {
                if let Some(finding) = out_of_range(argument, spelling, &value, given) {
                    let reason = finding.message.clone();
                    findings.push(finding);
                    return Reading::Refused(reason);
                }
                let dest = argument.dest();
                // `validate_args` makes none of no experts.
                let value = match (argument.name, value) {
                    ("num-experts", Value::Int(0)) => Value::Nothing,
                    (_, value) => value,
                };
                if let Some(finding) = self.contradicted(&dest, &value, given) {
                    let reason = finding.message.clone();
                    findings.push(finding);
                    return Reading::Refused(reason);
                }
                let setting = Setting {
                    argument,
                    value,
                    given,
                };
                // As with argparse, the last one counts.
                self.settings.insert(dest.clone(), setting);
                Reading::Sets(dest)
            }
            Parsed::Wrong { message, expected } => {
                let finding = Diagnostic::error("wrong-value", message.clone())
                    .at(&given.value_place, expected);
                findings.push(finding);
                Reading::Refused(message)
            }
        }
    }

    /// A log shows what one job ended up with: where it says two things, it is none.
    fn contradicted(&self, dest: &str, value: &Value, given: &GivenArgument) -> Option<Diagnostic> {
        let earlier = self.settings.get(dest)?;
        if !is_attribute(&given.flag) || earlier.value == *value {
            return None;
        }
        let (first, second) = (escaped(&earlier.given.flag), escaped(&given.flag));
        let message = format!("`{second}` and `{first}` are one argument, and have two values");
        Some(
            Diagnostic::error("contradiction", message)
                .at(&given.value_place, "this one")
                .with_context(Some(&earlier.given.value_place), "and this one")
                .with_help("give the block as one job printed it"),
        )
    }

    pub fn setting(&self, dest: &str) -> Option<&Setting<'a>> {
        debug_assert!(self.catalogue.attribute(dest).is_some(), "no {dest}");
        self.settings.get(dest)
    }

    /// What a log shows of `dest`: the value that Megatron itself ended up with, after
    /// `validate_args`.
    pub fn resolved(&self, dest: &str) -> Option<&Value> {
        let setting = self.setting(dest)?;
        is_attribute(&setting.given.flag).then_some(&setting.value)
    }

    /// Whether gradients are summed in bf16: DistributedDataParallel's `grad_reduce_in_fp32` is
    /// `accumulate_allreduce_grads_in_fp32`, which `validate_args` derives from the flags of a
    /// bf16 job and a log shows derived.
    pub fn reduces_in_bf16(&self) -> bool {
        let is_narrow = match self.resolved("accumulate_allreduce_grads_in_fp32") {
            Some(Value::Flag(wide)) => !wide,
            _ => self.flag("grad_reduce_in_bf16"),
        };
        self.flag("bf16") && is_narrow
    }

    /// Where `dest` was written; the phase's own place where nobody wrote it.
    pub fn place(&self, dest: &str) -> &Place {
        self.setting(dest)
            .map_or(&self.place, |setting| &setting.given.value_place)
    }

    pub fn phase_place(&self) -> &Place {
        &self.place
    }

    pub fn is_given(&self, dest: &str) -> bool {
        self.setting(dest)
            .is_some_and(|setting| setting.value != Value::Nothing)
    }

    pub fn flag(&self, dest: &str) -> bool {
        let argument = self.catalogue.attribute(dest).expect("a known flag");
        match self.setting(dest).map(|setting| &setting.value) {
            Some(Value::Flag(on)) => *on,
            _ => argument.flag_default(),
        }
    }

    pub fn integer(&self, dest: &str) -> Option<i64> {
        match self.setting(dest).map(|setting| &setting.value) {
            Some(Value::Int(number)) => Some(*number),
            Some(Value::Nothing | Value::Variable(_)) | None => self.default(dest)?.parse().ok(),
            _ => None,
        }
    }

    /// A count; `None` where there is none. One out of range was refused where it was read
    /// ([`counts::range`]).
    pub fn count(&self, dest: &str) -> Option<u32> {
        u32::try_from(self.integer(dest)?).ok()
    }

    pub fn real(&self, dest: &str) -> Option<f64> {
        match self.setting(dest).map(|setting| &setting.value) {
            Some(Value::Float(number)) => Some(*number),
            Some(Value::Int(number)) => Some(*number as f64),
            Some(Value::Nothing | Value::Variable(_)) | None => self.default(dest)?.parse().ok(),
            _ => None,
        }
    }

    pub fn text(&self, dest: &str) -> Option<&str> {
        match self.setting(dest).map(|setting| &setting.value) {
            Some(Value::Text(text)) => Some(text),
            Some(Value::Nothing | Value::Variable(_)) | None => self.default(dest),
            _ => None,
        }
    }

    pub fn list(&self, dest: &str) -> &[String] {
        match self.setting(dest).map(|setting| &setting.value) {
            Some(Value::List(words)) => words,
            _ => &[],
        }
    }

    fn default(&self, dest: &str) -> Option<&'static str> {
        let argument = self.catalogue.attribute(dest)?;
        (!argument.default.is_empty()).then_some(argument.default)
    }

    /// What is set otherwise in `other`, or only in one of the two; defaults written out are none.
    pub fn differing<'v>(&'v self, other: &'v Values<'_>) -> impl Iterator<Item = &'v str> {
        let all: BTreeSet<&str> = [&self.settings, &other.settings]
            .into_iter()
            .flat_map(|settings| settings.keys().map(String::as_str))
            .collect();
        all.into_iter().filter(|dest| {
            let value = |values: &'v Values<'_>| values.settings.get(*dest).map(|set| &set.value);
            let are_default = self.is_default(dest) && other.is_default(dest);
            !are_default && value(self) != value(other)
        })
    }

    /// Whether `dest` has its default's value, or none.
    pub fn is_default(&self, dest: &str) -> bool {
        let Some(setting) = self.setting(dest) else {
            return true;
        };
        let argument = setting.argument;
        if let (Some(parallel), Value::Int(shards)) = (shards_of(dest), &setting.value)
            && self.shards_none(parallel) == Some(*shards)
        {
            return true;
        }
        match &setting.value {
            Value::Nothing => true,
            Value::Flag(on) => *on == argument.flag_default(),
            Value::Int(number) => argument.default.parse() == Ok(*number),
            Value::Float(number) => argument.default.parse() == Ok(*number),
            Value::Text(text) => text == argument.default,
            Value::List(words) => {
                words.is_empty() || (words.len() == 1 && same(&words[0], argument))
            }
            Value::Variable(_) => false,
        }
    }

    /// The weight shards that shard no further: one a rank of the tensor parallelism `dest`, which
    /// `validate_args` writes where none is asked for.
    fn shards_none(&self, dest: &str) -> Option<i64> {
        self.integer(dest)
            .or_else(|| self.integer("tensor_model_parallel_size"))
    }

    /// The first of `switches` that is not at its default, or is at `name=value`.
    pub fn switched_on<'s>(&self, switches: &[&'s str]) -> Option<&'s str> {
        let on = |switch: &&&str| match switch.split_once('=') {
            Some((dest, word)) => self.text(dest) == Some(word),
            None => !self.is_default(switch),
        };
        switches.iter().find(on).copied()
    }
}

/// Along which parallelism an argument shards weights.
fn shards_of(dest: &str) -> Option<&'static str> {
    match dest {
        "tensor_parallel_num_weight_shards" => Some("tensor_model_parallel_size"),
        "expert_tensor_parallel_num_weight_shards" => Some("expert_tensor_parallel_size"),
        _ => None,
    }
}

/// Whether a name is one of a dump.
fn is_attribute(name: &str) -> bool {
    !name.starts_with("--") && !name.contains('.')
}

fn same(word: &str, argument: &Argument) -> bool {
    match argument.kind {
        Kind::Ints | Kind::Floats => {
            word.parse::<f64>().ok() == argument.default.parse::<f64>().ok()
        }
        _ => word == argument.default,
    }
}

/// A number that no count is.
fn out_of_range(
    argument: &Argument,
    spelling: Spelling,
    value: &Value,
    given: &GivenArgument,
) -> Option<Diagnostic> {
    let Value::Int(number) = value else {
        return None;
    };
    let range = counts::range(argument).filter(|range| !range.contains(number))?;
    let name = written(argument, spelling);
    let expected = match *range.end() {
        i64::MAX => format!("expected {} or more", range.start()),
        most => format!("expected {} to {most}", range.start()),
    };
    let finding = Diagnostic::error("out-of-range", format!("`{name}` is {number}"))
        .at(&given.value_place, expected);
    Some(match argument.name {
        "ddp-bucket-size" => finding.with_note(
            "Megatron takes it: with fewer every parameter has a bucket of its own, which is 1 \
             here; with more there is one bucket, and 4294967295 says so where no rank has more \
             parameters",
        ),
        _ => finding,
    })
}

fn unset(argument: &Argument, text: &str, given: &GivenArgument) -> Diagnostic {
    let shown = escaped(text);
    let message = format!("`{shown}` is not known here");
    let decides = matches!(argument.effect, Effect::Used(_) | Effect::Needs(_));
    // A test that runs again and again counts its runs (`REPEAT`, run_ci_test.sh): any is as good.
    let is_repeated = argument.name == "seed" && text == "${REPEAT}";
    if decides && !is_repeated {
        return Diagnostic::error("unset-variable", message)
            .at(&given.value_place, "nothing is assumed for it")
            .with_help(format!("write the value of `--{}`", argument.name));
    }
    let label = match argument.default {
        "" => "no value taken".to_string(),
        default => format!("{default} taken, Megatron's default"),
    };
    Diagnostic::warning("unset-variable", message).at(&given.value_place, label)
}

fn unknown(catalogue: &Catalogue, given: &GivenArgument) -> Diagnostic {
    let name = escaped(&given.flag);
    let finding = Diagnostic::error("unknown-argument", format!("Megatron has no `{name}`"))
        .at(&given.flag_place, "no such argument");
    let bare = given.flag.trim_start_matches("--");
    match nearest(bare, catalogue.names_like(&given.flag)) {
        Some(known) if given.flag.starts_with("--") => {
            finding.with_help(format!("did you mean `--{known}`?"))
        }
        Some(known) => finding.with_help(format!("did you mean `{known}`?")),
        None if is_abbreviation(catalogue, &given.flag) => {
            finding.with_note("Megatron's parser takes no abbreviations (allow_abbrev=False)")
        }
        None => finding,
    }
}

fn is_abbreviation(catalogue: &Catalogue, flag: &str) -> bool {
    let bare = flag.trim_start_matches("--");
    flag.starts_with("--")
        && catalogue
            .names_like(flag)
            .any(|known| known.starts_with(bare))
}

/// How an argument may be spelled in words, for a message.
pub(super) fn written(argument: &Argument, spelling: Spelling) -> String {
    match spelling {
        Spelling::Attribute => argument.dest(),
        Spelling::Positive | Spelling::Negative => format!("--{}", argument.name),
    }
}
