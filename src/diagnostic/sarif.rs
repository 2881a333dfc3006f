//! Diagnostics as a SARIF log, for code scanning and editors.
//!
//! Source: "Static Analysis Results Interchange Format (SARIF) Version 2.1.0", OASIS Standard,
//! 27 March 2020; section numbers below are its.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{Diagnostic, Place, Severity, shown};

/// The format's version and its schema (3.13).
pub const SARIF_VERSION: &str = "2.1.0";
const SCHEMA: &str =
    "https://docs.oasis-open.org/sarif/sarif/v2.1.0/os/schemas/sarif-schema-2.1.0.json";

/// One run of `bitproof` as a SARIF log: a rule a code, a result a diagnostic. `exit_code` is what
/// the process ends with.
pub fn sarif(diagnostics: &[Diagnostic], exit_code: u8) -> Value {
    let codes: BTreeSet<&str> = diagnostics.iter().map(|found| found.code).collect();
    let codes: Vec<&str> = codes.into_iter().collect();
    let rules: Vec<Value> = codes
        .iter()
        .map(|code| json!({ "id": code, "name": pascal_case(code) }))
        .collect();
    let result = |found: &Diagnostic| {
        let rule = codes.binary_search(&found.code);
        found.to_sarif_result(rule.expect("every code is a rule"))
    };
    json!({
        "$schema": SCHEMA,
        "version": SARIF_VERSION,
        "runs": [{
            "tool": { "driver": {
                "name": env!("CARGO_PKG_NAME"),
                "version": env!("CARGO_PKG_VERSION"),
                "semanticVersion": env!("CARGO_PKG_VERSION"),
                "rules": rules,
            }},
            // A fault of the tool or of what it runs on, not of what it looked at (3.20.14).
            "invocations": [{
                "executionSuccessful": ![NOTHING_CHECKED, INTERNAL].contains(&exit_code),
                "exitCode": exit_code,
            }],
            "columnKind": "unicodeCodePoints",
            "results": diagnostics.iter().map(result).collect::<Vec<_>>(),
        }],
    })
}

/// The exit code where nothing was checked: no adapter, or none that is large enough.
const NOTHING_CHECKED: u8 = 5;
/// The exit code of an internal error.
const INTERNAL: u8 = 70;

impl Diagnostic {
    /// The finding as a `result` object (3.27).
    fn to_sarif_result(&self, rule: usize) -> Value {
        let level = match self.severity {
            Severity::Error => "error",
            Severity::Warning => "warning",
            Severity::Note => "note",
        };
        let mut result = json!({
            "ruleId": self.code,
            "ruleIndex": rule,
            "kind": "fail",
            "level": level,
            "message": { "text": self.in_words() },
        });
        if let Some((place, _)) = &self.place {
            result["locations"] = json!([location(place)]);
        }
        if !self.context.is_empty() {
            let related = self.context.iter().enumerate().map(|(id, (place, label))| {
                let mut location = location(place);
                location["id"] = json!(id);
                location["message"] = json!({ "text": shown(label) });
                location
            });
            result["relatedLocations"] = related.collect();
        }
        if !self.help.is_empty() {
            let help: Vec<String> = self.help.iter().map(|help| shown(help)).collect();
            result["properties"] = json!({ "help": help });
        }
        result
    }
}

/// A `location` object (3.28). What was given by a flag lies in no artifact.
fn location(place: &Place) -> Value {
    let name = &*place.source.name;
    if !place.source.is_file() {
        return json!({ "logicalLocations": [{ "fullyQualifiedName": shown(name) }] });
    }
    json!({ "physicalLocation": {
        "artifactLocation": { "uri": uri(name) },
        "region": region(place),
    }})
}

/// A `region` object (3.30): lines and columns from 1, the end after the last character. A place
/// that covers a whole text says only which file; consumers want a line all the same.
fn region(place: &Place) -> Value {
    if place.source.is_whole(&place.span) {
        return json!({ "startLine": 1 });
    }
    let (line, column) = place.source.line_column(place.span.start);
    let (end_line, end_column) = place
        .source
        .line_column(place.span.end.max(place.span.start));
    json!({
        "startLine": line,
        "startColumn": column,
        "endLine": end_line,
        "endColumn": end_column,
    })
}

