//! What names a finding: places of the training program, families and variables. Counts, digests,
//! values, ranks, steps and orders may differ in the next run, and name nothing.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::prove::outcome::{FirstDivergence, OracleResult, OracleVerdict, Outcome};
use crate::report::Exit;
use crate::report::names::slug;
use crate::scenario::{Expectation, Grade};
use crate::world::Site;

/// One finding, by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Finding {
    /// What kind of finding it is: a slug.
    pub code: String,
    /// What it is about.
    pub what: String,
}

/// What fails a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    pub findings: BTreeSet<Finding>,
    /// What no baseline lets pass, in sentences.
    pub never_known: Vec<String>,
}

impl Named {
    fn add(&mut self, code: impl Into<String>, what: impl Into<String>) {
        self.findings.insert(Finding {
            code: code.into(),
            what: what.into(),
        });
    }

    fn never(&mut self, why: impl Into<String>) {
        self.never_known.push(why.into());
    }
}

/// The findings of a check that does not pass.
///
/// `passing` is the worst grade that passes.
pub(super) fn of(
    outcome: &Outcome,
    exit: Exit,
    expect: Option<&Expectation>,
    passing: Grade,
) -> Named {
    let mut named = Named::default();
    if !outcome.is_checked() {
        named.never("nothing was checked");
        return named;
    }
    let grade = outcome.grade();
    if grade == Grade::Uncontrolled {
        named.never(
            "the same choices gave other bits: what is found then may be another thing each time",
        );
    }
    if let Some(expect) = expect {
        named.add(
            "not-as-expected",
            format!("{}, expected {expect}", grade.slug()),
        );
    }
    if let Some(first) = &outcome.first_divergence {
        named.add(grade.slug(), divergence(first));
    }
    sums(outcome, passing, &mut named);
    stop(outcome, &mut named);
    hazards(outcome, &mut named);
    oracles(outcome, &mut named);
    for missed in &outcome.mutants.missed {
        let site = without_step(&missed.site);
        named.add("fault-missed", format!("{} at {site}", missed.kind));
    }
    for finding in &outcome.vacuity {
        let (family, reason) = (slug(finding.family), slug(finding.reason));
        named.add(reason, family);
    }
    if let Some(races) = &outcome.native_races {
        let outside = races.outside.iter();
        outside.for_each(|one| named.add("outside-model", without_step(&one.site)));
        if races.outside_count > races.outside.len() as u64 {
            named.never("more results of races outside the model than are told");
        }
    }
    if let Some(like) = &outcome.like {
        let code = match like.is_explained() {
            true => "trace-explained",
            false => "trace-unexplained",
        };
        named.add(code, like.symptom.id.clone());
    }
    // A grade that nothing above names fails every time.
    if named.findings.is_empty() && named.never_known.is_empty() {
        named.never(format!(
            "{}, which no finding names (exit code {})",
            grade.words(),
            exit.code()
        ));
    }
    named
}

/// Where bits part, and in which variable.
fn divergence(first: &FirstDivergence) -> String {
    format!("{}, by {}", place(&first.site), first.variable.name)
}

fn place(site: &Site) -> String {
    format!("{} {}", site.phase.name(), site.node())
}

/// A place in words as [`Site`] is displayed, without its step and microbatch.
fn without_step(site: &str) -> String {
    let parts = site.split(", ");
    let is_number = |part: &&str| {
        let counted = part
            .strip_prefix("step ")
            .or(part.strip_prefix("microbatch "));
        counted.is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
    };
    let kept: Vec<&str> = parts.filter(|part| !is_number(part)).collect();
    kept.join(", ")
}

/// Sums that part, and those that are proved for this run's inputs or by a sample only, where that
/// does not pass: whatever else fails, a sum that comes to be of these is new.
fn sums(outcome: &Outcome, passing: Grade, named: &mut Named) {
    use crate::numerics::ladder::Rung;
    for count in &outcome.points {
        let (family, choice) = (slug(count.family), &count.choice);
        let what = format!("{family}, {choice}, {}", slug(count.reach));
        let (code, grade) = match count.rung {
            None => ("sensitive", Grade::Divergent),
            Some(Rung::L5) => ("bounded", Grade::Bounded),
            Some(rung) if rung.holds_for_all_inputs() => continue,
            Some(_) => ("proved-on-this-input", Grade::ProvedOnThisInput),
        };
        if grade > passing {
            named.add(code, what);
        }
    }
}

