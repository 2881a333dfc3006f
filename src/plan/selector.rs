//! From a communicator and an operation to its plan.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use crate::numerics::Dtype;
use crate::plan::Plan;
use crate::plan::build::{self, CarriedOut};
use crate::plan::channels::Communicator;
use crate::plan::request::{Backend, Collective, PlanError, Reduction, Request};
use crate::recipe::nccl::Environment;
use crate::topology::Allocation;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    backend: Backend,
    /// The communicator's number in the order of first use; equal shapes share one.
    communicator: usize,
    collective: Collective,
    dtype: Dtype,
    elements: u64,
    reduction: Reduction,
}

#[derive(Default)]
struct Memory {
    communicators: Vec<Arc<Communicator>>,
    shapes: BTreeMap<Arc<Communicator>, usize>,
    members: BTreeMap<Vec<u32>, usize>,
    plans: BTreeMap<Key, Arc<Plan>>,
}

/// Chooses plans for one allocation and environment, and remembers them.
pub struct Selector {
    allocation: Allocation,
    environment: Environment,
    memory: Mutex<Memory>,
}

impl Selector {
    pub fn new(allocation: Allocation, environment: Environment) -> Selector {
        Selector {
            allocation,
            environment,
            memory: Mutex::default(),
        }
    }

    pub fn allocation(&self) -> &Allocation {
        &self.allocation
    }

    pub fn environment(&self) -> &Environment {
        &self.environment
    }

    /// The plan of one operation. Addends are numbered by group-local rank. A collective that only
    /// copies has a plan with one addend.
    pub fn plan(&self, request: &Request<'_>) -> Result<Arc<Plan>, PlanError> {
        // A thread that panicked in here left at worst an entry out: the memory stays usable.
        let mut memory = self
            .memory
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let number = self.number_of(&mut memory, request.members)?;
        let key = Key {
            backend: request.backend,
            communicator: number,
            collective: request.collective,
            dtype: request.dtype,
            elements: request.elements,
            reduction: request.reduction,
        };
        if let Some(plan) = memory.plans.get(&key) {
            return Ok(plan.clone());
        }
        let communicator = memory.communicators[number].clone();
        let plan = Arc::new(build::build(&self.environment, &communicator, request)?);
        memory.plans.insert(key, plan.clone());
        Ok(plan)
    }

    /// How NCCL carries the operation out; `None` where it is no sum of NCCL's.
    pub fn carried_out(&self, request: &Request<'_>) -> Result<Option<CarriedOut>, PlanError> {
        let communicator = self.communicator(request.members)?;
        build::carried_out(&self.environment, &communicator, request)
    }

    /// The communicator of `members`, shared by all groups of its shape.
    pub fn communicator(&self, members: &[u32]) -> Result<Arc<Communicator>, PlanError> {
        let mut memory = self
            .memory
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner());
        let number = self.number_of(&mut memory, members)?;
        Ok(memory.communicators[number].clone())
    }

    fn number_of(&self, memory: &mut Memory, members: &[u32]) -> Result<usize, PlanError> {
        if let Some(number) = memory.members.get(members) {
            return Ok(*number);
        }
        self.check_members(members)?;
        let communicator = Arc::new(Communicator::new(&self.allocation, members));
        let number = match memory.shapes.get(&communicator) {
            Some(number) => *number,
            None => {
                memory.communicators.push(communicator.clone());
                let number = memory.communicators.len() - 1;
                memory.shapes.insert(communicator, number);
                number
            }
        };
        memory.members.insert(members.to_vec(), number);
        Ok(number)
    }

    fn check_members(&self, members: &[u32]) -> Result<(), PlanError> {
        if members.is_empty() {
            return Err(PlanError::NoRanks);
        }
        let world = self.allocation.placement.world();
        let mut seen = BTreeSet::new();
        for rank in members.iter().copied() {
            if rank >= world {
                let allocation = self.allocation.name.clone();
                return Err(PlanError::NotPlaced {
                    rank,
                    allocation,
                    world,
                });
            }
            if !seen.insert(rank) {
                return Err(PlanError::Twice { rank });
            }
        }
        Ok(())
    }
}
