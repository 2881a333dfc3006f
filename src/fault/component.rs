//! The parts of the training state that a checkpoint holds, and may lack.

use serde::{Deserialize, Serialize};

/// A part of the training state, as checkpoints name them.
///
/// The same parts as in Megatron-LM's `generate_state_dict` (`megatron/training/checkpointing.py`):
/// `model`, `optimizer` with its `param`, `exp_avg`, `exp_avg_sq` and `step`, `opt_param_scheduler`
/// (of which `num_steps` varies), `rng_state`, and the consumed samples in `args`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Component {
    /// Parameters as the model computes with them.
    Model,
    /// fp32 main parameters.
    MainParams,
    ExpAvg,
    ExpAvgSq,
    /// Optimizer step counter.
    OptimizerStep,
    /// The loss scale, and what it follows.
    LossScaler,
    /// Samples that the learning-rate scheduler has seen.
    Scheduler,
    /// Samples consumed: the data position.
    DataPosition,
    /// RNG seed and offset.
    Rng,
}

impl Component {
    pub const ALL: [Component; 9] = [
        Component::Model,
        Component::MainParams,
        Component::ExpAvg,
        Component::ExpAvgSq,
        Component::OptimizerStep,
        Component::LossScaler,
        Component::Scheduler,
        Component::DataPosition,
        Component::Rng,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Component::Model => "model",
            Component::MainParams => "main-params",
            Component::ExpAvg => "exp-avg",
            Component::ExpAvgSq => "exp-avg-sq",
            Component::OptimizerStep => "optimizer-step",
            Component::LossScaler => "loss-scaler",
            Component::Scheduler => "scheduler",
            Component::DataPosition => "data-position",
            Component::Rng => "rng",
        }
    }
}

impl std::fmt::Display for Component {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_serialised_form() {
        for component in Component::ALL {
            let json = serde_json::to_string(&component).unwrap();
            assert_eq!(json, format!("\"{component}\""));
        }
    }
}
