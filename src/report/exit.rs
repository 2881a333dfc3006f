//! Exit codes, in one place.

use crate::prove::outcome::{OracleResult, OracleVerdict, Outcome};
use crate::prove::stop::Stop;
use crate::scenario::{Expectation, Grade, OracleKind};

/// How `bitproof` ends. Stable: scripts depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exit {
    /// Proved, or as good as was asked for, or the scenario's expectation was met.
    Proved,
    /// Below what was asked for, or not what was expected, or the budget was spent first.
    BelowRequired,
    /// Nothing was checked, or no adapter was there to check on.
    NothingChecked,
    /// The check could not have failed.
    Vacuous,
    /// Divergent, a hazard, or masked.
    Divergent,
    /// The same choices gave other bits.
    Uncontrolled,
    /// The command line or a file is wrong.
    Usage,
    /// A fault of bitproof's own.
    Internal,
}

/// The grade that counts as a pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Requirement {
    /// `--require GRADE`.
    pub require: Option<Grade>,
    /// `--accept input`, or `accept = ["input"]` in the scenario.
    pub accept_input: bool,
}

impl Requirement {
    /// The worst grade that passes.
    pub(super) fn worst_passing(&self) -> Grade {
        let accepted = if self.accept_input {
            Grade::ProvedOnThisInput
        } else {
            Grade::Proved
        };
        // Nothing below *bounded* can be asked for: those are failures, not weaker proofs.
        let required = self
            .require
            .map_or(accepted, |grade| grade.min(Grade::Bounded));
        required.max(accepted)
    }
}

impl Exit {
    pub const fn code(self) -> u8 {
        match self {
            Exit::Proved => 0,
            Exit::Divergent => 1,
            Exit::Usage => 2,
            Exit::Uncontrolled => 3,
            Exit::Vacuous => 4,
            Exit::NothingChecked => 5,
            Exit::BelowRequired => 6,
            Exit::Internal => 70,
        }
    }

    /// How a check that reached an outcome ends. Of several scenarios, the greatest exit decides.
    pub fn of(outcome: &Outcome, requirement: &Requirement, expect: Option<&Expectation>) -> Exit {
        if !outcome.is_checked() {
            return Exit::NothingChecked;
        }
        let own = Exit::of_grade(outcome.grade(), requirement);
        // A real trace that parts is no pass, whether something explains it or not.
        let like = outcome.like.as_ref().map(|like| match like.is_explained() {
            true => Exit::Divergent,
            false => Exit::BelowRequired,
        });
        let of_scenario = match expect {
            None => own,
            Some(expect) if is_met(expect, outcome) => Exit::Proved,
            // A proof where a divergence was expected is a failed expectation, too.
            Some(_) => own.max(Exit::BelowRequired),
        };
        of_scenario.max(like.unwrap_or(Exit::Proved))
    }

    fn of_grade(grade: Grade, requirement: &Requirement) -> Exit {
        match grade {
            grade if grade <= requirement.worst_passing() => Exit::Proved,
            Grade::Proved | Grade::ProvedOnThisInput | Grade::Bounded => Exit::BelowRequired,
            Grade::Vacuous => Exit::Vacuous,
            Grade::Masked | Grade::Hazard | Grade::Divergent => Exit::Divergent,
            Grade::Uncontrolled => Exit::Uncontrolled,
        }
    }
}

/// The expected grade, and whatever else is named: the first op, the oracle, the origin.
pub(super) fn is_met(expect: &Expectation, outcome: &Outcome) -> bool {
    let first = outcome.first_divergence.as_ref();
    let stop = outcome.stop.as_ref().and_then(Stop::site);
    let first = first.map(|first| &first.site).or(stop);
    let first = first.map(|site| &*site.op);
    let origin = outcome.origin.as_ref();
    // An oracle that fails for what another one shows first is a symptom.
    let shows = |oracle: OracleKind| {
        let mut results = outcome.oracles.iter();
        let is_different = |result: &OracleResult| result.verdict == OracleVerdict::Different;
        match origin {
            Some(origin) => origin.oracle == oracle,
            None => results.any(|result| result.oracle == oracle && is_different(result)),
        }
    };
    outcome.is_checked()
        && outcome.grade() == expect.grade
        && (expect.first.is_none() || expect.first.as_deref() == first)
        && expect.oracle.is_none_or(shows)
        && (expect.class.is_none() || expect.class == origin.map(|origin| origin.class))
        && expect
            .names
            .as_deref()
            .is_none_or(|names| origin.is_some_and(|origin| names_whole(&origin.what, names)))
}

