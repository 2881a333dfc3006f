//! The plans of a scenario's collectives: one selector an allocation.

use std::sync::Arc;

use crate::plan::{Backend, Collective, Combine, Environment, Plan, Reduction, Request, Selector};
use crate::topology::Allocation;
use crate::world::command::CollectiveKind;
use crate::world::{CollectiveShape, Communicator, PlanSource};

/// Plans by allocation; value k of the placement variable is allocation k.
pub struct AllocationPlans {
    selectors: Vec<Selector>,
    communicators: Arc<[Communicator]>,
}

impl AllocationPlans {
    /// `allocations` are those that may vary: the first is the reference.
    pub fn new(
        allocations: &[Allocation],
        environment: &Environment,
        communicators: Arc<[Communicator]>,
    ) -> Self {
        assert!(!allocations.is_empty(), "a run has an allocation");
        let selectors = allocations
            .iter()
            .map(|allocation| Selector::new(allocation.clone(), environment.clone()))
            .collect();
        AllocationPlans {
            selectors,
            communicators,
        }
    }
}

impl PlanSource for AllocationPlans {
    fn plans(&self, shape: CollectiveShape) -> Result<Arc<[Arc<Plan>]>, String> {
        let (collective, combine) = match shape.kind {
            CollectiveKind::AllReduce { combine, .. } => (Collective::AllReduce, combine),
            CollectiveKind::ReduceScatter { .. } => (Collective::ReduceScatter, Combine::Sum),
            other => return Err(format!("{} adds nothing", other.name())),
        };
        let request = Request {
            backend: Backend::Nccl,
            members: &self.communicators[shape.group.0 as usize].ranks,
            collective,
            dtype: shape.dtype,
            elements: shape.elements,
            reduction: Reduction::from(combine),
        };
        self.selectors
            .iter()
            .map(|selector| selector.plan(&request).map_err(|error| error.to_string()))
            .collect()
    }
}
