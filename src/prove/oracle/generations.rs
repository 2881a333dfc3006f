//! A checkpoint folder that holds files of two saves. Loaders of per-rank files trust their names:
//! a folder that was used before, by more ranks or by a run that was killed, gives some ranks the
//! state of another step (NVIDIA-NeMo/Megatron-Bridge#5604).

use std::collections::{BTreeMap, BTreeSet};

use crate::fault::{Component, Fault, FaultKind};
use crate::prove::session::Session;
use crate::world::{RunRecord, State};

/// A tensor of a state: its rank, component and name.
type TensorKey = (u32, Component, String);

/// A rank's part of a checkpoint that is the state after another step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    pub rank: u32,
    pub component: Component,
    pub step: u32,
}

impl std::fmt::Display for Stale {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Stale {
            rank,
            component,
            step,
        } = self;
        write!(f, "the file of rank {rank} has {component} of step {step}")
    }
}

/// The checkpoint of `cut` as the scenario's faults leave it: where one of them names a component,
/// the struck ranks' files are those of the save before. `None` where nothing is mixed.
pub(crate) fn mixed(
    session: &mut Session,
    (cut, state): (u32, &State),
    reference: &RunRecord,
) -> Option<State> {
    let (_, earlier) = reference.checkpoints.range(..cut).next_back()?;
    let named = session.scenario.faults.named.iter();
    let named = named.filter(|fault| fault.kind == FaultKind::MixedGenerations);
    let faults: Vec<Fault> = named.cloned().collect();
    let mut mixed = state.clone();
    let mut struck = BTreeSet::new();
    for ((rank, component, name), tensor) in &mut mixed {
        let strikes = |fault: &&Fault| {
            fault.strikes(FaultKind::MixedGenerations, component.name(), *rank, cut)
        };
        let Some(fault) = faults.iter().find(strikes) else {
            continue;
        };
        if let Some(old) = earlier.get(&(*rank, *component, name.clone())) {
            *tensor = old.clone();
            struck.insert(fault.clone());
        }
    }
    let any = !struck.is_empty();
    session.faults_met.extend(struck);
    any.then_some(mixed)
}

/// What of `loaded` is not the state after `cut`, and is that after another step that was kept.
pub(crate) fn stale(reference: &RunRecord, cut: u32, loaded: &State) -> Vec<Stale> {
    let Some(asked) = reference.checkpoints.get(&cut) else {
        return Vec::new();
    };
    // What most runs load: the very state that was kept.
    if std::ptr::eq(asked, loaded) {
        return Vec::new();
    }
    let mut parts: BTreeMap<(u32, Component), Vec<&TensorKey>> = BTreeMap::new();
    for key in loaded.keys() {
        parts.entry((key.0, key.1)).or_default().push(key);
    }
    let mut found = Vec::new();
    for ((rank, component), keys) in parts {
        let is_of = |state: &State| keys.iter().all(|key| state.get(*key) == loaded.get(*key));
        if is_of(asked) {
            continue;
        }
        let mut others = reference.checkpoints.iter();
        if let Some((step, _)) = others.find(|(_, state)| is_of(state)) {
            found.push(Stale {
                rank,
                component,
                step: *step,
            });
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::numerics::Dtype;
    use crate::world::StateTensor;

    fn state(words: [u32; 2]) -> State {
        let tensor = |word| StateTensor {
            dtype: Dtype::U32,
            words: vec![word],
        };
        let key = |rank| (rank, Component::DataPosition, "samples".to_string());
        State::from([(key(0), tensor(words[0])), (key(1), tensor(words[1]))])
    }

    #[test]
    fn a_part_of_another_step_is_named_with_its_rank() {
        let reference = RunRecord {
            checkpoints: BTreeMap::from([(1, state([10, 10])), (2, state([20, 20]))]),
            ..RunRecord::default()
        };
        assert_eq!(stale(&reference, 2, &state([20, 20])), []);
        let found = stale(&reference, 2, &state([20, 10]));
        assert_eq!(found.len(), 1);
        let told = "the file of rank 1 has data-position of step 1";
        assert_eq!(found[0].to_string(), told);
        // Of no step: that is another fault.
        assert_eq!(stale(&reference, 2, &state([20, 15])), []);
    }
}
