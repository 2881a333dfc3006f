//! What the first divergences of all ranks have in common, and what that suggests.
//!
//! Source: Megatron-LM pull request 7262: many ranks with the same op mean the kernel, one rank or
//! a subset means reduction order, topology or placement, none means that the origin lies outside
//! of what was traced.

use std::collections::{BTreeMap, BTreeSet};

use super::divergence::{Difference, Divergence, Role};
use super::ops;

/// How origins spread over ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// No rank parts.
    Identical,
    /// Every traced rank is an origin, at the same record.
    EveryRank,
    /// Some ranks are origins, all at the same record.
    Subset,
    /// One rank is the only origin.
    OneRank,
    /// Origins at several records.
    SeveralOps,
    /// Ranks part, and no record shows that it made the difference.
    NoOrigin,
}

impl Pattern {
    pub fn slug(self) -> &'static str {
        match self {
            Pattern::Identical => "identical",
            Pattern::EveryRank => "every-rank-same-op",
            Pattern::Subset => "subset-same-op",
            Pattern::OneRank => "one-rank",
            Pattern::SeveralOps => "several-ops",
            Pattern::NoOrigin => "no-origin",
        }
    }
}

/// What may have caused it, why one would think so, and what to try.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    pub cause: &'static str,
    pub why: String,
    pub next: String,
}

/// Records that are the same op on several ranks.
pub type Site = (Option<u64>, String, String, String);

fn site(first: &Divergence) -> Site {
    let point = &first.point;
    (
        point.iteration,
        point.kind.clone(),
        point.name.clone(),
        point.id.clone(),
    )
}

/// Where ranks part, with the ranks, earliest iteration first and origins before receivers.
pub fn sites(firsts: &BTreeMap<u32, Divergence>) -> Vec<(&Divergence, Vec<u32>)> {
    type Place = (Option<u64>, Role, Site);
    let mut sites: BTreeMap<Place, (&Divergence, Vec<u32>)> = BTreeMap::new();
    for (rank, first) in firsts {
        let key = (first.point.iteration, first.role, site(first));
        sites
            .entry(key)
            .or_insert((first, Vec::new()))
            .1
            .push(*rank);
    }
    sites.into_values().collect()
}

/// The pattern of `firsts` among `rank_count` ranks.
pub fn pattern(firsts: &BTreeMap<u32, Divergence>, rank_count: usize) -> Pattern {
    let origins = firsts.values().filter(|first| first.role == Role::Origin);
    let origins: Vec<Site> = origins.map(site).collect();
    let distinct = origins.iter().collect::<BTreeSet<_>>().len();
    match (firsts.len(), origins.len(), distinct) {
        (0, ..) => Pattern::Identical,
        (_, 0, _) => Pattern::NoOrigin,
        (_, count, 1) if count == rank_count => Pattern::EveryRank,
        (_, 1, _) => Pattern::OneRank,
        (_, _, 1) => Pattern::Subset,
        _ => Pattern::SeveralOps,
    }
}

/// What the divergences suggest, the most telling first.
pub fn hints(firsts: &BTreeMap<u32, Divergence>, pattern: Pattern) -> Vec<Hint> {
    let mut hints: Vec<Hint> = Vec::new();
    for (first, ranks) in sites(firsts).into_iter().take(SITES_MAX) {
        for hint in of_site(first, ranks.len(), pattern) {
            if hints.iter().all(|known| known.cause != hint.cause) {
                hints.push(hint);
            }
        }
    }
    if pattern == Pattern::NoOrigin && !hints.iter().any(|hint| DECIDED.contains(&hint.cause)) {
        hints.push(hint(
            "outside-the-trace",
            "no record has equal inputs and different outputs",
            "trace from iteration 1 on, on every rank; then look at what wrote the first input",
        ));
    }
    hints
}

/// Places that hints are given for.
const SITES_MAX: usize = 8;
/// Causes that say where the difference comes from although no origin is recorded.
const DECIDED: [&str; 4] = ["random-state", "control-flow", "issue-order", "metadata"];

fn hint(cause: &'static str, why: impl Into<String>, next: impl Into<String>) -> Hint {
    Hint {
        cause,
        why: why.into(),
        next: next.into(),
    }
}

