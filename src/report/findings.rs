//! What a check accuses, as diagnostics: the one list that JSON, SARIF and GitHub are written from.

use super::exit::is_met;
use super::junit::vacuity_line;
use super::names::{counted, ranks, slug};
use super::terminal::{like_line, outside_line, races_line};
use super::{Exit, KeyPlaces, Report};
use crate::diagnostic::{Diagnostic, Severity};
use crate::prove::likeness::Likeness;
use crate::prove::outcome::{
    EARLY_RESTARTS, FirstDivergence, HIDDEN_GATHERS, Hazard, NOTHING_CAME, OracleResult,
    OracleVerdict, Outcome, VacuityFinding, VacuityReason,
};
use crate::prove::stop::Stop;
use crate::prove::switch::switch_of;
use crate::prove::vacuity::size_key;
use crate::scenario::Grade;

/// Findings of a kind that are told one by one; the rest are counted.
const TOLD_MAX: usize = 20;

impl Report {
    /// Everything that is wrong, the worst first: errors where the check fails, and notes where it
    /// ends well all the same, because it was expected or accepted. A check that ends well without
    /// a finding has none; that races were asked for and none was run is always one, and so is what
    /// the scenario itself leaves open.
    pub fn diagnostics(&self) -> Vec<Diagnostic> {
        let mut found = Vec::new();
        let at = At(self.places.as_ref());
        let outcome = &self.outcome;
        if !outcome.is_checked() {
            let message = format!("{}: nothing checked", outcome.scenario.name);
            let place: &[&str] = &["oracles", "checkpoint.restarts"];
            found.push(at.keys(Diagnostic::error("nothing-checked", message), place, ""));
        } else {
            found.extend(
                outcome
                    .first_divergence
                    .iter()
                    .map(|first| at.divergence(outcome, first)),
            );
            found.extend(outcome.stop.iter().map(|stop| at.stop(outcome, stop)));
            found.extend(at.native_races(outcome));
            found.extend(at.oracles(outcome));
            found.extend(at.hazards(outcome));
            found.extend(at.missed_faults(outcome));
            found.extend(outcome.vacuity.iter().map(|finding| at.vacuity(finding)));
            found.extend(at.weaker_proof(self));
        }
        found.extend(self.unmet(&at));
        found.extend(outcome.like.as_ref().map(alike));
        if found.is_empty() && self.exit != Exit::Proved {
            found.push(at.grade(outcome));
        }
        if self.exit == Exit::Proved {
            found
                .iter_mut()
                .for_each(|finding| finding.severity = Severity::Note);
        } else if let (Some(line), Some(first)) = (self.line_to_paste(), found.first_mut()) {
            first.help.push(line);
        }
        found.extend(nothing_raced(outcome));
        found.extend(left_open(outcome));
        found
    }

    /// The author's expectation, where the outcome is another one.
    fn unmet(&self, at: &At<'_>) -> Option<Diagnostic> {
        let expect = self.expect.as_ref()?;
        if is_met(expect, &self.outcome) {
            return None;
        }
        let name = &self.outcome.scenario.name;
        let message = match self.outcome.is_checked() {
            true => format!("{name}: {}, expected {expect}", self.outcome.grade()),
            false => format!("{name}: nothing checked, expected {expect}"),
        };
        let finding = Diagnostic::error("not-as-expected", message);
        Some(at.keys(finding, &["expect.grade", "expect"], "expected here"))
    }
}

/// What a real trace shows, and whether something here explains it.
fn alike(like: &Likeness) -> Diagnostic {
    let code = match like.is_explained() {
        true => "trace-explained",
        false => "trace-unexplained",
    };
    let sites = like.explanations.iter();
    let finding = Diagnostic::error(code, like_line(like));
    sites.fold(finding, |finding, one| {
        finding.with_note(format!("{}: {}", one.site, one.what))
    })
}

/// Puts findings where their keys are written; without a file they have no place.
struct At<'a>(Option<&'a KeyPlaces>);

