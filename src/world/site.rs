//! Where in the training program a node stands: the vocabulary of every report.

use std::borrow::Borrow;
use std::ops::Deref;
use std::sync::Arc;

/// Part of a training step, in Megatron's sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Phase {
    Setup,
    Data,
    Forward,
    Loss,
    Backward,
    GradReduce,
    Optimizer,
    Checkpoint,
}

impl Phase {
    pub fn name(self) -> &'static str {
        match self {
            Phase::Setup => "setup",
            Phase::Data => "data",
            Phase::Forward => "forward",
            Phase::Loss => "loss",
            Phase::Backward => "backward",
            Phase::GradReduce => "grad-reduce",
            Phase::Optimizer => "optimizer",
            Phase::Checkpoint => "checkpoint",
        }
    }
}

/// What kind of reduction a fold is, so that a report can say which families could have differed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// Gradients over data-parallel ranks.
    DpGradients,
    /// The same in the buckets that torch's DistributedDataParallel has in a process's first step.
    FirstBuckets,
    /// Partial results over tensor-parallel ranks, and their sequence-parallel form.
    TensorParallel,
    /// The sums and maxima of vocab-parallel cross-entropy.
    VocabCrossEntropy,
    /// Norm-weight gradients over tensor-parallel ranks (sequence parallel).
    NormWeightTp,
    /// Sum of squares inside one rank.
    NormLocal,
    /// Sum of squares over ranks.
    NormGlobal,
    /// Whether a gradient overflowed, over ranks: a maximum.
    FoundInf,
    /// Token losses inside one rank.
    LossLocal,
    /// Loss over data-parallel ranks.
    LossMean,
    /// Token rows added into one row of the embedding gradient.
    EmbeddingGrad,
    /// Sequences of a microbatch added into one row of the position table's gradient.
    PositionGrad,
    /// Token contributions to a norm-weight gradient.
    NormWeightGrad,
    /// Split-K parts of a weight gradient.
    WgradSplitK,
    /// Gradients of the microbatches of one step.
    MicrobatchAccumulation,
    /// Blocks of keys added into the gradient of a query.
    AttentionGrad,
    /// Token contributions to the gradient of a linear layer's bias.
    BiasGrad,
    /// The embedding's gradient over the first and the last stage, which share one matrix.
    SharedEmbedding,
    /// Gradient shards over the instances of the distributed optimizer.
    OptimizerInstances,
}

/// A name that many commands share: copying it copies no text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Arc<str>);

impl Name {
    /// Whether the two are one text in memory; equal texts need not be.
    pub(crate) fn is_same(&self, other: &Name) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn shared(&self) -> Arc<str> {
        self.0.clone()
    }
}

impl From<&str> for Name {
    fn from(text: &str) -> Name {
        Name(text.into())
    }
}

impl From<String> for Name {
    fn from(text: String) -> Name {
        Name(text.into())
    }
}

impl Deref for Name {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for Name {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, text: &str) -> bool {
        *self.0 == *text
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, text: &&str) -> bool {
        *self.0 == **text
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl serde::Serialize for Name {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// Where a node stands. The module is a dotted path, the op the name of one step in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Site {
    pub step: u32,
    pub microbatch: Option<u32>,
    pub phase: Phase,
    pub module: Name,
    pub op: Name,
}

impl Site {
    /// What faults call the node: `module.op`.
    pub fn node(&self) -> String {
        match &*self.module {
            "" => self.op.to_string(),
            module => format!("{module}.{}", self.op),
        }
    }
}

impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "step {}", self.step)?;
        if let Some(microbatch) = self.microbatch {
            write!(f, ", microbatch {microbatch}")?;
        }
        let phase = self.phase.name();
        write!(f, ", {phase}, {}, {}", self.module, self.op)
    }
}
