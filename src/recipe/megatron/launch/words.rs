//! What `xargs` and the shell make of a value, in the script that runs functional tests.

use super::super::GivenValue;
use super::super::spelling::is_flag_to_argparse;
use crate::diagnostic::{Diagnostic, Findings, Place, escaped};

/// The value as `echo VALUE | xargs` prints it: quotes and backslashes are taken away, and blanks
/// become one. `None` where a quote is not closed, at which `xargs` ends the script.
pub(super) fn trimmed(text: &str) -> Option<String> {
    let mut words: Vec<String> = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            quote @ ('\'' | '"') => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next()? {
                        c if c == quote => break,
                        c => word.push(c),
                    }
                }
            }
            '\\' => word.get_or_insert_default().push(chars.next()?),
            c if c.is_whitespace() => words.extend(word.take()),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Some(words.join(" "))
}

pub(super) fn unbalanced(flag: &str, place: &Place) -> Diagnostic {
    Diagnostic::error(
        "wrong-value",
        format!("`{flag}` has a quote that is not closed"),
    )
    .at(
        place,
        "`xargs` ends the script that runs functional tests here",
    )
    .with_help("leave the quote out")
}

/// Refuses words that are no values: those that the shell does not take as they are, and those that
/// argparse takes for flags.
pub(super) fn check(
    flag: &str,
    value: &GivenValue,
    is_quoted: bool,
    place: &Place,
    findings: &mut Findings,
) {
    let words: Vec<&str> = match value {
        GivenValue::Text(text) => vec![text],
        GivenValue::List(words) => words.iter().map(String::as_str).collect(),
        _ => Vec::new(),
    };
    for word in words {
        let shown = escaped(word);
        if is_flag_to_argparse(word) {
            findings.push(
                Diagnostic::error(
                    "wrong-value",
                    format!("`{shown}` is no value of `{flag}`: argparse takes it for a flag"),
                )
                .at(
                    place,
                    "a value may begin with `-` where it is a plain number",
                )
                .with_help("give a flag an entry of its own"),
            );
        } else if ends_array(word, is_quoted) {
            findings.push(
                Diagnostic::error(
                    "wrong-value",
                    format!("`{flag}` has the value `{shown}`, at which the shell stumbles"),
                )
                .at(place, "the script that runs functional tests ends here")
                .with_note("it hands its words to `eval` (_run_training.sh)"),
            );
        }
    }
}

/// Whether a word breaks the array of words that the script evaluates. Between double quotes only
/// what quotes does. Layouts such as `Et|(tt|)*6mL` stand in Megatron's own tests, and pass.
fn ends_array(word: &str, is_quoted: bool) -> bool {
    let is_broken = word.contains(['"', '`', '\\']);
    let is_bare = word.starts_with('#') || word.contains([';', '&', '\'']);
    is_broken || (!is_quoted && is_bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xargs_takes_quotes_and_blanks_away() {
        for (text, printed) in [
            ("a", Some("a")),
            ("  a   b ", Some("a b")),
            ("'a  b' c", Some("a  b c")),
            ("\"it's\"", Some("it's")),
            ("a\\'b", Some("a'b")),
            ("''", Some("")),
            ("", Some("")),
            ("it's", None),
            ("\"a", None),
            ("a\\", None),
        ] {
            assert_eq!(trimmed(text).as_deref(), printed, "{text}");
        }
    }
}