impl At<'_> {
    fn keys(&self, finding: Diagnostic, keys: &[&str], label: &str) -> Diagnostic {
        match self.0 {
            Some(places) => finding.at(&places.find(keys), label),
            None => finding,
        }
    }

    fn divergence(&self, outcome: &Outcome, first: &FirstDivergence) -> Diagnostic {
        let code = match outcome.grade() {
            Grade::Uncontrolled => "uncontrolled",
            Grade::Masked => "masked",
            _ => "divergent",
        };
        let variable = &first.variable.name;
        let what = format!("bits part at {}, {}", first.site, ranks(&first.ranks));
        let mut finding = Diagnostic::error(code, format!("{}: {what}", outcome.scenario.name))
            .with_note(format!("A: {}", first.value_a))
            .with_note(format!("B: {}", first.value_b));
        if let Some(origin) = &outcome.origin {
            let (class, oracle) = (origin.class.name(), origin.oracle.name());
            finding = finding.with_note(format!(
                "origin: {class}, shown by {oracle}: {}",
                origin.what
            ));
        }
        if let Some(witness) = &outcome.witness {
            let (a, b) = (&witness.sum_a, &witness.sum_b);
            finding = finding.with_note(format!(
                "element {}: A gives {} ({}), B gives {} ({})",
                witness.element, a.hex, a.decimal, b.hex, b.decimal
            ));
        }
        for remedy in outcome.remedies.iter().filter(|remedy| remedy.removes) {
            finding = finding.with_help(format!("{} removes it", remedy.switch));
        }
        let switch = format!("determinism.{variable}");
        match variable.as_str() {
            "placement" => self.keys(finding, &["free", "allocations"], "placement is free"),
            "checkpoint.restarts" => {
                let keys = ["checkpoint.omit", "checkpoint.restarts", "checkpoint"];
                self.keys(finding, &keys, "resumed")
            }
            _ if code == "uncontrolled" => self.keys(finding, &[], ""),
            _ => self.keys(finding, &[&switch], "this order is free"),
        }
    }

    /// Ranks that do not call the same.
    fn stop(&self, outcome: &Outcome, stop: &Stop) -> Diagnostic {
        let message = format!("{}: {}", outcome.scenario.name, stop.what);
        let mut finding = Diagnostic::error(stop.class.name(), message);
        for side in &stop.sides {
            let site = side.site.iter().map(|site| format!(" at {site}"));
            let site: String = site.collect();
            finding = finding.with_note(format!("{}: {}{site}", ranks(&side.ranks), side.what));
        }
        self.keys(finding, &["fault"], "")
    }

    /// Oracles that failed. What R2R says of choice points is the divergence, told already.
    fn oracles(&self, outcome: &Outcome) -> Vec<Diagnostic> {
        let told = outcome.first_divergence.as_ref();
        let stopped = outcome.stop.as_ref().map(|stop| stop.oracle);
        let is_told = |result: &&OracleResult| match (told, result.oracle.name()) {
            _ if stopped == Some(result.oracle) => true,
            (Some(_), "R2R") => true,
            (Some(first), "RES") => first.variable.name == "checkpoint.restarts",
            _ => false,
        };
        let failed = outcome.oracles.iter();
        let failed = failed.filter(|result| result.verdict == OracleVerdict::Different);
        let drawn = failed.filter(|result| !is_told(result)).map(|result| {
            let mut message = format!(
                "{}: oracle {} failed",
                outcome.scenario.name,
                result.oracle.name()
            );
            if let Some(detail) = &result.detail {
                message = format!("{message}: {detail}");
            }
            let mut finding = Diagnostic::error("oracle-failed", message);
            if !result.components.is_empty() {
                let lacks = result.components.iter().map(|component| component.name());
                let lacks = lacks.collect::<Vec<_>>().join(", ");
                finding = finding.with_note(format!("a resumed run lacks: {lacks}"));
            }
            let keys: &[&str] = match result.oracle.name() {
                "RES" => &["checkpoint.omit", "checkpoint.restarts", "checkpoint"],
                _ => &["oracles"],
            };
            self.keys(finding, keys, "")
        });
        drawn.collect()
    }

    /// Results of true atomics that no order of the model gives.
    fn native_races(&self, outcome: &Outcome) -> Vec<Diagnostic> {
        let Some(races) = &outcome.native_races else {
            return Vec::new();
        };
        let told = races.outside.iter().map(|outside| {
            let message = format!("{}: {}", outcome.scenario.name, outside_line(outside));
            self.keys(Diagnostic::error("outside-model", message), &[], "")
        });
        let mut found: Vec<Diagnostic> = told.collect();
        let more = races.outside_count - found.len() as u64;
        if more > 0 {
            let message = format!(
                "{}: {more} more results outside the model",
                outcome.scenario.name
            );
            found.push(Diagnostic::error("outside-model", message));
        }
        found
    }

    fn hazards(&self, outcome: &Outcome) -> Vec<Diagnostic> {
        let name = &outcome.scenario.name;
        let told = outcome
            .hazards
            .iter()
            .take(TOLD_MAX)
            .map(|hazard: &Hazard| {
                let message = format!(
                    "{name}: {} on `{}` of rank {}",
                    slug(hazard.kind),
                    hazard.buffer,
                    hazard.rank
                );
                let mut finding = Diagnostic::error("hazard", message)
                    .with_note(format!("first: {}", hazard.first))
                    .with_note(format!("second: {}", hazard.second))
                    .with_help(hazard.missing_edge.clone());
                if let Some(consequence) = &hazard.consequence {
                    finding = finding.with_note(consequence.clone());
                }
                self.keys(finding, &["fault"], "")
            });
        let mut found: Vec<Diagnostic> = told.collect();
        let untold = outcome.hazards.len().saturating_sub(TOLD_MAX) as u64;
        let more = outcome.hazards_beyond.saturating_add(untold);
        if more > 0 {
            let message = format!("{name}: {}", counted(more, "further hazard"));
            found.push(self.keys(Diagnostic::error("hazard", message), &[], ""));
        }
        found
    }

    fn missed_faults(&self, outcome: &Outcome) -> Vec<Diagnostic> {
        let name = &outcome.scenario.name;
        let score = &outcome.mutants;
        let missed = score.missed.iter().map(|missed| {
            let message = format!(
                "{name}: a planted fault was not caught, {} at {}: {}",
                missed.kind, missed.site, missed.reason
            );
            self.keys(Diagnostic::error("fault-missed", message), &[], "")
        });
        let mut found: Vec<Diagnostic> = missed.collect();
        // A replay plants none, and is not graded by them.
        if score.total == 0 && outcome.grade() == Grade::Vacuous && outcome.vacuity.is_empty() {
            let message = format!("{name}: no fault could be planted");
            found.push(self.keys(Diagnostic::error("fault-missed", message), &[], ""));
        }
        found
    }

    fn vacuity(&self, finding: &VacuityFinding) -> Diagnostic {
        let family = slug(finding.family);
        let (code, what) = match finding.reason {
            VacuityReason::TooFewAddends => ("too-few-addends", "has too few addends to differ"),
            VacuityReason::SilentHere => ("silent-here", "is order-dependent, and silent here"),
            VacuityReason::Absent => ("absent-here", "has no sum here"),
            VacuityReason::BufferSize => ("buffer-size", "agrees at this buffer size only"),
            VacuityReason::NotFinite => ("not-finite", "is infinite or no number"),
            VacuityReason::Skipped => ("all-skipped", "is set in every step"),
        };
        let mut found = Diagnostic::error(code, format!("{family} {what}"))
            .with_note(vacuity_line(finding))
            .with_help(finding.change.clone());
        if let Some(site) = &finding.site {
            found = found.with_note(format!("first at {site}"));
        }
        if finding.reason == VacuityReason::NotFinite {
            let keys = ["lr", "clip_grad", "adam_eps"];
            return self.keys(found, &keys, "decides how far a step goes");
        }
        if finding.reason == VacuityReason::Skipped {
            let keys = ["initial_loss_scale", "loss_scale", "fp16"];
            return self.keys(found, &keys, "decides what overflows");
        }
        let switch = switch_of(finding.family).map(|key| format!("determinism.{key}"));
        let size = size_key(finding.family);
        let keys: Vec<&str> = [size].into_iter().chain(switch.as_deref()).collect();
        self.keys(found, &keys, "decides how many addends there are")
    }

    /// A grade that nothing above explains, such as that of a restart oracle without restarts.
    fn grade(&self, outcome: &Outcome) -> Diagnostic {
        let grade = outcome.grade();
        let message = format!("{}: {}", outcome.scenario.name, grade.words());
        let mut finding = Diagnostic::error(grade.slug(), message);
        if outcome.notes.iter().any(|note| note == NOTHING_CAME) {
            let finding = finding.with_note(NOTHING_CAME.to_string());
            return self.keys(finding, &["fault"], "");
        }
        if outcome.notes.iter().any(|note| note == HIDDEN_GATHERS) {
            let finding = finding
                .with_note(HIDDEN_GATHERS.to_string())
                .with_help("restart after fewer steps, or check a run of more steps");
            return self.keys(finding, &["checkpoint.restarts", "checkpoint"], "");
        }
        let mut notes = outcome.notes.iter();
        if let Some(early) = notes.find(|note| note.starts_with(EARLY_RESTARTS)) {
            let finding = finding.with_note(early.clone());
            return self.keys(finding, &["checkpoint.restarts", "checkpoint"], "");
        }
        for result in outcome.oracles.iter().filter(|result| result.is_idle()) {
            if let Some(detail) = &result.detail {
                let name = result.oracle.name();
                finding = finding.with_note(format!("{name} was not checked: {detail}"));
            }
        }
        self.keys(
            finding,
            &["oracles", "checkpoint.restarts", "checkpoint"],
            "",
        )
    }

    /// A proof for this run's inputs only, or a sample, where more was asked for.
    fn weaker_proof(&self, report: &Report) -> Option<Diagnostic> {
        let outcome = &report.outcome;
        let name = &outcome.scenario.name;
        let (code, mut message) = match outcome.grade() {
            Grade::ProvedOnThisInput => {
                let count = counted(outcome.input_point_count, "point");
                let message = format!("{name}: {count} proved for the inputs of this run only");
                ("proved-on-this-input", message)
            }
            Grade::Bounded => ("bounded", format!("{name}: some orders were only sampled")),
            _ => return None,
        };
        if let Some(sampling) = outcome.sampling.as_ref().filter(|_| code == "bounded") {
            message = format!("{message}: {sampling}");
        }
        let mut finding = Diagnostic::error(code, message);
        if let Some(point) = outcome.input_points.first() {
            let addends = counted(u64::from(point.addends), "addend");
            finding = finding.with_note(format!("the first is {}: {addends}", point.site));
        }
        if code == "proved-on-this-input" {
            finding = finding.with_help("--accept input lets such proofs pass");
        } else {
            finding = finding.with_help("--require bounded lets samples pass");
        }
        Some(self.keys(finding, &["accept"], ""))
    }
}

