//! The sizes of a job's parallel axes.

/// Ranks of the largest job that is accepted.
const MAX_WORLD: u32 = 65_536;

/// Parallel sizes, under Megatron-LM's names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    pub world: u32,
    pub tensor_model_parallel_size: u32,
    pub pipeline_model_parallel_size: u32,
    /// Chunks of the interleaved schedule. It changes no group.
    pub virtual_pipeline_model_parallel_size: Option<u32>,
    pub context_parallel_size: u32,
    /// Sizes of the levels of hierarchical context parallelism, innermost first.
    pub hierarchical_context_parallel_sizes: Vec<u32>,
    pub hybrid_context_parallel: bool,
    pub expert_model_parallel_size: u32,
    /// `None`: that of the dense layers.
    pub expert_tensor_parallel_size: Option<u32>,
    pub num_distributed_optimizer_instances: u32,
    /// Axes joined by `-`, the one whose ranks are neighbours first. `use_tp_pp_dp_mapping` means
    /// `tp-cp-ep-pp-dp`.
    pub order: String,
}

impl Layout {
    /// `world` data-parallel ranks in Megatron's default order.
    pub fn data_parallel(world: u32) -> Layout {
        Layout {
            world,
            tensor_model_parallel_size: 1,
            pipeline_model_parallel_size: 1,
            virtual_pipeline_model_parallel_size: None,
            context_parallel_size: 1,
            hierarchical_context_parallel_sizes: Vec::new(),
            hybrid_context_parallel: false,
            expert_model_parallel_size: 1,
            expert_tensor_parallel_size: None,
            num_distributed_optimizer_instances: 1,
            order: "tp-cp-ep-dp-pp".to_owned(),
        }
    }
}

/// Why Megatron would refuse a layout (megatron-core 0.19.2, `parallel_state.py`), or why we do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LayoutError {
    #[error("{argument} must be at least 1")]
    Zero { argument: &'static str },
    #[error("a world of {world} ranks: at most {MAX_WORLD} are supported")]
    TooManyRanks { world: u32 },
    #[error("a world of {world} ranks is not divisible by tp {tp} x pp {pp} x cp {cp}")]
    WorldNotDivisible {
        world: u32,
        tp: u32,
        pp: u32,
        cp: u32,
    },
    #[error("a world of {world} ranks is not divisible by etp {etp} x ep {ep} x pp {pp}")]
    WorldNotDivisibleByExperts {
        world: u32,
        etp: u32,
        ep: u32,
        pp: u32,
    },
    #[error("an interleaved schedule needs a pipeline_model_parallel_size of at least 2")]
    InterleavedWithoutPipeline,
    #[error("hierarchical_context_parallel_sizes multiply to {product}, not to cp {cp}")]
    HierarchicalSizes { product: u64, cp: u32 },
    #[error("order `{order}`: unknown axis `{axis}`, expected tp, cp, ep, dp or pp")]
    UnknownAxis { order: String, axis: String },
    #[error("order `{order}` names `{axis}` twice")]
    RepeatedAxis { order: String, axis: String },
    #[error("order `{order}` leaves out `{axis}`")]
    MissingAxis { order: String, axis: &'static str },
    #[error("order `{order}` does not end in pp: dp {dp} and expert dp {expert_dp} must be equal")]
    PipelineNotLast {
        order: String,
        dp: u32,
        expert_dp: u32,
    },
    #[error("order `{order}` gives dense and expert layers different pipeline groups")]
    PipelineGroupsDiffer { order: String },
    #[error("num_distributed_optimizer_instances = {instances} does not divide dp x cp = {dp_cp}")]
    Instances { instances: u32, dp_cp: u32 },
    #[error(
        "num_distributed_optimizer_instances = {instances} does not divide expert dp {expert_dp}"
    )]
    ExpertInstances { instances: u32, expert_dp: u32 },
    #[error("hybrid context parallelism needs an even dp x cp, not {dp_cp}")]
    OddHybridGroup { dp_cp: u32 },
}