fn stop(outcome: &Outcome, named: &mut Named) {
    let Some(stop) = &outcome.stop else {
        return;
    };
    let mut places: Vec<String> = stop
        .sides
        .iter()
        .filter_map(|side| side.site.as_ref().map(place))
        .collect();
    places.sort();
    places.dedup();
    named.add(stop.class.name(), places.join("; "));
}

fn hazards(outcome: &Outcome, named: &mut Named) {
    for hazard in &outcome.hazards {
        let (first, second) = (place(&hazard.first.site), place(&hazard.second.site));
        let kind = slug(hazard.kind);
        let what = format!("{kind} on {}: {first}; {second}", hazard.buffer);
        named.add("hazard", what);
    }
    if outcome.hazards_beyond > 0 {
        named.never("more hazards than are told");
    }
}

fn oracles(outcome: &Outcome, named: &mut Named) {
    let is_failed = |result: &&OracleResult| result.verdict == OracleVerdict::Different;
    for result in outcome.oracles.iter().filter(is_failed) {
        let oracle = result.oracle.name();
        let mut names: BTreeSet<String> = result
            .components
            .iter()
            .map(|component| component.name().to_string())
            .collect();
        names.extend(in_backticks(result.detail.as_deref().unwrap_or_default()));
        let class = outcome.origin.as_ref();
        let class = class.filter(|origin| origin.oracle == result.oracle);
        let class = class.map_or("", |origin| origin.class.name());
        let names: Vec<String> = names.into_iter().collect();
        let parts = [oracle, class, &names.join(" ")];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        named.add("oracle-failed", parts.join(", "));
    }
    for found in &outcome.reshardings {
        if found.verdict == OracleVerdict::Different {
            named.add("reshard", format!("{} to {}", found.from, found.to));
        }
    }
    for found in &outcome.topo {
        if found.verdict == OracleVerdict::Different {
            named.add("topo", found.name.clone());
        }
    }
}

/// Names of tensors, nodes and variables stand in backticks.
fn in_backticks(text: &str) -> impl Iterator<Item = String> {
    text.split('`').skip(1).step_by(2).map(str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Report, Requirement, sample};

    #[test]
    fn places_are_named_without_their_step() {
        for (site, name) in [
            (
                "step 2, microbatch 1, backward, decoder.layers.0, wgrad",
                "backward, decoder.layers.0, wgrad",
            ),
            (
                "step 12, optimizer, optimizer, adamw",
                "optimizer, optimizer, adamw",
            ),
            ("step ladder, x", "step ladder, x"),
        ] {
            assert_eq!(without_step(site), name);
        }
        let names: Vec<String> = in_backticks("after step 2, `a.b` differs from `c`").collect();
        assert_eq!(names, ["a.b", "c"]);
    }

    /// A weaker proof is a finding where it does not pass, and only there.
    #[test]
    fn weaker_proofs_are_named_by_what_is_asked_for() {
        use crate::numerics::ladder::Rung;
        let mut outcome = sample::divergent();
        let mut count = outcome.points[0].clone();
        count.rung = Some(Rung::L1);
        outcome.points.push(count);
        let has = |accept_input: bool| {
            let requirement = Requirement {
                accept_input,
                ..Requirement::default()
            };
            let named = Report::new(outcome.clone(), &requirement, None).named();
            let mut findings = named.findings.iter();
            findings.any(|finding| finding.code == "proved-on-this-input")
        };
        assert!(has(false) && !has(true));
    }

    /// Other numbers, the same names.
    #[test]
    fn counts_and_values_name_nothing() {
        let report = |outcome| Report::new(outcome, &Requirement::default(), None);
        let outcome = sample::divergent();
        let named = report(outcome.clone()).named();
        assert!(!named.findings.is_empty(), "{named:?}");
        let mut other = outcome;
        other.nodes += 17;
        if let Some(first) = &mut other.first_divergence {
            first.nodes_equal_before += 3;
            first.site.step += 1;
            first.site.microbatch = Some(9);
            first.ranks = vec![7];
            first.value_b = "another order".to_string();
        }
        for count in &mut other.points {
            count.points += 5;
            count.addends_max += 1;
        }
        assert_eq!(report(other).named(), named);
    }
}
