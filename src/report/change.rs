//! What an intended change does: where the bits of two scenarios part first, apart from what
//! varies from run to run.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::Report;
use super::baseline::Finding;
use super::names::ranks;
use crate::diagnostic::Diagnostic;
use crate::prove::outcome::Outcome;
use crate::scenario::Grade;
use crate::trace::diff::{Difference, Divergence, Role};
use crate::trace::native::Earliest;

/// Findings of one side that are told in sentences; JSON has all.
const FINDINGS_TOLD: usize = 8;

/// Two checked scenarios, and where their reference runs part.
#[derive(Clone, Debug)]
pub struct Change<'a> {
    /// As they were named.
    pub paths: [String; 2],
    pub reports: [&'a Report; 2],
    /// Records that agree, of all ranks.
    pub records: u64,
    /// Nothing where no record differs.
    pub first: Option<Earliest>,
}

impl Change<'_> {
    fn outcomes(&self) -> [&Outcome; 2] {
        self.reports.map(|report| &report.outcome)
    }

    /// What each check finds and the other does not: what acts in restarts, other orders and
    /// other layouts is in no record of a straight run.
    fn own_findings(&self) -> [BTreeSet<Finding>; 2] {
        let [a, b] = self.reports.map(Report::found);
        [&a - &b, &b - &a]
    }

    fn without_records(&self, found: &[BTreeSet<Finding>; 2]) -> Vec<String> {
        let [a, b] = &self.paths;
        let mut told = vec![format!(
            "{b} changes no bit of {a}'s straight run: all {} records of both reference runs are \
             the same",
            self.records
        )];
        if found.iter().any(|own| !own.is_empty()) {
            told.push(
                "it acts in other runs of the two checks: they find other things".to_string(),
            );
        }
        told
    }

    /// The choice of which scenario parts at that very place from run to run, by its own check.
    fn varies_there(&self) -> Vec<&str> {
        let Some(first) = &self.first else {
            return Vec::new();
        };
        let point = &first.divergence.point;
        let is_there = |outcome: &&Outcome| {
            outcome.first_divergence.as_ref().is_some_and(|own| {
                let site = &own.site;
                (site.phase.name(), &*site.module, &*site.op)
                    == (&*point.phase, &*point.scope, &*point.name)
            })
        };
        let both = self.paths.iter().zip(self.outcomes());
        let varying = both.filter(|(_, outcome)| is_there(outcome));
        varying.map(|(path, _)| &**path).collect()
    }

    /// All of it in sentences.
    pub fn sentences(&self) -> Vec<String> {
        let [a, b] = &self.paths;
        let found = self.own_findings();
        let mut told = match &self.first {
            None => self.without_records(&found),
            Some(first) => vec![
                format!("{b} parts from {a} first at {}", place(first)),
                made(&first.divergence).to_string(),
            ],
        };
        told.push(
            "both runs are in canonical order: what varies from run to run has no part in this"
                .to_string(),
        );
        for (path, outcome) in self.paths.iter().zip(self.outcomes()) {
            told.push(format!("from run to run {path} is {}", varies(outcome)));
        }
        for (path, own) in self.paths.iter().zip(&found) {
            let own = own.iter().take(FINDINGS_TOLD);
            told.extend(own.map(|one| format!("only {path}: {} ({})", one.what, one.code)));
        }
        for path in self.varies_there() {
            told.push(format!(
                "{path} parts at this place from run to run as well: on a cluster the two cannot \
                 be told apart there"
            ));
        }
        told
    }

    pub fn to_human(&self) -> String {
        let lines = self
            .sentences()
            .into_iter()
            .map(|line| format!("  {line}\n"));
        format!("\nthe change\n{}", lines.collect::<String>())
    }

    /// For formats that list findings. A change is no failure.
    pub fn finding(&self) -> Diagnostic {
        let acts_elsewhere = self.own_findings().iter().any(|own| !own.is_empty());
        let code = match (&self.first, acts_elsewhere) {
            (Some(_), _) => "change-acts",
            (None, true) => "change-acts-elsewhere",
            (None, false) => "change-without-effect",
        };
        let mut sentences = self.sentences().into_iter();
        let first = sentences.next().unwrap_or_default();
        sentences.fold(Diagnostic::note(code, first), Diagnostic::with_note)
    }

    pub fn to_json(&self) -> Value {
        let found = self.own_findings();
        let side = |place: usize| {
            let outcome = &self.reports[place].outcome;
            json!({
                "path": self.paths[place],
                "scenario": outcome.scenario.name,
                "grade": outcome.is_checked().then(|| outcome.grade()),
                "only_here": found[place],
            })
        };
        let first = self.first.as_ref().map(|first| {
            let point = &first.divergence.point;
            json!({
                "iteration": point.iteration,
                "microbatch": point.microbatch,
                "phase": point.phase,
                "scope": point.scope,
                "name": point.name,
                "id": point.id,
                "ranks": first.ranks,
                "difference": first.divergence.difference.kind(),
                "verdict": first.divergence.role.name(),
            })
        });
        json!({
            "schema_version": super::SCHEMA_VERSION,
            "change": {
                "a": side(0),
                "b": side(1),
                "alters_bits": self.first.is_some(),
                "records": self.records,
                "first": first,
                "varies_there": self.varies_there(),
            },
        })
    }
}

