//! Where in the training program a node stands: the vocabulary of every report.

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

/// What kind of reduction a fold is, so that a report can say which families could have differed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// Gradients over data-parallel ranks.
    DpGradients,
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
    /// Token losses inside one rank.
    LossLocal,
    /// Loss over data-parallel ranks.
    LossMean,
    /// Token rows added into one row of the embedding gradient.
    EmbeddingGrad,
    /// Token contributions to a norm-weight gradient.
    NormWeightGrad,
    /// Split-K parts of a weight gradient.
    WgradSplitK,
    /// Gradients of the microbatches of one step.
    MicrobatchAccumulation,
}

/// Where a node stands. The module is a dotted path, the op the name of one step in it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
pub struct Site {
    pub step: u32,
    pub microbatch: Option<u32>,
    pub phase: Phase,
    pub module: String,
    pub op: String,
}

impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "step {}", self.step)?;
        if let Some(microbatch) = self.microbatch {
            write!(f, ", microbatch {microbatch}")?;
        }
        let phase = match self.phase {
            Phase::Setup => "setup",
            Phase::Data => "data",
            Phase::Forward => "forward",
            Phase::Loss => "loss",
            Phase::Backward => "backward",
            Phase::GradReduce => "grad-reduce",
            Phase::Optimizer => "optimizer",
            Phase::Checkpoint => "checkpoint",
        };
        write!(f, ", {phase}, {}, {}", self.module, self.op)
    }
}
