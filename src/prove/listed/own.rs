//! Our own list of collectives.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Entry, List, Listed, parsed, wrong};
use crate::diagnostic::{Diagnostic, Source, nearest};
use crate::numerics::Dtype;
use crate::plan::{Collective, Reduction};
use crate::prove::job_plans::Facts;
use crate::recipe::megatron::{not_covered, variable};
use crate::recipe::nccl::SIMULATED;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    env: BTreeMap<String, String>,
    collectives: Vec<Own>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Own {
    name: String,
    groups: Vec<Vec<u32>>,
    operation: Operation,
    #[serde(default)]
    reduction: By,
    dtype: Type,
    elements: u64,
    #[serde(default = "once")]
    times: u64,
    root: Option<u32>,
}

#[derive(Clone, Copy, Deserialize, PartialEq)]
#[serde(rename_all = "kebab-case")]
enum Operation {
    AllReduce,
    ReduceScatter,
    ReduceScatterFp32Accumulation,
    Reduce,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum By {
    #[default]
    Sum,
    Max,
    Avg,
}

#[derive(Clone, Copy, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Type {
    F32,
    Bf16,
    F16,
    U32,
}

const fn once() -> u64 {
    1
}

pub(super) fn read(source: &Source) -> Result<Listed, Box<Diagnostic>> {
    let file: File = parsed(source)?;
    if let Some(name) = file.env.keys().find(|name| !is_known(name)) {
        let known = SIMULATED.join(", ");
        let near = nearest(name, SIMULATED).map(|near| format!(", did you mean `{near}`?"));
        let message = match near {
            Some(near) => format!("env: what `{name}` does is not known{near}"),
            None => format!("env: what `{name}` does is not known; plans follow {known}"),
        };
        return Err(wrong(source, &message));
    }
    let mut list = List::new(source);
    for own in file.collectives {
        let is_reduce = own.operation == Operation::Reduce;
        if own.root.is_some() != is_reduce {
            let message = format!("`{}`: a reduce has a `root`, nothing else has", own.name);
            return Err(wrong(source, &message));
        }
        let name = |number: usize| format!("{}.{number}", own.name);
        let groups = own.groups.into_iter().enumerate();
        list.add(Entry {
            collective: match own.operation {
                Operation::AllReduce => Collective::AllReduce,
                Operation::ReduceScatter => Collective::ReduceScatter,
                Operation::ReduceScatterFp32Accumulation => {
                    Collective::ReduceScatterFp32Accumulation
                }
                Operation::Reduce => Collective::Reduce {
                    root: own.root.unwrap_or(0),
                },
            },
            reduction: match own.reduction {
                By::Sum => Reduction::Sum,
                By::Max => Reduction::Max,
                By::Avg => Reduction::Avg,
            },
            dtype: match own.dtype {
                Type::F32 => Dtype::F32,
                Type::Bf16 => Dtype::Bf16,
                Type::F16 => Dtype::F16,
                Type::U32 => Dtype::U32,
            },
            elements: own.elements,
            times: own.times,
            groups: groups
                .map(|(number, ranks)| (name(number), ranks))
                .collect(),
            name: own.name.clone(),
        })?;
    }
    let not_covered = file.env.iter().filter_map(|(name, value)| {
        let what = not_covered(name, value)?;
        Some((name.clone(), what))
    });
    list.finish(Facts {
        not_covered: not_covered.collect(),
        env: file.env,
        ..Facts::default()
    })
}

/// A variable that plans follow, or one that is known to change bits in another way, or none.
fn is_known(name: &str) -> bool {
    SIMULATED.contains(&name) || variable(name).is_some()
}
