//! RES, the part about background writers: whether the file of an asynchronous checkpoint holds the
//! state as it was when the checkpoint was asked for.
//!
//! How long a writer takes is a freedom of the schedule. A file depends on it only by what the
//! writer reads: staging buffers that nothing else writes give one file always; the state itself,
//! read while training goes on, gives what a later step has made of it. So both extremes are run:
//! a writer that is done before the next step begins, and one that begins when the program waits
//! for it. What lies between reads no other versions of a buffer, and accesses that no wait orders
//! are hazards.

use std::collections::{BTreeMap, BTreeSet};

use crate::fault::Component;
use crate::prove::memory;
use crate::prove::reversal::{self, is_same};
use crate::prove::session::{CheckError, Session};
use crate::world::{Hazard, RunOptions, RunRecord, SavedFile, State};

/// A file that is not what was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Torn {
    /// The step after which it was asked for.
    pub after: u32,
    /// Its writer took as long as it might.
    pub late: bool,
    /// The iteration that its tracker names.
    pub iteration: u32,
    /// Components that are as they were.
    pub whole: BTreeSet<Component>,
    /// Components that are not, and the later step that they are of, if it is one that was kept.
    pub other: BTreeMap<Component, Option<u32>>,
    /// Of those, the ones that are another step's on some ranks only.
    pub on: BTreeMap<Component, BTreeSet<u32>>,
}

/// What background writers left.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshots {
    /// Files that were compared, of both extremes.
    pub files: u64,
    pub torn: Vec<Torn>,
    /// Of the run with late writers.
    pub hazards: Vec<Hazard>,
    /// The file of each step that a resume loads: one that is torn, where there is one.
    pub loaded: BTreeMap<u32, State>,
}

impl std::fmt::Display for Torn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let when = match self.late {
            true => "by a writer that takes as long as it may",
            false => "by a writer that is done at once",
        };
        write!(
            f,
            "the checkpoint asked for after step {}, written {when}, ",
            self.after
        )?;
        let mut parts = Vec::new();
        if self.iteration != self.after {
            parts.push(format!(
                "has a tracker that names iteration {}",
                self.iteration
            ));
        }
        let mut by_step: BTreeMap<Option<u32>, Vec<String>> = BTreeMap::new();
        for (component, step) in &self.other {
            let named = match self.on.get(component) {
                Some(ranks) => format!("{component} (on ranks {})", listed(ranks)),
                None => component.to_string(),
            };
            by_step.entry(*step).or_default().push(named);
        }
        for (step, names) in by_step {
            let names = names.join(", ");
            parts.push(match step {
                Some(step) => format!("has {names} of step {step}"),
                None => format!("has {names} of no step"),
            });
        }
        let whole: Vec<&str> = self
            .whole
            .iter()
            .map(|component| component.name())
            .collect();
        if !whole.is_empty() {
            parts.push(format!("{} of step {}", whole.join(", "), self.after));
        }
        f.write_str(&parts.join(" and "))
    }
}

/// Compares the files of `reference`, whose writers were done at once, and those of a run with late
/// writers with the state at each save. `None` where nothing is saved in the background.
///
/// # Errors
/// Whatever stops the second run, or a save without a file.
pub fn compare(
    session: &mut Session,
    reference: &RunRecord,
) -> Result<Option<Snapshots>, CheckError> {
    let saves = memory::background_saves(&session.scenario);
    if saves.is_empty() {
        return Ok(None);
    }
    let options = RunOptions {
        late_writes: true,
        hazard_steps_max: memory::late_hazard_steps(&session.scenario),
        faults: session.corruption(),
        ..RunOptions::default()
    };
    let steps = session.steps();
    let late = session.plain_run(&options, steps.clone())?;
    let is_known = |hazard: &&Hazard| {
        let mut known = reference.hazards.iter();
        known.any(|other| is_same(other, hazard))
    };
    let own = late.hazards.iter().filter(|hazard| !is_known(hazard));
    let mut hazards: Vec<Hazard> = own.cloned().collect();
    reversal::take_ordered_out(&mut hazards, |pairs| {
        let turned = RunOptions {
            hazard_steps_max: 0,
            reverse: pairs.to_vec(),
            ..options.clone()
        };
        Ok(session.plain_run(&turned, steps.clone())?)
    })?;
    let mut found = Snapshots {
        hazards,
        ..Snapshots::default()
    };
    for after in saves {
        for (record, is_late) in [(reference, false), (&late, true)] {
            let file = record.files.get(&after);
            let file = file.ok_or_else(|| {
                CheckError::Internal(format!(
                    "no file was written of the state after step {after}"
                ))
            })?;
            found.files += 1;
            let torn = torn(reference, after, file, is_late)?;
            let is_first = !found.loaded.contains_key(&after);
            if is_first || torn.is_some() {
                found.loaded.insert(after, file.state.clone());
            }
            found.torn.extend(torn);
        }
    }
    Ok(Some(found))
}

