//! One value, read as argparse reads it for its kind of argument.

use super::super::GivenValue;
use super::super::catalogue::{Argument, Effect, Kind, Spelling};
use super::number::{integer, real};
use super::values::{Value, written};
use crate::diagnostic::escaped;

/// What a value came to.
pub(super) enum Parsed {
    Value(Value),
    /// Megatron's parser would refuse it.
    Wrong {
        message: String,
        expected: String,
    },
}

pub(super) fn parse(argument: &Argument, spelling: Spelling, given: &GivenValue) -> Parsed {
    if argument.is_flag() {
        return flag(argument, spelling, given);
    }
    match given {
        GivenValue::Nothing => Parsed::Value(Value::Nothing),
        GivenValue::On | GivenValue::Off if spelling == Spelling::Attribute => {
            Parsed::Value(Value::Text(
                if *given == GivenValue::On {
                    "True"
                } else {
                    "False"
                }
                .to_string(),
            ))
        }
        GivenValue::On => wrong(argument, spelling, "no value", "a value"),
        // The script of functional tests passes the word on.
        GivenValue::Off => one(argument, spelling, "false"),
        GivenValue::Text(text) => one(argument, spelling, text),
        GivenValue::List(words) => several(argument, spelling, words),
    }
}

fn flag(argument: &Argument, spelling: Spelling, given: &GivenValue) -> Parsed {
    let on = match given {
        GivenValue::On => true,
        // Passed on by the script of functional tests: argparse refuses it as well.
        GivenValue::Off if spelling != Spelling::Attribute => {
            let expected = "no value: it is a switch, and Megatron's parser refuses one";
            return wrong(argument, spelling, "false", expected);
        }
        GivenValue::Off => false,
        GivenValue::Nothing => return Parsed::Value(Value::Nothing),
        // argparse refuses a switch's value, `--x=true` and `--x true` alike.
        GivenValue::Text(text) if spelling != Spelling::Attribute => {
            let expected = match text.contains('$') {
                true => "what stands behind the switch is not known here",
                false => "no value: it is a switch, and Megatron's parser refuses one",
            };
            return wrong(argument, spelling, text, expected);
        }
        // A dump shows `True` or `False`.
        GivenValue::Text(text) => {
            return wrong(argument, spelling, text, "no value: it is a switch");
        }
        GivenValue::List(words) => {
            return wrong(
                argument,
                spelling,
                &words.join(" "),
                "no value: it is a switch",
            );
        }
    };
    match (spelling, on) {
        (Spelling::Attribute | Spelling::Positive, on) => Parsed::Value(Value::Flag(on)),
        (Spelling::Negative, on) => Parsed::Value(Value::Flag(!on)),
    }
}

fn one(argument: &Argument, spelling: Spelling, text: &str) -> Parsed {
    if text.contains('$') {
        return Parsed::Value(Value::Variable(text.to_string()));
    }
    let parsed = match argument.kind {
        Kind::Int => integer(text).map(Value::Int),
        Kind::Float => real(text).map(Value::Float),
        Kind::Word(words) => word(argument, words, spelling, text).map(Value::Text),
        Kind::Text => Some(Value::Text(text.to_string())),
        Kind::Ints | Kind::Floats | Kind::Texts => {
            return several(argument, spelling, &items(argument.kind, spelling, text));
        }
        Kind::On | Kind::Off | Kind::GeneratedOff | Kind::Toggle => None,
    };
    match parsed {
        Some(value) => Parsed::Value(value),
        None => wrong(argument, spelling, text, &expected(argument.kind)),
    }
}

fn several(argument: &Argument, spelling: Spelling, words: &[String]) -> Parsed {
    let is_sound = |word: &String| match argument.kind {
        Kind::Ints => integer(word).is_some(),
        Kind::Floats => real(word).is_some(),
        _ => true,
    };
    match argument.kind {
        Kind::Ints | Kind::Floats | Kind::Texts => match words.iter().find(|w| !is_sound(w)) {
            None => Parsed::Value(Value::List(words.to_vec())),
            Some(odd) => wrong(argument, spelling, odd, &expected(argument.kind)),
        },
        // A dump prints tuples and patterns as lists.
        Kind::Text if spelling == Spelling::Attribute => {
            Parsed::Value(Value::Text(words.join(" ")))
        }
        // A dump shows a list where there is one.
        _ if words.len() == 1 && spelling != Spelling::Attribute => {
            one(argument, spelling, &words[0])
        }
        _ => wrong(
            argument,
            spelling,
            &words.join(" "),
            &expected(argument.kind),
        ),
    }
}

/// The items of a list that was given as one word: argparse takes a word for one item, whatever
/// stands in it. A functional test's `2 2` is read as numbers, as its author meant it; a dump and
/// Hydra write whole lists.
fn items(kind: Kind, spelling: Spelling, text: &str) -> Vec<String> {
    match (kind, spelling) {
        (_, Spelling::Attribute) => split(text),
        (Kind::Texts, _) => vec![text.to_string()],
        _ => text.split_whitespace().map(str::to_string).collect(),
    }
}

/// A word of a fixed set. A dump shows enumerations and number formats by their Python names, and
/// may be of a version with other words: refused where the recipe would have to follow them.
fn word(argument: &Argument, words: &[&str], spelling: Spelling, text: &str) -> Option<String> {
    if spelling != Spelling::Attribute {
        return words.contains(&text).then(|| text.to_string());
    }
    let short = match text {
        "torch.float32" => "fp32",
        "torch.bfloat16" => "bf16",
        "torch.float16" => "fp16",
        "torch.uint8" => "fp8",
        other => other.rsplit('.').next().unwrap_or(other),
    };
    let is_followed = matches!(argument.effect, Effect::Used(_));
    match words.contains(&short) {
        true => Some(short.to_string()),
        false => (!is_followed).then(|| text.to_string()),
    }
}

/// The words of a list that was written as one text: `[1, 2]`, `1 2`.
fn split(text: &str) -> Vec<String> {
    let inside = text.trim().trim_matches(['[', ']', '(', ')']);
    let words = inside.split([' ', ',']);
    words
        .map(|word| word.trim_matches(['\'', '"']).to_string())
        .filter(|word| !word.is_empty())
        .collect()
}

fn expected(kind: Kind) -> String {
    match kind {
        Kind::Int => "a whole number".to_string(),
        Kind::Float => "a number".to_string(),
        Kind::Ints => "whole numbers".to_string(),
        Kind::Floats => "numbers".to_string(),
        Kind::Text => "one value".to_string(),
        Kind::Texts => "values".to_string(),
        Kind::Word(words) => format!("one of {}", words.join(", ")),
        Kind::On | Kind::Off | Kind::GeneratedOff | Kind::Toggle => "no value".to_string(),
    }
}

fn wrong(argument: &Argument, spelling: Spelling, text: &str, expected: &str) -> Parsed {
    let name = written(argument, spelling);
    Parsed::Wrong {
        message: format!("`{name}` has {}", shown(text)),
        expected: match expected.starts_with("what ") {
            true => expected.to_string(),
            false => format!("expected {expected}"),
        },
    }
}

fn shown(text: &str) -> String {
    const SHOWN_CHARS: usize = 60;
    if text == "no value" {
        return text.to_string();
    }
    let short: String = text.chars().take(SHOWN_CHARS).collect();
    format!("the value `{}`", escaped(&short))
}
