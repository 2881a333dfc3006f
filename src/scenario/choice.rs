//! Choice variables: everything that may vary between two runs of the same recipe.

use serde::Serialize;

use super::{Free, Scenario};
use crate::recipe::{Autotune, LocalOrder};

/// How far one value of a variable reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// One value for the whole run: placement, build, environment.
    Run,
    /// One value for the life of a communicator.
    Communicator,
    /// Chosen at the first use and kept: autotuning, rebuilt buckets.
    FirstUse,
    /// A value of its own at every call: arrival order, timing.
    Call,
}

/// What a variable may be.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Values {
    /// One of these, by place.
    Listed(Vec<String>),
    /// Any permutation of the addends of the node.
    AnyOrder,
    /// Any configuration of the node's kernel, by rank: how many addends a block takes.
    Configurations,
}

/// One thing that may vary.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct ChoiceVariable {
    pub name: String,
    pub scope: Scope,
    pub values: Values,
}

impl Scenario {
    /// The variables that this scenario leaves free, in a fixed order. A replay token names a
    /// variable by its place in this list.
    pub fn choice_variables(&self) -> Vec<ChoiceVariable> {
        let mut variables = Vec::new();
        if self.free.contains(&Free::Placement) {
            let names = self
                .allocations
                .iter()
                .map(|file| file.name.clone())
                .collect();
            variables.push(ChoiceVariable {
                name: "placement".into(),
                scope: Scope::Run,
                values: Values::Listed(names),
            });
        }
        for (name, order) in self.recipe.determinism.orders() {
            if order == LocalOrder::Arrival {
                let (scope, values) = (Scope::Call, Values::AnyOrder);
                variables.push(ChoiceVariable {
                    name: name.into(),
                    scope,
                    values,
                });
            }
        }
        if self.recipe.determinism.autotune == Autotune::Timed {
            variables.push(ChoiceVariable {
                name: "autotune".into(),
                scope: Scope::FirstUse,
                values: Values::Configurations,
            });
        }
        variables
    }
}
