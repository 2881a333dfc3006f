//! Several scenarios whose authors say what they expect: how many faults were caught, how many
//! rightly named, and how many sound ones raised an alarm.

use std::fmt;

use crate::scenario::Grade;

use super::exit::is_met;
use super::{Checked, counted};

/// The score of scenarios that have an expectation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// Scenarios that are expected to fail, and those among them that did.
    pub faulty: u64,
    pub caught: u64,
    /// Caught, with the grade, the oracle, the class and the name that were expected.
    pub named: u64,
    /// Scenarios that are expected to pass, and those among them that did not.
    pub sound: u64,
    pub false_alarms: u64,
}

impl Expected {
    /// `None` where fewer than two scenarios say what they expect.
    pub fn of(scenarios: &[Checked]) -> Option<Expected> {
        let mut score = Expected::default();
        for checked in scenarios {
            let Checked::Reported(report) = checked else {
                continue;
            };
            let Some(expect) = &report.expect else {
                continue;
            };
            let outcome = &report.outcome;
            let failed = outcome.is_checked() && is_failure(outcome.grade());
            match is_failure(expect.grade) {
                true => {
                    score.faulty += 1;
                    score.caught += u64::from(failed);
                    score.named += u64::from(failed && is_met(expect, outcome));
                }
                false => {
                    score.sound += 1;
                    score.false_alarms += u64::from(!is_met(expect, outcome));
                }
            }
        }
        (score.faulty + score.sound > 1).then_some(score)
    }
}

/// Whether a grade says that something is wrong, and not merely that a proof is weak.
fn is_failure(grade: Grade) -> bool {
    matches!(
        grade,
        Grade::Masked | Grade::Hazard | Grade::Divergent | Grade::Uncontrolled
    )
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Expected {
            faulty,
            caught,
            named,
            sound,
            false_alarms,
        } = self;
        let (faults, sound) = (counted(*faulty, "fault"), counted(*sound, "sound scenario"));
        let alarms = counted(*false_alarms, "false alarm");
        write!(
            f,
            "of {faults} {caught} caught, {named} rightly named; {alarms} in {sound}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Report, Requirement, sample};
    use super::*;
    use crate::prove::outcome::Outcome;
    use crate::scenario::Expectation;

    fn checked(outcome: Outcome, expect: Option<Expectation>) -> Checked {
        let report = Report::new(outcome, &Requirement::default(), expect);
        Checked::Reported(Box::new(report))
    }

    #[test]
    fn faults_are_caught_and_named_and_alarms_are_false() {
        let divergent = || Some(Expectation::of(Grade::Divergent));
        let proved = || Some(Expectation::of(Grade::Proved));
        let elsewhere = Expectation {
            first: Some("elsewhere".into()),
            ..Expectation::of(Grade::Divergent)
        };
        let all = [
            checked(sample::divergent(), divergent()),
            checked(sample::divergent(), Some(elsewhere)),
            checked(sample::proved(), divergent()),
            checked(sample::proved(), proved()),
            checked(sample::divergent(), proved()),
            checked(sample::divergent(), None),
        ];
        let score = Expected::of(&all).unwrap();
        let expected = Expected {
            faulty: 3,
            caught: 2,
            named: 1,
            sound: 2,
            false_alarms: 1,
        };
        assert_eq!(score, expected);
        assert_eq!(
            score.to_string(),
            "of 3 faults 2 caught, 1 rightly named; 1 false alarm in 2 sound scenarios"
        );
        assert_eq!(Expected::of(&all[..1]), None);
    }
}
