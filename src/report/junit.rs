//! Reports as JUnit XML: a suite a scenario; a case for each verdict, oracle, family of sums, and
//! for the planted faults. A scenario that was refused is a suite with one error. No times: two
//! equal checks give equal files.

use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};

use super::baseline::Against;
use super::exit::is_met;
use super::names::{counted, slug};
use super::terminal::{outside_line, races_line};
use super::{Checked, Exit, Refusal, Report};
use crate::diagnostic::{Diagnostic, Severity, escaped};
use crate::prove::native::NativeRaces;
use crate::prove::outcome::{OracleResult, OracleVerdict, VacuityFinding, VacuityReason};
use crate::scenario::Grade;
use crate::world::Family;

/// Every scenario in one XML document, in the order of the command line.
pub fn junit(scenarios: &[Checked]) -> String {
    let mut document = quick_junit::Report::new("bitproof");
    for scenario in scenarios {
        document.add_test_suite(match scenario {
            Checked::Reported(report) => suite(report),
            Checked::Refused(refusal) => refused(refusal),
        });
    }
    document
        .to_string()
        .expect("XML of plain strings, written to memory")
}

fn refused(refusal: &Refusal) -> TestSuite {
    let name = escaped(&refusal.name);
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Error);
    if refusal.exit == Exit::Proved {
        status = TestCaseStatus::success();
    }
    let drawn: Vec<String> = refusal.diagnostics.iter().map(|d| d.to_plain()).collect();
    status.set_description(drawn.join("\n"));
    let is_error = |finding: &&Diagnostic| finding.severity == Severity::Error;
    if let Some(first) = refusal.diagnostics.iter().find(is_error) {
        status.set_message(&*escaped(&first.message));
        status.set_type(first.code);
    }
    let mut case = TestCase::new("input", status);
    case.set_classname(format!("bitproof.{name}"));
    let mut suite = TestSuite::new(&*name);
    suite.add_property(("exit_code", &*refusal.exit.code().to_string()));
    suite.add_test_case(case);
    suite
}

fn suite(report: &Report) -> TestSuite {
    let outcome = &report.outcome;
    let mut suite = TestSuite::new(&*outcome.scenario.name);
    let grade = match outcome.is_checked() {
        true => outcome.grade().slug(),
        false => "not-checked",
    };
    for (name, value) in [
        ("grade", grade.to_string()),
        ("exit_code", report.exit.code().to_string()),
        ("scenario_hash", outcome.scenario.hash.clone()),
        ("engine", outcome.engine.name.clone()),
        ("steps", outcome.steps.to_string()),
        ("ranks", outcome.ranks.to_string()),
        ("nodes", outcome.nodes.to_string()),
    ] {
        suite.add_property((name, &*value));
    }
    for sentence in &outcome.scenario.not_covered {
        suite.add_property(("not_covered", &**sentence));
    }
    let expected = report
        .expect
        .as_ref()
        .is_some_and(|expect| is_met(expect, outcome));
    // What is known fails no dashboard.
    let expected = expected || is_known(report);
    suite.add_test_case(verdict(
        report,
        "within this allocation",
        outcome.within,
        expected,
    ));
    suite.add_test_case(verdict(
        report,
        "across allocations",
        outcome.across,
        expected,
    ));
    for result in &outcome.oracles {
        suite.add_test_case(oracle(report, result));
    }
    for family in families(report) {
        suite.add_test_case(family_case(report, family, expected));
    }
    suite.add_test_case(mutants(report));
    let races = report.outcome.native_races.as_ref();
    suite.add_test_cases(races.map(|races| native_races(report, races)));
    suite
}

/// Whether nothing was found but what a baseline knows.
fn is_known(report: &Report) -> bool {
    report.against.as_ref().is_some_and(Against::passes)
}

