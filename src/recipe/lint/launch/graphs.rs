//! What is refused of CUDA graphs, whoever captures them.

use super::{CONFIG, Found, Job, Rule, VALIDATOR};
use crate::diagnostic::Severity::Error;
use crate::diagnostic::escaped;

/// `CudaGraphModule`, `megatron/core/transformer/enums.py`, with the words that it had before.
const WORDS: [&str; 9] = [
    "attn",
    "mlp",
    "moe",
    "moe_router",
    "moe_preprocess",
    "mamba",
    "full",
    "full_iteration",
    "full_iteration_inference",
];

pub(in super::super) const RULES: &[Rule] = &[
    Rule {
        id: "graph-words",
        severity: Error,
        reason: "modules of a CUDA graph are named by Megatron's words, once, and `full` alone",
        source: VALIDATOR,
        fix: "name modules of a layer, or leave the argument out for whole layers",
        find: words,
    },
    Rule {
        id: "graph-said-twice",
        severity: Error,
        reason: "the old flags stand for `--cuda-graph-impl`, which then says `none`",
        source: VALIDATOR,
        fix: "keep `--cuda-graph-impl`",
        find: said_twice,
    },
    Rule {
        id: "inference-graph-scope",
        severity: Error,
        reason: "which graphs inference has depends on who captures them, and is looked at in \
            training, too",
        source: CONFIG,
        fix: "leave `--inference-cuda-graph-scope` out",
        find: inference_scope,
    },
    Rule {
        id: "no-inference-graphs",
        severity: Error,
        reason: "local graphs of inference are more than none, or all (-1)",
        source: VALIDATOR,
        fix: "leave `--inference-dynamic-batching-num-cuda-graphs` out",
        find: no_graphs,
    },
];

const LISTS: [&str; 2] = ["cuda_graph_modules", "cuda_graph_scope_deprecated"];

fn words(job: &Job<'_>) -> Option<Found> {
    let given = LISTS.map(|dest| job.values.list(dest));
    if given.iter().all(|words| !words.is_empty()) {
        return job.argument_found(LISTS[1], "modules of a CUDA graph, twice", "refused");
    }
    LISTS.into_iter().find_map(|dest| {
        let words = job.values.list(dest);
        let odd = words.iter().find(|word| !WORDS.contains(&word.as_str()));
        if let Some(odd) = odd {
            let message = format!("a CUDA graph of `{}`", escaped(odd));
            return job.argument_found(dest, &message, "no such module");
        }
        let stands_alone = |word: &String| word.starts_with("full");
        let beside = words.len() > 1 && words.iter().any(stands_alone);
        beside.then(|| job.argument_found(dest, "a whole graph beside others", "refused"))?
    })
}

fn said_twice(job: &Job<'_>) -> Option<Found> {
    let old = ["enable_cuda_graph", "external_cuda_graph"];
    let given: Vec<&str> = old
        .into_iter()
        .filter(|dest| job.values.flag(dest))
        .collect();
    let named = job.values.text("cuda_graph_impl") != Some("none");
    // A log shows the old flag beside what it was turned into.
    let shown = job.values.resolved("cuda_graph_impl").is_some();
    let refused = given.len() > 1 || (named && !shown);
    let dest = given.last().filter(|_| refused)?;
    job.argument_found(dest, "CUDA graphs, asked for twice", "refused")
}

fn inference_scope(job: &Job<'_>) -> Option<Found> {
    let dest = "inference_cuda_graph_scope";
    let scope = job
        .values
        .text(dest)
        .filter(|_| job.values.is_given(dest))?;
    let by = job.asked().cuda_graph.as_deref().unwrap_or("none");
    let is_allowed = match by {
        "local" => ["layer", "block"].contains(&scope),
        _ => scope == "none",
    };
    let message = format!("inference graphs of scope {scope}, where {by} captures");
    // What a log shows is what Megatron filled in itself.
    let shown = job.values.resolved(dest).is_some();
    (!is_allowed && !shown).then(|| job.argument_found(dest, &message, "refused"))?
}

fn no_graphs(job: &Job<'_>) -> Option<Found> {
    let dest = "inference_dynamic_batching_num_cuda_graphs";
    let count = job.values.integer(dest)?;
    let is_local = job.asked().cuda_graph.as_deref() == Some("local");
    let refused = is_local && count <= 0 && count != -1;
    let message = format!("{count} CUDA graphs of inference");
    refused.then(|| job.argument_found(dest, &message, "expected more than 0, or -1"))?
}
