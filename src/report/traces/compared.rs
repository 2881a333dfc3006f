//! What `trace diff` says.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::{discriminated, listed};
use crate::diagnostic::{Diagnostic, Place, Source, escaped};
use crate::report::counted;
use crate::trace::certify::runs_of;
use crate::trace::diff::{
    Artefact, Comparison, Difference, Divergence, Role, Side, Verdict, sites,
};

/// Two folders as the user wrote them, and what came of them.
pub struct Compared<'a> {
    pub names: [&'a str; 2],
    pub comparison: &'a Comparison,
}

impl Compared<'_> {
    /// The verdict in one line.
    fn verdict(&self) -> String {
        let comparison = self.comparison;
        let ranks = counted(comparison.ranks.len() as u64, "rank");
        match comparison.verdict {
            Verdict::Same => format!("same: {}, evidence {}", self.compared(), self.evidence()),
            Verdict::OnlyArtefacts => format!(
                "same training: only the recorder's artefacts differ ({}, evidence {})",
                self.compared(),
                self.evidence()
            ),
            Verdict::Different => {
                let parted = comparison.firsts.len();
                format!("different: {parted} of {ranks} part")
            }
            Verdict::Untrusted => "not compared: a side cannot be trusted".to_string(),
            Verdict::NothingCompared => "nothing was compared".to_string(),
        }
    }

    fn compared(&self) -> String {
        let comparison = self.comparison;
        let mut counts = vec![counted(comparison.ranks.len() as u64, "rank")];
        for (count, what) in [
            (comparison.records, "record"),
            (comparison.boundary_records, "boundary record"),
        ] {
            if count > 0 {
                counts.push(counted(count, what));
            }
        }
        counts.join(", ")
    }

    fn evidence(&self) -> &'static str {
        self.comparison.strength.slug()
    }

    /// The whole for people: what parted first, whether it is the origin, what to try; then ranks.
    pub fn to_human(&self) -> String {
        let comparison = self.comparison;
        let [a, b] = self.names.map(escaped);
        let mut text = format!("{}\nA: {a}\nB: {b}\n", self.verdict());
        if comparison.verdict == Verdict::Untrusted {
            return text;
        }
        if let Some(first) = comparison.earliest() {
            text.push_str(&format!("\nfirst: {}\n", in_words(first)));
            text.push_str(&format!("  {}\n", role_in_words(first)));
            text.push_str(&format!(
                "  differs in {}\n",
                difference_in_words(&first.difference)
            ));
            text.push_str(&format!("  {}\n", matched_in_words(first)));
        }
        for hint in &comparison.hints {
            let (cause, why) = (hint.cause, escaped(&hint.why));
            text.push_str(&format!("\n{cause}: {why}\n  try: {}\n", hint.next));
        }
        text.push_str(&self.ladder_in_words());
        let table = comparison.discriminator.as_ref();
        let table = table.filter(|table| !table.axes.is_empty());
        text.push_str(&table.map_or(String::new(), discriminated::to_human));
        text.push_str(&self.table());
        text.push_str(&self.artefacts_in_words());
        if comparison.verdict == Verdict::Different {
            text.push_str(&format!(
                "\nevidence of what matched: {}\n",
                self.evidence()
            ));
        }
        let not_covered = listed("\nnot covered:", &comparison.not_covered);
        text + &not_covered
    }

    /// Ranks that part at the same record share a line, however many they are.
    fn table(&self) -> String {
        let firsts = &self.comparison.firsts;
        if firsts.is_empty() {
            return String::new();
        }
        let mut text = "\nper rank, each in its own order:\n".to_string();
        let groups = sites(firsts);
        for (first, ranks) in groups.iter().take(LINES_MAX) {
            let which = runs_of(ranks.iter().map(|rank| u64::from(*rank)));
            let role = first.role.name();
            text.push_str(&format!("  {which:<12} {role:<9} {}\n", in_words(first)));
        }
        if groups.len() > LINES_MAX {
            let more = counted((groups.len() - LINES_MAX) as u64, "more place");
            text.push_str(&format!("  and {more}: --format json lists every rank\n"));
        }
        let same = self
            .comparison
            .ranks
            .iter()
            .filter(|rank| !firsts.contains_key(rank));
        let which = runs_of(same.map(|rank| u64::from(*rank)));
        if !which.is_empty() {
            text.push_str(&format!("  {which:<12} same\n"));
        }
        text
    }

    fn artefacts_in_words(&self) -> String {
        let mut grouped: BTreeMap<(&str, &str), (u64, Vec<u64>, &Artefact)> = BTreeMap::new();
        for (rank, artefacts) in &self.comparison.artefacts {
            for artefact in artefacts {
                let key = (artefact.reason.slug(), &*artefact.point().name);
                let group = grouped.entry(key).or_insert((0, Vec::new(), artefact));
                group.0 += artefact.count;
                group.1.push(u64::from(*rank));
            }
        }
        if grouped.is_empty() {
            return String::new();
        }
        let mut text = "\nset apart, as the recorder's own:\n".to_string();
        for ((slug, name), (count, ranks, artefact)) in grouped {
            let (name, ranks) = (escaped(name), runs_of(ranks));
            let reason = artefact.reason.words();
            text.push_str(&format!(
                "  {count} {name} on ranks {ranks}: {reason} ({slug})\n"
            ));
        }
        text
    }

    fn ladder_in_words(&self) -> String {
        let rungs = self.ladder();
        if self.comparison.firsts.is_empty() {
            return String::new();
        }
        let mut text = "\nladder:\n".to_string();
        for (rung, found) in rungs {
            let found = found.unwrap_or_else(|| "not in the trace".to_string());
            text.push_str(&format!("  {rung:<7} {}\n", escaped(&found)));
        }
        text
    }

    /// From the metric that shows it down to the kernel; nothing where no record says.
    fn ladder(&self) -> Vec<(&'static str, Option<String>)> {
        let comparison = self.comparison;
        let differing = comparison.metrics.iter();
        let differing = differing.filter(|(_, result)| result.differing > 0);
        let first = differing.min_by_key(|(metric, result)| (result.first_difference, **metric));
        let metric = match (first, comparison.metrics.is_empty()) {
            (Some((metric, result)), _) => Some(match result.first_difference {
                Some(iteration) => format!("{}, from iteration {iteration}", metric.words()),
                None => format!("{}, outside of iterations", metric.words()),
            }),
            (None, true) => None,
            (None, false) => Some("none differs".to_string()),
        };
        let point = comparison.earliest().map(|first| &first.point);
        let kernel = comparison.earliest().and_then(|first| first.kernel.clone());
        let text = |text: &str| (!text.is_empty()).then(|| text.to_string());
        vec![
            ("metric", metric),
            ("phase", point.and_then(|point| text(&point.phase))),
            ("module", point.and_then(|point| text(&point.scope))),
            ("op", point.and_then(|point| text(&point.name))),
            ("kernel", kernel),
        ]
    }

    /// The whole for programs.
    pub fn to_json(&self) -> Value {
        let comparison = self.comparison;
        let is_known = !matches!(
            comparison.verdict,
            Verdict::Untrusted | Verdict::NothingCompared
        );
        let identical = is_known.then_some(comparison.verdict == Verdict::Same);
        let is_training = [Verdict::Same, Verdict::OnlyArtefacts].contains(&comparison.verdict);
        let hints = comparison
            .hints
            .iter()
            .map(|hint| json!({ "cause": hint.cause, "why": hint.why, "try": hint.next }));
        let ranks = comparison.ranks.iter().map(|rank| {
            let first = comparison.firsts.get(rank);
            let mut object =
                json!({ "rank": rank, "first_divergence": first.map(divergence_json) });
            if let Some(first) = first {
                object["difference"] = difference_json(&first.difference);
                object["matched_by_kind"] = json!(first.matched_by_kind);
            }
            object
        });
        let artefacts = comparison.artefacts.iter().flat_map(|(rank, artefacts)| {
            artefacts
                .iter()
                .map(move |artefact| artefact_json(*rank, artefact))
        });
        let metrics = comparison.metrics.iter().map(|(metric, result)| {
            json!({
                "metric": metric.words(),
                "compared": result.compared,
                "differing": result.differing,
                "first_difference": result.first_difference,
            })
        });
        let reasons = comparison
            .reasons
            .iter()
            .map(|one| one.to_diagnostic().to_json());
        let ladder = self.ladder().into_iter();
        let ladder = ladder.map(|(rung, found)| json!({ "rung": rung, "found": found }));
        let [a, b] = self.names;
        json!({
            "folders": { "a": a, "b": b },
            "identical": identical,
            "identical_training": is_known.then_some(is_training),
            "strength": comparison.strength.slug(),
            "pattern": comparison.pattern.slug(),
            "cause_hints": hints.collect::<Vec<_>>(),
            "ranks": ranks.collect::<Vec<_>>(),
            "artefacts": artefacts.collect::<Vec<_>>(),
            "metrics": metrics.collect::<Vec<_>>(),
            "ladder": ladder.collect::<Vec<_>>(),
            "discriminator": comparison.discriminator.as_ref().map(discriminated::to_json),
            "reasons": reasons.collect::<Vec<_>>(),
            "not_covered": comparison.not_covered,
        })
    }

    /// Ranks with what was found on each, for test dashboards; those that part alike are one case.
    pub fn cases(&self) -> Vec<(String, Vec<Diagnostic>)> {
        let comparison = self.comparison;
        let which = |ranks: &[u32]| runs_of(ranks.iter().map(|rank| u64::from(*rank)));
        let findings = self.findings();
        if comparison.ranks.is_empty() || comparison.verdict == Verdict::Untrusted {
            return vec![("input".to_string(), findings)];
        }
        let groups = sites(&comparison.firsts).into_iter();
        let parted = groups.map(|(first, ranks)| {
            let message = format!(
                "first parts at {}: {}",
                in_words(first),
                role_in_words(first)
            );
            (
                format!("ranks {}", which(&ranks)),
                vec![Diagnostic::error(code(first), message)],
            )
        });
        let mut cases: Vec<_> = parted.collect();
        let same = comparison
            .ranks
            .iter()
            .filter(|rank| !comparison.firsts.contains_key(rank));
        let same: Vec<u32> = same.copied().collect();
        if !same.is_empty() {
            cases.push((format!("ranks {}", which(&same)), Vec::new()));
        }
        cases
    }

    /// What was found, for editors and for continuous integration: one finding a place, not a rank.
    pub fn findings(&self) -> Vec<Diagnostic> {
        let comparison = self.comparison;
        let mut found: Vec<Diagnostic> = comparison
            .reasons
            .iter()
            .map(|reason| reason.to_diagnostic())
            .collect();
        let file = Source::new(self.names[1], "");
        for (first, ranks) in sites(&comparison.firsts).into_iter().take(FINDINGS_MAX) {
            let which = runs_of(ranks.iter().map(|rank| u64::from(*rank)));
            let message = format!("ranks {which}: first parts at {}", in_words(first));
            let mut finding = Diagnostic::error(code(first), message)
                .at(&Place::new(&file, 0..0), role_in_words(first))
                .with_note(format!(
                    "differs in {}",
                    difference_in_words(&first.difference)
                ))
                .with_note(matched_in_words(first));
            for hint in &comparison.hints {
                finding = finding.with_help(format!("{}: {}", hint.cause, hint.next));
            }
            found.push(finding);
        }
        match comparison.verdict {
            Verdict::Same | Verdict::OnlyArtefacts => {
                found.push(Diagnostic::note("trace-verdict", self.verdict()));
            }
            Verdict::NothingCompared => {
                found.push(Diagnostic::error("nothing-compared", self.verdict()));
            }
            Verdict::Different | Verdict::Untrusted => {}
        }
        found
    }
}