fn of_site(first: &Divergence, ranks: usize, pattern: Pattern) -> Vec<Hint> {
    let name = &first.point.name;
    match &first.difference {
        Difference::Missing { from } => {
            let why = format!("`{}` is not in {}", first.point.id, from.name());
            return vec![hint(
                "control-flow",
                why,
                "compare configurations, environments and data order before anything else",
            )];
        }
        Difference::Order { in_b } => {
            let why = format!("`{in_b}` comes first in B, `{}` in A", first.point.id);
            return vec![hint(
                "issue-order",
                why,
                "see what issues them: hooks, buckets or streams that complete in any order",
            )];
        }
        Difference::Metadata { fields } => {
            let why = format!("`{name}` differs in {}", fields.join(", "));
            return vec![hint(
                "metadata",
                why,
                "compare configurations and library versions",
            )];
        }
        Difference::Content { .. } => {}
    }
    let mut found = match (first.role, &first.collective) {
        (Role::Origin, Some(_)) if ops::adds_nothing(name) => vec![hint(
            "transport",
            format!("all inputs of `{name}` match over its group, and it adds nothing"),
            "look for a buffer that is written or reused while the collective runs: a wait that is \
             missing on a stream; then at the links",
        )],
        (Role::Origin, Some(_)) => vec![reduction(first)],
        (Role::Receiver, Some(_)) if first.own_inputs_match != Some(false) => vec![hint(
            "another-rank",
            format!("another member's input to `{name}` differs already"),
            "look at the ranks that part before this collective",
        )],
        (Role::Origin, None) => vec![computed(name, ranks, pattern)],
        (Role::Undecided, _) if ops::is_random(name) => vec![hint(
            "random-state",
            format!("`{name}` draws from a generator whose state no record shows"),
            "compare seeds, and whether generators are saved and restored on a resume",
        )],
        (Role::Receiver, None) | (Role::Undecided, None) if ops::is_fixed(name) => {
            vec![one_hop(name)]
        }
        _ => Vec::new(),
    };
    if first.may_be_artefact {
        found.push(hint(
            "may-be-artefact",
            "it may be the recorder's: no later gradient or parameter record settles it",
            "trace to the end of the iteration, with the recorder's `grad` and `param` records",
        ));
    }
    found
}

fn reduction(first: &Divergence) -> Hint {
    let name = &first.point.name;
    let by = first
        .collective
        .as_ref()
        .and_then(|one| one.algorithm.as_deref());
    let by = by.map_or(String::new(), |by| format!(" (carried out by `{by}`)"));
    hint(
        "reduction-order",
        format!("all inputs of `{name}`{by} match over its group, and its result does not"),
        "pin the order: NCCL_ALGO=Ring with NCCL_PROTO=Simple, no NVLS or SHARP, and no hook that \
         adds in the order of arrival; `bitproof plan diff` shows what an allocation changes",
    )
}

fn one_hop(name: &str) -> Hint {
    hint(
        "one-hop-later",
        format!("`{name}` depends on no order: what it reads was written out of the probe's sight"),
        "put a probe on what produced its input: a fused kernel, a communication library, Triton",
    )
}

fn computed(name: &str, ranks: usize, pattern: Pattern) -> Hint {
    if ops::is_fixed(name) {
        return one_hop(name);
    }
    if ops::is_random(name) {
        return hint(
            "random-state",
            format!("`{name}` draws from a generator whose state no record shows"),
            "compare seeds, and whether generators are saved and restored on a resume",
        );
    }
    if ops::is_atomic(name) {
        return hint(
            "atomic-order",
            format!("`{name}` is known to add in the order in which threads come"),
            "torch.use_deterministic_algorithms(True), or a sorted variant of the op",
        );
    }
    if ops::is_gemm(name) && pattern != Pattern::EveryRank {
        return hint(
            "kernel-choice",
            format!("`{name}` parts on {ranks} ranks only: a library chooses its kernel on each"),
            "set CUBLAS_WORKSPACE_CONFIG=:4096:8, turn autotuning off, compare hosts and drivers",
        );
    }
    match pattern {
        Pattern::EveryRank | Pattern::SeveralOps => hint(
            "kernel",
            format!("`{name}` gives other bits for the same inputs"),
            "run it alone on the recorded inputs; vary output type, layout and accumulation",
        ),
        _ => hint(
            "placement",
            format!("`{name}` parts on {ranks} ranks only"),
            "compare these ranks' hosts, clocks, ECC counts and drivers; swap the hosts and repeat",
        ),
    }
}