/// Races that were asked for, where there was nothing to race: no failure, but no pass either.
fn nothing_raced(outcome: &Outcome) -> Option<Diagnostic> {
    let races = outcome.native_races.as_ref()?;
    races.reason?;
    let (name, told) = (&outcome.scenario.name, races_line(races));
    Some(Diagnostic::note(
        "nothing-raced",
        format!("{name}: native races: {told}"),
    ))
}

/// What the scenario itself says that no pass covers: how its job was read, what it reads itself.
fn left_open(outcome: &Outcome) -> Option<Diagnostic> {
    let scenario = &outcome.scenario;
    let told = scenario.left_open()?;
    let message = format!("{}: not covered: {told}", scenario.name);
    let rest = scenario.not_covered.iter().skip(1);
    Some(rest.fold(
        Diagnostic::note("not-covered", message),
        |note, sentence| note.with_note(sentence.clone()),
    ))
}

#[cfg(test)]
mod tests {
    use super::super::{Requirement, sample};
    use super::*;
    use crate::scenario::Expectation;

    fn report(outcome: Outcome, expect: Option<Expectation>) -> Report {
        Report::new(outcome, &Requirement::default(), expect)
    }

    fn codes(report: &Report) -> Vec<(&'static str, Severity)> {
        let found = report.diagnostics();
        found
            .iter()
            .map(|finding| (finding.code, finding.severity))
            .collect()
    }