fn varies(outcome: &Outcome) -> String {
    match (&outcome.first_divergence, outcome.is_checked()) {
        (_, false) => "not checked".to_string(),
        (None, true) => outcome.grade().words().to_string(),
        (Some(own), true) => {
            let grade: Grade = outcome.grade();
            format!(
                "{}, first at {} ({})",
                grade.words(),
                own.site,
                own.variable.name
            )
        }
    }
}

fn place(first: &Earliest) -> String {
    let point = &first.divergence.point;
    let step = match point.iteration {
        Some(number) => format!("step {number}"),
        None => "set-up".to_string(),
    };
    let microbatch = point
        .microbatch
        .map(|number| format!(", microbatch {number}"));
    let who = ranks(&first.ranks);
    let (phase, scope, name) = (&point.phase, &point.scope, &point.name);
    format!(
        "{step}{}, {phase}, {scope}, {name}, on {who}",
        microbatch.unwrap_or_default()
    )
}

/// What the record shows of it.
fn made(first: &Divergence) -> &'static str {
    match (&first.difference, first.role) {
        (Difference::Missing { .. }, _) => {
            "one of the two runs has no such node: they do other work"
        }
        (Difference::Order { .. }, _) => "the two runs do the same work in another order there",
        (Difference::Metadata { .. }, _) => "the node is of another form there",
        (Difference::Content { .. }, Role::Origin) => {
            "what goes in is the same and what comes out is not: the change acts there"
        }
        (Difference::Content { .. }, Role::Receiver) => {
            "what goes in differs already: the change acts on memory before it, at no node"
        }
        (Difference::Content { .. }, Role::Undecided) => {
            "the node reads nothing: what it writes comes from the host"
        }
    }
}

/// Words that no two scenarios can be compared for, if there are any.
pub fn incomparable(worlds: [u32; 2], steps: [u32; 2]) -> Option<Diagnostic> {
    let refuse = |message: String, help: &str| {
        Some(Diagnostic::error("not-comparable", message).with_help(help))
    };
    if worlds[0] != worlds[1] {
        let message = format!(
            "{} ranks and {} ranks have no nodes in common",
            worlds[0], worlds[1]
        );
        let help = "`[[topo]]` in a scenario compares other sizes of one job";
        return refuse(message, help);
    }
    if steps[0] != steps[1] {
        let message = format!(
            "{} steps are checked of one, {} of the other",
            steps[0], steps[1]
        );
        return refuse(message, "give both the same with --steps");
    }
    None
}