fn torn(
    reference: &RunRecord,
    after: u32,
    file: &SavedFile,
    late: bool,
) -> Result<Option<Torn>, CheckError> {
    let asked = reference.checkpoints.get(&after);
    let asked = asked
        .ok_or_else(|| CheckError::Internal(format!("no state was kept after step {after}")))?;
    let mut iterations = file.iterations.values().copied();
    // The tracker is written once: a rank that names another iteration is as wrong.
    let iteration = iterations.find(|named| *named != after).unwrap_or(after);
    let mut torn = Torn {
        after,
        late,
        iteration,
        whole: asked.keys().map(|(_, component, _)| *component).collect(),
        other: BTreeMap::new(),
        on: BTreeMap::new(),
    };
    let components = torn.whole.clone();
    for component in components {
        let of: BTreeSet<u32> = ranks_of(asked, component);
        let is_other = |rank: &u32| !has(file, asked, component, &BTreeSet::from([*rank]));
        let others: BTreeSet<u32> = of.iter().copied().filter(is_other).collect();
        if others.is_empty() {
            continue;
        }
        torn.whole.remove(&component);
        let mut later = reference.checkpoints.range(after + 1..);
        let step = later.find(|(_, state)| has(file, state, component, &others));
        torn.other.insert(component, step.map(|(step, _)| *step));
        if others.len() < of.len() {
            torn.on.insert(component, others);
        }
    }
    let is_whole = torn.other.is_empty() && iteration == after;
    Ok((!is_whole).then_some(torn))
}

fn listed(ranks: &BTreeSet<u32>) -> String {
    let ranks: Vec<String> = ranks.iter().map(u32::to_string).collect();
    ranks.join(", ")
}

fn ranks_of(state: &State, component: Component) -> BTreeSet<u32> {
    let keys = state.keys().filter(|(_, of, _)| *of == component);
    keys.map(|(rank, ..)| *rank).collect()
}

/// Whether every tensor that these ranks have of the component is in the file as it is in `state`.
fn has(file: &SavedFile, state: &State, component: Component, ranks: &BTreeSet<u32>) -> bool {
    let mut tensors = state
        .iter()
        .filter(|((rank, of, _), _)| *of == component && ranks.contains(rank));
    tensors.all(|(key, tensor)| file.state.get(key) == Some(tensor))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numerics::Dtype;
    use crate::world::StateTensor;

    fn state(step: u32, moment: u32) -> State {
        let cell = |word: u32| StateTensor {
            dtype: Dtype::U32,
            words: vec![word],
        };
        State::from([
            (
                (0, Component::OptimizerStep, "step".to_string()),
                cell(step),
            ),
            ((0, Component::ExpAvg, "exp_avg".to_string()), cell(moment)),
        ])
    }

    #[test]
    fn a_file_is_what_was_asked_for_or_its_parts_are_named() {
        let reference = RunRecord {
            checkpoints: BTreeMap::from([(1, state(1, 70)), (2, state(2, 80))]),
            ..RunRecord::default()
        };
        let file = |iteration, state| SavedFile {
            iterations: BTreeMap::from([(0, iteration)]),
            state,
        };
        let of = |file: &SavedFile| torn(&reference, 1, file, true).unwrap();
        assert_eq!(of(&file(1, state(1, 70))), None);
        let mixed = of(&file(1, state(2, 70))).expect("it is torn").to_string();
        assert!(
            mixed.ends_with("has optimizer-step of step 2 and exp-avg of step 1"),
            "{mixed}"
        );
        let named = of(&file(2, state(1, 70))).expect("a late tracker");
        assert!(named.to_string().contains("names iteration 2"), "{named}");
        let lost = of(&file(1, state(1, 71))).expect("no step has that");
        assert_eq!(lost.other, BTreeMap::from([(Component::ExpAvg, None)]));
        assert!(torn(&reference, 3, &file(3, state(1, 70)), true).is_err());
    }
}
