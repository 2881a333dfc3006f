//! Traces as JUnit XML: one suite, a case for each group of ranks that fare alike.

use quick_junit::{NonSuccessKind, TestCase, TestCaseStatus, TestSuite};

use crate::diagnostic::{Diagnostic, Severity, escaped};
use crate::report::Exit;

/// One document. A case fails if an error was found in it.
pub fn trace_junit(name: &str, cases: &[(String, Vec<Diagnostic>)], exit: Exit) -> String {
    let name = escaped(name);
    let mut suite = TestSuite::new(&*name);
    suite.add_property(("exit_code", &*exit.code().to_string()));
    for (what, findings) in cases {
        let errors = findings
            .iter()
            .filter(|found| found.severity == Severity::Error);
        let status = match errors.into_iter().next() {
            None => TestCaseStatus::success(),
            Some(first) => {
                let kind = match exit {
                    Exit::Divergent => NonSuccessKind::Failure,
                    _ => NonSuccessKind::Error,
                };
                let mut status = TestCaseStatus::non_success(kind);
                let drawn: Vec<String> = findings.iter().map(Diagnostic::to_plain).collect();
                status
                    .set_message(&*escaped(&first.message))
                    .set_type(first.code);
                status.set_description(drawn.join("\n"));
                status
            }
        };
        let mut case = TestCase::new(&*escaped(what), status);
        case.set_classname("bitproof.trace");
        suite.add_test_case(case);
    }
    let mut document = quick_junit::Report::new("bitproof");
    document.add_test_suite(suite);
    document
        .to_string()
        .expect("XML of plain strings, written to memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cases_fail_by_what_was_found_in_them() {
        let parted = (
            "ranks 0-3".to_string(),
            vec![Diagnostic::error("trace-origin", "<op>")],
        );
        let same = ("ranks 4".to_string(), vec![Diagnostic::note("n", "a note")]);
        for (exit, counts) in [(Exit::Divergent, (1, 0)), (Exit::Vacuous, (0, 1))] {
            let xml = trace_junit("a b", &[parted.clone(), same.clone()], exit);
            let document = quick_junit::Report::deserialize_from_str(&xml).unwrap();
            assert_eq!(document.tests, 2);
            assert_eq!((document.failures, document.errors), counts);
        }
    }
}
