//! Two canonical states, tensor by tensor.

use std::collections::{BTreeMap, BTreeSet};

use super::gather::first_difference;
use super::{CanonicalError, CanonicalState, Form};
use crate::world::{Component, StateTensor};

/// A whole tensor that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDifference {
    pub component: Component,
    pub name: String,
    /// The first element that differs, counted in the whole tensor.
    pub element: u64,
    pub differing: u64,
    pub total: u64,
    /// The first side's word and the second's there; `None` where a side has none.
    pub words: (Option<u32>, Option<u32>),
}

impl std::fmt::Display for StateDifference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let word = |word: Option<u32>| word.map_or("nothing".to_string(), |w| format!("{w:#010x}"));
        let (a, b) = (word(self.words.0), word(self.words.1));
        write!(
            f,
            "{} `{}` differs in {} of {} elements, first in element {}: {a} and {b}",
            self.component, self.name, self.differing, self.total, self.element
        )
    }
}

impl CanonicalState {
    /// Tensors and words of the components that `counts` accepts.
    pub fn size(&self, counts: impl Fn(Component) -> bool) -> (u64, u64) {
        let all = self.all();
        let counted = all.iter().filter(|((component, _), _)| counts(*component));
        counted.fold((0, 0), |(tensors, words), (_, tensor)| {
            (tensors + 1, words + tensor.words.len() as u64)
        })
    }

    /// Every tensor of the components that `counts` accepts and whose bytes or type differ, one
    /// that only one side has included; ascending by component and name.
    pub fn differences(
        &self,
        other: &CanonicalState,
        counts: impl Fn(Component) -> bool,
    ) -> Vec<StateDifference> {
        let (a, b) = (self.all(), other.all());
        let keys: BTreeSet<&(Component, String)> = a.keys().chain(b.keys()).collect();
        keys.into_iter()
            .filter(|(component, _)| counts(*component))
            .filter_map(|key| difference(key, a.get(key).copied(), b.get(key).copied()))
            .collect()
    }

    /// The first main parameter with an element that differs from `other`'s although both moments
    /// of the element agree, and it agreed in the states `before`, this side's and the other's.
    /// AdamW takes each element from its moments, its old value, the learning rate and the step.
    pub fn moved_without_moments(
        &self,
        other: &CanonicalState,
        (before, other_before): (&CanonicalState, &CanonicalState),
    ) -> Option<StateDifference> {
        let word = |of: &CanonicalState, component: Component, name: &str, place: usize| {
            of.tensor(component, name)?.words.get(place).copied()
        };
        let mut all = self.tensors.iter();
        all.find_map(|((component, name), tensor)| {
            if *component != Component::MainParams {
                return None;
            }
            let same = |component: Component, sides: (&CanonicalState, &CanonicalState), at| {
                word(sides.0, component, name, at) == word(sides.1, component, name, at)
            };
            let is_unmoved = |at: &usize| {
                !same(Component::MainParams, (self, other), *at)
                    && same(Component::MainParams, (before, other_before), *at)
                    && same(Component::ExpAvg, (self, other), *at)
                    && same(Component::ExpAvgSq, (self, other), *at)
            };
            let total = tensor.words.len();
            let first = (0..total).find(is_unmoved)?;
            Some(StateDifference {
                component: *component,
                name: name.clone(),
                element: first as u64,
                differing: (first..total).filter(is_unmoved).count() as u64,
                total: total as u64,
                words: (
                    tensor.words.get(first).copied(),
                    word(other, *component, name, first),
                ),
            })
        })
    }

    /// Whether what was loaded in the place of this state, or why nothing could be, names a planted
    /// fault's target: the tensor, or any of the component.
    pub fn names_fault(
        &self,
        loaded: &Result<CanonicalState, CanonicalError>,
        counts: impl Fn(Component) -> bool,
        (component, name): (Component, Option<&str>),
    ) -> bool {
        let is_target =
            |of: Component, found: &str| of == component && name.is_none_or(|name| name == found);
        match loaded {
            Ok(loaded) => {
                let differences = self.differences(loaded, counts);
                differences
                    .iter()
                    .any(|found| is_target(found.component, &found.name))
            }
            Err(error) => {
                let (of, found) = error.tensor();
                is_target(of, found)
            }
        }
    }

    /// Every tensor by component and name, RNG states under their places.
    fn all(&self) -> BTreeMap<(Component, String), &StateTensor> {
        let whole = self.tensors.iter();
        let mut all: BTreeMap<(Component, String), &StateTensor> =
            whole.map(|(key, tensor)| (key.clone(), tensor)).collect();
        let generator = Component::ALL
            .into_iter()
            .find(|component| Form::of(*component) == Form::Generator)
            .expect("one component is the generators'");
        for ((stage, tensor_rank), states) in &self.generators.states {
            for (name, tensor) in states {
                let name = format!("{name} (pp {stage}, tp {tensor_rank})");
                all.insert((generator, name), tensor);
            }
        }
        all
    }
}

fn difference(
    key: &(Component, String),
    a: Option<&StateTensor>,
    b: Option<&StateTensor>,
) -> Option<StateDifference> {
    if a == b {
        return None;
    }
    let words = |side: Option<&StateTensor>| side.map_or(Vec::new(), |side| side.words.clone());
    let (a, b) = (words(a), words(b));
    let total = a.len().max(b.len());
    let differing = (0..total).filter(|place| a.get(*place) != b.get(*place));
    // Equal words of another type differ in no element: the first stands for all.
    let element = first_difference(&a, &b).unwrap_or(0);
    Some(StateDifference {
        component: key.0,
        name: key.1.clone(),
        element,
        differing: differing.count() as u64,
        total: total as u64,
        words: (
            a.get(element as usize).copied(),
            b.get(element as usize).copied(),
        ),
    })
}
