//! From the words behind a program to its arguments.
//!
//! A flag takes the words that follow it, up to the next flag; `--flag=value` is one word. As
//! Python's `argparse` does, `-1` and `-.5` are values, and of a repeated flag the last counts.

use super::text::Text;
use crate::diagnostic::{Diagnostic, Findings, Place, Source, escaped};
use crate::recipe::limits::{ARGUMENTS_MAX, VALUE_BYTES_MAX};
use crate::recipe::megatron::launch::is_hydra;
use crate::recipe::megatron::spelling::{folded, is_flag_to_argparse};
use crate::recipe::megatron::{Catalogue, GivenArgument, GivenValue, Kind};

pub(super) fn arguments(
    source: &Source,
    words: &[Text],
    findings: &mut Findings,
) -> Vec<GivenArgument> {
    let catalogue = Catalogue::default();
    let mut gathered: Vec<Gathered> = Vec::new();
    for word in words {
        if word.0.len() > VALUE_BYTES_MAX {
            let message = format!("a word is longer than {VALUE_BYTES_MAX} characters");
            let at = word.span().start;
            let place = Place::new(source, at..at);
            findings.push(Diagnostic::error("value-too-long", message).at(&place, "starts here"));
            return Vec::new();
        }
        if is_refused_as_value(word, &catalogue) {
            findings.push(refused_value(source, word, gathered.last()));
        }
        let last = gathered.last_mut();
        let is_full = last.as_deref().is_none_or(|last| last.is_full(&catalogue));
        let has_weight = last.as_deref().is_none_or(Gathered::wants_one_more);
        match (Gathered::starting_with(word, &catalogue), last) {
            (Some(argument), _) => gathered.push(argument),
            (None, _) if (is_full || !has_weight) && is_open(word) => {
                let message = format!("`{}` is not known here", escaped(&word.string()));
                findings.push(
                    Diagnostic::error("unset-variable", message)
                        .at(&Place::new(source, word.span()), "it may be any argument")
                        .with_help("set it in the script if it holds arguments, or leave it out"),
                );
            }
            (None, Some(last)) if !last.is_complete => last.values.push(word.clone()),
            (None, _) => {
                let message = format!("`{}` belongs to no flag", escaped(&word.string()));
                findings.push(Diagnostic::error("stray-word", message).at(
                    &Place::new(source, word.span()),
                    "expected a flag such as `--bf16`",
                ));
            }
        }
    }
    if gathered.len() > ARGUMENTS_MAX {
        let message = format!("there are more than {ARGUMENTS_MAX} arguments");
        let place = Place::new(source, gathered[ARGUMENTS_MAX].flag.span());
        findings.push(Diagnostic::error("too-many", message).at(&place, "one too many"));
        return Vec::new();
    }
    let all: Vec<GivenArgument> = gathered
        .iter()
        .map(|argument| argument.given(source, &catalogue))
        .collect();
    tell_repeated(&all, findings);
    all
}

/// A word that begins with what is not known: a variable, or what a command prints.
fn is_open(word: &Text) -> bool {
    word.starts_with("$") || word.starts_with("`")
}

/// Whether argparse takes a word for a flag that nobody has.
fn is_refused_as_value(word: &Text, catalogue: &Catalogue) -> bool {
    let text = word.string();
    let is_end_of_flags = text == "--";
    let is_flag = is_flag_to_argparse(&text) && !is_end_of_flags;
    is_flag && Gathered::starting_with(word, catalogue).is_none()
}

fn refused_value(source: &Source, word: &Text, last: Option<&Gathered>) -> Diagnostic {
    let text = word.string();
    let shown = escaped(&text);
    let finding = Diagnostic::error(
        "wrong-value",
        format!("`{shown}` is no value to argparse, which takes it for a flag"),
    )
    .at(
        &Place::new(source, word.span()),
        "a value may begin with `-` where it is a plain number, as `-1` or `-.5`",
    );
    match last.filter(|last| !last.is_complete) {
        Some(last) => {
            finding.with_help(format!("write `{}={shown}`", escaped(&last.flag.string())))
        }
        None => finding.with_help("leave it out"),
    }
}

struct Gathered {
    flag: Text,
    values: Vec<Text>,
    /// `--flag=value` takes no more words.
    is_complete: bool,
}

