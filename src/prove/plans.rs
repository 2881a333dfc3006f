//! The plans of a scenario's collectives: one selector an allocation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::plan::{
    Backend, Collective, Combine, Environment, Plan, Reduction, Request, Selector, scaled_together,
};
use crate::prove::twins::Twins;
use crate::topology::Allocation;
use crate::world::command::CollectiveKind;
use crate::world::{CollectiveShape, Communicator, PlanSource};

/// Plans by allocation; value k of the placement variable is allocation k.
pub struct AllocationPlans {
    selectors: Vec<Selector>,
    communicators: Arc<[Communicator]>,
    /// The buffers that the scenario's stand for; `None`: they stand for themselves.
    twins: Option<Twins>,
    /// Plans of small buffers that stand for large ones.
    scaled: Mutex<BTreeMap<ScaledKey, Scaled>>,
}

/// Addresses of the full-size plans, and elements of the small buffer: communicators of one shape
/// share plans.
type ScaledKey = (Vec<usize>, u64);

struct Scaled {
    plans: Arc<[Arc<Plan>]>,
    /// Kept alive, so that no other plan gets their addresses.
    _full: Vec<Vec<Arc<Plan>>>,
}

impl AllocationPlans {
    /// `allocations` are those that may vary: the first is the reference.
    pub fn new(
        allocations: &[Allocation],
        environment: &Environment,
        communicators: Arc<[Communicator]>,
        twins: Option<Twins>,
    ) -> Self {
        assert!(!allocations.is_empty(), "a run has an allocation");
        let selectors = allocations
            .iter()
            .map(|allocation| Selector::new(allocation.clone(), environment.clone()))
            .collect();
        AllocationPlans {
            selectors,
            communicators,
            twins,
            scaled: Mutex::default(),
        }
    }

    /// The plans of a buffer of `elements`, one an allocation.
    fn of_elements(&self, shape: CollectiveShape, elements: u64) -> Result<Vec<Arc<Plan>>, String> {
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
            elements,
            reduction: Reduction::from(combine),
        };
        let plans = self.selectors.iter().map(|selector| {
            let plan = selector.plan(&request);
            plan.map_err(|error| error.to_string())
        });
        plans.collect()
    }

    /// The plans of full-size buffers, on a small one.
    fn scaled(&self, full: Vec<Vec<Arc<Plan>>>, elements: u64) -> Result<Arc<[Arc<Plan>]>, String> {
        let addresses = full.iter().flatten();
        let key = (
            addresses.map(|plan| Arc::as_ptr(plan) as usize).collect(),
            elements,
        );
        // A thread that panicked in here left at worst an entry out: the memory stays usable.
        let mut known = self
            .scaled
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(scaled) = known.get(&key) {
            return Ok(scaled.plans.clone());
        }
        let borrowed: Vec<Vec<&Plan>> = full
            .iter()
            .map(|plans| plans.iter().map(|plan| &**plan).collect())
            .collect();
        let twins: Vec<&[&Plan]> = borrowed.iter().map(|plans| &plans[..]).collect();
        let plans = scaled_together(&twins, elements).map_err(|error| {
            format!("{error}: a larger buffer is needed to stand for the full-size one")
        })?;
        let plans: Arc<[Arc<Plan>]> = plans.into_iter().map(Arc::new).collect();
        let scaled = Scaled {
            plans: plans.clone(),
            _full: full,
        };
        known.insert(key, scaled);
        Ok(plans)
    }
}

impl PlanSource for AllocationPlans {
    fn plans(&self, shape: CollectiveShape) -> Result<Arc<[Arc<Plan>]>, String> {
        let own = [shape.elements];
        let twins = match &self.twins {
            None => own.to_vec(),
            Some(twins) => twins.of_shape(shape),
        };
        if twins == own {
            return Ok(self.of_elements(shape, shape.elements)?.into());
        }
        let full = twins
            .into_iter()
            .map(|elements| self.of_elements(shape, elements))
            .collect::<Result<_, String>>()?;
        self.scaled(full, shape.elements)
    }
}