/// Lines of the table for people.
const LINES_MAX: usize = 24;
/// GitHub shows ten annotations of a kind a step.
const FINDINGS_MAX: usize = 10;

fn code(first: &Divergence) -> &'static str {
    match first.role {
        Role::Origin => "trace-origin",
        Role::Receiver => "trace-receiver",
        Role::Undecided => "trace-divergence",
    }
}

fn in_words(first: &Divergence) -> String {
    let point = &first.point;
    let mut text = format!("{} {}", escaped(&point.kind), escaped(&point.id));
    if let Some(iteration) = point.iteration {
        text.push_str(&format!(", iteration {iteration}"));
    }
    if let Some(microbatch) = point.microbatch {
        text.push_str(&format!(", microbatch {microbatch}"));
    }
    if !point.phase.is_empty() {
        text.push_str(&format!(", {}", escaped(&point.phase)));
    }
    if !point.scope.is_empty() {
        text.push_str(&format!(", in {}", escaped(&point.scope)));
    }
    format!("{text} (seq {})", point.seq)
}

fn role_in_words(first: &Divergence) -> String {
    let is_collective = first.collective.is_some();
    match (first.role, first.own_inputs_match) {
        (Role::Origin, _) if is_collective => {
            "origin: the inputs of its whole group match, its result does not".into()
        }
        (Role::Origin, _) => "origin: its inputs match, its outputs do not".into(),
        (Role::Receiver, Some(true)) | (Role::Receiver, None) if is_collective => {
            "receiver: another member's input differs already".into()
        }
        (Role::Receiver, _) => "receiver: its inputs differ already".into(),
        (Role::Undecided, None) => "undecided: the record shows no inputs".into(),
        (Role::Undecided, _) => "undecided: not all of its inputs are known".into(),
    }
}