/// A path as a URI reference (RFC 3986; 3.4.3): relative stays relative, absolute gets its scheme,
/// what may not stand in a path is percent-encoded.
fn uri(path: &str) -> String {
    let path = path.strip_prefix("./").unwrap_or(path);
    let mut uri = String::with_capacity(path.len() + 8);
    if path.starts_with('/') {
        uri.push_str("file://");
    }
    for byte in path.bytes() {
        match byte {
            // `unreserved` and the `sub-delims` that no reader trips over; a colon in a first
            // segment would make it a scheme.
            b'A'..=b'Z'
            | b'a'..=b'z'
            | b'0'..=b'9'
            | b'-'
            | b'.'
            | b'_'
            | b'~'
            | b'/'
            | b'+'
            | b'='
            | b'@' => uri.push(char::from(byte)),
            b'\\' if cfg!(windows) => uri.push('/'),
            _ => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri
}

/// `does-not-divide` as `DoesNotDivide`: a rule's name is an identifier (3.49.7).
fn pascal_case(code: &str) -> String {
    let capital = |word: &str| {
        let (first, rest) = word.split_at(word.len().min(1));
        first.to_ascii_uppercase() + rest
    };
    code.split('-').map(capital).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Source;
    use super::*;

    /// What the schema requires of each object, and what it restricts, as far as we write it.
    pub(crate) fn complaints(log: &Value) -> Vec<String> {
        let mut found = Vec::new();
        let mut want = |holds: bool, what: &str| {
            if !holds {
                found.push(what.to_string());
            }
        };
        want(log["version"] == "2.1.0", "version");
        let runs = log["runs"].as_array().map_or(&[][..], Vec::as_slice);
        want(!runs.is_empty(), "runs");
        for run in runs {
            let driver = &run["tool"]["driver"];
            want(driver["name"].is_string(), "driver.name");
            let rules = driver["rules"].as_array().map_or(&[][..], Vec::as_slice);
            let ids: BTreeSet<&str> = rules
                .iter()
                .filter_map(|rule| rule["id"].as_str())
                .collect();
            want(ids.len() == rules.len(), "rule ids are unique strings");
            for invocation in run["invocations"].as_array().map_or(&[][..], Vec::as_slice) {
                want(
                    invocation["executionSuccessful"].is_boolean(),
                    "executionSuccessful",
                );
                want(invocation["exitCode"].is_u64(), "exitCode");
            }
            let kinds = ["utf16CodeUnits", "unicodeCodePoints"];
            want(
                kinds.map(Value::from).contains(&run["columnKind"]),
                "columnKind",
            );
            for result in run["results"].as_array().map_or(&[][..], Vec::as_slice) {
                want(result["message"]["text"].is_string(), "message.text");
                let levels = ["none", "note", "warning", "error"];
                want(levels.map(Value::from).contains(&result["level"]), "level");
                let rule = result["ruleIndex"]
                    .as_u64()
                    .and_then(|at| rules.get(at as usize));
                want(
                    rule.is_some_and(|rule| rule["id"] == result["ruleId"]),
                    "ruleIndex",
                );
                for key in ["locations", "relatedLocations"] {
                    for location in result[key].as_array().map_or(&[][..], Vec::as_slice) {
                        of_location(location, &mut want);
                    }
                }
            }
        }
        found
    }

    fn of_location(location: &Value, want: &mut impl FnMut(bool, &str)) {
        let Some(physical) = location.get("physicalLocation") else {
            want(
                location["logicalLocations"].is_array(),
                "a location of some kind",
            );
            return;
        };
        let uri = physical["artifactLocation"]["uri"].as_str().unwrap_or(" ");
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-._~/+=@%:".contains(c);
        want(uri.chars().all(allowed), "artifactLocation.uri");
        let region = &physical["region"];
        let number = |key: &str| region[key].as_u64();
        want(
            number("startLine").is_some_and(|line| line >= 1),
            "startLine",
        );
        let ordered = match (number("startLine"), number("endLine")) {
            (Some(start), Some(end)) => start <= end,
            _ => true,
        };
        want(ordered, "endLine");
        for key in ["startColumn", "endColumn"] {
            want(region.get(key).is_none() || number(key) >= Some(1), key);
        }
    }

    fn sample() -> Diagnostic {
        let source = Source::new(
            "my recipes/a,b.toml",
            "num_layers = 4\nhidden_size = \"big\"\n",
        );
        Diagnostic::error("wrong-type", "`hidden_size` is a string")
            .at(&Place::new(&source, 29..34), "expected an integer")
            .with_context(Some(&Place::new(&source, 0..10)), "beside this one")
            .with_help("write `hidden_size = 64`")
    }

    #[test]
    fn a_diagnostic_is_a_result_with_its_place_and_its_rule() {
        let log = sarif(&[Diagnostic::warning("a-code", "first"), sample()], 2);
        assert_eq!(complaints(&log), Vec::<String>::new());
        let run = &log["runs"][0];
        assert_eq!(run["tool"]["driver"]["rules"][1]["id"], "wrong-type");
        assert_eq!(run["tool"]["driver"]["rules"][1]["name"], "WrongType");
        let result = &run["results"][1];
        assert_eq!(
            (&result["ruleIndex"], &result["level"]),
            (&json!(1), &json!("error"))
        );
        let text = "`hidden_size` is a string: expected an integer\nhelp: write `hidden_size = 64`";
        assert_eq!(result["message"]["text"], text);
        let place = &result["locations"][0]["physicalLocation"];
        assert_eq!(place["artifactLocation"]["uri"], "my%20recipes/a%2Cb.toml");
        let region = json!({ "startLine": 2, "startColumn": 15, "endLine": 2, "endColumn": 20 });
        assert_eq!(place["region"], region);
        assert_eq!(
            result["relatedLocations"][0]["message"]["text"],
            "beside this one"
        );
        assert_eq!(run["invocations"][0]["exitCode"], 2);
    }

    #[test]
    fn nothing_found_is_a_sound_log() {
        let log = sarif(&[], 0);
        assert_eq!(complaints(&log), Vec::<String>::new());
        assert_eq!(log["runs"][0]["results"], json!([]));
        for (code, is_successful) in [(0, true), (1, true), (2, true), (5, false), (70, false)] {
            let log = sarif(&[], code);
            let invocation = &log["runs"][0]["invocations"][0];
            assert_eq!(invocation["executionSuccessful"], is_successful, "{code}");
        }
    }

    #[test]
    fn hostile_names_and_texts_are_written_out() {
        let source = Source::new("/tmp/\u{1b}[2J\u{f6} :%.toml", "\u{9b}x = 1");
        let backwards = std::ops::Range { start: 99, end: 3 };
        let found = Diagnostic::error("w", "\u{1b}[0m\u{9b}\n\u{7f}")
            .at(&Place::new(&source, backwards), "\u{1}")
            .with_context(Some(&Place::new(&source, 0..source.text.len())), "\u{2}")
            .with_help("\u{3}");
        let flag = Source::new("--set", "a\u{1b}=1");
        let flag = Diagnostic::error("f", "m").at(&Place::new(&flag, 0..1), "");
        let log = sarif(&[found, flag], 2);
        assert_eq!(complaints(&log), Vec::<String>::new());
        let results = &log["runs"][0]["results"];
        let uri = &results[0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"];
        assert_eq!(uri, "file:///tmp/%1B%5B2J%C3%B6%20%3A%25.toml");
        assert!(results[1]["locations"][0].get("physicalLocation").is_none());
        fn strings(value: &Value, all: &mut String) {
            match value {
                Value::String(text) => all.push_str(text),
                Value::Array(items) => items.iter().for_each(|item| strings(item, all)),
                Value::Object(map) => map.values().for_each(|item| strings(item, all)),
                _ => {}
            }
        }
        let mut all = String::new();
        strings(&log, &mut all);
        assert!(all.chars().all(|c| c == '\n' || !c.is_control()), "{all:?}");
    }

    /// The negative controls of the checks above.
    #[test]
    fn a_broken_log_is_complained_about() {
        let sound = sarif(&[sample()], 2);
        type Break = (&'static str, fn(&mut Value));
        let breaks: [Break; 6] = [
            ("version", |log| log["version"] = json!("2.0")),
            ("message.text", |log| {
                log["runs"][0]["results"][0]["message"] = json!({});
            }),
            ("level", |log| {
                log["runs"][0]["results"][0]["level"] = json!("fatal")
            }),
            ("ruleIndex", |log| {
                log["runs"][0]["results"][0]["ruleIndex"] = json!(7)
            }),
            ("executionSuccessful", |log| {
                log["runs"][0]["invocations"][0]["executionSuccessful"] = json!(1);
            }),
            ("startLine", |log| {
                let location = &mut log["runs"][0]["results"][0]["locations"][0];
                location["physicalLocation"]["region"]["startLine"] = json!(0);
            }),
        ];
        for (what, break_it) in breaks {
            let mut log = sound.clone();
            break_it(&mut log);
            assert_eq!(complaints(&log), [what]);
        }
    }
}
