//! A dump of PyTorch's flight recorder as JSON (`_dump_nccl_trace_json`; the PyTorch tutorial
//! "Flight Recorder for Debugging Stuck Jobs" has the form, versions 2.x): one rank's calls.
//!
//! It does not hold the reduction or the root of a reduce, and not the environment.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::{Entry, List, Listed, parsed, wrong};
use crate::diagnostic::{Diagnostic, Source};
use crate::numerics::Dtype;
use crate::plan::{Collective, Reduction};
use crate::prove::job_plans::Facts;

#[derive(Deserialize)]
struct Dump {
    pg_config: BTreeMap<String, Group>,
    entries: Vec<Call>,
}

#[derive(Deserialize)]
struct Group {
    #[serde(default)]
    desc: String,
    ranks: Ranks,
}

/// A list, or its text: `[0, 1]`.
#[derive(Deserialize)]
#[serde(untagged)]
enum Ranks {
    List(Vec<u32>),
    Text(String),
}

#[derive(Deserialize)]
struct Call {
    profiling_name: String,
    process_group: (String, String),
    #[serde(default)]
    input_sizes: Vec<Vec<u64>>,
    #[serde(default)]
    input_dtypes: Vec<String>,
}

/// What a call is: by the name behind `nccl:`, as `ProcessGroupNCCL.cpp` gives it.
enum Does {
    Adds(Collective),
    /// Or waits for others.
    Moves,
    Unknown(&'static str),
}

fn does(name: &str) -> Does {
    let own = name.split_once(':').map_or(name, |(_, own)| own);
    let own = own.split(' ').next().unwrap_or(own);
    match own {
        "all_reduce" => Does::Adds(Collective::AllReduce),
        "reduce_scatter" | "_reduce_scatter_base" | "reduce_scatter_tensor" => {
            Does::Adds(Collective::ReduceScatter)
        }
        "all_gather"
        | "_all_gather_base"
        | "all_gather_into_tensor"
        | "broadcast"
        | "_broadcast_oop"
        | "all_to_all"
        | "gather"
        | "scatter"
        | "send"
        | "recv"
        | "all_gather_into_tensor_coalesced" => Does::Moves,
        "reduce" | "_reduce_oop" => Does::Unknown("a dump does not hold its root"),
        _ if own.ends_with("coalesced") => {
            Does::Unknown("several operations in one launch are not modelled")
        }
        _ => Does::Unknown("what it does is not known"),
    }
}

fn dtype(name: &str) -> Option<Dtype> {
    Some(match name {
        "Float" => Dtype::F32,
        "BFloat16" => Dtype::Bf16,
        "Half" => Dtype::F16,
        // Sums of whole numbers wrap, signed or not.
        "Int" | "UInt32" => Dtype::U32,
        _ => return None,
    })
}

/// What calls have in common that are the same collective again.
type Key = (String, Collective, Dtype, u64);

pub(super) fn read(source: &Source) -> Result<Listed, Box<Diagnostic>> {
    let dump: Dump = parsed(source)?;
    let mut times: BTreeMap<Key, u64> = BTreeMap::new();
    let mut order: Vec<Key> = Vec::new();
    let mut left_out: BTreeMap<(String, String), u64> = BTreeMap::new();
    for call in &dump.entries {
        match understood(source, call)? {
            Ok(None) => {}
            Ok(Some(key)) => {
                let count = times.entry(key.clone()).or_insert(0);
                *count += 1;
                if *count == 1 {
                    order.push(key);
                }
            }
            Err(why) => {
                *left_out
                    .entry((call.profiling_name.clone(), why))
                    .or_insert(0) += 1
            }
        }
    }
    let mut list = List::new(source);
    for key in order {
        let count = times[&key];
        let (group, collective, dtype, elements) = key;
        let (desc, ranks) = members(source, &dump, &group)?;
        let what = match collective {
            Collective::AllReduce => "all_reduce",
            _ => "reduce_scatter",
        };
        list.add(Entry {
            name: format!("{what}.{desc}.{dtype}x{elements}"),
            collective,
            reduction: Reduction::Sum,
            dtype,
            elements,
            times: count,
            groups: vec![(desc, ranks)],
        })?;
    }
    let mut assumed = vec![
        "that the calls of the dump add up, and are neither averages nor maxima: it does not say"
            .to_string(),
        "that the environment is the one given here, and the groups those of this rank: a dump \
         has no others"
            .to_string(),
    ];
    assumed.extend(left_out.iter().map(|((name, why), count)| {
        let name = crate::diagnostic::escaped(name);
        format!("nothing of {count} calls of {name}, which are left out: {why}")
    }));
    list.finish(Facts {
        assumed,
        ..Facts::default()
    })
}

/// The collective of a call; `None` where it adds nothing, or why it is left out.
fn understood(
    source: &Source,
    call: &Call,
) -> Result<Result<Option<Key>, String>, Box<Diagnostic>> {
    let name = &call.profiling_name;
    let collective = match does(name) {
        Does::Moves => return Ok(Ok(None)),
        Does::Unknown(why) => return Ok(Err(why.to_string())),
        Does::Adds(collective) => collective,
    };
    let Some(first) = call.input_dtypes.first() else {
        return Ok(Err("the dump has no type of it".to_string()));
    };
    let Some(dtype) = dtype(first).filter(|_| call.input_dtypes.iter().all(|one| one == first))
    else {
        return Ok(Err(format!("no plans of {first}")));
    };
    let elements = call.input_sizes.iter().try_fold(0u64, |all, shape| {
        let mut shape = shape.iter();
        let own = shape.try_fold(1u64, |all, size| all.checked_mul(*size))?;
        all.checked_add(own)
    });
    match elements {
        None => Err(wrong(source, &format!("`{name}`: its sizes overflow"))),
        Some(0) => Ok(Ok(None)),
        Some(elements) => {
            let group = call.process_group.0.clone();
            Ok(Ok(Some((group, collective, dtype, elements))))
        }
    }
}

/// What a group is called, and its global ranks.
fn members(
    source: &Source,
    dump: &Dump,
    group: &str,
) -> Result<(String, Vec<u32>), Box<Diagnostic>> {
    let Some(own) = dump.pg_config.get(group) else {
        return Err(wrong(
            source,
            &format!("process group `{group}` is not in pg_config"),
        ));
    };
    let ranks = match &own.ranks {
        Ranks::List(list) => list.clone(),
        Ranks::Text(text) => serde_json::from_str(text).map_err(|_| {
            let message = format!("the ranks of process group `{group}` are no list: `{text}`");
            wrong(source, &message)
        })?,
    };
    let desc = match own.desc.as_str() {
        "" | "undefined" => format!("group{group}"),
        desc => format!("{desc}.{group}"),
    };
    Ok((desc, ranks))
}
