//! Which named faults found their place, and which places there are.

use std::collections::{BTreeMap, BTreeSet};

use crate::fault::{Fault, FaultKind};

/// A place that a named fault can strike.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FaultHost {
    /// The ranks that have it.
    pub ranks: BTreeSet<u32>,
    /// How often one rank comes by it in a step, at most.
    pub times_in_step: u32,
    now: (u32, u32, u32),
}

impl FaultHost {
    fn seen(&mut self, rank: u32, step: u32) {
        self.ranks.insert(rank);
        let times = match self.now {
            (at, of, times) if (at, of) == (rank, step) => times + 1,
            _ => 1,
        };
        self.now = (rank, step, times);
        self.times_in_step = self.times_in_step.max(times);
    }
}

/// What a run's named faults met.
#[derive(Debug, Default)]
pub(super) struct FaultLog {
    /// Places are listed, not only looked up.
    pub lists: bool,
    pub met: BTreeMap<Fault, u64>,
    pub hosts: BTreeMap<(FaultKind, String), FaultHost>,
}

impl FaultLog {
    pub fn new(lists: bool) -> FaultLog {
        FaultLog {
            lists,
            ..FaultLog::default()
        }
    }

    /// `rank` has come by a place of this kind and name.
    pub fn seen(&mut self, kind: FaultKind, name: &str, rank: u32, step: u32) {
        if !self.lists {
            return;
        }
        let key = (kind, name.to_string());
        self.hosts.entry(key).or_default().seen(rank, step);
    }

    pub fn met(&mut self, fault: &Fault) {
        *self.met.entry(fault.clone()).or_insert(0) += 1;
    }
}
