//! The report as JSON. Keys are only added within a schema version; a change of meaning or a
//! removal is a new one.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::exit::is_met;
use super::names::slug;
use super::{Refusal, Report};
use crate::diagnostic::Diagnostic;
use crate::prove::outcome::{Outcome, PointCount};
use crate::scenario::Grade;

pub const SCHEMA_VERSION: u32 = 1;

impl Report {
    /// The report as a JSON object. Keys: `schema_version`, `grade`, `verdicts` (`within`,
    /// `across`), `exit_code`, `scenario`, `expect`, `import`, `recipe`, `engine`, `steps`,
    /// `ranks`, `nodes`, `choice_points` (a count a rung, `sensitive`, and `by_family`),
    /// `input_points`, `sampling`, `hazards`, `oracles` (`R2R`, `RES`, `XR`, `REF`),
    /// `origin` (what came first in cause), `stop` (why a run could not go on), `reshardings` (a
    /// load on another layout each), `topo` (other sizes and places), `serial` (values against a
    /// serial model's), `mutants` (`caught`, `total`), `native_races` (true atomics on an
    /// adapter), `vacuity`, `first_divergence`, `witness`, `visible_effect`, `remedies`, `losses`,
    /// `replay`, `regression`, `like` (what explains a real trace), `baseline`
    /// (which findings are new), `certificate`,
    /// `not_covered`, `not_said`, `diagnostics` (what fails the check, or would without its
    /// expectation). What a check did not find is `null`, never absent.
    pub fn to_json(&self) -> Value {
        let mut object = self.of_outcome();
        object["baseline"] = json!(self.against);
        object
    }

    fn of_outcome(&self) -> Value {
        let outcome = &self.outcome;
        let slug = |grade: Option<Grade>| grade.map_or("not-checked", |grade| grade.slug());
        let checked = |grade: Grade| Some(grade).filter(|_| outcome.is_checked());
        let within = slug(outcome.within.and_then(checked));
        let across = slug(outcome.across.and_then(checked));
        let expect = self.expect.as_ref().map(|expect| {
            json!({
                "grade": expect.grade,
                "first": expect.first,
                "oracle": expect.oracle,
                "class": expect.class,
                "names": expect.names,
                "met": is_met(expect, outcome),
            })
        });
        json!({
            "schema_version": SCHEMA_VERSION,
            "grade": checked(outcome.grade()),
            "verdicts": { "within": within, "across": across },
            "exit_code": self.exit.code(),
            "scenario": outcome.scenario,
            "expect": expect,
            "import": outcome.imported,
            "recipe": shortest(&outcome.recipe),
            "faults": outcome.faults,
            "engine": outcome.engine,
            "steps": outcome.steps,
            "ranks": outcome.ranks,
            "nodes": outcome.nodes,
            "peak_bytes": outcome.peak_bytes.map(|(bytes, rank)| {
                json!({ "bytes": bytes, "rank": rank })
            }),
            "choice_points": choice_points(&outcome.points),
            "input_points": { "count": outcome.input_point_count, "first": outcome.input_points },
            "sampling": outcome.sampling,
            "hazards": outcome.hazards,
            "hazards_beyond": outcome.hazards_beyond,
            "notes": outcome.notes,
            "origin": outcome.origin,
            "stop": outcome.stop,
            "oracles": oracles(outcome),
            "reshardings": outcome.reshardings,
            "topo": outcome.topo,
            "serial": outcome.serial,
            "mutants": outcome.mutants,
            "native_races": outcome.native_races,
            "vacuity": outcome.vacuity,
            "first_divergence": outcome.first_divergence,
            "witness": shortest(&outcome.witness),
            "visible_effect": shortest(&outcome.visible_effect),
            "remedies": outcome.remedies,
            "losses": shortest(&outcome.losses),
            "replay": self.replay_command(),
            "regression": outcome.regression,
            "like": outcome.like,
            "certificate": outcome.certificate,
            "not_covered": outcome.not_covered,
            "not_said": outcome.not_said,
            "diagnostics": drawn(&self.diagnostics()),
        })
    }
}

impl Refusal {
    /// The object that stands in the place of a report. Keys: `schema_version`, `path`, `grade`
    /// (`null`), `exit_code`, `diagnostics`.
    pub fn to_json(&self) -> Value {
        let diagnostics = drawn(&self.diagnostics);
        json!({
            "schema_version": SCHEMA_VERSION,
            "path": self.name,
            "grade": null,
            "exit_code": self.exit.code(),
            "diagnostics": diagnostics,
        })
    }
}

fn drawn(diagnostics: &[Diagnostic]) -> Vec<Value> {
    diagnostics.iter().map(Diagnostic::to_json).collect()
}

/// JSON in which an `f32` is the shortest decimal that reads back as it. Built as a value it would
/// be widened first, and 0.1 would read 0.10000000149011612.
fn shortest(value: &impl Serialize) -> Value {
    let text = serde_json::to_string(value).expect("plain data has a JSON form");
    serde_json::from_str(&text).expect("JSON that was just written")
}