fn difference_in_words(difference: &Difference) -> String {
    match difference {
        Difference::Missing { from } => format!("being there: {} lacks it", from.name()),
        Difference::Order { in_b } => format!("order: B has {} in its place", escaped(in_b)),
        Difference::Metadata { fields } => format!("metadata: {}", escaped(&fields.join(", "))),
        Difference::Content { operands } => format!("content: {}", escaped(&operands.join(", "))),
    }
}

fn matched_in_words(first: &Divergence) -> String {
    let mut text = format!(
        "{} matched before it",
        counted(first.matched_before, "record")
    );
    if !first.matched_by_kind.is_empty() {
        let kinds = first.matched_by_kind.iter();
        let kinds: Vec<String> = kinds
            .map(|(kind, count)| format!("{count} {}", escaped(kind)))
            .collect();
        text.push_str(&format!(" ({})", kinds.join(", ")));
    }
    text
}

fn divergence_json(first: &Divergence) -> Value {
    let point = &first.point;
    json!({
        "kind": point.kind,
        "seq": point.seq,
        "iteration": point.iteration,
        "microbatch": point.microbatch,
        "phase": point.phase,
        "name": point.name,
        "id": point.id,
        "scope": point.scope,
        "own_inputs_match": first.own_inputs_match,
        "group_inputs_match": first.group_inputs_match,
        "matched_before": first.matched_before,
        "verdict": first.role.name(),
    })
}

fn difference_json(difference: &Difference) -> Value {
    let kind = difference.kind();
    match difference {
        Difference::Missing { from } => {
            let side = match from {
                Side::A => "a",
                Side::B => "b",
            };
            json!({ "kind": kind, "missing_from": side })
        }
        Difference::Order { in_b } => json!({ "kind": kind, "in_b": in_b }),
        Difference::Metadata { fields } => json!({ "kind": kind, "fields": fields }),
        Difference::Content { operands } => json!({ "kind": kind, "fields": operands }),
    }
}

fn artefact_json(rank: u32, artefact: &Artefact) -> Value {
    json!({
        "rank": rank,
        "reason": artefact.reason.slug(),
        "why": artefact.reason.words(),
        "name": artefact.point().name,
        "count": artefact.count,
        "in_outputs": artefact.is_in_outputs,
        "first": divergence_json(&artefact.first),
    })
}