fn case(report: &Report, name: &str, status: TestCaseStatus) -> TestCase {
    let mut case = TestCase::new(name, status);
    case.set_classname(format!("bitproof.{}", report.outcome.scenario.name));
    case
}

fn failure(report: &Report, message: String, kind: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
    status.set_message(message).set_type(kind);
    let mut body = report.plain_findings();
    if let Some(command) = report.line_to_paste() {
        body.push_str(&command);
    }
    status.set_description(body);
    status
}

fn skipped(reason: &str) -> TestCaseStatus {
    let mut status = TestCaseStatus::skipped();
    status.set_message(reason);
    status
}

fn verdict(report: &Report, name: &str, grade: Option<Grade>, expected: bool) -> TestCase {
    let status = match grade {
        _ if !report.outcome.is_checked() => skipped("nothing was checked"),
        None => skipped("not checked: placement is not free"),
        Some(Grade::Proved) => TestCaseStatus::success(),
        Some(_) if expected || report.exit.code() == 0 => TestCaseStatus::success(),
        Some(grade) => failure(report, grade.words().to_string(), grade.slug()),
    };
    case(report, name, status)
}

fn oracle(report: &Report, result: &OracleResult) -> TestCase {
    let detail = result.detail.clone().unwrap_or_default();
    let status = match result.verdict {
        OracleVerdict::Equal | OracleVerdict::EqualInPart => TestCaseStatus::success(),
        OracleVerdict::NotChecked => skipped(&detail),
        OracleVerdict::Different if report.exit.code() == 0 => TestCaseStatus::success(),
        OracleVerdict::Different => failure(report, detail, "different"),
    };
    case(report, &format!("oracle {}", result.oracle.name()), status)
}

/// Families that have choice points or a finding, in their own order.
fn families(report: &Report) -> Vec<Family> {
    let outcome = &report.outcome;
    let mut families: Vec<Family> = outcome.points.iter().map(|count| count.family).collect();
    families.extend(outcome.vacuity.iter().map(|finding| finding.family));
    families.extend(
        outcome
            .first_divergence
            .iter()
            .filter_map(|first| first.family),
    );
    families.sort();
    families.dedup();
    families
}

fn family_case(report: &Report, family: Family, expected: bool) -> TestCase {
    let outcome = &report.outcome;
    let diverged = outcome
        .first_divergence
        .as_ref()
        .filter(|first| first.family == Some(family));
    let silent = outcome
        .vacuity
        .iter()
        .find(|finding| finding.family == family);
    let status = match (diverged, silent) {
        _ if expected => TestCaseStatus::success(),
        (Some(first), _) => failure(report, first.site.to_string(), "divergent"),
        (None, Some(finding)) => failure(report, vacuity_line(finding), "vacuous"),
        (None, None) => TestCaseStatus::success(),
    };
    let mut case = case(report, &format!("family {}", slug(family)), status);
    for count in outcome.points.iter().filter(|count| count.family == family) {
        let rung = count.rung.map_or("sensitive", |rung| rung.name());
        case.add_property((rung, &*count.points.to_string()));
    }
    case
}

pub(super) fn vacuity_line(finding: &VacuityFinding) -> String {
    if finding.reason == VacuityReason::NotFinite {
        let steps = counted(finding.points, "step");
        let from = finding.site.as_deref().unwrap_or_default();
        return format!(
            "{steps} with a loss or norm that is not finite, the first {from}: bits agree there \
             in every order; {}",
            finding.change
        );
    }
    if finding.reason == VacuityReason::Skipped {
        let steps = counted(finding.points, "step");
        return format!(
            "gradients overflowed in {steps}, that is in all: none was learnt from; {}",
            finding.change
        );
    }
    let here = counted(u64::from(finding.addends_here), "addend");
    let full = finding.addends_at_full_size;
    format!("{} here, {full} at full size; {}", here, finding.change)
}

