//! Faults of the recipe under check, each at a named place of the program: a scenario's `[fault]`.
//!
//! A named fault belongs to the recipe: it acts in every run of a check. A [`BitFlip`] is what a
//! machine does to a run, and acts in the reference run only.

use serde::Serialize;

use super::Component;

/// What a named fault does. A new kind is a variant and a line of [`FaultKind::FACTS`]; training
/// code asks [`crate::world::Rank::has_fault`] whether one of it strikes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FaultKind {
    DropWait,
    SkipCollective,
    SkipLaunch,
    SkipCopy,
    ReuseEarly,
    OmitComponent,
    SkippedGather,
    ReplicaRng,
    LoaderDraw,
    RankSeed,
    EarlyReduce,
    ContainerOrder,
    AliasedSlots,
    ResetIndex,
    StaleFlag,
    LostPosition,
    SharedStaging,
    MixedGenerations,
    LateTracker,
    OwnClock,
}

/// What there is to say about a kind of fault.
#[derive(Clone, Copy, Debug)]
pub struct FaultFacts {
    pub kind: FaultKind,
    /// The key in `[fault]`.
    pub key: &'static str,
    /// What the key's value names.
    pub target: &'static str,
    pub about: &'static str,
    /// Where such a bug was reported.
    pub source: &'static str,
}

impl FaultKind {
    pub const FACTS: [FaultFacts; 20] = [
        FaultFacts {
            kind: FaultKind::DropWait,
            key: "drop_wait",
            target: "an edge",
            about: "whoever waits by this edge goes on at once",
            source: "NVIDIA/Megatron-LM#3670, deepspeedai/DeepSpeed#5216",
        },
        FaultFacts {
            kind: FaultKind::SkipCollective,
            key: "skip_collective",
            target: "module.op",
            about: "the call never happens, and those who wait for it go on",
            source: "NVIDIA/Megatron-LM#619",
        },
        FaultFacts {
            kind: FaultKind::SkipLaunch,
            key: "skip_launch",
            target: "module.op",
            about: "what the kernel would have written keeps its old words",
            source: "NVIDIA/TransformerEngine#567",
        },
        FaultFacts {
            kind: FaultKind::SkipCopy,
            key: "skip_copy",
            target: "module.op",
            about: "what the copy would have written keeps its old words",
            source: "databricks/megablocks#80",
        },
        FaultFacts {
            kind: FaultKind::ReuseEarly,
            key: "reuse_early",
            target: "a buffer",
            about: "its next owner does not wait for those who still read it on other streams",
            source: "pytorch/pytorch#180665, NVIDIA/Megatron-LM#4047",
        },
        FaultFacts {
            kind: FaultKind::OmitComponent,
            key: "omit_component",
            target: "a component",
            about: "checkpoints lack it, as `checkpoint.omit` says",
            source: "facebookresearch/metaseq#3",
        },
        FaultFacts {
            kind: FaultKind::SkippedGather,
            key: "skipped_gather",
            target: "`load`",
            about: "the ranks' shards are not gathered there: what is of other ranks \
                keeps its old words",
            source: "NVIDIA/Megatron-LM#6920",
        },
        FaultFacts {
            kind: FaultKind::ReplicaRng,
            key: "replica_rng",
            target: "`tp` or `dp`",
            about: "every rank's saved RNG is that of the first rank of its group",
            source: "NVIDIA/Megatron-LM#6858",
        },
        FaultFacts {
            kind: FaultKind::LoaderDraw,
            key: "loader_draw",
            target: "`resume` or `first-tensor-rank`",
            about: "making the data loader draws from the default RNG: after a resume \
                has restored it, or on the first tensor-parallel rank only",
            source: "NVIDIA-NeMo/Megatron-Bridge#5257, NVIDIA/Megatron-LM#206",
        },
        FaultFacts {
            kind: FaultKind::RankSeed,
            key: "rank_seed",
            target: "`dp`",
            about: "the seed of the first parameters depends on that rank",
            source: "allenai/OLMo-core#319",
        },
        FaultFacts {
            kind: FaultKind::EarlyReduce,
            key: "early_reduce",
            target: "`word_embeddings`",
            about: "the last stage gives what the data-parallel reduction has not joined \
                to the sum over stages",
            source: "NVIDIA/Megatron-LM#844",
        },
        FaultFacts {
            kind: FaultKind::ContainerOrder,
            key: "container_order",
            target: "`grad_reduce`",
            about: "the rank takes its buckets from a container without an order: it reduces \
                them after the backward, the last one first",
            source: "NVIDIA/Megatron-LM#2218, NVIDIA/Megatron-LM#1515",
        },
        FaultFacts {
            kind: FaultKind::AliasedSlots,
            key: "aliased_slots",
            target: "`main_grad`, or the CUDA graph of a layer",
            about: "gradients of all microbatches lie in one static buffer, which the \
                last one overwrites",
            source: "NVIDIA/TransformerEngine#2937",
        },
        FaultFacts {
            kind: FaultKind::ResetIndex,
            key: "reset_index",
            target: "`reload_buffer`",
            about: "the index of two buffers that take turns starts anew at each use, so that \
                both are one",
            source: "deepspeedai/DeepSpeed#6993, deepspeedai/DeepSpeed#7371",
        },
        FaultFacts {
            kind: FaultKind::StaleFlag,
            key: "stale_flag",
            target: "`first-microbatch`, or a variable of `env`",
            about: "a flag of the process that no checkpoint holds makes its first step \
                overwrite gradients; a variable is set after the communicators were \
                made",
            source: "NVIDIA/Megatron-LM#6965, NVIDIA/nccl#1497",
        },
        FaultFacts {
            kind: FaultKind::LostPosition,
            key: "lost_position",
            target: "`yielded`, `epoch` or `prefetched`",
            about: "a resume counts this process's samples only, shuffles as in epoch 0, \
                or starts behind what was only prefetched",
            source: "KempnerInstitute/KempnerForge#58, huggingface/accelerate#4071",
        },
        FaultFacts {
            kind: FaultKind::SharedStaging,
            key: "shared_staging",
            target: "a component",
            about: "the background writer of a checkpoint reads it where it lives, not \
                from a copy",
            source: "NVIDIA/nvidia-resiliency-ext#376",
        },
        FaultFacts {
            kind: FaultKind::MixedGenerations,
            key: "mixed_generations",
            target: "a component",
            about: "the folder of a checkpoint still has the ranks' files of the component that \
                an earlier save left, and they are loaded",
            source: "NVIDIA-NeMo/Megatron-Bridge#5604",
        },
        FaultFacts {
            kind: FaultKind::LateTracker,
            key: "late_tracker",
            target: "`iteration`",
            about: "the tracker of a checkpoint gets the iteration at which its writer \
                ends",
            source: "NVIDIA-NeMo/Megatron-Bridge#3267",
        },
        FaultFacts {
            kind: FaultKind::OwnClock,
            key: "own_clock",
            target: "`exit_duration`",
            about: "with `exit_duration_in_mins`: the rank goes by its own clock, and asks no \
                other",
            source: "microsoft/superbenchmark#347",
        },
    ];

