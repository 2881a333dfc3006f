//! The plans of a scenario's collectives: one selector an allocation.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::plan::{
    Backend, Carrier, Collective, Combine, Environment, Plan, Reduction, Request, Selector,
    arranged, scaled_together,
};
use crate::prove::twins::Twins;
use crate::topology::Allocation;
use crate::train::TorchBuckets;
use crate::world::command::CollectiveKind;
use crate::world::{CollectiveShape, Communicator, Family, PlanSource};

/// Plans by allocation; value k of the placement variable is allocation k.
pub struct AllocationPlans {
    selectors: Vec<Selector>,
    communicators: Arc<[Communicator]>,
    /// The buffers that the scenario's stand for; `None`: they stand for themselves.
    twins: Option<Twins>,
    backend: Backend,
    /// What gradients travel in, where torch's DDP reduces them.
    torch: Option<TorchBuckets>,
    /// Their plans, of a process's first step or of later ones.
    in_buckets: Mutex<BTreeMap<(u32, bool), Arc<[Arc<Plan>]>>>,
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
            backend: Backend::Nccl,
            torch: None,
            in_buckets: Mutex::default(),
            scaled: Mutex::default(),
        }
    }

    /// Collectives of another library; gradients in the buckets of torch's DDP.
    pub fn of_torch(mut self, backend: Backend, buckets: Option<TorchBuckets>) -> Self {
        assert!(buckets.is_none() || self.twins.is_none(), "own sizes");
        (self.backend, self.torch) = (backend, buckets);
        self
    }

    /// The plans of all gradients at once, each element's that of its place in its bucket.
    fn in_buckets(
        &self,
        shape: CollectiveShape,
        buckets: &TorchBuckets,
        is_first: bool,
    ) -> Result<Arc<[Arc<Plan>]>, String> {
        // A thread that panicked in here left at worst an entry out: the memory stays usable.
        let mut known = self
            .in_buckets
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some(plans) = known.get(&(shape.group.0, is_first)) {
            return Ok(plans.clone());
        }
        let mut carriers: Vec<Vec<Carrier>> = vec![Vec::new(); self.selectors.len()];
        for bucket in buckets.in_step(is_first) {
            let elements = bucket.iter().map(|range| range.end - range.start).sum();
            let plans = self.of_elements(shape, elements)?;
            for (list, plan) in carriers.iter_mut().zip(plans) {
                list.push((plan, bucket.clone()));
            }
        }
        let plan = |list: &Vec<Carrier>| Arc::new(arranged(list, shape.elements));
        let plans: Arc<[Arc<Plan>]> = carriers.iter().map(plan).collect();
        known.insert((shape.group.0, is_first), plans.clone());
        Ok(plans)
    }

    /// The plans of a buffer of `elements`, one an allocation.
    fn of_elements(&self, shape: CollectiveShape, elements: u64) -> Result<Vec<Arc<Plan>>, String> {
        let (collective, combine) = match shape.kind {
            CollectiveKind::AllReduce { combine, .. } => (Collective::AllReduce, combine),
            CollectiveKind::ReduceScatter { .. } => (Collective::ReduceScatter, Combine::Sum),
            other => return Err(format!("{} adds nothing", other.name())),
        };
        let request = Request {
            backend: self.backend,
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
        if let (Some(buckets), CollectiveKind::AllReduce { family, .. }) = (&self.torch, shape.kind)
            && let Family::DpGradients | Family::FirstBuckets = family
        {
            return self.in_buckets(shape, buckets, family == Family::FirstBuckets);
        }
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
