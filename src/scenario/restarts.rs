//! After which steps a run is killed and resumed: `checkpoint.restarts`.

use super::RESTARTS_MAX;
use crate::diagnostic::document::{Item, Reader, Value};

/// One run for every step that another one follows.
const EVERY_STEP: &str = "every-step";

/// `gathers` says whether gathers of parameters overlap with the next step's forward.
pub(super) fn read(reader: &mut Reader<'_>, steps: u32, gathers: bool) -> Vec<Vec<u32>> {
    let Some(entry) = reader.entry("restarts") else {
        return default_restarts(steps, gathers);
    };
    match &entry.item.value {
        Value::Text(word) if word == EVERY_STEP => every_step(reader, &entry.item, steps),
        Value::Array(items) => lists(reader, items, steps),
        _ => {
            let expected = "an array of arrays of steps, or `every-step`";
            reader
                .wrong_type("restarts", &entry.item, expected, Vec::new())
                .value
        }
    }
}

/// What is checked where `restarts` is not given.
pub(super) fn default_restarts(steps: u32, gathers: bool) -> Vec<Vec<u32>> {
    match gathers {
        true => default_beside_gathers(steps),
        false => default(steps),
    }
}

/// One restart after an odd and an even step, and two in one run, as far as the steps allow.
fn default(steps: u32) -> Vec<Vec<u32>> {
    match steps {
        0 | 1 => Vec::new(),
        2 => vec![vec![1]],
        3 => vec![vec![1], vec![2], vec![1, 2]],
        _ => vec![vec![1], vec![2], vec![1, 3]],
    }
}

/// The same, but that a step is left before which no state is kept: there the parameters of the
/// step before are gathered while it runs. The state after the first step is kept in any run.
fn default_beside_gathers(steps: u32) -> Vec<Vec<u32>> {
    match steps {
        0 | 1 => Vec::new(),
        2 | 3 => vec![vec![1]],
        _ => vec![vec![1], vec![2], vec![1, 2]],
    }
}

fn every_step(reader: &mut Reader<'_>, item: &Item, steps: u32) -> Vec<Vec<u32>> {
    let last = steps.saturating_sub(1);
    if last as usize > RESTARTS_MAX {
        too_many(reader, item);
        return Vec::new();
    }
    (1..=last).map(|step| vec![step]).collect()
}

fn lists(reader: &mut Reader<'_>, items: &[Item], steps: u32) -> Vec<Vec<u32>> {
    if let Some(beyond) = items.get(RESTARTS_MAX) {
        too_many(reader, beyond);
        return Vec::new();
    }
    let lists = items.iter().filter_map(|item| list(reader, item, steps));
    lists.collect()
}

fn list(reader: &mut Reader<'_>, item: &Item, steps: u32) -> Option<Vec<u32>> {
    let Value::Array(numbers) = &item.value else {
        return reader
            .wrong_type("restarts", item, "an array of steps", None)
            .value;
    };
    if let Some(beyond) = numbers.get(RESTARTS_MAX) {
        too_many(reader, beyond);
        return None;
    }
    let numbers = numbers.iter().map(|number| match number.value {
        Value::Integer(step) => Some(step),
        _ => reader.wrong_type("restarts", number, "a step", None).value,
    });
    let numbers: Vec<i64> = numbers.collect::<Option<_>>()?;
    let in_range = |step: &i64| (1..i64::from(steps)).contains(step);
    let ascending = numbers.is_sorted_by(|a, b| a < b) && !numbers.is_empty();
    if !ascending || !numbers.iter().all(in_range) {
        let most = steps.saturating_sub(1);
        let label = format!("expected ascending steps from 1 to {most}");
        let message = "this run cannot be killed and resumed so".to_string();
        reader.complain("out-of-range", message, item, &label);
        return None;
    }
    Some(numbers.into_iter().map(|step| step as u32).collect())
}

fn too_many(reader: &mut Reader<'_>, item: &Item) {
    let message = format!("more than {RESTARTS_MAX} restarts");
    let label = format!("expected at most {RESTARTS_MAX}: check some of them, then the others");
    reader.complain("out-of-range", message, item, &label);
}

#[cfg(test)]
mod tests {
    use crate::diagnostic::Diagnostic;
    use crate::scenario::{Overrides, Scenario};

    fn restarts(steps: u32, restarts: &str) -> Result<Vec<Vec<u32>>, Vec<Diagnostic>> {
        let overrides = Overrides {
            set: vec![
                "recipe.train_iters=100".to_string(),
                format!("steps={steps}"),
                format!("checkpoint.restarts={restarts}"),
            ],
            ..Overrides::default()
        };
        let path = std::path::Path::new("scenarios/quickstart.toml");
        let loaded = Scenario::load(path, &overrides)?;
        Ok(loaded.scenario.checkpoint.restarts)
    }

    #[test]
    fn every_step_is_a_run_of_its_own() {
        let named = restarts(5, "\"every-step\"").unwrap();
        assert_eq!(named, [[1], [2], [3], [4]]);
        assert!(restarts(66, "\"every-step\"").is_err());
        assert_eq!(restarts(65, "\"every-step\"").unwrap().len(), 64);
    }

    /// The default leaves a step whose gathers overlap: else nothing would be checked of them.
    #[test]
    fn the_default_leaves_a_gather() {
        for steps in 3..=6u32 {
            for gathers in [false, true] {
                let overrides = Overrides {
                    set: vec![
                        "recipe.train_iters=100".to_string(),
                        format!("steps={steps}"),
                        "recipe.use_distributed_optimizer=true".to_string(),
                        "recipe.overlap_grad_reduce=true".to_string(),
                        format!("recipe.overlap_param_gather={gathers}"),
                    ],
                    ..Overrides::default()
                };
                let path = std::path::Path::new("scenarios/quickstart.toml");
                let scenario = Scenario::load(path, &overrides).unwrap().scenario;
                let cuts = scenario.checkpoint.cuts();
                assert!(!cuts.is_empty());
                let overlaps = (2..steps).any(|kept| !cuts.contains(&kept));
                assert!(!gathers || overlaps, "{steps} steps, cuts {cuts:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for wrong in ["[[0]]", "[[4]]", "[[2, 1]]", "[[]]", "[1]", "\"each\"", "3"] {
            assert!(restarts(4, wrong).is_err(), "{wrong}");
        }
    }
}