    #[test]
    fn a_proof_has_no_finding_and_a_failure_has_one() {
        assert_eq!(codes(&report(sample::proved(), None)), []);
        let divergent = report(sample::divergent(), None);
        assert_eq!(codes(&divergent), [("divergent", Severity::Error)]);
        let found = &divergent.diagnostics()[0];
        assert!(
            found
                .help
                .iter()
                .any(|help| help.starts_with("bitproof replay "))
        );
        assert!(found.help[0].contains("removes it"), "{:?}", found.help);
        let vacuous = codes(&report(sample::vacuous(), None));
        assert_eq!(
            vacuous,
            [
                ("too-few-addends", Severity::Error),
                ("silent-here", Severity::Error)
            ]
        );
    }

    #[test]
    fn every_grade_that_fails_has_a_finding() {
        for grade in Grade::ALL {
            let mut outcome = match grade {
                Grade::Masked | Grade::Divergent | Grade::Uncontrolled => sample::divergent(),
                Grade::Vacuous => sample::vacuous(),
                _ => sample::proved(),
            };
            outcome.within = Some(grade);
            outcome.across = None;
            if grade == Grade::Hazard {
                outcome.hazards_beyond = 3;
            }
            let report = report(outcome, None);
            let errors = codes(&report);
            assert_eq!(errors.is_empty(), report.exit == Exit::Proved, "{grade}");
            assert!(
                errors
                    .iter()
                    .all(|(_, severity)| *severity == Severity::Error)
            );
        }
        // A restart oracle without restarts: vacuous, and nothing else to say of it.
        let mut outcome = sample::proved();
        outcome.within = Some(Grade::Vacuous);
        outcome.oracles[1].verdict = OracleVerdict::NotChecked;
        outcome.oracles[1].detail = Some("the scenario names no restart".into());
        let idle = report(outcome, None).diagnostics();
        assert_eq!((idle.len(), idle[0].code), (1, "vacuous"));
        assert_eq!(
            idle[0].notes,
            ["RES was not checked: the scenario names no restart"]
        );
        // A fault that nothing came of is the reason, and what was not asked for is none.
        let mut outcome = sample::proved();
        outcome.within = Some(Grade::Vacuous);
        outcome.notes.push(NOTHING_CAME.to_string());
        outcome.oracles[1].verdict = OracleVerdict::NotChecked;
        outcome.oracles[1].detail = Some(OracleResult::NOT_ASKED.into());
        let unnoticed = report(outcome, None).diagnostics();
        assert_eq!((unnoticed.len(), unnoticed[0].code), (1, "vacuous"));
        assert_eq!(unnoticed[0].notes, [NOTHING_CAME]);
        let mut outcome = sample::proved();
        outcome.oracles.clear();
        assert_eq!(
            codes(&report(outcome, None)),
            [("nothing-checked", Severity::Error)]
        );
    }

