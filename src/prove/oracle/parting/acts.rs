//! Where in a step a difference between two layouts acts, and what it can therefore part.
//!
//! A step is a graph: forward, its losses and their mean, backward and the reduction of gradients,
//! their norm, the optimizer. A difference acts at a node of it and can part what lies behind that
//! node, never what lies before it or beside it.

use std::collections::BTreeSet;

use crate::world::{Family, Phase};

/// The first node of a step that a difference between layouts can part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Acts {
    /// None of its own: it explains other differences.
    Nowhere,
    /// Activations, and with them all that follows.
    Forward,
    /// The mean that is printed; nothing is computed from it.
    LossValue,
    /// The gradients of these parameters.
    Gradients(Parameters),
    /// The norm of all gradients, and what is clipped by it.
    Norm,
}

/// Parameters of the whole model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parameters {
    All,
    Listed(BTreeSet<String>),
    WordEmbedding,
    PositionEmbedding,
    Norms,
    Biases,
    /// What is summed over tensor-parallel ranks under sequence parallelism: norms, and biases of
    /// row-parallel linears.
    SequenceParallel,
}

impl Parameters {
    /// Whether the whole model's tensor `name` is among them. Names are Megatron-LM's.
    pub fn hold(&self, name: &str) -> bool {
        let is_norm = name.contains("layernorm");
        let is_bias = name.ends_with(".bias");
        match self {
            Parameters::All => true,
            Parameters::Listed(names) => names.contains(name),
            Parameters::WordEmbedding => name == "embedding.word_embeddings.weight",
            Parameters::PositionEmbedding => name == "embedding.position_embeddings.weight",
            Parameters::Norms => is_norm,
            Parameters::Biases => is_bias,
            Parameters::SequenceParallel => is_norm || is_bias,
        }
    }
}

impl Acts {
    /// Where another sum of this family in this phase acts.
    pub fn of(phase: Phase, family: Family) -> Acts {
        let is_forward = matches!(phase, Phase::Forward | Phase::Loss);
        let gradients = match family {
            Family::LossLocal | Family::LossMean => return Acts::LossValue,
            Family::NormLocal | Family::NormGlobal => return Acts::Norm,
            // A flag, whose maximum no order changes.
            Family::FoundInf => return Acts::Nowhere,
            Family::TensorParallel | Family::VocabCrossEntropy if is_forward => {
                return Acts::Forward;
            }
            // Backward hands them on from layer to layer.
            Family::TensorParallel | Family::VocabCrossEntropy | Family::AttentionGrad => {
                Parameters::All
            }
            Family::DpGradients
            | Family::FirstBuckets
            | Family::OptimizerInstances
            | Family::MicrobatchAccumulation
            | Family::WgradSplitK => Parameters::All,
            Family::NormWeightTp => Parameters::SequenceParallel,
            Family::NormWeightGrad => Parameters::Norms,
            Family::BiasGrad => Parameters::Biases,
            Family::EmbeddingGrad | Family::SharedEmbedding => Parameters::WordEmbedding,
            Family::PositionGrad => Parameters::PositionEmbedding,
        };
        Acts::Gradients(gradients)
    }

    pub fn reach_forward(&self) -> bool {
        *self == Acts::Forward
    }

    pub fn reach_loss_value(&self) -> bool {
        matches!(self, Acts::Forward | Acts::LossValue)
    }

    pub fn reach_norm(&self) -> bool {
        matches!(self, Acts::Forward | Acts::Gradients(_) | Acts::Norm)
    }

    /// The gradient of `parameter`, as it leaves the reduction.
    pub fn reach_gradient(&self, parameter: &str) -> bool {
        match self {
            Acts::Forward => true,
            Acts::Gradients(parameters) => parameters.hold(parameter),
            Acts::Nowhere | Acts::LossValue | Acts::Norm => false,
        }
    }

    /// Whether a run's state after the step can part by it.
    pub fn reach_state(&self, clips: bool) -> bool {
        match self {
            Acts::Forward | Acts::Gradients(_) => true,
            Acts::Norm => clips,
            Acts::Nowhere | Acts::LossValue => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_reaches_what_lies_behind_it_only() {
        let forward = Acts::of(Phase::Forward, Family::TensorParallel);
        assert!(forward.reach_forward() && forward.reach_gradient("x") && forward.reach_norm());
        let backward = Acts::of(Phase::Backward, Family::TensorParallel);
        assert!(!backward.reach_forward() && !backward.reach_loss_value());
        assert!(backward.reach_gradient("x") && backward.reach_state(false));
        let mean = Acts::of(Phase::Loss, Family::LossMean);
        assert!(mean.reach_loss_value() && !mean.reach_forward());
        assert!(!mean.reach_norm() && !mean.reach_state(true));
        let norm = Acts::of(Phase::Optimizer, Family::NormLocal);
        assert!(norm.reach_state(true) && !norm.reach_state(false) && !norm.reach_gradient("x"));
        assert!(!Acts::Nowhere.reach_loss_value() && !Acts::Nowhere.reach_state(true));
    }

    #[test]
    fn a_gradient_reason_reaches_its_parameters_only() {
        let norms = Acts::of(Phase::Backward, Family::NormWeightGrad);
        assert!(norms.reach_gradient("decoder.layers.0.input_layernorm.weight"));
        assert!(!norms.reach_gradient("decoder.layers.0.self_attention.linear_qkv.weight"));
        let shared = Acts::of(Phase::GradReduce, Family::SharedEmbedding);
        assert!(shared.reach_gradient("embedding.word_embeddings.weight"));
        assert!(!shared.reach_gradient("embedding.position_embeddings.weight"));
        let biases = Acts::of(Phase::Backward, Family::BiasGrad);
        assert!(biases.reach_gradient("decoder.layers.1.mlp.linear_fc1.bias"));
        assert!(!biases.reach_gradient("decoder.layers.1.mlp.linear_fc1.weight"));
    }
}
