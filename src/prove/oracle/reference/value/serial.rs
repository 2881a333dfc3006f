//! The serial model: the same recipe on one rank, which trains every microbatch of the global
//! batch in order, by the same kernels on the same engine. It starts each step from the whole
//! tensors that the parallel run has.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::watch::ValueWatch;
use crate::fault::Component;
use crate::numerics::Dtype;
use crate::prove::oracle::parting;
use crate::prove::session::{CheckError, Session};
use crate::recipe::{CudaGraphImpl, DataParallelKind, DistributedBackend, Recipe};
use crate::scenario::{CheckpointPlan, Faults, Scenario};
use crate::train::{CanonicalError, CanonicalState, Checkpoint, GivenGradients, TrainOptions};
use crate::world::{RunOptions, State, StateTensor};

/// Why no serial model is what the ranks are.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoModel {
    #[error("{0}")]
    State(CanonicalError),
    #[error(
        "the gradient of `{name}` differs between ranks {} and {} in element {element}",
        ranks.0, ranks.1
    )]
    Gradient {
        name: String,
        ranks: (u32, u32),
        element: u64,
    },
    #[error("the optimizer of rank {rank} takes no gradients: `optimizer.adamw` never runs")]
    NoUpdate { rank: u32 },
    #[error("tensor-parallel rank {tensor} of a last stage has no token losses")]
    NoLosses { tensor: u32 },
}

/// Values by parameter, in the order in which a backward makes them.
pub(super) type Named<T> = Vec<(String, Vec<T>)>;

/// What one serial step computes on its way.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SerialStep {
    /// By sample and token of the global batch.
    pub losses: Vec<f32>,
    pub gradients: Named<f32>,
    /// Sums over microbatches of the magnitudes of what they add.
    pub magnitudes: Named<f64>,
}

/// The same step, from the optimizer on.
pub(super) struct SerialUpdate {
    pub after: CanonicalState,
    pub norm: f32,
    pub coefficient: f32,
}

/// The model in one precision.
pub(super) struct Serial {
    session: Session,
}

impl Serial {
    /// # Errors
    /// A step that one rank cannot take: it is too large.
    pub fn new(parallel: &Session, bf16: bool) -> Result<Serial, CheckError> {
        let scenario = Scenario {
            recipe: Recipe {
                bf16,
                ..recipe(&parallel.scenario.recipe)
            },
            allocations: Vec::new(),
            free: Default::default(),
            checkpoint: CheckpointPlan {
                omit: Default::default(),
                restarts: Vec::new(),
                reshard: Vec::new(),
                polls: false,
            },
            topo: Vec::new(),
            faults: Faults::default(),
            full_size: None,
            imported: None,
            ..parallel.scenario.clone()
        };
        let session = parallel.changed(scenario)?;
        Ok(Serial { session })
    }

    pub fn options(&self) -> &TrainOptions {
        &self.session.options
    }

    fn dtype(&self) -> Dtype {
        self.options().model.params_dtype
    }

    /// Step `step` from the state before it.
    ///
    /// # Errors
    /// A state of another model, or whatever stops the run.
    pub fn step(&mut self, before: &CanonicalState, step: u32) -> Result<SerialStep, CheckError> {
        let before = before.with_model_in(self.dtype());
        let parts = before.scatter(self.options()).map_err(no_state)?;
        let mut watch = ValueWatch::of_serial();
        let steps = step..step + 1;
        let options = RunOptions::default();
        self.session
            .run(&options, steps, Some(Arc::new(parts)), &mut watch)?;
        let flat = watch.gradients.remove(&(step, 0)).ok_or_else(no_step)?;
        let flat = floats(flat);
        let losses = parting::by_sample((self.options(), 0), &watch.token_losses, step);
        let losses = losses.ok_or_else(no_step)?;
        let magnitudes = watch.magnitudes.take();
        let magnitudes =
            magnitudes.unwrap_or_else(|| flat.iter().map(|value| f64::from(value.abs())).collect());
        Ok(SerialStep {
            losses: floats(losses),
            gradients: self.named(&flat),
            magnitudes: self.named(&magnitudes),
        })
    }

    /// What the optimizer makes of `gradients`, clipped by `clip`, in step `step`.
    ///
    /// # Errors
    /// As [`Serial::step`].
    pub fn update(
        &mut self,
        before: &CanonicalState,
        gradients: &CanonicalState,
        (step, clip): (u32, [u32; 2]),
    ) -> Result<SerialUpdate, CheckError> {
        let parts = before.scatter(self.options()).map_err(no_state)?;
        let flat = gradients.scatter(self.options()).map_err(no_state)?;
        let flat = flat.rank(0).and_then(|rank| rank.get(CARRIER.0, CARRIER.1));
        let flat = flat.expect("gradients were put in").to_vec();
        let given = GivenGradients { step, flat, clip };
        let options = RunOptions {
            checkpoint_after: [step].into(),
            ..RunOptions::default()
        };
        let record = self.session.run_given(&options, parts, given)?;
        let state = record.checkpoints.get(&step).ok_or_else(no_step)?;
        let metric = |name: &str| {
            let value = record.metrics.get(&(step, name.to_string()));
            value.copied().unwrap_or(0.0)
        };
        Ok(SerialUpdate {
            after: whole(self.options(), step, state)
                .map_err(|error| CheckError::Internal(error.to_string()))?,
            norm: metric(GivenGradients::NORM),
            coefficient: metric(GivenGradients::COEFFICIENT),
        })
    }