/// The checked sizes of all axes.
pub(super) struct Sizes {
    pub tp: u32,
    pub cp: u32,
    pub dp: u32,
    pub pp: u32,
    pub ep: u32,
    pub expert_tp: u32,
    pub expert_dp: u32,
}

impl Layout {
    pub(super) fn sizes(&self) -> Result<Sizes, LayoutError> {
        self.check_numbers()?;
        let world = self.world;
        let (tp, pp) = (
            self.tensor_model_parallel_size,
            self.pipeline_model_parallel_size,
        );
        let (cp, ep) = (self.context_parallel_size, self.expert_model_parallel_size);
        let etp = self.expert_tensor_parallel_size.unwrap_or(tp);
        let share = |parts: [u32; 3]| {
            let parts: u128 = parts.iter().map(|part| u128::from(*part)).product();
            (u128::from(world) % parts == 0).then(|| (u128::from(world) / parts) as u32)
        };
        let dp = share([tp, pp, cp]).ok_or(LayoutError::WorldNotDivisible { world, tp, pp, cp })?;
        let expert_dp = share([etp, ep, pp]).ok_or(LayoutError::WorldNotDivisibleByExperts {
            world,
            etp,
            ep,
            pp,
        })?;
        if self.virtual_pipeline_model_parallel_size.is_some() && pp < 2 {
            return Err(LayoutError::InterleavedWithoutPipeline);
        }
        let levels = &self.hierarchical_context_parallel_sizes;
        let product = levels
            .iter()
            .fold(1u64, |all, size| all.saturating_mul(u64::from(*size)));
        if !levels.is_empty() && product != u64::from(cp) {
            return Err(LayoutError::HierarchicalSizes { product, cp });
        }
        let instances = self.num_distributed_optimizer_instances;
        if !(dp * cp).is_multiple_of(instances) {
            return Err(LayoutError::Instances {
                instances,
                dp_cp: dp * cp,
            });
        }
        if !expert_dp.is_multiple_of(instances) {
            return Err(LayoutError::ExpertInstances {
                instances,
                expert_dp,
            });
        }
        if self.hybrid_context_parallel && !(dp * cp).is_multiple_of(2) {
            return Err(LayoutError::OddHybridGroup { dp_cp: dp * cp });
        }
        // Megatron looks at the order as it was written: `...-PP` does not end in pp for it.
        if !self.order.ends_with("pp") && dp != expert_dp {
            let order = self.order.clone();
            return Err(LayoutError::PipelineNotLast {
                order,
                dp,
                expert_dp,
            });
        }
        Ok(Sizes {
            tp,
            cp,
            dp,
            pp,
            ep,
            expert_tp: etp,
            expert_dp,
        })
    }

    fn check_numbers(&self) -> Result<(), LayoutError> {
        let numbers = [
            ("world", self.world),
            (
                "tensor_model_parallel_size",
                self.tensor_model_parallel_size,
            ),
            (
                "pipeline_model_parallel_size",
                self.pipeline_model_parallel_size,
            ),
            (
                "virtual_pipeline_model_parallel_size",
                self.virtual_pipeline_model_parallel_size.unwrap_or(1),
            ),
            ("context_parallel_size", self.context_parallel_size),
            (
                "expert_model_parallel_size",
                self.expert_model_parallel_size,
            ),
            (
                "expert_tensor_parallel_size",
                self.expert_tensor_parallel_size.unwrap_or(1),
            ),
            (
                "num_distributed_optimizer_instances",
                self.num_distributed_optimizer_instances,
            ),
        ];
        if let Some((argument, _)) = numbers.into_iter().find(|(_, number)| *number == 0) {
            return Err(LayoutError::Zero { argument });
        }
        if self.world > MAX_WORLD {
            return Err(LayoutError::TooManyRanks { world: self.world });
        }
        Ok(())
    }
}