/// Whether `text` has `name`, not as a part of a longer one: `bucket1` is not in `bucket10`. A dot
/// ends a name, as it does in a path of modules.
fn names_whole(text: &str, name: &str) -> bool {
    let goes_on = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
    let mut places = text.match_indices(name);
    places.any(|(start, found)| {
        let before = text[..start].chars().next_back();
        let after = text[start + found.len()..].chars().next();
        let (first, last) = (name.chars().next(), name.chars().next_back());
        let joins = |inner: Option<char>, outer: Option<char>| {
            inner.is_some_and(goes_on) && outer.is_some_and(goes_on)
        };
        !joins(first, before) && !joins(last, after)
    })
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;
    use crate::prove::Origin;
    use crate::scenario::OriginClass;

    fn code(grade: Grade, require: Option<Grade>, accept_input: bool) -> u8 {
        Exit::of_grade(
            grade,
            &Requirement {
                require,
                accept_input,
            },
        )
        .code()
    }

    #[test]
    fn grades_have_the_documented_codes() {
        let plain: Vec<u8> = Grade::ALL
            .iter()
            .map(|grade| code(*grade, None, false))
            .collect();
        assert_eq!(plain, [0, 6, 6, 4, 1, 1, 1, 3]);
    }

    #[test]
    fn flags_admit_weaker_proofs_and_never_a_failure() {
        assert_eq!(code(Grade::ProvedOnThisInput, None, true), 0);
        assert_eq!(code(Grade::Bounded, None, true), 6);
        assert_eq!(code(Grade::Bounded, Some(Grade::Bounded), false), 0);
        assert_eq!(
            code(Grade::ProvedOnThisInput, Some(Grade::Bounded), false),
            0
        );
        assert_eq!(
            code(Grade::ProvedOnThisInput, Some(Grade::Proved), false),
            6
        );
        for require in Grade::ALL {
            for failed in &Grade::ALL[3..] {
                assert_ne!(
                    code(*failed, Some(require), true),
                    0,
                    "{failed} with {require}"
                );
            }
        }
    }

    #[test]
    fn a_check_of_nothing_is_no_proof() {
        let mut outcome = sample::proved();
        outcome.oracles.clear();
        let expect = Expectation::of(Grade::Proved);
        for expect in [None, Some(&expect)] {
            let exit = Exit::of(&outcome, &Requirement::default(), expect);
            assert_eq!(exit.code(), 5);
        }
        assert!(!is_met(&expect, &outcome));
    }

    #[test]
    fn an_expectation_replaces_the_grade() {
        let outcome = sample::divergent();
        let exit = |grade, first: Option<&str>| {
            let first = first.map(str::to_string);
            let expect = Expectation {
                first,
                ..Expectation::of(grade)
            };
            Exit::of(&outcome, &Requirement::default(), Some(&expect)).code()
        };
        assert_eq!(exit(Grade::Divergent, None), 0);
        assert_eq!(exit(Grade::Divergent, Some("reduce_scatter")), 0);
        assert_eq!(exit(Grade::Divergent, Some("all_reduce")), 1);
        assert_eq!(exit(Grade::Proved, None), 1);
        let expect = Expectation::of(Grade::Divergent);
        let proved = Exit::of(&sample::proved(), &Requirement::default(), Some(&expect));
        assert_eq!(proved.code(), 6);
    }

    #[test]
    fn an_origin_is_expected_by_oracle_class_and_name() {
        let mut outcome = sample::divergent();
        let met = |outcome: &Outcome, change: fn(&mut Expectation)| {
            let mut expect = Expectation::of(Grade::Divergent);
            change(&mut expect);
            is_met(&expect, outcome)
        };
        for change in [
            (|expect: &mut Expectation| expect.class = Some(OriginClass::MissingWait))
                as fn(&mut Expectation),
            |expect| expect.oracle = Some(OracleKind::REF),
            |expect| expect.names = Some("grad_reduce.bucket2".into()),
        ] {
            outcome.origin = None;
            assert!(!met(&outcome, change));
            outcome.origin = Some(Origin {
                class: OriginClass::MissingWait,
                oracle: OracleKind::REF,
                what: "nothing waits by `grad_reduce.bucket2`".into(),
            });
            assert!(met(&outcome, change));
            outcome.origin = Some(Origin {
                class: OriginClass::LostState,
                oracle: OracleKind::XR,
                what: "nothing waits by `grad_reduce.bucket3`".into(),
            });
            assert!(!met(&outcome, change));
        }
    }

    #[test]
    fn a_name_is_matched_whole() {
        let text = "nothing waits by `grad_reduce.bucket10`: exp-avg of step 2";
        for name in [
            "grad_reduce.bucket10",
            "bucket10",
            "exp-avg of step 2",
            "grad_reduce",
        ] {
            assert!(names_whole(text, name), "{name}");
        }
        for name in [
            "grad_reduce.bucket1",
            "bucket",
            "g",
            "wait",
            "avg",
            "avg of step",
        ] {
            assert!(!names_whole(text, name), "{name}");
        }
    }

    /// A resume that differs because of a hazard is no finding of RES.
    #[test]
    fn an_oracle_that_fails_later_is_not_the_one_expected() {
        let mut outcome = sample::divergent();
        outcome.oracles[1].verdict = OracleVerdict::Different;
        let res = outcome.oracles[1].oracle;
        let expect = Expectation {
            oracle: Some(res),
            ..Expectation::of(Grade::Divergent)
        };
        outcome.origin = None;
        assert!(is_met(&expect, &outcome));
        outcome.origin = Some(Origin {
            class: OriginClass::MissingWait,
            oracle: OracleKind::R2R,
            what: String::new(),
        });
        assert!(!is_met(&expect, &outcome));
    }

    #[test]
    fn the_worst_of_several_exits_is_the_greatest() {
        let worst = [Exit::Proved, Exit::Divergent, Exit::Vacuous]
            .into_iter()
            .max();
        assert_eq!(worst, Some(Exit::Divergent));
        assert!(Exit::Internal > Exit::Usage && Exit::Usage > Exit::Uncontrolled);
    }
}