    fn named<T: Copy>(&self, flat: &[T]) -> Named<T> {
        let places = self.options().flat_places(0).into_iter();
        places
            .map(|place| {
                let words = place.words.start as usize..place.words.end as usize;
                (place.parameter, flat[words].to_vec())
            })
            .collect()
    }

    /// Words of the flat buffers.
    pub fn words(&self) -> u64 {
        let places = self.options().flat_places(0);
        places.last().map_or(0, |place| u64::from(place.words.end))
    }

    /// Columns of a parameter.
    pub fn columns(&self) -> BTreeMap<String, usize> {
        let places = self.options().flat_places(0).into_iter();
        places
            .map(|place| (place.parameter, place.columns as usize))
            .collect()
    }
}

/// What is the recipe's own, without everything that several ranks need.
pub(in crate::prove) fn recipe(parallel: &Recipe) -> Recipe {
    Recipe {
        world_size: 1,
        tensor_model_parallel_size: 1,
        pipeline_model_parallel_size: 1,
        num_virtual_stages_per_pipeline_rank: 1,
        microbatch_group_size_per_virtual_pipeline_stage: 1,
        sequence_parallel: false,
        use_tp_pp_dp_mapping: false,
        accumulate_allreduce_grads_in_fp32: true,
        grad_reduce_in_bf16: false,
        use_distributed_optimizer: false,
        num_distributed_optimizer_instances: 1,
        overlap_grad_reduce: false,
        overlap_param_gather: false,
        ddp_reduce_scatter_with_fp32_accumulation: false,
        ddp_bucket_size: None,
        ddp: DataParallelKind::default(),
        bucket_cap_mb: None,
        find_unused_parameters: false,
        distributed_backend: DistributedBackend::default(),
        recompute_granularity: None,
        recompute_method: None,
        recompute_modules: Vec::new(),
        cpu_offloading_num_layers: 0,
        cpu_offloading_double_buffering: false,
        cuda_graph_impl: CudaGraphImpl::None,
        async_save: false,
        exit_duration_in_mins: None,
        data_parallel_random_init: false,
        num_workers: 0,
        env: BTreeMap::new(),
        ..parallel.clone()
    }
}

/// Gradients are put together as the first moment is, which lies where they do.
pub(super) const CARRIER: (Component, &str) = (Component::ExpAvg, "exp_avg");

/// Gradients of a step as whole tensors, from those that each rank's optimizer read.
pub(super) fn whole_gradients(
    options: &TrainOptions,
    step: u32,
    watch: &ValueWatch,
) -> Result<CanonicalState, NoModel> {
    let mut ranks = 0..options.layout.world_size();
    if let Some(rank) = ranks.find(|rank| !watch.gradients.contains_key(&(step, *rank))) {
        return Err(NoModel::NoUpdate { rank });
    }
    let of_step = watch.gradients.range((step, 0)..=(step, u32::MAX));
    let state: State = of_step
        .map(|((_, rank), words)| {
            let tensor = StateTensor {
                dtype: Dtype::F32,
                words: words.clone(),
            };
            ((*rank, CARRIER.0, CARRIER.1.to_string()), tensor)
        })
        .collect();
    let gathered = whole(options, step, &state);
    gathered.map_err(|error| match error {
        NoModel::State(CanonicalError::Disagree {
            name,
            ranks,
            element,
            ..
        }) => NoModel::Gradient {
            name,
            ranks,
            element,
        },
        error => error,
    })
}

/// The whole tensors of a state, without its generators: those of a serial run are others.
pub(super) fn whole(
    options: &TrainOptions,
    step: u32,
    state: &State,
) -> Result<CanonicalState, NoModel> {
    let checkpoint = Checkpoint::from_state(step, state, &[Component::Rng]);
    CanonicalState::gather(options, &checkpoint).map_err(NoModel::State)
}

pub(super) fn floats(words: Vec<u32>) -> Vec<f32> {
    words.into_iter().map(f32::from_bits).collect()
}

fn no_step() -> CheckError {
    CheckError::Internal("a serial step computed nothing".to_string())
}

fn no_state(error: CanonicalError) -> CheckError {
    CheckError::Internal(format!("a serial model of another kind: {error}"))
}