    #[test]
    fn training_that_is_not_finite_fails_and_says_where() {
        let found = report(sample::not_finite(), None);
        assert_eq!(codes(&found), [("not-finite", Severity::Error)]);
        let told = &found.diagnostics()[0];
        assert!(told.notes[0].contains("step 2, lm loss"), "{told:?}");
        let accepting = Requirement {
            accept_input: true,
            ..Requirement::default()
        };
        let accepted = Report::new(sample::not_finite(), &accepting, None);
        assert_eq!(accepted.exit.code(), 4);
    }

    #[test]
    fn what_was_expected_is_a_note_and_what_was_not_an_error() {
        let expect = |grade| Some(Expectation::of(grade));
        let met = report(sample::divergent(), expect(Grade::Divergent));
        assert_eq!(codes(&met), [("divergent", Severity::Note)]);
        let missed = report(sample::proved(), expect(Grade::Divergent));
        assert_eq!(codes(&missed), [("not-as-expected", Severity::Error)]);
    }

    #[test]
    fn findings_point_at_the_key_that_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.toml");
        std::fs::write(&path, "name = \"s\"\nfree = [\"placement\"]\n").unwrap();
        let report = report(sample::divergent(), None).located(&path);
        let (place, label) = report.diagnostics().remove(0).place.expect("a file");
        assert_eq!(place.source.line_column(place.span.start), (2, 1));
        assert_eq!(label, "placement is free");
    }
}
