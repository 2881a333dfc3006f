//! The words that Megatron's functional tests make of an entry of `MODEL_ARGS`.
//!
//! Source: `tests/functional_tests/shell_test_utils/_run_training.sh` of NVIDIA/Megatron-LM.
//! For an entry `--flag: value` it passes
//!
//! | value | words |
//! |---|---|
//! | `true` | `--flag` |
//! | `[a b]` | `--flag a b` |
//! | `(...)`, or with spaces | `--flag` and the value as one word |
//! | empty text `""` | nothing |
//! | anything else, `True`, `false`, `null` and `~` too | `--flag value` |
//!
//! `xargs` takes quotes and backslashes away before, and a shell reads the words behind: what one
//! of them stumbles over is refused here, and so is a word that argparse takes for a flag.
//!
//! Of an entry without any value it makes whatever `yq` makes of it: refused here.
//!
//! NeMo's tests (`trainer.devices: 8`, dots and no dashes) pass `trainer.devices=8` to Hydra, where
//! `True` and `False` are booleans.

mod words;

use super::GivenValue;
use super::yaml::{Child, Document, Entry, Scalar, View};
use crate::diagnostic::{Diagnostic, Findings, Place, escaped};

/// Whether `flag` is one of Hydra's.
pub(super) fn is_hydra(flag: &str) -> bool {
    !flag.starts_with('-') && flag.contains('.')
}

/// Letters, digits and underscores, no digit first.
pub(super) fn is_variable_name(name: &str) -> bool {
    let is_letter = |b: u8| b.is_ascii_alphabetic() || b == b'_';
    let mut bytes = name.bytes();
    bytes.next().is_some_and(is_letter) && bytes.all(|b| is_letter(b) || b.is_ascii_digit())
}

/// The value of an argument; `None` when a finding says why there is none.
pub(super) fn value(
    document: &Document,
    entry: &Entry<'_>,
    findings: &mut Findings,
) -> Option<GivenValue> {
    let flag = escaped(&entry.key.text);
    let place = document.place_of(entry.value);
    let scalar = match document.view(entry.value) {
        View::Scalar(scalar) => scalar,
        View::Sequence(items) => return list(document, (&flag, &place), items, findings),
        View::Mapping => {
            findings.push(
                Diagnostic::error("wrong-type", format!("`{flag}` is a mapping"))
                    .at(&place, "expected one value or a list"),
            );
            return None;
        }
    };
    if scalar.text.contains(['\n', '\r']) {
        findings.push(
            Diagnostic::error(
                "wrong-type",
                format!("the value of `{flag}` has several lines"),
            )
            .at(&place, "expected one line")
            .with_note("the script that runs functional tests takes each line for an entry"),
        );
        return None;
    }
    if is_hydra(&entry.key.text) {
        return Some(hydra_value(scalar));
    }
    let is_left_out = scalar.text.is_empty() && !scalar.is_plain;
    if scalar.text.trim().is_empty() && !is_left_out {
        findings.push(
            Diagnostic::error("empty-value", format!("`{flag}` has no value"))
                .at(&place, "expected `true` for a switch, else its value")
                .with_help("leave the line out to have Megatron's default"),
        );
        return None;
    }
    let mut own = Findings::default();
    let value = flag_value(&flag, scalar, &place, &mut own);
    let is_refused = own.has_errors();
    own.into_vec()
        .into_iter()
        .for_each(|finding| findings.push(finding));
    (!is_refused).then_some(value)
}