    pub fn facts(self) -> &'static FaultFacts {
        let mut facts = FaultKind::FACTS.iter();
        facts
            .find(|facts| facts.kind == self)
            .expect("every kind has its facts")
    }

    pub fn key(self) -> &'static str {
        self.facts().key
    }
}

/// One fault: of every rank and step that meets the name, unless it says which.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct Fault {
    #[serde(skip)]
    pub kind: FaultKind,
    /// An edge, a `module.op`, a buffer, a component.
    pub at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
}

impl Fault {
    /// Everywhere that `at` occurs.
    pub fn everywhere(kind: FaultKind, at: impl Into<String>) -> Fault {
        Fault {
            kind,
            at: at.into(),
            rank: None,
            step: None,
        }
    }

    /// Whether it strikes what is called `name`, of `rank` in `step`.
    pub fn strikes(&self, kind: FaultKind, name: &str, rank: u32, step: u32) -> bool {
        self.kind == kind
            && self.rank.is_none_or(|only| only == rank)
            && self.step.is_none_or(|only| only == step)
            && self.at == name
    }
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} `{}`", self.kind.key(), self.at)?;
        match (self.rank, self.step) {
            (None, None) => Ok(()),
            (Some(rank), None) => write!(f, " on rank {rank}"),
            (None, Some(step)) => write!(f, " in step {step}"),
            (Some(rank), Some(step)) => write!(f, " on rank {rank} in step {step}"),
        }
    }
}

/// One bit of one rank that changes by itself: a machine's fault, not the recipe's.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct BitFlip {
    #[serde(flatten)]
    pub at: FlipTarget,
    pub rank: u32,
    pub step: u32,
    /// From the lowest bit of the first 32-bit word on. A bf16 or f16 value is held as the f32 that
    /// it is.
    pub bit: u32,
}

/// Where a bit flips.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FlipTarget {
    /// In the first output of `module.op`, where that runs first in the step.
    Node(String),
    /// In a buffer's memory, after the step.
    Buffer(String),
    /// In the first tensor of a component, after the step.
    Component(Component),
}

impl std::fmt::Display for BitFlip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let BitFlip {
            rank, step, bit, ..
        } = self;
        match &self.at {
            FlipTarget::Node(node) => write!(f, "bit {bit} of the output of `{node}`")?,
            FlipTarget::Buffer(buffer) => write!(f, "bit {bit} of buffer `{buffer}`")?,
            FlipTarget::Component(component) => write!(f, "bit {bit} of `{component}`")?,
        }
        let when = match self.at {
            FlipTarget::Node(_) => "in",
            _ => "after",
        };
        write!(f, " on rank {rank} {when} step {step}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_called_by_its_key() {
        for facts in &FaultKind::FACTS {
            let json = serde_json::to_string(&facts.kind).unwrap();
            assert_eq!(json, format!("\"{}\"", facts.key));
            assert_eq!(facts.kind.facts().key, facts.key);
            assert!(!facts.about.is_empty() && facts.source.contains('#'));
        }
    }

    #[test]
    fn a_fault_strikes_what_it_names_and_nothing_else() {
        let edge = Fault {
            rank: Some(3),
            step: Some(2),
            ..Fault::everywhere(FaultKind::DropWait, "grad_reduce.bucket2")
        };
        let strikes = |kind, name, rank, step| edge.strikes(kind, name, rank, step);
        assert!(strikes(FaultKind::DropWait, "grad_reduce.bucket2", 3, 2));
        assert!(!strikes(FaultKind::SkipCopy, "grad_reduce.bucket2", 3, 2));
        assert!(!strikes(FaultKind::DropWait, "grad_reduce.bucket", 3, 2));
        assert!(!strikes(FaultKind::DropWait, "grad_reduce.bucket2", 2, 2));
        assert!(!strikes(FaultKind::DropWait, "grad_reduce.bucket2", 3, 1));
        let told = "drop_wait `grad_reduce.bucket2` on rank 3 in step 2";
        assert_eq!(edge.to_string(), told);
    }
}
