//! The file: findings of each scenario, sorted, to be kept beside the scenarios.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{Finding, Listed};
use crate::diagnostic::{Diagnostic, Place, Source};

const FORMAT: &str = "bitproof-baseline";
const FORMAT_VERSION: u32 = 1;

/// Known findings, by the names of their scenarios.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Baseline {
    scenarios: BTreeMap<String, Listed>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    format: String,
    format_version: u32,
    scenarios: Vec<WrittenScenario>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenScenario {
    name: String,
    findings: Vec<Finding>,
}

impl Baseline {
    /// Reads a file.
    ///
    /// # Errors
    /// No file, or one of another form, with the place.
    pub fn read(path: &Path) -> Result<Baseline, Box<Diagnostic>> {
        let refuse = |message: String| Box::new(Diagnostic::error("baseline", message));
        let source = Source::read(path).map_err(|error| {
            let help = "`bitproof check ... --write-baseline FILE` writes one";
            Box::new(refuse(error.to_string()).with_help(help))
        })?;
        let written: Written = serde_json::from_str(&source.text).map_err(|error| {
            let at = offset_of(&source.text, error.line(), error.column());
            let finding = refuse(format!("not a baseline: {error}"));
            Box::new(finding.at(&Place::new(&source, at..at + 1), "read up to here"))
        })?;
        let place = Place::new(&source, 0..1);
        if (&*written.format, written.format_version) != (FORMAT, FORMAT_VERSION) {
            let (format, version) = (written.format, written.format_version);
            let finding = refuse(format!("this is `{format}` of version {version}"));
            let label = format!("expected `{FORMAT}` of version {FORMAT_VERSION}");
            return Err(Box::new(finding.at(&place, &label)));
        }
        let mut baseline = Baseline::default();
        for WrittenScenario { name, findings } in written.scenarios {
            let findings: BTreeSet<Finding> = findings.into_iter().collect();
            if baseline.scenarios.insert(name.clone(), findings).is_some() {
                let finding = refuse(format!("scenario `{name}` is there twice"));
                return Err(Box::new(finding.at(&place, "expected each scenario once")));
            }
        }
        Ok(baseline)
    }

    /// The known findings of a scenario.
    pub(super) fn of(&self, scenario: &str) -> Listed {
        self.scenarios.get(scenario).cloned().unwrap_or_default()
    }

    /// Adds what was found in a scenario; false where that name was there before.
    pub fn add(&mut self, scenario: &str, findings: BTreeSet<Finding>) -> bool {
        let known = self.scenarios.insert(scenario.to_string(), findings);
        known.is_none()
    }

    /// Scenarios with known findings that are not among `checked`.
    pub fn not_among<'a>(&'a self, checked: &BTreeSet<String>) -> Vec<&'a str> {
        let names = self.scenarios.iter();
        let names =
            names.filter(|(name, findings)| !findings.is_empty() && !checked.contains(*name));
        names.map(|(name, _)| &**name).collect()
    }

    /// How many findings there are.
    pub fn len(&self) -> usize {
        self.scenarios.values().map(BTreeSet::len).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The text of the file.
    pub fn to_json(&self) -> String {
        let scenarios = self
            .scenarios
            .iter()
            .map(|(name, findings)| WrittenScenario {
                name: name.clone(),
                findings: findings.iter().cloned().collect(),
            });
        let written = Written {
            format: FORMAT.to_string(),
            format_version: FORMAT_VERSION,
            scenarios: scenarios.collect(),
        };
        let text = serde_json::to_string_pretty(&written).expect("plain data has a JSON form");
        text + "\n"
    }
}

/// The byte that a parser names by line and column, both from 1.
fn offset_of(text: &str, line: usize, column: usize) -> usize {
    let before: usize = text
        .split_inclusive('\n')
        .take(line.saturating_sub(1))
        .map(str::len)
        .sum();
    let mut at = (before + column.saturating_sub(1)).min(text.len().saturating_sub(1));
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}