fn choice_points(points: &[PointCount]) -> Value {
    #[derive(Serialize)]
    struct ChoicePoints<'a> {
        #[serde(flatten)]
        by_rung: BTreeMap<&'static str, u64>,
        by_family: &'a [PointCount],
    }
    let mut by_rung = BTreeMap::new();
    let sensitive = points.iter().filter(|count| count.rung.is_none());
    by_rung.insert("sensitive", sensitive.map(|count| count.points).sum());
    for rung in crate::numerics::ladder::Rung::ALL {
        let of_rung = points.iter().filter(|count| count.rung == Some(rung));
        by_rung.insert(rung.name(), of_rung.map(|count| count.points).sum());
    }
    json!(ChoicePoints {
        by_rung,
        by_family: points
    })
}

fn oracles(outcome: &Outcome) -> Value {
    let mut object = serde_json::Map::new();
    for result in &outcome.oracles {
        object.insert(
            result.oracle.name().to_string(),
            json!({
                "verdict": slug(result.verdict),
                "comparisons": result.comparisons,
                "detail": result.detail,
                "components": result.components,
            }),
        );
    }
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::super::{Requirement, sample};
    use super::*;
    use crate::prove::stop::{Stop, StopSide};
    use crate::scenario::{OracleKind, OriginClass};

    #[test]
    fn every_documented_key_is_there_whatever_was_found() {
        for outcome in [sample::proved(), sample::divergent(), sample::vacuous()] {
            let report = Report::new(outcome, &Requirement::default(), None);
            let json = report.to_json();
            for key in [
                "schema_version",
                "grade",
                "verdicts",
                "exit_code",
                "recipe",
                "engine",
                "steps",
                "ranks",
                "nodes",
                "choice_points",
                "hazards",
                "hazards_beyond",
                "oracles",
                "mutants",
                "native_races",
                "vacuity",
                "first_divergence",
                "witness",
                "visible_effect",
                "replay",
                "certificate",
                "not_covered",
            ] {
                assert!(json.get(key).is_some(), "no `{key}`");
            }
        }
    }

    #[test]
    fn a_divergence_is_told_with_its_bits() {
        let json = Report::new(sample::divergent(), &Requirement::default(), None).to_json();
        assert_eq!(json["grade"], "divergent");
        assert_eq!(
            json["verdicts"],
            json!({ "within": "proved", "across": "divergent" })
        );
        assert_eq!(json["exit_code"], 1);
        assert_eq!(json["recipe"]["lr"].to_string(), "0.005");
        assert_eq!(json["losses"][0].to_string(), "5.54612");
        assert_eq!(json["choice_points"]["P"], 40);
        assert_eq!(json["witness"]["sum_a"]["hex"], "0x3f800001");
        assert_eq!(json["witness"]["addends"][0]["source"], "rank 0");
        assert_eq!(json["oracles"]["RES"]["verdict"], "equal");
        assert_eq!(json["mutants"]["caught"], 12);
        assert!(
            json["replay"]
                .as_str()
                .unwrap()
                .starts_with("bitproof replay ")
        );
    }

    #[test]
    fn a_run_that_stops_is_told_with_its_sides() {
        let side = |rank: u32| StopSide {
            ranks: vec![rank],
            site: None,
            what: format!("all_reduce of {rank}"),
        };
        let outcome = Outcome {
            within: Some(Grade::Divergent),
            stop: Some(Stop {
                class: OriginClass::CollectiveMismatch,
                oracle: OracleKind::R2R,
                group: Some("dp0".to_string()),
                sides: vec![side(0), side(3)],
                what: "collective mismatch in dp0".to_string(),
                hazards: Vec::new(),
            }),
            ..sample::proved()
        };
        let json = Report::new(outcome, &Requirement::default(), None).to_json();
        assert_eq!(json["exit_code"], 1);
        assert_eq!(json["stop"]["class"], "collective-mismatch");
        assert_eq!(json["stop"]["sides"][1]["ranks"], json!([3]));
        let first = &json["diagnostics"][0];
        assert_eq!(first["code"], "collective-mismatch");
        assert_eq!(first["notes"][1], "rank 3: all_reduce of 3");
    }

    #[test]
    fn nothing_checked_is_no_grade() {
        let mut outcome = sample::proved();
        outcome.oracles.clear();
        let json = Report::new(outcome, &Requirement::default(), None).to_json();
        assert!(json["grade"].is_null());
        assert_eq!(json["verdicts"]["within"], "not-checked");
        assert_eq!(json["exit_code"], 5);
    }

    #[test]
    fn across_is_not_checked_where_placement_is_fixed() {
        let json = Report::new(sample::proved(), &Requirement::default(), None).to_json();
        assert_eq!(json["verdicts"]["across"], "not-checked");
        assert!(json["witness"].is_null());
    }
}
