//! What the other choice of a witness does to ranks and losses, where the report has it.

use serde_json::{Value, json};

use super::curve::curve;

use super::map::Mark;
use super::text::{Limits, items};
use crate::numerics::Dtype;
use crate::numerics::bits::ulp_distance;

/// From which step on ranks compute something else; nothing where what parted first is no sum of
/// which the report has a witness.
pub(super) fn marks(report: &Value) -> Option<Vec<(&Value, Mark)>> {
    let is_of_first = report["witness"]["site"] == report["first_divergence"]["site"];
    let groups = items(&report["visible_effect"], "spread");
    if !is_of_first || !report["witness"]["site"].is_object() || groups.is_empty() {
        return None;
    }
    let reached = groups.iter().filter_map(|group| {
        let step = group["first_step"].as_u64()?;
        let what = format!("from step {step} on it computes something else");
        Some((
            &group["ranks"],
            Mark {
                step: Some(step),
                what,
                is_reached: true,
            },
        ))
    });
    Some(reached.collect())
}

/// How far the two losses are apart, step by step.
pub(super) fn distances(effect: &Value, limits: Limits) -> String {
    let pairs = items(effect, "losses").iter();
    let ulps = pairs.map(|pair| {
        let [a, b] = [0, 1].map(|side| pair[side].as_f64().map(|loss| loss as f32));
        match a.zip(b).and_then(|(a, b)| ulp_distance(Dtype::F32, a, b)) {
            Some(ulps) => json!(ulps),
            None => Value::Null,
        }
    });
    let ulps: Vec<Value> = ulps.collect();
    curve("ulps between the two losses", &ulps, limits)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Value {
        json!({
            "first_divergence": { "site": { "step": 2 } },
            "witness": { "site": { "step": 2 } },
            "visible_effect": {
                "spread": [
                    { "first_step": 2, "ranks": [0, 1] },
                    { "first_step": 3, "ranks": [2] },
                    { "first_step": null, "ranks": [3] },
                ],
                "losses": [[1.0, 1.0], [1.0, 1.0000001], [null, 2.0]],
            },
        })
    }

    #[test]
    fn ranks_are_marked_where_the_witness_reaches_them() {
        let report = report();
        let found = marks(&report).expect("it has them");
        let steps: Vec<Option<u64>> = found.iter().map(|(_, mark)| mark.step).collect();
        assert_eq!(steps, [Some(2), Some(3)]);
        let mut other = report.clone();
        other["witness"]["site"]["step"] = json!(1);
        assert!(marks(&other).is_none(), "of another place");
        let old = json!({ "first_divergence": null, "witness": null });
        assert!(marks(&old).is_none());
    }

    #[test]
    fn distances_are_steps_between_neighbours() {
        let told = distances(&report()["visible_effect"], Limits::USUAL);
        assert!(told.contains("from 0 to 1"), "{told}");
        assert!(told.contains("1 steps have no finite value"), "{told}");
        assert_eq!(distances(&json!({}), Limits::USUAL), "");
    }
}