fn mutants(report: &Report) -> TestCase {
    let score = &report.outcome.mutants;
    let status = match score.total {
        0 => skipped("no fault was planted"),
        total if score.caught == total || is_known(report) => TestCaseStatus::success(),
        total => {
            let message = format!("{} of {total} planted faults caught", score.caught);
            failure(report, message, "vacuous")
        }
    };
    case(report, "planted faults", status)
}

/// Skipped where nothing was raced: that is no success.
fn native_races(report: &Report, races: &NativeRaces) -> TestCase {
    let told = races_line(races);
    let status = match (races.outside.first(), races.folds.is_empty()) {
        (Some(outside), _) => failure(report, outside_line(outside), "uncontrolled"),
        (None, true) => skipped(&told),
        (None, false) => TestCaseStatus::success(),
    };
    let mut case = case(report, "native races", status);
    case.add_property(("told", &*told));
    case
}

#[cfg(test)]
mod tests {
    use super::super::{Exit, Requirement, sample};
    use super::*;

    fn reported(report: Report) -> Checked {
        Checked::Reported(Box::new(report))
    }

    fn document(outcomes: Vec<crate::prove::outcome::Outcome>) -> quick_junit::Report {
        let requirement = Requirement::default();
        let reports: Vec<Checked> = outcomes
            .into_iter()
            .map(|outcome| reported(Report::new(outcome, &requirement, None)))
            .collect();
        quick_junit::Report::deserialize_from_str(&junit(&reports)).unwrap()
    }

    #[test]
    fn a_proof_has_no_failure() {
        let document = document(vec![sample::proved()]);
        assert_eq!((document.failures, document.errors), (0, 0));
        assert!(document.tests >= 6);
    }

    #[test]
    fn a_divergence_fails_its_family_and_its_verdict_and_tells_how_to_replay() {
        let document = document(vec![sample::proved(), sample::divergent()]);
        assert_eq!(document.test_suites.len(), 2);
        let failed: Vec<&str> = document.test_suites[1]
            .test_cases
            .iter()
            .filter(|case| matches!(case.status, TestCaseStatus::NonSuccess { .. }))
            .map(|case| case.name.as_str())
            .collect();
        assert_eq!(failed, ["across allocations", "family dp-gradients"]);
        let report = Report::new(sample::divergent(), &Requirement::default(), None);
        let xml = junit(&[reported(report)]);
        assert!(xml.contains("bitproof replay 040G40R40M30E209000G23XC096KDR93"));
    }

    #[test]
    fn a_refused_scenario_is_an_error_of_its_own_suite() {
        let refusal = Refusal {
            name: "a\u{9b}.toml".into(),
            diagnostics: vec![
                Diagnostic::warning("w", "a warning"),
                Diagnostic::error("unreadable-file", "cannot read <it>"),
            ],
            exit: Exit::Usage,
        };
        let proof = Report::new(sample::proved(), &Requirement::default(), None);
        let xml = junit(&[Checked::Refused(refusal), reported(proof)]);
        let document = quick_junit::Report::deserialize_from_str(&xml).unwrap();
        assert_eq!((document.errors, document.failures), (1, 0));
        let suite = &document.test_suites[0];
        assert_eq!(suite.name.as_str(), "a\\u{9b}.toml");
        assert!(xml.contains("message=\"cannot read &lt;it&gt;\""), "{xml}");
        assert!(xml.contains("a warning") && !xml.contains('\u{9b}'));
    }

    #[test]
    fn a_check_of_nothing_has_no_verdict() {
        let mut outcome = sample::proved();
        outcome.oracles.clear();
        let document = document(vec![outcome]);
        let case = &document.test_suites[0].test_cases[0];
        assert!(matches!(case.status, TestCaseStatus::Skipped { .. }));
    }

    #[test]
    fn a_vacuous_check_fails_the_families_that_could_not_differ() {
        let document = document(vec![sample::vacuous()]);
        assert!(document.failures >= 2);
    }
}