fn flag_value(flag: &str, scalar: &Scalar, place: &Place, findings: &mut Findings) -> GivenValue {
    let mut odd = |message: String, label: &str| {
        let finding = Diagnostic::warning("launch-words", message).at(place, label);
        findings.push(finding);
    };
    let Some(text) = words::trimmed(&scalar.text) else {
        findings.push(words::unbalanced(flag, place));
        return GivenValue::Nothing;
    };
    // It compares text: `True` is passed on, as any other word.
    if text == "true" {
        return GivenValue::On;
    }
    if text.is_empty() {
        odd(
            format!("`{flag}` is not passed"),
            "the script leaves out an empty text",
        );
        return GivenValue::Nothing;
    }
    if scalar.boolean().is_some() {
        let message = format!("`{flag}` is passed with the word `{text}`");
        let label = match scalar.boolean() {
            Some(true) => "a switch takes no value: write `true`",
            _ => "a switch takes no value: to leave it off, leave the line out",
        };
        odd(message, label);
        return match text.as_str() {
            "false" => GivenValue::Off,
            _ => GivenValue::Text(text),
        };
    }
    // `yq` writes it as the word that it is (`tostring`).
    if scalar.is_null() {
        let message = format!("`{flag}` is passed with the word `{text}`");
        odd(message, "to have Megatron's default, leave the line out");
        return GivenValue::Text(text);
    }
    let (value, is_quoted) = match bracketed(&text) {
        Some(inside) => {
            let words = inside.split_whitespace().map(str::to_string);
            (GivenValue::List(words.collect()), false)
        }
        None => {
            let is_quoted = text.contains(' ') || is_in_parentheses(&text);
            (GivenValue::Text(text), is_quoted)
        }
    };
    words::check(flag, &value, is_quoted, place, findings);
    value
}

/// `(...)` with no other bracket that closes: passed as one word.
fn is_in_parentheses(text: &str) -> bool {
    let inside = text
        .strip_prefix('(')
        .and_then(|text| text.strip_suffix(')'));
    inside.is_some_and(|inside| !inside.is_empty() && !inside.contains(')'))
}

/// What stands in `[...]`, if there is no other bracket that closes.
fn bracketed(text: &str) -> Option<&str> {
    let inside = text.strip_prefix('[')?.strip_suffix(']')?;
    (!inside.is_empty() && !inside.contains(']')).then_some(inside)
}

fn hydra_value(scalar: &Scalar) -> GivenValue {
    match scalar.boolean() {
        Some(true) => GivenValue::On,
        Some(false) => GivenValue::Off,
        None if scalar.is_null() => GivenValue::Nothing,
        None => GivenValue::Text(scalar.text.clone()),
    }
}

/// A list of YAML's own, `[a b]` without quotes or a block of `- a`.
fn list(
    document: &Document,
    (flag, place): (&str, &Place),
    items: &[Child],
    findings: &mut Findings,
) -> Option<GivenValue> {
    let Some(first) = items.first() else {
        findings.push(
            Diagnostic::error("launch-words", format!("`{flag}` is an empty list"))
                .at(place, "expected words in brackets")
                .with_help("leave the line out, or name what the list is of"),
        );
        return None;
    };
    let mut words = Vec::new();
    for item in items {
        match document.view(item) {
            View::Scalar(scalar) if !scalar.text.contains(['\n', '\r']) => {
                words.extend(scalar.text.split_whitespace().map(str::to_string));
            }
            view => {
                let message = format!("`{flag}` has an item that is {}", view.kind());
                findings.push(
                    Diagnostic::error("wrong-type", message)
                        .at(&document.place_of(item), "expected words"),
                );
                return None;
            }
        }
    }
    if items.len() > 1 || document.is_in_block(first) {
        let message = format!("`{flag}` is a list with commas or dashes");
        findings.push(
            Diagnostic::error("launch-words", message)
                .at(&document.place_of(first), "expected words in brackets")
                .with_note(
                    "the script that runs functional tests passes commas and dashes on as parts of \
                     the words, which Megatron-LM takes for other values",
                )
                .with_help(format!(
                    "write `{flag}: \"[{}]\"`",
                    escaped(&words.join(" "))
                )),
        );
        return None;
    }
    let value = GivenValue::List(words);
    let mut own = Findings::default();
    words::check(flag, &value, false, &document.place_of(first), &mut own);
    let is_refused = own.has_errors();
    own.into_vec()
        .into_iter()
        .for_each(|finding| findings.push(finding));
    (!is_refused).then_some(value)
}