impl Gathered {
    /// Whether one more word would be no value of it.
    fn is_full(&self, catalogue: &Catalogue) -> bool {
        let Some((argument, _)) = catalogue.find(&self.flag.string()) else {
            return self.is_complete;
        };
        let most = match argument.kind {
            Kind::Ints | Kind::Floats | Kind::Texts => usize::MAX,
            _ if argument.is_flag() => 0,
            _ => 1,
        };
        self.is_complete || self.values.len() >= most
    }

    /// Whether a word that is not known is a value of it: its first, or the path behind a weight,
    /// `--data-path 0.5 $DATA`. Behind any other it may as well be a flag.
    fn wants_one_more(&self) -> bool {
        let is_weight = |value: &Text| value.string().parse::<f64>().is_ok();
        self.values.last().is_none_or(is_weight)
    }

    /// As argparse does, a word with a blank is a value, but for `--flag=a b` of a known flag.
    fn starting_with(word: &Text, catalogue: &Catalogue) -> Option<Gathered> {
        let first = |index: usize| word.0.get(index).map(|(c, _)| *c);
        let hydra = word.split_once('=').filter(|(name, _)| {
            let name = name.string();
            let is_key = |c: char| c.is_ascii_alphanumeric() || "_.+~@".contains(c);
            is_hydra(&name) && name.chars().all(is_key)
        });
        if let Some((name, value)) = hydra {
            return Some(Gathered {
                flag: name,
                values: vec![value],
                is_complete: true,
            });
        }
        let has_blank = word.0.iter().any(|(c, _)| *c == ' ');
        let is_known = || {
            let named = word.split_once('=');
            named.is_some_and(|(name, _)| catalogue.find(&name.string()).is_some())
        };
        let is_flag = match (first(0), first(1)) {
            (Some('-'), Some('-')) => first(2).is_some(),
            (Some('-'), Some(c)) => c.is_ascii_alphabetic(),
            _ => false,
        };
        let is_flag = is_flag && (!has_blank || is_known());
        is_flag.then(|| match word.split_once('=') {
            Some((flag, value)) => Gathered {
                flag,
                values: vec![value],
                is_complete: true,
            },
            None => Gathered {
                flag: word.clone(),
                values: Vec::new(),
                is_complete: false,
            },
        })
    }

    fn given(&self, source: &Source, catalogue: &Catalogue) -> GivenArgument {
        let flag = self.flag.string();
        let found = catalogue.find(&flag);
        let is_of_numbers =
            found.is_some_and(|(known, _)| matches!(known.kind, Kind::Ints | Kind::Floats));
        let value = match self.values.as_slice() {
            [] => GivenValue::On,
            [one] => match (is_hydra(&flag), one.string().as_str()) {
                (true, "True" | "true") => GivenValue::On,
                (true, "False" | "false") => GivenValue::Off,
                (true, "null" | "None") => GivenValue::Nothing,
                // One word is one item of a list: `'2 2'` is no number.
                (_, text) if is_of_numbers && text.contains(char::is_whitespace) => {
                    GivenValue::List(vec![text.to_string()])
                }
                (_, text) => GivenValue::Text(text.to_string()),
            },
            several => GivenValue::List(several.iter().map(Text::string).collect()),
        };
        let flag_span = self.flag.span();
        let first = self.values.first().map(Text::span);
        let value_span = first.filter(|span| !span.is_empty());
        GivenArgument {
            flag,
            value,
            flag_place: Place::new(source, flag_span.clone()),
            value_place: Place::new(source, value_span.unwrap_or(flag_span)),
        }
    }
}

/// Tells of arguments that come again with another value. argparse converts and checks each
/// occurrence, so each is handed on: the last one counts.
fn tell_repeated(arguments: &[GivenArgument], findings: &mut Findings) {
    let mut last = std::collections::BTreeMap::new();
    for (index, argument) in arguments.iter().enumerate() {
        last.insert(folded(&argument.flag), index);
    }
    for argument in arguments {
        let winner = &arguments[last[&folded(&argument.flag)]];
        if winner.value != argument.value {
            let message = format!("`{}` is given again", escaped(&argument.flag));
            findings.push(
                Diagnostic::warning("repeated-argument", message)
                    .at(&argument.flag_place, "not used")
                    .with_context(Some(&winner.flag_place), "the last one counts"),
            );
        }
    }
}
